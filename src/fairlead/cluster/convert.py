"""From views to the core's objects: what a pod asks for, what a node offers, in exact integers.

Whatever cannot be used becomes the object's `error`, a typed reason, and never an exception.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from functools import lru_cache

from fairlead.api import names, quantity
from fairlead.api.quantity import SANE_MAXIMUM, QuantityError
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster import views
from fairlead.core.model import (
    WHOLE,
    Group,
    Node,
    Pod,
    PodSpec,
    Queue,
    QueueResource,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)

_POD_LEVEL = ("cpu", "memory")  # and hugepages-*: pod-level requests replace the sum of the containers'
_MOST_DEVICES = 1024


def pod(view: views.Pod, default_queue: str, scheduler_name: str = names.SCHEDULER_NAME) -> Pod:
    """A pod as the core sees it. default_queue: that of its namespace; scheduler_name: whose pods are ours, or `*`."""
    metadata, spec = view.metadata, view.spec
    labels = metadata.labels or {}
    ours = scheduler_name in (names.ANY_SCHEDULER, spec.scheduler_name)
    error: Reason | None = None
    try:
        wanted = pod_spec(view)
    except QuantityError as refused:
        code = ReasonCode.TOO_LARGE if refused.too_large else ReasonCode.INVALID_SPEC
        error, wanted = Reason(code, f"pod {metadata.namespace}/{metadata.name}: {refused}"), PodSpec()
    phase = view.status.phase if view.status else ""
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        spec=_interned(wanted),
        queue=labels.get(names.QUEUE_LABEL) or default_queue,
        group=labels.get(names.POD_GROUP_LABEL, ""),
        priority=spec.priority or 0,
        created=seconds(metadata.creation_timestamp),
        node=spec.node_name,
        ours=ours,
        gated=bool(spec.scheduling_gates),
        terminating=metadata.deletion_timestamp is not None,
        finished=phase in ("Succeeded", "Failed"),
        never_preempts=spec.preemption_policy == "Never",
        controlled=any(owner.controller for owner in metadata.owner_references or ()),
        error=error,
    )


def pod_spec(view: views.Pod) -> PodSpec:
    """What decides where a pod may run. Raises `QuantityError`."""
    spec = view.spec
    requests = pod_requests(spec)
    gpus, milli = 0, WHOLE
    for resource in names.GPU_RESOURCES:
        if requests.get(resource):
            gpus = requests[resource]
            break
    if gpus > _MOST_DEVICES:
        raise QuantityError(f"{gpus} GPUs are more than any node has", too_large=True)
    fraction = (view.metadata.annotations or {}).get(names.GPU_FRACTION_ANNOTATION)
    if fraction is not None:
        milli = gpu_fraction(fraction)
        if gpus:
            raise QuantityError(f"annotation {names.GPU_FRACTION_ANNOTATION} and a request for whole GPUs exclude each other")
        gpus = 1
    requests["pods"] = 1
    terms: tuple[SelectorTerm, ...] | None = None
    if spec.affinity and spec.affinity.node_affinity:
        required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        if required is not None:
            terms = tuple(_term(each) for each in required.node_selector_terms or ())
    return PodSpec(
        requests=tuple(sorted((resource, amount) for resource, amount in requests.items() if amount)),
        gpus=gpus,
        gpu_milli=milli,
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=terms,
        tolerations=tuple(sorted(_tolerations(spec), key=repr)) if spec.tolerations else (),
    )


def _tolerations(spec: views.PodSpec) -> list[Toleration]:
    return [Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in spec.tolerations or ()]


def pod_requests(spec: views.PodSpec) -> dict[str, int]:
    """Per resource the greater of what runs together and of each init step, as kube-scheduler counts.

    Containers and sidecars run together; an init container runs beside the sidecars declared before
    it. Pod-level requests replace cpu, memory and hugepages; overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _requests_of(container))
    if spec.init_containers:
        sidecars: dict[str, int] = {}
        steps: dict[str, int] = {}
        for container in spec.init_containers:
            requests = _requests_of(container)
            if container.restart_policy == "Always":
                _add(sidecars, requests)
                step = sidecars
            else:
                step = dict(sidecars)
                _add(step, requests)
            for resource, amount in step.items():
                steps[resource] = max(steps.get(resource, 0), amount)
        _add(total, sidecars)
        for resource, amount in steps.items():
            total[resource] = max(total.get(resource, 0), amount)
    if spec.resources is not None:
        whole = _amounts(_defaulted(spec.resources))
        total |= {name: amount for name, amount in whole.items() if name in _POD_LEVEL or name.startswith("hugepages-")}
    if spec.overhead:
        _add(total, _amounts(spec.overhead))
    for resource, amount in total.items():
        if amount > SANE_MAXIMUM:
            raise QuantityError(f"{resource}: the containers together ask for more than any machine has", too_large=True)
    return total


