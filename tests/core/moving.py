"""Random small clusters in which something waits though enough is free, and a judge that tries all ways to move pods for it.

The judge knows nodes, devices and who may move, not the scheduler: by trying everything it finds how few pods must move.
"""

from __future__ import annotations

import random
from itertools import combinations

import msgspec

from fairlead.core import invariants
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.state.cluster import ClusterState
from tests.builders import cluster, confirm, group, node, pod, run

LATE = 1000.0
KINDS = ("whole", "fractions", "unlike", "elastic", "gangs")
Item = tuple[int, int]
"""(devices, milli of each) that a pod asks for."""

_SIZES: dict[str, list[Item]] = {
    "whole": [(1, 1000), (1, 1000), (2, 1000), (3, 1000)],
    "fractions": [(1, 500), (1, 500), (1, 300), (1, 700), (1, 200), (1, 1000)],
    "unlike": [(1, 1000), (1, 1000), (1, 500), (1, 300), (2, 1000)],
    "elastic": [(1, 1000), (2, 1000)],
    "gangs": [(1, 1000), (2, 1000)],
}
_WANTED: dict[str, list[list[Item]]] = {
    "whole": [[(2, 1000)], [(3, 1000)], [(4, 1000)], [(2, 1000)] * 2, [(2, 1000)] * 3, [(3, 1000)] * 2],
    "fractions": [[(1, 700)], [(1, 800)], [(1, 1000)], [(2, 1000)], [(1, 500)] * 2, [(1, 700)] * 2, [(1, 1000), (1, 500)]],
    "unlike": [[(1, 300), (2, 1000)], [(1, 1000), (2, 1000), (2, 1000)], [(1, 500), (1, 1000), (1, 1000)], [(1, 300), (3, 1000)]],
    "elastic": [[(2, 1000)], [(3, 1000)], [(4, 1000)], [(1, 1000), (3, 1000)]],
    "gangs": [[(3, 1000)], [(4, 1000)], [(2, 1000)] * 2],
}


class World:
    """A cluster of one queue in which a unit waits; `blocks` are the pods that only move together."""

    def __init__(self, kind: str, seed: int, reservations: int = 0, fullest: float = 0.85) -> None:
        rnd = random.Random(f"{kind} {seed}")
        self.gpus = rnd.choice([2, 3]) if kind == "fractions" else 4
        count = rnd.randint(1 if kind == "fractions" else 2, 4)
        self.state = cluster([node(f"n{i}", gpus=self.gpus) for i in range(count)], [Queue("q")], reservations=reservations)
        self.state.upsert_class(ServiceClass("stays", movable=False))
        self.state.upsert_class(ServiceClass("whole", moves_whole=True, checkpoint_interval=900.0))
        self.devices = [[1000] * self.gpus for _ in range(count)]
        self._fill(kind, rnd, fullest)
        self.wanted = rnd.choice(_WANTED[kind])
        if len(self.wanted) > 1:
            self.state.upsert_group(group("g", len(self.wanted), "q"))
        for i, (gpus, milli) in enumerate(self.wanted):
            gang = "g" if len(self.wanted) > 1 else ""
            self.state.upsert_pod(pod(f"unit-{i}", "q", gpus=gpus, milli=milli, group=gang))
        self.blocks: list[list[str]] = []
        self._who_moves()

    def _fill(self, kind: str, rnd: random.Random, fullest: float) -> None:
        sizes = _SIZES[kind]
        load = rnd.uniform(fullest - 0.45, fullest) * 1000 * self.gpus * len(self.devices)
        number, gangs = 0, 0
        while load > 0 and any(self._fits(free, size) for free in self.devices for size in sizes):
            gang, members, service = "", 1, rnd.choice(["", "", "", "stays"])
            if kind in ("elastic", "gangs") and rnd.random() < 0.7:
                gangs += 1
                gang, members, service = f"e{gangs}", rnd.randint(2, 3), ""
                least = rnd.randint(1, members) if kind == "elastic" else members
                if kind == "gangs":
                    service = rnd.choice(["whole", "whole", ""])
                self.state.upsert_group(group(gang, least, "q"))
            size = rnd.choice(sizes)
            for _ in range(members):
                rows = [i for i in range(len(self.devices)) if self._fits(self.devices[i], size)]
                if not rows:
                    break
                row = rnd.choice(rows)
                self.state.upsert_pod(
                    pod(
                        f"p{number}",
                        "q",
                        gpus=size[0],
                        milli=size[1],
                        at=f"n{row}",
                        started=0.0,
                        group=gang,
                        service_class=service,
                        created=float(number),
                    )
                )
                task = self.state.tasks[f"uid-p{number}"]
                for device in task.devices:
                    self.devices[row][device] -= size[1]
                number += 1
                load -= size[0] * size[1]
            if gang and len(self.state.gangs[f"ns/{gang}"].tasks) < self.state.gangs[f"ns/{gang}"].min_member:
                self.state.upsert_group(group(gang, max(1, len(self.state.gangs[f"ns/{gang}"].tasks)), "q"))

    @staticmethod
    def _fits(free: list[int], size: Item) -> bool:
        return sum(each >= size[1] for each in free) >= size[0]

    def _who_moves(self) -> None:
        for key, gang in self.state.gangs.items():
            members = sorted(gang.tasks.values(), key=lambda task: task.pod.created)
            if not members or members[0].row < 0:
                continue
            spare = members[gang.min_member :] if gang.group is not None else []
            self.blocks += [[task.pod.uid] for task in spare]
            if members[0].service_class == "whole" and not spare:
                self.blocks.append([task.pod.uid for task in members])
            assert key
        for uid, task in self.state.tasks.items():
            if task.row >= 0 and task.gang is None and task.service_class != "stays":
                self.blocks.append([uid])

    def least(self, most: int) -> int | None:
        """By trying all: how few blocks must move so that the unit fits and all have a place; None: more than so many."""
        items = sorted(self.wanted, key=lambda size: -size[0] * size[1])
        free = [sorted(each) for each in self.devices]
        for count in range(most + 1):
            for chosen in combinations(self.blocks, count):
                left = [list(each) for each in self.devices]
                moved = []
                for uid in (each for block in chosen for each in block):
                    task = self.state.tasks[uid]
                    for device in task.devices:
                        left[task.row][device] += task.shape.gpu_milli
                    moved.append((task.shape.gpus, task.shape.gpu_milli))
                if packs(left, sorted([*items, *moved], key=lambda size: (-size[0] * size[1], size))):
                    return count
        assert free is not None
        return None


