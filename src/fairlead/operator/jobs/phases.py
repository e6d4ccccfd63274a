"""The phases of an AIJob: one table of what leads from each to which."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a job stands."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESIZING = "Resizing"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


BY_USER = "suspended by its user"
"""The note of the event `Suspended` of a job that its user suspended."""
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED})

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    # What happened between two reconciliations is one step: a job that ends before it was seen running goes there at once.
    Phase.PENDING: frozenset({Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.STARTING: frozenset({Phase.PENDING, Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.RUNNING: frozenset(
        {Phase.PENDING, Phase.STARTING, Phase.RESIZING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED}
    ),
    Phase.RESIZING: frozenset(
        {Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED}
    ),
    Phase.RESTARTING: frozenset({Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.FAILED}),
    # Succeeded: it was held, and the failure that it was there for did not happen.
    Phase.SUSPENDED: frozenset({Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset(),
    Phase.FAILED: frozenset(),
}


class WrongTransition(RuntimeError):
    """A step that is not in the table: a fault of ours."""


def step(before: Phase, after: Phase) -> Phase:
    """`after`, if it may follow. Raises `WrongTransition`."""
    if after is not before and after not in TRANSITIONS[before]:
        raise WrongTransition(f"a job does not go from {before} to {after}")
    return after
