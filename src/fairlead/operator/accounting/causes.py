"""First causes: with which exit code a job failed, where its other pods are ended because of that.

Within one attempt a pod that failed by itself comes before pods that were deleted or evicted, then the one that failed first,
and within one second an exit of its own before one by a signal.
"""

from __future__ import annotations

import msgspec

_SIGNALS = 128  # exit codes above are those of processes that a signal ended


class Failure(msgspec.Struct, frozen=True, order=True):
    """A pod that failed. The smaller is the cause. evicted: it was deleted or evicted before; at: seconds since 1970."""

    evicted: bool
    at: float
    by_signal: bool
    exit_code: int

    @classmethod
    def of(cls, exit_code: int, at: float, *, evicted: bool) -> Failure:
        """The failure of a pod."""
        return cls(evicted, at, exit_code > _SIGNALS, exit_code)


class Causes:
    """The causes of the jobs under way, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Failure | None]] = {}  # job -> (attempt, cause, None: nothing of it failed yet)

    def failed(self, job: str, attempt: int, failure: Failure) -> int | None:
        """A pod failed: the job's exit code if it is another now, None if it stays."""
        known = self._known.get(job)
        if known is not None and known[0] > attempt:
            return None
        if known is not None and known[0] == attempt and known[1] is not None and known[1] <= failure:
            return None
        self._known[job] = attempt, failure
        return failure.exit_code

    def knows(self, job: str) -> bool:
        """Whether a failure of the job was observed."""
        return job in self._known

    def began(self, job: str, attempt: int, *, counted: bool) -> bool:
        """A pod got a place: whether it is one of another attempt, so that what failed before is no cause any more.

        counted: whether attempts of that kind of job are; else each pod that follows a failure begins another.
        """
        known = self._known.get(job)
        if known is None or known[1] is None or (counted and attempt <= known[0]):
            return False
        self._known[job] = attempt, None
        return True

    def forget(self, job: str) -> None:
        """A job is over."""
        self._known.pop(job, None)
