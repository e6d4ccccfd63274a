"""A victim: tasks that only leave together, in which order victims are taken, and of which kind they are."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.core.model.causes import PreemptionReason
from fairlead.core.pods.tasks import Task, TaskState

Order = tuple[int, int, int, float, int, float, str]


class Kind:
    """Work of one queue, and its victims, the cheapest last. Compared by identity.

    spare: members that their gangs can do without. alike: whether what holds for one of them, why it may be preempted, holds for
    all.
    """

    __slots__ = ("alike", "key", "queue", "spare", "victims")

    def __init__(self, key: tuple[object, ...], queue: str, *, spare: bool, alike: bool) -> None:
        self.key = key
        self.queue = queue
        self.spare = spare
        self.alike = alike
        self.victims: list[Victim] = []


class Victim(NamedTuple):
    """Tasks that are preempted together only.

    order: what its gang can do without first, then lowest priority, then the highest level of attained service (what is evicted
    from a low one takes the place of another, which takes that of a third; `Services.victim_level`), least lost work, fewest
    pods, latest created, UID. Of members that their gangs can do without the highest index first instead of the level: gangs
    shrink one by one.
    lost: device-seconds of work.
    """

    order: Order
    tasks: tuple[Task, ...]
    kind: Kind

    @property
    def lost(self) -> float:
        """Device-seconds of work that are lost with it."""
        return self.order[3]

    @property
    def spare(self) -> bool:
        """Whether it is a member that its gang can do without."""
        return not self.order[0]

    @property
    def alive(self) -> bool:
        """Whether all of them still run where they did."""
        for task in self.tasks:  # noqa: SIM110 - a generator costs thrice as much, and this is asked of all in every search
            if task.state is not TaskState.BOUND or task.row < 0:
                return False
        return True

    @property
    def evicted(self) -> bool:
        """Whether one of them does not run, or is leaving: one that is only taken off its row in a trial comes back."""
        for task in self.tasks:  # noqa: SIM110 - as above
            if task.state is not TaskState.BOUND:
                return True
        return False


Preemptible = tuple[PreemptionReason, Victim]
"""A victim, and for which reason it may be preempted."""
