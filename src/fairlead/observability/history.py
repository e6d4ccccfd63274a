"""The history's records: what jobs there were and what they used.

One for each job and one for each *run*: the time that one pod had a place on a node. What a job used is the sum over its runs,
so a record that is written twice counts once, and the process that starts after a crash writes what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class HistoryError(Exception):
    """The database cannot be used; the message states the cause and the remedy."""


class SchemaError(HistoryError):
    """The database has tables that this program does not read: those of another version, or of something else."""


class SupersededError(HistoryError):
    """Another process has taken the database over."""


class State(StrEnum):
    """The state of a job, or how it ended. Lost: it ended while no recorder ran."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    LOST = "Lost"


class Job(msgspec.Struct, kw_only=True):
    """One job. Times in seconds since 1970; ended_at: None while it has not; exit_code: of what ended it."""

    uid: str
    namespace: str
    kind: str
    name: str
    queue: str = ""
    service_class: str = ""
    user: str = ""
    state: State = State.PENDING
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    restarts: int = 0
    interruptions: int = 0
    exit_code: int | None = None
    message: str = ""


OF_CLAIM = "claim/"
"""With which the uid of a run begins that is not a pod's: of a ResourceClaim that no pod owns, while one job pays for it."""


class Run(msgspec.Struct, kw_only=True):
    """One pod from its binding to its end. job: its job's uid; gpus: devices, fractions as such; outcome: how it ended.

    measured: GPU-seconds that were held while the use was measured; used: the used part of them.
    """

    uid: str
    job: str
    namespace: str
    name: str
    queue: str
    service_class: str
    user: str
    node: str
    gpus: float
    cpus: float
    started_at: float
    ended_at: float | None = None
    outcome: str = ""
    exit_code: int | None = None
    used: float = 0.0
    measured: float = 0.0


class Stay(msgspec.Struct, kw_only=True):
    """A node while it was there and nothing about it changed. gpus, cpus: of the whole node.

    price: for an hour of the node, in millionths of the currency's unit; None: not known. kind: how it is bought.
    """

    uid: str
    node: str
    node_uid: str
    pool: str
    gpus: float
    cpus: float
    price: int | None
    currency: str
    kind: str
    started_at: float
    ended_at: float | None = None


class Scaler(msgspec.Struct, kw_only=True):
    """A HorizontalPodAutoscaler while nothing about it changed. kind, target: of what it scales."""

    uid: str
    namespace: str
    name: str
    kind: str
    target: str
    min_replicas: int
    max_replicas: int
    started_at: float
    ended_at: float | None = None


class Entry(msgspec.Struct, kw_only=True):
    """A job as it is shown: what it was, and what its runs used so far."""

    job: Job
    runs: int
    gpu_seconds: float
    cpu_seconds: float


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: empty matches all. since, until: those that were there at some time between; seconds since 1970."""

    namespace: str = ""
    name: str = ""
    user: str = ""
    queue: str = ""
    states: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    limit: int = 1000
