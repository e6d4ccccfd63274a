"""What becomes of one job in a replay: when it ran, and what its suspensions cost."""

from __future__ import annotations

import math

import msgspec


class Charges(msgspec.Struct, frozen=True):
    """The price of a suspension: seconds of the job's GPUs on its return, and the work since its last checkpoint.

    pause: seconds. checkpoint_interval: seconds of work between two checkpoints.
    """

    pause: float = 60.0
    checkpoint_interval: float = 1800.0


class Run:
    """One job of so many seconds of work on so many GPUs. started: first of all, ends: expected now, finished: -1 before."""

    __slots__ = (
        "asked",
        "charges",
        "done",
        "duration",
        "earliest",
        "ends",
        "expected",
        "finished",
        "gpus",
        "held",
        "latest",
        "since",
        "spans",
        "started",
        "stays",
        "suspensions",
    )

    def __init__(self, duration: float, gpus: int, charges: Charges) -> None:
        self.duration = duration
        self.gpus = gpus
        self.charges = charges
        self.done = 0.0  # seconds of work that a checkpoint keeps
        self.held = 0.0  # seconds for which it held its GPUs, until it was suspended last
        self.since = -1.0  # when it was given its GPUs, -1 while it has none
        self.started = -1.0
        self.expected = -1.0  # when it was first expected to start, -1: not asked or not known
        self.earliest = self.latest = -1.0  # of the same forecast, the interval that 80 % of starts should lie in
        self.asked = False  # whether that was asked
        self.ends = -1.0
        self.finished = -1.0
        self.suspensions = 0
        self.spans: list[tuple[float, float]] = []  # when it did useful work
        self.stays: list[tuple[float, float]] = []  # when it held its GPUs

    @property
    def running(self) -> bool:
        """Whether it holds its GPUs."""
        return self.since >= 0

    def start(self, now: float) -> float:
        """It gets its GPUs; returns when it will be done."""
        if self.started < 0:
            self.started = now
        self.since = now
        self.ends = now + self._pause() + self.duration - self.done
        return self.ends

    def _pause(self) -> float:
        return self.charges.pause if self.suspensions else 0.0

    def held_until(self, now: float) -> float:
        """For how many seconds it has held its GPUs."""
        return self.held + (now - self.since if self.running else 0.0)

    def unsaved(self, now: float) -> float:
        """Seconds of work that would be lost now."""
        worked = max(0.0, now - self.since - self._pause()) if self.running else 0.0
        return math.fmod(worked, self.charges.checkpoint_interval) if worked else 0.0

    def suspend(self, now: float) -> None:
        """It loses its GPUs and the work since its last checkpoint."""
        begun = self.since + self._pause()
        kept = max(0.0, now - begun) - self.unsaved(now)
        if kept > 0:
            self.spans.append((begun, begun + kept))
        self.done += kept
        self.held = self.held_until(now)
        self.stays.append((self.since, now))
        self.since = self.ends = -1.0
        self.suspensions += 1

    def finish(self, now: float) -> None:
        """It is done."""
        self.spans.append((self.since + self._pause(), now))
        self.held = self.held_until(now)
        self.stays.append((self.since, now))
        self.done = self.duration
        self.since = -1.0
        self.finished = now

    def useful(self, until: float) -> float:
        """GPU-seconds of work not lost, before a time."""
        return self.gpus * sum(min(end, until) - start for start, end in self.spans if start < until)

    def held_before(self, until: float) -> float:
        """Seconds for which it held its GPUs before a time."""
        return sum(min(end, until) - start for start, end in self.stays if start < until)
