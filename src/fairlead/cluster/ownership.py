"""Which release of Fairlead serves which queue, where several run in one cluster (docs/design/releases.md).

A tree of queues belongs to one release as a whole: that of the scheduler which its root names, the first release where it names
none. What is in no such tree (the queue does not exist, a queue above it does not, or they form a cycle) is the first release's.
So every release comes to the same result, and no object has two owners.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.api import names


class Ownership:
    """What is known of the queues. schedulers: the names of this release, `*` for all. first: whether it is the first one."""

    def __init__(self, schedulers: Collection[str] = names.SCHEDULERS, *, first: bool | None = None) -> None:
        self.schedulers = schedulers
        self.first = first if first is not None else names.release() == names.FIRST_RELEASE
        self._parents: dict[str, str] = {}
        self._named: dict[str, str] = {}  # of those that name a scheduler

    @property
    def sole(self) -> bool:
        """Whether this release serves everything: it is the first, and no queue names a scheduler."""
        return self.first and not self._named

    def set(self, name: str, parent: str, scheduler: str) -> bool:
        """A queue came or changed; whether another release may serve what is below it now."""
        if self._parents.get(name) == parent and self._named.get(name, "") == scheduler:
            return False
        self._parents[name] = parent
        if scheduler:
            self._named[name] = scheduler
        else:
            self._named.pop(name, None)
        return True

    def remove(self, name: str) -> bool:
        """A queue is gone; likewise."""
        self._named.pop(name, None)
        return self._parents.pop(name, None) is not None

    def scheduler(self, queue: str) -> str:
        """The scheduler that the root of a queue's tree names; empty: none."""
        if not self._named:
            return ""
        path: set[str] = set()
        while queue in self._parents and queue not in path:
            parent = self._parents[queue]
            if not parent:
                return self._named.get(queue, "")
            path.add(queue)
            queue = parent
        return ""

    def elsewhere(self, queue: str) -> str:
        """By whom a queue is served, where that is another release: in words; empty: it is served by this one."""
        scheduler = self.scheduler(queue)
        if not scheduler:
            return "" if self.first else f"the release {names.FIRST_RELEASE!r}"
        ours = scheduler in self.schedulers or names.ANY_SCHEDULER in self.schedulers
        return "" if ours else f"scheduler {scheduler!r}"
