"""Random small clusters in which a queue within its quota wants devices of another's pods, and a judge of plans that evict and move.

A GPU is whole or two halves. Pods have claims of their own or share one, some are gangs, some may not move. The judge knows what
is free of each GPU, who may move and what is charged, not the scheduler: it tries every set of victims, every set of others that
move, and every way to give all of these GPUs of a node.
"""

from __future__ import annotations

import random
from itertools import chain, combinations

from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt
from tests.builders import group, queue
from tests.core.claim_lodging import lodge
from tests.core.claim_moving import HALF, WHOLE, Item, _placed, asked
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import halves

LATE = 1000.0
_HELD = ((1, HALF), (1, HALF), (1, WHOLE), (1, WHOLE), (2, HALF), (2, WHOLE))
_WANTED = ((1, WHOLE), (2, WHOLE), (2, HALF), (1, HALF), (3, HALF), (3, WHOLE))


class Recorded(ClaimStream):
    """plans: those with victims, in order."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.plans: list[Preempt] = []

    def evict(self, transaction):
        if isinstance(transaction, Preempt):
            self.plans.append(transaction)
        super().evict(transaction)


class World:
    """gpus: host -> free halves by GPU. blocks: pods that are evicted together -> halves that they are charged for.

    movable: name -> its item. held: name -> (host, halves by GPU) that are free once it leaves; not of a claim that others name, too.
    """

    def __init__(self, seed: int, gangs: int = 2) -> None:
        rnd = random.Random(seed)
        self.hosts = {f"n{each}": rnd.randint(1, 3) for each in range(rnd.randint(2, 3))}
        total = sum(self.hosts.values())
        quota = min(total - 1, rnd.choice((1, 2, 2, 3))) or 1
        queues = [queue("q0", total - quota), queue("q1", quota)]
        groups = [group(f"g{each}", 2, "q0") for each in range(gangs)] + [group("big", 2, "q1")]
        self.quota = total - quota
        self.stream = Recorded(
            list(self.hosts),
            [each for host, count in self.hosts.items() for each in halves(host, count)],
            groups=groups,
            classes=[ServiceClass("stays", movable=False)],
            queues=queues,
            remade=True,
            reservations=0,
            move_patience=0.0,
            moves_per_minute=100.0,
        )
        self.free = {host: [2] * count for host, count in self.hosts.items()}
        self.items: dict[str, Item] = {}
        self.movable: set[str] = set()
        self.held: dict[str, tuple[str, list[int]]] = {}
        self.shared: dict[str, list[str]] = {}
        self.gang: dict[str, str] = {}
        self._fill(rnd, gangs)
        self.wanted = [rnd.choice(_WANTED)]
        if self.wanted[0][0] * self.wanted[0][1] * 2 <= 2 * quota and rnd.random() < 0.4:
            self.wanted *= 2
        self.stream.now = LATE
        if sum(count * size for count, size in self.wanted) > 2 * quota:
            self.wanted = [(1, WHOLE)]

    def _fill(self, rnd: random.Random, gangs: int) -> None:
        for number in range(rnd.randint(4, 9)):
            name, item, host = f"p{number}", rnd.choice(_HELD), rnd.choice(sorted(self.hosts))
            if (given := self._give(rnd, host, item)) is None:
                continue
            more = {"queue": "q0", "owner": f"o{number}", "controlled": rnd.random() < 0.85, "created": float(number)}
            self.items[name] = item
            held = [0] * self.hosts[host]
            for gpu, _ in given:
                held[gpu] += item[1]
            self.held[name] = host, held
            devices = [f"gpu-{gpu}-{'whole' if item[1] == WHOLE else f'half-{part}'}" for gpu, part in given]
            how = rnd.random()
            if how < 0.12:
                key = f"shared{number}"
                self.shared[key] = [name, f"{name}b"]
                self.items[f"{name}b"] = item
                lodge(self.stream, name, asked(item), host, devices, shared=key, **more)
                lodge(self.stream, f"{name}b", asked(item), host, devices, shared=key, **{**more, "owner": f"o{number}b"})
                continue
            if how < 0.35 and gangs:
                more["group"] = self.gang[name] = f"g{rnd.randrange(gangs)}"
            elif how < 0.5:
                more["service_class"] = "stays"
            elif more["controlled"]:
                self.movable.add(name)
            lodge(self.stream, name, asked(item), host, devices, **more)
        for gang in sorted(set(self.gang.values())):
            members = [name for name, of in self.gang.items() if of == gang]
            self.stream.state.upsert_group(group(gang, len(members), "q0"))

    def _give(self, rnd: random.Random, host: str, item: Item) -> list[tuple[int, int]] | None:
        """(GPU, which half) for each device, taken from what is free; None: there are too few."""
        count, size = item
        free, found = list(self.free[host]), []
        for _ in range(count):
            able = [gpu for gpu, left in enumerate(free) if left >= size]
            if not able:
                return None
            gpu = rnd.choice(able)
            found.append((gpu, 2 - free[gpu]))
            free[gpu] -= size
        self.free[host] = free
        return found

    def ask(self) -> None:
        """The unit comes to wait, and all is played until nothing moves."""
        for number, item in enumerate(self.wanted):
            more = {"group": "big"} if len(self.wanted) > 1 else {}
            self.stream.submit(f"unit{number}", 1e6, [asked(item)], queue="q1", **more)
        self.stream.step()

    def charged(self, names) -> int:
        """Halves that pods are charged for."""
        return sum(self.items[name][0] * self.items[name][1] for name in names)

    # -- the judge -----------------------------------------------------------------------------

    def least(self, most: int = 3) -> int | None:
        """How few halves must be evicted if at most so many others move; None: the unit cannot have a place so."""
        blocks = [[name] for name in self.items if name not in self.gang]
        blocks += [[name for name, of in self.gang.items() if of == gang] for gang in sorted(set(self.gang.values()))]
        chosen = [some for size in range(len(blocks) + 1) for some in combinations(blocks, size) if self._reclaimable(some)]
        sets = [[*chain(*some)] for some in chosen]
        for fallen in sorted(sets, key=self.charged):
            free = self._without(fallen)
            if sum(map(sum, free.values())) < sum(count * size for count, size in self.wanted):
                continue
            others = sorted(self.movable - set(fallen))
            for size in range(most + 1):
                for moved in combinations(others, size):
                    after = {host: list(gpus) for host, gpus in free.items()}
                    for name in moved:
                        self._leave(after, name)
                    if _placed([*self.wanted, *(self.items[name] for name in moved)], after):
                        return self.charged(fallen)
        return None

    def _reclaimable(self, blocks: tuple[list[str], ...]) -> bool:
        """Whether its queue holds more than its quota before the last of these leaves it, in some order."""
        amounts = [self.charged(each) for each in blocks]
        return not amounts or sum(amounts) - max(amounts) < self.charged(self.items) - 2 * self.quota

    def reclaimable(self, names) -> bool:
        """The same of pods that were evicted; members of a gang fall together."""
        gangs = {self.gang.get(name, name) for name in names}
        return self._reclaimable(tuple([name for name in names if self.gang.get(name, name) == each] for each in sorted(gangs)))

    def _without(self, fallen: list[str]) -> dict[str, list[int]]:
        free = {host: list(gpus) for host, gpus in self.free.items()}
        sharing = {name for names in self.shared.values() for name in names}
        for name in fallen:
            if name not in sharing:
                self._leave(free, name)
        return free

    def _leave(self, free: dict[str, list[int]], name: str) -> None:
        host, held = self.held[name]
        free[host] = [left + amount for left, amount in zip(free[host], held, strict=True)]
