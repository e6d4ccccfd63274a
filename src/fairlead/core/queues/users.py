"""Users of one queue: what each holds of it, and heaps in which those go first that hold least.

What a user holds changes for all that waits of that user at once. So a heap compares users, each with the first of what it has
there, and follows what they hold: who holds more sinks once it is met at the top, who holds less is put in order anew.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from fairlead.core.pods.tasks import Unit

UserKey = tuple[int, int, float, str]
"""How users are compared: devices and CPU that each holds, in milli, then when its first unit was created, and its name."""

_NONE = (0, 0)
_SLACK = 16  # entries out of date that are kept besides twice as many as there are users


class UserAmounts:
    """What users hold of a queue. held: (devices, CPU) in milli; past: decayed use of late, as devices in milli.

    changes: how often a user came to hold less.
    """

    __slots__ = ("_all_at", "_less", "changes", "held", "past")

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, int]] = {}
        self.past: dict[str, int] = {}
        self.changes = 0
        self._less: dict[str, int] = {}  # user -> when it last came to hold less, in the order of these changes
        self._all_at = 0  # when all may have come to hold less

    def key(self, unit: Unit) -> UserKey:
        """How a user is compared whose first is a unit."""
        user, rank = unit.user, unit.rank
        devices, cpu = self.held.get(user, _NONE)
        return devices + self.past.get(user, 0) if self.past else devices, cpu, rank.created, rank.name

    def of(self, user: str) -> tuple[int, int]:
        """What decides between users before age does: (devices, CPU) in milli."""
        devices, cpu = self.held.get(user, _NONE)
        return devices + self.past.get(user, 0), cpu

    def less(self, user: str) -> None:
        """A user holds less, or may: it may go before others now."""
        self.changes += 1
        self._less.pop(user, None)
        self._less[user] = self.changes

    def anew(self) -> None:
        """Any user may hold less."""
        self.changes += 1
        self._all_at = self.changes
        self._less.clear()

    def use_of_late(self, past: dict[str, int]) -> None:
        """What users used of late, as of now."""
        self.past = past
        self.anew()

    def since(self, seen: int) -> list[str] | None:
        """Who came to hold less since so many changes; None: all may."""
        if seen < self._all_at:
            return None
        found = []
        for user, at in reversed(self._less.items()):
            if at <= seen:
                break
            found.append(user)
        return found


class UserHeap:
    """Users in order. first_of: the first unit of a user that may be served, if any.

    An entry may be out of date in one way only: its user goes later by now. What lets one go earlier is noted: by `put`, or by
    `UserAmounts`.
    """

    __slots__ = ("_amounts", "_first_of", "_heap", "_keys", "_number", "_seen")

    def __init__(self, amounts: UserAmounts, first_of: Callable[[str], Unit | None]) -> None:
        self._amounts = amounts
        self._first_of = first_of
        self._heap: list[tuple[UserKey, int, str]] = []
        self._keys: dict[str, UserKey] = {}  # user -> key of the one entry that counts
        self._number = 0
        self._seen = amounts.changes

    def put(self, user: str) -> None:
        """A user has something, or something that goes earlier than what it had."""
        unit = self._first_of(user)
        if unit is None:
            return
        key, known = self._amounts.key(unit), self._keys.get(user)
        if known is not None and known <= key:
            return
        self._keys[user] = key
        self._number += 1
        heappush(self._heap, (key, self._number, user))
        if len(self._heap) > 2 * len(self._keys) + _SLACK:
            keys = self._keys
            self._heap = [entry for entry in self._heap if keys.get(entry[2]) is entry[0]]
            heapify(self._heap)

    def first(self) -> Unit | None:
        """The unit of the user that goes first."""
        if self._seen != self._amounts.changes:
            self._follow()
        heap, keys = self._heap, self._keys
        while heap:
            key, number, user = heap[0]
            if keys.get(user) is not key:
                heappop(heap)
                continue
            unit = self._first_of(user)
            if unit is None:
                heappop(heap)
                del keys[user]
                continue
            present = self._amounts.key(unit)
            if present == key:
                return unit
            keys[user] = present
            heapreplace(heap, (present, number, user))
            if heap[0][0] is present:
                return unit
        return None

    def _follow(self) -> None:
        """Some hold less than when they were put in order."""
        amounts = self._amounts
        users = amounts.since(self._seen) if amounts.changes - self._seen <= len(self._keys) else None
        self._seen = amounts.changes
        if users is None:
            users = list(self._keys)
            self._heap.clear()
            self._keys.clear()
        else:
            users = [user for user in users if user in self._keys]
        for user in users:
            self.put(user)
