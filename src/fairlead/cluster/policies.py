"""From views of policies to the core's: queues and classes of service.

What cannot be used raises, and the policy before it stays in force. Fields that are accepted but not acted on yet are reported.
"""

from __future__ import annotations

from itertools import pairwise

from fairlead.api import names, quantity, shared_resources, spans
from fairlead.api.kinds.common import LabelSelector
from fairlead.api.kinds.queue import JobLimits, QueueStatus
from fairlead.api.kinds.queue import UserLimits as LimitsOfUsers
from fairlead.api.kinds.service_class import TimeLimit, TimeSlicing
from fairlead.api.quantity import QuantityError
from fairlead.cluster import selection, views
from fairlead.cluster.times import seconds
from fairlead.core.model.nodes import NetworkLevel, NodePool, Reservation
from fairlead.core.model.queues import ForecastRecord, Queue, QueueResource, RunTimeRecord, UsageRecord, UserLimits
from fairlead.core.model.selectors import Selector
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.units import WHOLE


def queue(view: views.Queue) -> Queue:
    """A queue as the core sees it. Raises `QuantityError` for a quota or limit that is none."""
    resources = []
    for each in view.spec.resources or ():
        quota, quota_percent = _share(each.name, each.quota)
        limit, limit_percent = _share(each.name, each.limit)
        weight, weight_percent = _weight(each.weight)
        resources.append(
            QueueResource(each.name, quota, limit, quota_percent, limit_percent, weight, each.pool or "", weight_percent)
        )
    spec = view.spec
    return Queue(
        view.metadata.name,
        spec.parent or "",
        spec.priority,
        tuple(resources),
        namespaces=_whose(spec.namespace_selector),
        users=_named(spec.users),
        classes=_named(spec.service_classes),
        per_user=_limits(spec.per_user),
        users_reclaim=spec.user_fairness == "Reclaim",
        jobs=_limits(spec.jobs),
        usage=_usage(view.status),
        run_times=_run_times(view.status),
        forecasts=_forecasts(view.metadata.name, view.status),
    )


def _usage(status: QueueStatus | None) -> UsageRecord | None:
    """What was used of late, as a scheduler wrote it."""
    usage = status.usage if status is not None else None
    if usage is None or not usage.at:
        return None
    return UsageRecord(usage.device_seconds, seconds(usage.at), tuple(sorted((usage.users or {}).items())))


def _run_times(status: QueueStatus | None) -> tuple[RunTimeRecord, ...]:
    """What was learned of run times, as a scheduler wrote it."""
    return tuple(
        RunTimeRecord(each.user, each.service_class, round(each.devices * WHOLE), tuple(each.seconds))
        for each in (status.run_times if status is not None else None) or ()
    )


def _forecasts(queue: str, status: QueueStatus | None) -> tuple[ForecastRecord, ...]:
    """What became of starts that were foretold, as a scheduler wrote it."""
    return tuple(
        ForecastRecord(queue, round(each.devices * WHOLE), each.foretold, each.waited)
        for each in (status.forecasts if status is not None else None) or ()
    )


def _named(names_: list[str] | None) -> tuple[str, ...] | None:
    return None if names_ is None else tuple(names_)


def _limits(view: JobLimits | None) -> UserLimits | None:
    """Limits by user or by job. Raises `QuantityError`."""
    if view is None:
        return None
    for count in (view.running, view.submitted):
        if count is not None and count < 0:
            raise QuantityError(f"{count} jobs: the limit must not be below 0")
    given = view.resources if isinstance(view, LimitsOfUsers) else None
    amounts = sorted((name, _amount(name, text)) for name, text in (given or {}).items())
    return UserLimits(view.running, view.submitted, tuple(amounts))


def _whose(view: LabelSelector | None) -> Selector:
    """Which namespaces may use something: absent, all. Raises `QuantityError`."""
    return _selected(view, "namespaceSelector")


def _selected(view: LabelSelector | None, field: str) -> Selector:
    if view is None:
        return ()
    selector, wrong = selection.label_selector(view)
    if wrong:
        raise QuantityError(f"{field}: {wrong}")
    return selector


_PURPOSES = ("Maintenance", "Capacity")
_MODES, _SCOPES = ("Requeue", "Suspend", "Never"), ("Queue", "Parent", "Cluster")
_CONSOLIDATION = ("Pods", "Whole", "Never")
_ISOLATION = ("None", "GPU", "Node")
_SHARING = ("None", "Pairs")


