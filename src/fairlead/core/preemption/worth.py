"""Whether moving some pods is worth it, as searches for moves ask again and again.

No more work may be lost with those that move than the search is allowed to lose, and so many must be within the budget of moves.
With pods of classes whose time slices end at checkpoints (`maxLoss`) no more may be lost than the end of one would cost on as
many devices as the unit asks for: one pod of one device may move at any time for a node of eight, four only after checkpoints.
Asking changes nothing of the state: the latest answer is kept here. Once a search is over `note` writes what follows from it:
from when on moves are searched for again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task
from fairlead.core.state.cluster import ClusterState


class _Answer(Enum):
    YES = 0
    COSTS = 1  # too much work
    FULL = 2  # no more moves are within the budget


class Worth:
    """The question of one search.

    most_lost: device-seconds of work that may be lost at most. devices: that the unit asks for, in milli. none: whether it is an
    answer that nothing moves at all.
    later: whether what costs too much is tried again in a while: the next checkpoint comes, and the unit waits longer.
    """

    def __init__(
        self, state: ClusterState, now: float, most_lost: float, devices: int, *, none: bool = False, later: bool = False
    ) -> None:
        self._state, self._now = state, now
        self._devices = devices / WHOLE
        self._most_lost, self._none, self._later = most_lost, none, later
        self._last: _Answer | None = None
        self._budget_asked = False

    def of(self, moved: Sequence[Task]) -> bool:
        """Whether it is worth it that these move."""
        if not moved:
            return self._none
        answer = self._answer(moved)
        self._budget_asked |= answer is not _Answer.COSTS
        if answer is not _Answer.COSTS or self._later:
            self._last = answer
        return answer is _Answer.YES

    def note(self) -> None:
        """The search is over: its latest answer decides from when on moves are searched for again."""
        if self._budget_asked:
            self._state.moves.budget.refill(self._now)
        if self._last is not None:
            self._state.moves.budget.searched(self._now, again=self._last is not _Answer.YES)
        self._last, self._budget_asked = None, False

    def _answer(self, moved: Sequence[Task]) -> _Answer:
        services = self._state.services
        lost = [services.lost_with(task) for task in moved]
        if sum(lost) > self._most_lost:
            return _Answer.COSTS
        costs = [services.time_slice_cost(task) for task in moved]
        if sum(each for each, cost in zip(lost, costs, strict=True) if cost < math.inf) > self._devices * min(costs):
            return _Answer.COSTS
        return _Answer.YES if self._state.moves.budget.allowed(self._now, len(moved)) else _Answer.FULL
