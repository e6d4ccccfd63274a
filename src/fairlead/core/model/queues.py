"""Queues as the core sees them, with what of them survives a restart."""

from __future__ import annotations

import msgspec

from fairlead.core.model.selectors import Selector


class QueueResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Quota and limit of one resource in base units (devices in milli), of one pool or of all nodes; None means not given.

    pool: of the nodes of this pool only; empty: of all. weight: how the capacity beyond quotas is divided among siblings; where
    none of them gives one, by what each wants beyond its quota, else 1 where absent. weight_percent: so much of that capacity,
    and the other siblings divide the rest by weight. The percentages, in thousandths of a percent,
    are of what all nodes, or those of the pool, offer now.
    """

    name: str
    quota: int | None = None
    limit: int | None = None
    quota_percent: int | None = None
    limit_percent: int | None = None
    weight: int | None = None
    pool: str = ""
    weight_percent: int | None = None


class UserLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one user may have in a queue and its descendants, or all of them together; None or absent: no limit.

    running, submitted: jobs that run; jobs that wait or run. resources: (resource, base units), devices in milli.
    """

    running: int | None = None
    submitted: int | None = None
    resources: tuple[tuple[str, int], ...] = ()


class UsageRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decayed use in device-seconds as of `at`, seconds since the epoch: of a queue, and of its users."""

    value: float
    at: float
    users: tuple[tuple[str, float], ...] = ()


class RunTimeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Run times in seconds of jobs that ended of late, oldest first: of one user and class, on so many devices, in milli."""

    user: str
    service_class: str
    devices: int
    seconds: tuple[int, ...]


class ForecastRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A start that was foretold and came: of a job of a queue on so many devices, in milli.

    foretold, waited: seconds from its creation to its start, as foretold first and in truth.
    """

    queue: str
    devices: int
    foretold: int
    waited: int


class Queue(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A queue as the core sees it; parent empty: directly under the root.

    namespaces: by their labels, those whose pods may use it; users: who may, None for all; classes: the classes of service
    that may, None for all. per_user: limits for each user; jobs: for all together. users_reclaim: whether a user may take from
    those who hold more of the queue. usage, run_times, forecasts: as last written. elsewhere: by whom it is served, in words,
    where that is another release of Fairlead: nothing else counts then; empty: by this one.
    """

    name: str
    parent: str = ""
    priority: int = 0
    resources: tuple[QueueResource, ...] = ()
    namespaces: Selector = ()
    users: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    per_user: UserLimits | None = None
    jobs: UserLimits | None = None
    usage: UsageRecord | None = None
    users_reclaim: bool = False
    run_times: tuple[RunTimeRecord, ...] = ()
    forecasts: tuple[ForecastRecord, ...] = ()
    elsewhere: str = ""
