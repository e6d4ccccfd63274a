"""Random small clusters in which a unit with claims waits though enough devices are free, and a judge that tries all ways to move.

A GPU has two halves, or is whole. The judge knows GPUs, what pods ask for and who may move, not the scheduler, its allocator or CEL: it
tries every set of pods that may move, the smallest first, and every way to give what then needs a place GPUs of a node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

from fairlead.core.dra import model
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.service_classes import ServiceClass
from tests.builders import group
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import DRIVER, asks, halves

Item = tuple[int, int]
"""(how many devices, halves of a GPU that each is)."""

HALF, WHOLE = 1, 2
_KINDS = {HALF: "half", WHOLE: "whole"}
LATE = 1000.0


def asked(item: Item) -> model.Claim:
    return asks(item[0], kind=_KINDS[item[1]])


class World:
    """gpus: host -> free halves by GPU. movable: name -> what it asks for. wanted: what the unit's members ask for."""

    def __init__(self, seed: int, most: int = 3) -> None:
        rnd = random.Random(seed)
        self.hosts = {f"n{each}": rnd.randint(1, most) for each in range(rnd.randint(1, 3))}
        items = [each for host, count in self.hosts.items() for each in halves(host, count)]
        self.stream = stream = ClaimStream(
            list(self.hosts),
            items,
            remade=True,
            groups=[group("big", 2)],
            classes=[ServiceClass("stays", movable=False)],
            reservations=0,
            share_wait=0.0,
            move_patience=0.0,
        )
        for number in range(rnd.randint(3, 9)):
            item = rnd.choice(((1, HALF), (1, HALF), (1, HALF), (1, WHOLE), (2, HALF), (2, WHOLE)))
            more = {"service_class": "stays"} if rnd.random() < 0.25 else {}
            stream.submit(f"p{number}", 1e6, [asked(item)], controlled=rnd.random() < 0.9, owner=f"o{number}", **more)
        stream.step()
        running = [uid for uid, pod in stream.pods.items() if pod.node]
        for uid in [uid for uid in stream.pods if uid not in running or rnd.random() < 0.4]:
            stream.delete(uid)
        stream.now = LATE
        self.wanted: list[Item] = [
            rnd.choice(((1, WHOLE), (2, WHOLE), (2, HALF), (3, HALF))) for _ in range(rnd.choice((1, 1, 2)))
        ]
        self.free = {host: [2] * count for host, count in self.hosts.items()}
        self.movable: dict[str, tuple[str, list[int]]] = {}  # name -> its host, and halves that it has by GPU
        for pod in stream.pods.values():
            held = [0] * self.hosts[pod.node]
            for use in pod.claims:
                for each in stream.claims[use.key].allocation.devices:
                    assert each.device.driver == DRIVER
                    _, gpu, part, *_ = each.device.device.split("-")
                    held[int(gpu)] += WHOLE if part == "whole" else HALF
            for gpu, amount in enumerate(held):
                self.free[pod.node][gpu] -= amount
            if pod.controlled and pod.service_class != "stays":
                self.movable[pod.name] = pod.node, held
        self.items = {pod.name: self._item(pod.claims) for pod in stream.pods.values()}

    def _item(self, claims: tuple[DeviceUse, ...]) -> Item:
        (use,) = claims
        (request,) = self.stream.claims[use.key].asks.requests
        (ask,) = request.alternatives
        return ask.count, WHOLE if "whole" in ask.selectors[0] else HALF

    def ask(self) -> None:
        """The unit comes to wait."""
        for number, item in enumerate(self.wanted):
            more = {"group": "big"} if len(self.wanted) > 1 else {}
            self.stream.submit(f"unit{number}", 1e6, [asked(item)], **more)

    # -- the judge -----------------------------------------------------------------------------

    def fewest(self, most: int = 4) -> int | None:
        """How few pods must move for the unit; None: more than `most`, or it cannot be."""
        for size in range(most + 1):
            for moved in combinations(sorted(self.movable), size):
                free = {host: list(gpus) for host, gpus in self.free.items()}
                for name in moved:
                    host, held = self.movable[name]
                    for gpu, amount in enumerate(held):
                        free[host][gpu] += amount
                if _placed([*self.wanted, *(self.items[name] for name in moved)], free):
                    return size
        return None


def _placed(items: list[Item], free: dict[str, list[int]]) -> bool:
    """Whether all of these have places, by trying everything."""
    if not items:
        return True
    (count, size), *rest = sorted(items, key=lambda each: (-each[1], -each[0]))
    for host, gpus in free.items():
        for given in _ways(gpus, count, size):
            if _placed(rest, {**free, host: given}):
                return True
    return False


def _ways(gpus: list[int], count: int, size: int) -> Iterator[list[int]]:
    """What is left of a node's GPUs after so many devices of a size, in every way that differs."""
    found = {tuple(gpus)}
    for _ in range(count):
        found = {(*each[:at], each[at] - size, *each[at + 1 :]) for each in found for at, left in enumerate(each) if left >= size}
    distinct = {tuple(sorted(each)): each for each in found}
    for each in distinct.values():
        yield list(each)
