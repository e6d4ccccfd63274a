"""Finished pods that still count: members of gangs that succeeded, for as long as their objects are there."""

from __future__ import annotations

from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod
from fairlead.core.pods.completions import Completions
from fairlead.core.pods.tasks import Gang


class FinishedPods:
    """By UID, the gang of each. What they come to is kept with the gang (`core/pods/completions.py`)."""

    def __init__(self) -> None:
        self._gangs: dict[str, Gang] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._gangs

    def add(self, gang: Gang, pod: Pod, *, watched: bool) -> None:
        """A member succeeded. watched: it was seen to run."""
        self._gangs[pod.uid] = gang
        self._of(gang).add(pod, watched=watched)

    def comes(self, gang: Gang, pod: Pod) -> None:
        """A member came that has not ended; it is not in the gang's `tasks` yet."""
        if gang.completions is not None or pod.attempt:
            completions = self._of(gang)
            members = [task.pod for task in gang.tasks.values() if not task.pod.spare]
            completions.comes(pod, others=bool(members), least=gang.min_member)
            if gang.group is not None and completions.may_start_over(gang.min_member):
                completions.start_over([pod, *members], gang.min_member)

    def read(self, gang: Gang, group: Group) -> None:
        """A gang's PodGroup came first: its status holds what succeeded before."""
        if group.completed is not None:
            self._of(gang).read(group.completed)

    def remove(self, uid: str) -> Gang | None:
        """A pod is gone. Returns its gang if it had succeeded: it counts on as long as the PodGroup is there."""
        gang = self._gangs.pop(uid, None)
        if gang is not None and gang.completions is not None:
            gang.completions.remove(uid)
        return gang

    def group_gone(self, gang: Gang) -> None:
        """A PodGroup is gone. If it is made anew the gang begins anew, unless members of it run on."""
        if gang.completions is None or gang.bound():
            return
        for uid in gang.completions.uids():
            self._gangs.pop(uid, None)
        gang.completions = None

    @staticmethod
    def _of(gang: Gang) -> Completions:
        """What has succeeded of a gang. The members that are there come first: their attempt is the gang's."""
        if gang.completions is None:
            gang.completions = Completions()
            for task in gang.tasks.values():
                if task.pod.spare:
                    continue
                gang.completions.comes(task.pod, others=True, least=1)
        return gang.completions
