"""Pods by their owners (what makes the pods of a job), and owners by the PodGroup of their job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlead.core.model.undo import UndoLog
from fairlead.core.pods.tasks import Task


class Owned:
    """The known pods of each owner, by its UID. A pod may be listed under an owner that it had before: that is found out here."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._uids: dict[str, dict[str, None]] = {}

    def add(self, uid: str, owner: str) -> None:
        """A pod is an owner's."""
        if owner:
            self._uids.setdefault(owner, {})[uid] = None

    def drop(self, uid: str, owner: str) -> None:
        """A pod is gone, or another owner's."""
        uids = self._uids.get(owner)
        if uids is not None:
            uids.pop(uid, None)
            if not uids:
                del self._uids[owner]

    def of(self, owners: Iterable[str]) -> Iterator[Task]:
        """The pods of some owners, owner by owner, in the order in which they came."""
        for owner in owners:
            for uid in list(self._uids.get(owner, ())):
                task = self._tasks.get(uid)
                if task is not None and task.pod.owner == owner:
                    yield task

    def recount(self) -> None:
        """List all anew."""
        self._uids.clear()
        for uid, task in self._tasks.items():
            self.add(uid, task.pod.owner)


class GroupOwners:
    """Which PodGroup the job of an owner has, and the owners of each group, by UID."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._group_of: dict[str, str] = {}
        self._of: dict[str, dict[str, None]] = {}  # those that are a group's, or were

    def put(self, owner: str, group: str) -> None:
        """Pods of an owner are of a group's job from now on."""
        self._log.insert(self._group_of, owner, group)
        self._log.insert(self._of.setdefault(group, {}), owner, None)

    def forget(self, group: str) -> None:
        """A group has no owners any more."""
        for owner in self.of(group):
            del self._group_of[owner]
        self._of.pop(group, None)

    def group_of(self, owner: str) -> str:
        """The group of an owner's job; empty: none."""
        return self._group_of.get(owner, "")

    def of(self, group: str) -> list[str]:
        """The owners of a group."""
        return [owner for owner in self._of.get(group, ()) if self._group_of.get(owner) == group]
