"""A bound of the search: whether all requests can have different devices at once, counters and constraints aside.

A maximum matching of requests to devices is kept while devices are taken; taking one costs at most one augmenting path
(Kuhn's algorithm for bipartite matching, over sets of devices). Where there is no matching, no combination can exist.
"""

from __future__ import annotations

from collections.abc import Sequence


class Matching:
    """Requests by number with how many devices they still need; devices as bits of sets. assigned: the matching, by request."""

    __slots__ = ("_candidates", "_needed", "_taken", "assigned")

    def __init__(self, candidates: list[int], needed: list[int]) -> None:
        self._candidates, self._needed = candidates, needed
        self.assigned = [0] * len(candidates)
        self._taken = 0

    def exists(self) -> bool:
        """Match all requests from nothing; whether that is possible."""
        self.assigned = [0] * len(self._candidates)
        busy = self._taken
        short = []
        for number in sorted(range(len(self._candidates)), key=lambda each: self._candidates[each].bit_count()):
            free, left, mask = self._candidates[number] & ~busy, self._needed[number], 0
            if (there := free.bit_count()) <= left:
                mask, left = free, left - there
            else:
                while left:
                    low = free & -free
                    mask |= low
                    free ^= low
                    left -= 1
            self.assigned[number] = mask
            busy |= mask
            short += [number] * left
        return all(self._augment(number) for number in short)

    def meet(self, needed: Sequence[int]) -> bool:
        """Match so much of each request from the matching that there is on; where that is impossible it stays.

        No path augments a matching for a request: no matching has what is matched and that request (Berge 1957).
        """
        before = self.assigned[:]
        busy = self._taken
        for number, wanted in enumerate(needed):
            mask = self.assigned[number]
            for _ in range(mask.bit_count() - wanted):
                mask &= mask - 1
            self.assigned[number] = mask
            busy |= mask
        for number, wanted in enumerate(needed):
            for _ in range(wanted - self.assigned[number].bit_count()):
                if free := self._candidates[number] & ~busy:
                    low = free & -free
                    self.assigned[number] |= low
                    busy |= low
                elif self._augment(number):
                    busy = self._taken
                    for mask in self.assigned:
                        busy |= mask
                else:
                    self.assigned = before
                    return False
        return True

    def save(self) -> tuple[list[int], list[int], int]:
        """What `restore` needs."""
        return self.assigned[:], self._needed[:], self._taken

    def restore(self, saved: tuple[list[int], list[int], int]) -> None:
        """Undo what happened since `save`."""
        self.assigned, self._needed, self._taken = saved[0][:], saved[1][:], saved[2]

    def take(self, number: int, device: int) -> bool:
        """A request takes a device; whether the others can still be matched. After False only `restore` makes sense."""
        bit = 1 << device
        self._taken |= bit
        owner = next((other for other, mask in enumerate(self.assigned) if mask & bit), -1)
        if owner >= 0:
            self.assigned[owner] ^= bit
        if number >= 0 and self._needed[number]:
            self._needed[number] -= 1
            if owner == number:
                return True
            mask = self.assigned[number]
            self.assigned[number] = mask & (mask - 1)
        return owner < 0 or self._augment(owner)

    def _augment(self, start: int) -> bool:
        busy = self._taken
        for mask in self.assigned:
            busy |= mask
        free = self._candidates[start] & ~busy
        if free:
            self.assigned[start] |= free & -free
            return True
        came: dict[int, tuple[int, int]] = {}
        seen, queue = {start}, [start]
        while queue:
            number = queue.pop(0)
            wanted = self._candidates[number]
            for other, mask in enumerate(self.assigned):
                shared = wanted & mask
                if not shared or other in seen:
                    continue
                seen.add(other)
                came[other] = (number, shared & -shared)
                free = self._candidates[other] & ~busy
                if free:
                    self.assigned[other] |= free & -free
                    end = other
                    while end != start:
                        before, bit = came[end]
                        self.assigned[end] ^= bit
                        self.assigned[before] |= bit
                        end = before
                    return True
                queue.append(other)
        return False
