"""How many pods may be moved: a budget that fills up with time, and how many steps searches for moves may take in a pass."""

from __future__ import annotations

from fairlead.core.model.policy import Policy

_REFILL = 60.0
_STEPS = 6000  # of all searches for moves in one pass; one costs some 0.1 ms


class MoveBudget:
    """Pods that may be moved now, by the policy's rate, and what searches for moves may still cost."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.refills_at = 0.0  # when moves that were refused may be tried again
        self._steps = 0  # of searches for moves that are left in this pass
        self._left = 0.0
        self._at: float | None = None

    def begin(self) -> None:
        """A pass begins."""
        self._steps = _STEPS

    def allowed(self, now: float, count: int) -> bool:
        """Whether so many pods may be moved now; a plan that is larger than the whole budget needs all of it."""
        most = float(self._policy.moves_per_minute)
        return most > 0 and self._budget(now) >= min(float(count), most)

    def _budget(self, now: float) -> float:
        """How many pods may be moved now."""
        most = float(self._policy.moves_per_minute)
        return most if self._at is None else min(most, self._left + max(0.0, now - self._at) * most / 60.0)

    def refill(self, now: float) -> None:
        """The budget is as full as it is by now."""
        self._left, self._at = self._budget(now), now

    def spend(self, count: int) -> None:
        """So many are moved."""
        self._left -= count

    def searched(self, now: float, *, again: bool) -> None:
        """A search for moves is over. again: more may be possible, or worth it, after a while."""
        self.refills_at = now + _REFILL if again else 0.0

    def steps(self, most: int) -> int:
        """How many steps a search for moves may take, of so many that it would: all searches of a pass have a bound together."""
        return min(most, self._steps)

    def spend_steps(self, count: int) -> None:
        """A search took so many steps."""
        self._steps -= count
