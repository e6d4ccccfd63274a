"""A victim: tasks that only leave together, and why they may."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from fairlead.core.pods.tasks import Task, TaskState


class Ground(IntEnum):
    """Why somebody may fall; what is cheaper for all goes first."""

    SURPLUS = 0  # its gang can do without it
    SERVICE = 1  # attained more service than the unit
    USER = 2  # its user holds more of their queue than the unit's user
    SHARE = 3  # its queue holds more than is fair, the unit's less
    PRIORITY = 4  # of lower class priority


Order = tuple[int, int, int, float, int, float, str]


class Victim(NamedTuple):
    """Tasks that only fall together.

    order: what its gang can do without first, then lowest priority, then the highest level of attained service (what is evicted
    from a low one takes the place of another, which takes that of a third; `Services.victim_level`), least lost work, fewest
    pods, latest created, UID. Of members that their gangs can do without the highest index first instead of the level: gangs
    shrink one by one.
    lost: device-seconds of work.
    """

    order: Order
    tasks: tuple[Task, ...]

    @property
    def lost(self) -> float:
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


Falling = tuple[Ground, Victim]