def service_class(view: views.ServiceClass) -> ServiceClass:
    """A class of service as the core sees it. Raises `QuantityError`."""
    spec, preemption = view.spec, view.spec.preemption
    if preemption.mode not in _MODES or preemption.scope not in _SCOPES:
        raise QuantityError(f"preemption: mode is one of {', '.join(_MODES)}, scope one of {', '.join(_SCOPES)}")
    if preemption.consolidation not in _CONSOLIDATION:
        raise QuantityError(f"preemption.consolidation is one of {', '.join(_CONSOLIDATION)}, not {preemption.consolidation!r}")
    if spec.isolation not in _ISOLATION:
        raise QuantityError(f"isolation is one of {', '.join(_ISOLATION)}, not {spec.isolation!r}")
    if spec.sharing not in _SHARING:
        raise QuantityError(f"sharing is one of {', '.join(_SHARING)}, not {spec.sharing!r}")
    if spec.sharing != "None" and spec.isolation != "None":
        raise QuantityError(f"sharing {spec.sharing} and isolation {spec.isolation} exclude each other: set one of them to None")
    slicing = spec.time_slicing or TimeSlicing()
    limits = spec.time_limit or TimeLimit()
    levels = tuple(each * 3600.0 for each in slicing.levels)
    if any(later <= earlier for earlier, later in pairwise((0.0, *levels))):
        raise QuantityError(f"timeSlicing.levels must be above 0 and rise: {slicing.levels}")
    usual = spans.seconds(limits.default) if limits.default else 0.0
    longest = spans.seconds(limits.max) if limits.max else 0.0
    if 0 < longest < usual:  # a job without a limit of its own would be refused for the class's
        raise QuantityError(f"timeLimit.default {limits.default} is above timeLimit.max {limits.max}")
    return ServiceClass(
        view.metadata.name,
        mode=preemption.mode,
        scope=preemption.scope,
        grace=spans.seconds(preemption.grace_period) if preemption.grace_period else 0.0,
        min_runtime=spans.seconds(preemption.min_runtime) if preemption.min_runtime else 0.0,
        checkpoint_interval=spans.seconds(spec.checkpoint_interval) if spec.checkpoint_interval else 0.0,
        max_wait=spans.seconds(spec.max_wait) if spec.max_wait else 0.0,
        time_limit=usual,
        longest=longest,
        levels=levels,
        express=slicing.express,
        namespaces=_whose(spec.namespace_selector),
        users=_named(spec.users),
        movable=preemption.consolidation != "Never",
        moves_whole=preemption.consolidation == "Whole",
        borrows=preemption.borrowing != "Unguaranteed",
        start_timeout=spans.seconds(spec.start_timeout) if spec.start_timeout else 0.0,
        max_loss=spans.seconds(slicing.max_loss) if slicing.max_loss else 0.0,
        isolation=spec.isolation,
        sharing=spec.sharing,
        default_for=() if spec.users is not None or spec.namespace_selector is not None else tuple(spec.default_for),
        pools=tuple(spec.alternative_pools or ()),
    )


def _share(resource: str, text: str | float | None) -> tuple[int | None, int | None]:
    """(amount, None), or (None, thousandths of a percent) for a percentage; devices in milli."""
    if text is None:
        return None, None
    if isinstance(text, str) and text.endswith("%"):
        return None, _percent(text)
    return _amount(resource, text), None


def _percent(text: str) -> int:
    """Thousandths of a percent."""
    return int(quantity.parse(text[:-1]) * 1000)


def _weight(given: str | int | None) -> tuple[int | None, int | None]:
    """(weight beside siblings, None), or (None, thousandths of a percent of the over-quota capacity)."""
    if not isinstance(given, str):
        return given, None
    if not given.endswith("%"):
        raise QuantityError(f"weight {given!r} is neither a whole number nor a percentage")
    percent = _percent(given)
    if percent > 100_000:
        raise QuantityError(f"weight {given!r} is above 100 %")
    return None, percent


def reservation(view: views.Reservation) -> Reservation:
    """A reservation as the core sees it. Raises `QuantityError`."""
    spec = view.spec
    start, end = seconds(spec.start), seconds(spec.end)
    if not start < end:
        raise QuantityError(f"it must begin before it ends: {spec.start!r}, {spec.end!r}")
    if spec.purpose not in _PURPOSES or (spec.purpose == "Capacity") != bool(spec.queue):
        raise QuantityError("purpose is Maintenance, without a queue, or Capacity, with one")
    amounts = sorted((name, quantity.amount(name, text)) for name, text in (spec.resources or {}).items())
    return Reservation(
        view.metadata.name, start, end, _selected(spec.node_selector, "nodeSelector"), spec.queue or "", tuple(amounts)
    )


def all_acted_on(_: object) -> str:
    """Nothing that it asks for is left out."""
    return ""


def node_pool(view: views.NodePool) -> NodePool:
    """A node pool as the core sees it. Raises `QuantityError`."""
    levels = tuple(NetworkLevel(each.name, each.label) for each in view.spec.topology_levels or ())
    for field in ("name", "label"):
        given = [getattr(each, field) for each in levels]
        twice = next((each for each in given if given.count(each) > 1), None)
        if twice is not None:
            raise QuantityError(f"topologyLevels: two levels have the {field} {twice!r}")
    try:
        shared = shared_resources.declared(view.spec.shared_resources or {})
    except QuantityError as error:
        raise QuantityError(f"sharedResources: {error}") from error
    return NodePool(view.metadata.name, _selected(view.spec.node_selector, "nodeSelector"), levels, shared)


def pool_unsupported(view: views.NodePool) -> str:
    """The fields of a pool that this version accepts but does not act on, as a message; empty if there are none."""
    spec = view.spec
    ignored = {"size": spec.size}
    fields = [name for name, given in ignored.items() if given]
    return f"not acted on by this version: {', '.join(fields)}" if fields else ""


def _amount(resource: str, text: str | float) -> int:
    """In the units that queues are charged in: devices in milli. Raises `QuantityError`."""
    return quantity.amount(resource, text) * (WHOLE if resource in names.GPU_RESOURCES else 1)