def packs(free: list[list[int]], items: list[Item]) -> bool:
    """By trying all: whether items fit devices, those of one on one node."""
    if not items:
        return True
    (gpus, milli), rest = items[0], items[1:]
    seen = set()
    for index, devices in enumerate(free):
        fitting = [device for device, left in enumerate(devices) if left >= milli]
        if len(fitting) < gpus:
            continue
        choices = [tuple(fitting[:gpus])] if milli == 1000 else [(device,) for device in fitting]
        for chosen in choices:
            after = [left - milli if device in chosen else left for device, left in enumerate(devices)]
            alike = (tuple(sorted(devices)), tuple(sorted(after)))
            if alike in seen:
                continue
            seen.add(alike)
            if packs([*free[:index], after, *free[index + 1 :]], rest):
                return True
    return False


def move(state: ClusterState, decided: list, now: float) -> list[str]:
    """The victims go and their controllers make others, which get the places reserved for them. Returns the new names."""
    confirm(state, decided)
    new = []
    for each in decided:
        for victim in each.victims if isinstance(each, Preempt) else ():
            old = state.tasks[victim.pod.uid].pod
            state.remove_pod(old.uid)
            if victim.pod.uid in each.moved:
                again = msgspec.structs.replace(old, uid=f"{old.uid}+", name=f"{old.name}+", node="", created=now, started=None)
                state.upsert_pod(again)
                new.append(again.name)
    return new


def verdict(world: World, most: int) -> tuple[int | None, int | None]:
    """(the fewest blocks that must move, how many pods did move); None: not so few, or the unit did not start.

    Checks that every moved pod gets a place, and that it comes to rest.
    """
    state = world.state
    least = world.least(most)
    decided = run(state, LATE)
    invariants.check(state)
    started = any(isinstance(each, Place | Preempt) for each in decided)
    moved = sum(len(each.moved) for each in decided if isinstance(each, Preempt))
    for now in range(1, 12):
        if not any(isinstance(each, Place | Preempt) for each in decided):
            break
        move(state, decided, LATE + now)
        invariants.check(state)
        decided = run(state, LATE + now)
        assert not any(isinstance(each, Preempt) for each in decided), "moved again"
    else:
        raise AssertionError("it never comes to rest")
    if started:
        waiting = [task for task in state.tasks.values() if task.state is not TaskState.BOUND]
        assert not waiting, f"{waiting} of {len(state.tasks)} have no place"
    assert started or not moved
    return least, moved if started else None