def _requests_of(container: views.Container) -> dict[str, int]:
    return _amounts(_defaulted(container.resources)) if container.resources else {}


def _defaulted(resources: views.Resources) -> views.Quantities:
    """Requests, and limits where a resource has no request, as the API server defaults them."""
    if not resources.limits:
        return resources.requests or {}
    return {**resources.limits, **(resources.requests or {})}


def _amounts(quantities: views.Quantities) -> dict[str, int]:
    result = {}
    for resource, text in quantities.items():
        try:
            result[resource] = quantity.amount(resource, text)
        except QuantityError as error:
            raise QuantityError(f"{resource}: {error}", too_large=error.too_large) from error
    return result


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def gpu_fraction(text: str) -> int:
    """Milli of one device from the annotation's text, rounded up. Raises `QuantityError`."""
    value: Fraction = quantity.parse(text)
    if not 0 < value < 1:
        raise QuantityError(f"annotation {names.GPU_FRACTION_ANNOTATION}: {text!r} is not between 0 and 1")
    return -(-value.numerator * WHOLE // value.denominator)


def _term(view: views.NodeSelectorTerm) -> SelectorTerm:
    return SelectorTerm(
        tuple(_requirement(each) for each in view.match_expressions or ()),
        tuple(_requirement(each) for each in view.match_fields or ()),
    )


def _requirement(view: views.SelectorRequirement) -> Requirement:
    return Requirement(view.key, view.operator, tuple(view.values or ()))


def node(view: views.Node) -> Node:
    """A node as the core sees it. A capacity that cannot be read closes the node."""
    labels = view.metadata.labels or {}
    error: Reason | None = None
    allocatable: dict[str, int] = {}
    for resource, text in ((view.status and view.status.allocatable) or {}).items():
        try:
            allocatable[resource] = quantity.amount(resource, text)
        except QuantityError as refused:
            error = Reason(ReasonCode.INVALID_SPEC, f"node {view.metadata.name}: {resource}: {refused}")
    return Node(
        name=view.metadata.name,
        allocatable=allocatable,
        labels=labels,
        taints=tuple(sorted((Taint(each.key, each.value, each.effect) for each in view.spec.taints or ()), key=repr)),
        unschedulable=view.spec.unschedulable,
        shares_gpus=labels.get(names.GPU_SHARING_LABEL) == "enabled",
        error=error,
    )


def queue(view: views.Queue) -> Queue:
    """A queue as the core sees it. Raises `QuantityError` for a quota or limit that is none.

    Entries for one pool only are left out: this version does not act on them (see `unsupported`).
    """
    resources = []
    for each in view.spec.resources or ():
        if each.pool is None:
            quota, quota_percent = _share(each.name, each.quota)
            limit, limit_percent = _share(each.name, each.limit)
            resources.append(QueueResource(each.name, quota, limit, quota_percent, limit_percent))
    return Queue(view.metadata.name, view.spec.parent or "", view.spec.priority, tuple(resources))


def _share(resource: str, text: str | float | None) -> tuple[int | None, int | None]:
    """(amount, None), or (None, thousandths of a percent) for a percentage; devices in milli."""
    if text is None:
        return None, None
    if isinstance(text, str) and text.endswith("%"):
        return None, int(quantity.parse(text[:-1]) * 1000)
    return quantity.amount(resource, text) * (WHOLE if resource in names.GPU_RESOURCES else 1), None


def unsupported(view: views.Queue) -> str:
    """What a queue asks for that this version accepts but does not act on; empty if nothing."""
    fields = []
    if any(each.pool is not None for each in view.spec.resources or ()):
        fields.append("resources with a pool")
    if any(each.weight is not None for each in view.spec.resources or ()):
        fields.append("weight")
    return f"not acted on by this version: {', '.join(fields)}" if fields else ""


def group(view: views.PodGroup) -> Group:
    """A PodGroup as the core sees it."""
    metadata = view.metadata
    return Group(
        metadata.namespace,
        metadata.name,
        max(1, view.spec.min_member),
        view.spec.queue or "",
        seconds(metadata.creation_timestamp),
    )


@lru_cache(maxsize=4096)
def seconds(timestamp: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 where there is none."""
    if not timestamp:
        return 0.0
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


@lru_cache(maxsize=8192)
def _interned(spec: PodSpec) -> PodSpec:
    """One object per distinct spec: 50,000 pods of few shapes stay small."""
    return spec
