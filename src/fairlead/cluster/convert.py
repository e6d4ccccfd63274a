"""From views to the core's objects: pods, nodes, namespaces, budgets, pod groups.

Whatever cannot be used becomes the object's `error`, a typed reason, and never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from fairlead.api import names, pressure, quantity, shared_resources, spans, speeds
from fairlead.api.kinds import pod_group
from fairlead.api.quantity import QuantityError
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster import (
    alternatives,
    bounds,
    followers,
    grouping,
    network,
    numa,
    pod_specs,
    selection,
    starting,
    targets,
    views,
)
from fairlead.cluster.extended_resources import extended_requests
from fairlead.cluster.times import seconds
from fairlead.cluster.workloads import Workloads
from fairlead.core.links import report
from fairlead.core.links.matrix import Links, LinksError
from fairlead.core.mig.parts import sharing_of
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Completed, Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.nodes import Node, Taint
from fairlead.core.model.pods import DeviceUse, Pod, PodSpec
from fairlead.core.model.selectors import Labels, Requirement, Selector
from fairlead.core.model.starts import FailedStarts, StartTrouble

_MOST_IMAGE = 1 << 50  # bytes
_MOST_REPORTS = 256
_NO_STATUS = views.PodStatus()
_NO_CLAIM = views.ExtendedResourceClaimStatus()
_NO_NODE_STATUS = views.NodeStatus()


def pod(
    view: views.Pod,
    default_queue: str,
    schedulers: Mapping[str, str] = names.SCHEDULERS,
    workloads: Workloads | None = None,
) -> Pod:
    """A pod as the core sees it.

    default_queue: that of its namespace; schedulers: those whose pods are ours, `*` for all, and their profiles;
    workloads: what it may belong to.
    """
    metadata, spec = view.metadata, view.spec
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    profile = schedulers.get(spec.scheduler_name, schedulers.get(names.ANY_SCHEDULER))
    complaints: list[str] = []
    measured_at, measured = _measured(annotations.get(names.MEASURED_PRESSURE_ANNOTATION), pressure.KINDS)[:2]
    speed_at, speed = _speed(annotations.get(names.MEASURED_SPEED_ANNOTATION))
    partner = annotations.get(names.GPU_PARTNER_ANNOTATION, "")
    if partner and not spec.node_name:
        complaints.append(f"annotation {names.GPU_PARTNER_ANNOTATION} is written by the scheduler, with the binding: remove it")
    # What selects a pod by default matters to upstream's scores only.
    wanted, unsized = _requested(view, workloads if profile == names.KUBERNETES_PROFILE else None, complaints)
    if (key := names.PRESSURE_ANNOTATION) in annotations:
        wanted = _declared(wanted, "pressure", pressure.read, key, annotations[key], complaints)
    if (key := names.SHARED_RESOURCES_ANNOTATION) in annotations and profile is not None:  # others are under no limit
        wanted = _declared(wanted, "shared", shared_resources.read, key, annotations[key], complaints)
    status = view.status or _NO_STATUS
    owner = next((each for each in metadata.owner_references or () if each.controller), None)
    conditions = status.conditions or ()
    group = labels.get(names.POD_GROUP_LABEL) or grouping.group_of(labels, spec.scheduling_group, owner.kind if owner else "")
    if profile == names.AI_PROFILE and owner is not None and not group and not spec.topology_spread_constraints:
        replicas = _replicas(owner, labels)
        wanted = msgspec.structs.replace(wanted, default_spread=replicas) if replicas else wanted
    root, owner_uid = _root(owner, labels)
    elastic = _is_elastic(labels, complaints)
    time_limit = _annotated_span(annotations, names.TIME_LIMIT_ANNOTATION, complaints)
    expected = _annotated_span(annotations, names.EXPECTED_DURATION_ANNOTATION, complaints)
    closeness = network.annotated(annotations, complaints) if group else None
    error = _error(view, unsized or ReasonCode.INVALID_SPEC, complaints)
    watched = bool(group and spec.node_name and profile is not None) and not _is_ai_job(owner)
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        spec=wanted,
        queue=labels.get(names.QUEUE_LABEL) or default_queue,
        group=group,
        priority=spec.priority or 0,
        created=seconds(metadata.creation_timestamp),
        node=spec.node_name,
        ours=profile is not None,
        profile=profile or names.AI_PROFILE,
        service_class=labels.get(names.SERVICE_CLASS_LABEL, ""),
        user=annotations.get(names.USER_ANNOTATION) or metadata.namespace,
        deadline=float(spec.active_deadline_seconds or 0),
        time_limit=time_limit,
        expected=expected,
        grace=30 if (grace := spec.termination_grace_period_seconds) is None else max(0, grace),
        leaves=seconds(metadata.deletion_timestamp),
        succeeded=_succeeded(view, annotations),
        attempt=_attempt(labels),
        claims=_claims(view),
        extended=extended_requests(view),
        extended_claim=(status.extended_resource_claim_status or _NO_CLAIM).resource_claim_name,
        bound=starting.bound_at(conditions, status.start_time, metadata.creation_timestamp) if watched else 0.0,
        starting=_starting(status) if watched else None,
        gated=bool(spec.scheduling_gates),
        terminating=metadata.deletion_timestamp is not None,
        finished=status.phase in ("Succeeded", "Failed"),
        never_preempts=spec.preemption_policy == "Never" or elastic,
        elastic=elastic,
        stays=_stays(annotations),
        controlled=owner is not None,
        owner=owner_uid,
        root=root,
        error=error,
        unsized=unsized is not None,
        labels=_labels(labels),
        started=seconds(status.start_time) if status.start_time else None,
        nominated=status.nominated_node_name,
        preempted=bool(conditions) and _is_preempted(conditions),
        moves_to=_moves_to(conditions) if metadata.deletion_timestamp is not None else "",
        closeness=closeness,
        measured=measured,
        measured_at=measured_at,
        speed=speed,
        speed_at=speed_at,
        partner=partner if spec.node_name else "",
        declares=names.PRESSURE_ANNOTATION in annotations,
    )


def _declared(
    spec: PodSpec, field: str, read: Callable[[str], object], annotation: str, text: str, complaints: list[str]
) -> PodSpec:
    """A spec with what an annotation declares in a field."""
    try:
        found = read(text)
    except QuantityError as error:
        complaints.append(f"annotation {annotation}: {error}")
        return spec
    return msgspec.structs.replace(spec, **{field: found}) if found else spec


@lru_cache(maxsize=8192)
def _measured(text: str | None, kinds: tuple[str, ...]) -> tuple[float, tuple[int, ...], str]:
    """When a pod or a node was measured, what was found, and why that cannot be read; nothing where it cannot."""
    if text is None:
        return 0.0, (), ""
    try:
        at, found = pressure.read_measured(text, kinds)
        when = seconds(at)
    except (QuantityError, ValueError) as error:
        return 0.0, (), str(error)
    return (when, found, "") if when else (0.0, (), f"{at[:40]!r} is not a time such as 2027-01-31T08:00:00Z")


@lru_cache(maxsize=8192)
def _speed(text: str | None) -> tuple[float, float]:
    """When the speed of a pod was measured, and what was found; nothing where that cannot be read."""
    if text is None:
        return 0.0, 0.0
    try:
        at, found = speeds.read(text)
        return (seconds(at), found) if seconds(at) else (0.0, 0.0)
    except (QuantityError, ValueError):
        return 0.0, 0.0


def _requested(view: views.Pod, workloads: Workloads | None, complaints: list[str]) -> tuple[PodSpec, ReasonCode | None]:
    """What a pod asks for, and why that is not known, if it is not."""
    try:
        return pod_specs.pod_spec(view, workloads, complaints), None
    except QuantityError as refused:
        complaints.append(str(refused))
        return PodSpec(), ReasonCode.TOO_LARGE if refused.too_large else ReasonCode.INVALID_SPEC


def _error(view: views.Pod, code: ReasonCode, complaints: list[str]) -> Reason | None:
    """Why a pod is placed nowhere, whatever there is."""
    if complaints:
        return Reason(code, f"pod {view.metadata.key}: {'; '.join(complaints)}")
    return None


def _is_elastic(labels: Mapping[str, str], complaints: list[str]) -> bool:
    """Whether a pod is an elastic replica of its gang."""
    label = labels.get(names.ELASTIC_REPLICA_LABEL, "false")
    if label not in ("true", "false"):
        complaints.append(f"label {names.ELASTIC_REPLICA_LABEL}: {bounds.shown(label)} is neither true nor false")
    return label == "true" and names.POD_GROUP_LABEL in labels


def _stays(annotations: Mapping[str, str]) -> bool:
    """Whether a pod asks not to be moved."""
    return (
        annotations.get(names.SAFE_TO_EVICT_ANNOTATION) == "false" or annotations.get(names.DO_NOT_DISRUPT_ANNOTATION) == "true"
    )


def _is_preempted(conditions: Iterable[views.Condition]) -> bool:
    """Whether a scheduler chose a pod as a victim."""
    return any(
        each.type == "DisruptionTarget" and each.status == "True" and each.reason == "PreemptionByScheduler"
        for each in conditions
    )


def _moves_to(conditions: Iterable[views.Condition]) -> str:
    """The node where a place is reserved for the replacement of a pod that is moved."""
    kind = f"{names.GROUP}/{names.MOVES_TO}"
    return next((each.message for each in conditions if each.type == kind and each.status == "True"), "")


def _is_ai_job(owner: views.OwnerReference | None) -> bool:
    """Whether a pod is an AIJob's, whose starts the operator watches."""
    return owner is not None and owner.kind == "AIJob" and owner.api_version.partition("/")[0] == names.GROUP


def _starting(status: views.PodStatus) -> StartTrouble | None:
    """What keeps a pod that has a node from having started."""
    conditions, containers, first = status.conditions or (), status.container_statuses or (), status.init_container_statuses or ()
    found = starting.trouble_of(status.phase, conditions, containers, first)
    if found is None:
        return None
    return StartTrouble(found.reason, found.message, found.reason in starting.HOPELESS, found.reason in starting.RETRIED)


def _claims(view: views.Pod) -> tuple[DeviceUse, ...]:
    """The ResourceClaims that a pod uses. One that a template makes is named in the status once it is there."""
    if not view.spec.resource_claims:
        return ()
    made = {each.name: each.resource_claim_name for each in (view.status or _NO_STATUS).resource_claim_statuses or ()}
    namespace = view.metadata.namespace
    uses = []
    for each in view.spec.resource_claims:
        if each.resource_claim_name:
            uses.append(DeviceUse(each.name, f"{namespace}/{each.resource_claim_name}"))
        elif each.name not in made:
            uses.append(DeviceUse(each.name, "", f"{namespace}/{each.resource_claim_template_name or ''}"))
        elif name := made[each.name]:  # else none is needed
            uses.append(DeviceUse(each.name, f"{namespace}/{name}", f"{namespace}/{each.resource_claim_template_name or ''}"))
    return tuple({use.key or use.name: use for use in uses}.values())  # one claim may be named twice


_MOST_ATTEMPTS = 10**9


def _attempt(labels: Mapping[str, str]) -> int:
    """Which attempt of its job a pod belongs to; 0 where its controller gives none."""
    label = labels.get(names.ATTEMPT_LABEL) or labels.get(grouping.JOBSET_ATTEMPT) or "0"
    attempt = int(label) if label.isascii() and label.isdigit() and len(label) <= 10 else 0
    return min(attempt, _MOST_ATTEMPTS)


def _succeeded(view: views.Pod, annotations: Mapping[str, str]) -> float:
    """When a pod that counts as succeeded had ended; 0 if it does not, or ended only because it was to go."""
    status = view.status or _NO_STATUS
    if status.phase != "Succeeded" and not (status.phase == "Failed" and annotations.get(names.COUNTS_ANNOTATION) == "Succeeded"):
        return 0.0
    times = [
        each.state.terminated.finished_at for each in status.container_statuses or () if each.state and each.state.terminated
    ]
    ended = (
        max(map(seconds, times), default=0.0) or seconds(status.start_time) or seconds(view.metadata.creation_timestamp) or 1.0
    )
    return ended if ended_by_itself(view.metadata, times) else 0.0


_CLOCKS = 2.0
"""Seconds by which a node's clock may be behind the API server's; times of containers and deletions are whole seconds, too."""


def ended_by_itself(metadata: views.Metadata, ended: Iterable[str | None]) -> bool:
    """Whether a pod had surely ended before it was deleted, or was not deleted. ended: when its containers ended.

    A pod that exits with 0 because it was deleted has not done its work, and many exit within a second.
    """
    if metadata.deletion_timestamp is None:
        return True
    deleted = seconds(metadata.deletion_timestamp) - float(metadata.deletion_grace_period_seconds or 0)
    times = [seconds(each) for each in ended if each]
    return bool(times) and max(times) <= deleted - _CLOCKS


_REPLICAS = {("apps/v1", "ReplicaSet"): "pod-template-hash", ("apps/v1", "StatefulSet"): "controller-revision-hash"}
"""Kinds whose pods are replicas, with the label by which their controllers distinguish these from all other pods."""


def _replicas(owner: views.OwnerReference, labels: Mapping[str, str]) -> Selector:
    """The other replicas of a service's pod, among which it is spread; None if it is no service's."""
    label = _REPLICAS.get((owner.api_version, owner.kind))
    value = labels.get(label or "")
    return (Requirement(label, "In", (value,)),) if label and value else None


_SUSPENDABLE = {
    ("batch/v1", "Job"),
    (names.API_VERSION, "AIJob"),
    ("ray.io/v1", "RayCluster"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    *(("kubeflow.org/v1", kind) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
}
"""What the operator can suspend and resume."""


def _root(owner: views.OwnerReference | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """The object that a pod's job is suspended by, `apiVersion/kind/name`, empty if there is none; its UID, or the owner's."""
    uid = owner.uid if owner is not None else ""
    jobset, jobset_uid = labels.get(grouping.JOBSET_NAME), labels.get(grouping.JOBSET_UID)
    if jobset:
        # Its Jobs are the JobSet's own: it would resume them.
        return (f"{grouping.JOBSET_VERSION}/JobSet/{jobset}", jobset_uid) if jobset_uid else ("", uid)
    if grouping.RULES and (ruled := grouping.root_by_rule(labels))[0]:
        return ruled
    if owner is None or (owner.api_version, owner.kind) not in _SUSPENDABLE or names.ELEMENT_LABEL in labels:
        return "", uid
    return f"{owner.api_version}/{owner.kind}/{owner.name}", uid


def node(view: views.Node) -> Node:
    """A node as the core sees it. A capacity that cannot be read closes the node."""
    labels = view.metadata.labels or {}
    error: Reason | None = None
    allocatable: dict[str, int] = {}
    status = view.status or _NO_NODE_STATUS
    for resource, text in (status.allocatable or {}).items():
        try:
            allocatable[resource] = quantity.amount(resource, text)
        except QuantityError as refused:
            error = Reason(ReasonCode.INVALID_SPEC, f"node {view.metadata.name}: {resource}: {refused}")
    loaded_at, load, load_fault = _measured((view.metadata.annotations or {}).get(names.LOAD_ANNOTATION), pressure.LOADS)
    links, fault = _links((view.metadata.annotations or {}).get(names.GPU_TOPOLOGY_ANNOTATION))
    zones = (view.metadata.annotations or {}).get(names.NUMA_ANNOTATION)
    return Node(
        name=view.metadata.name,
        allocatable=allocatable,
        labels=labels,
        taints=tuple(sorted((Taint(each.key, each.value, each.effect) for each in view.spec.taints or ()), key=repr)),
        unschedulable=view.spec.unschedulable,
        shares_gpus=labels.get(names.GPU_SHARING_LABEL, "") in names.SHARING_AGENTS and not sharing_of(labels).by_unit,
        error=error,
        images=tuple(
            (name, min(max(each.size_bytes, 0), _MOST_IMAGE)) for each in status.images or () for name in each.names or ()
        ),
        features=tuple(sorted(status.declared_features or ())),
        links=links,
        links_fault=fault,
        numa=numa.annotated(view.metadata.name, zones) if zones is not None else None,
        load=load,
        loaded_at=loaded_at,
        load_fault=load_fault,
    )


@lru_cache(maxsize=_MOST_REPORTS)
def _links(text: str | None) -> tuple[Links | None, str]:
    """How the GPUs of a node are connected, and why that cannot be read: nodes of one model have the same text."""
    if text is None:
        return None, ""
    try:
        return report.read(text), ""
    except LinksError as error:
        return None, f"{error.kind}: {error}"


def namespace(view: views.Namespace) -> Namespace:
    """A namespace as the core sees it."""
    return Namespace(view.metadata.name, tuple(sorted((view.metadata.labels or {}).items())))


def budget(view: views.Budget) -> DisruptionBudget:
    """A disruption budget as the core sees it; one whose selector cannot be parsed selects no pod."""
    return DisruptionBudget(
        view.metadata.namespace,
        view.metadata.name,
        selection.label_selector(view.spec.selector)[0],
        view.status.disruptions_allowed,
        tuple(sorted(view.status.disrupted_pods or ())),
    )


def group(view: views.PodGroup) -> Group:
    """A PodGroup as the core sees it."""
    metadata, target = view.metadata, targets.target(view)
    needed, forms = view.spec.min_member, alternatives.read(view)
    if target is not None and target.members and names.MADE_FOR_LABEL in (metadata.labels or {}):
        needed = sum(each.count for each in target.members)  # it may have been made for an earlier target
    return Group(
        metadata.namespace,
        metadata.name,
        max(1, needed),
        view.spec.queue or "",
        seconds(metadata.creation_timestamp),
        view.spec.service_class or "",
        _span(view.spec.time_limit),
        _span(view.spec.expected_duration),
        target,
        _completed(view.status),
        _span(view.spec.start_timeout),
        _failed_starts(view.status),
        (metadata.annotations or {}).get(names.PAUSED_ANNOTATION) == "true",
        names.MADE_FOR_LABEL in (metadata.labels or {}),
        (metadata.annotations or {}).get(names.ROLES_LABEL, ""),
        closeness=network.closeness(view.spec.topology, view.spec.roles),
        choices=forms.choices,
        current=forms.current,
        chosen=alternatives.chosen(view),
        spares=tuple(view.status.spares.nodes or ()) if view.status is not None and view.status.spares is not None else (),
        followers=followers.read(view, lambda each: pod(each, "")),
        failed=view.status is not None and view.status.phase == "Failed",
        ended=ended if (ended := (metadata.annotations or {}).get(names.ENDED_ANNOTATION, "")) in _ENDS else "",
    )


_ENDS = ("Failed", "Succeeded")


def _failed_starts(status: views.PodGroupStatus | None) -> FailedStarts | None:
    """What a scheduler wrote of starts that failed; None where it wrote nothing."""
    if status is None or status.starts is None or status.starts.failed <= 0:
        return None
    return FailedStarts(status.starts.failed, seconds(status.starts.retry_at), status.starts.message)


def _completed(status: views.PodGroupStatus | None) -> Completed | None:
    """What a scheduler wrote of the members that succeeded; None where it wrote nothing."""
    if status is None or (status.run is None and not status.succeeded):
        return None
    run = status.run or pod_group.GroupRun()
    return Completed(max(0, status.succeeded), max(0, run.attempt), seconds(run.since), seconds(run.last_succeeded))


def _span(text: str | None) -> float:
    """Seconds of a span of time; 0 where there is none, or none that can be read (CRDs refuse those)."""
    if not text:
        return 0.0
    try:
        return spans.seconds(text)
    except QuantityError:
        return 0.0


def _annotated_span(annotations: Mapping[str, str], name: str, complaints: list[str]) -> float:
    """Seconds that an annotation gives; 0 where it is absent, and where it cannot be read, of which it complains."""
    text = annotations.get(name)
    if text is None:
        return 0.0
    span = _span(text)
    if not span:
        shown = bounds.shown(text)
        complaints.append(f"annotation {name}: {shown} is not a duration: write 90s, 30m, 24h or 7d, at most a century")
    return span


def _labels(labels: Mapping[str, str]) -> Labels:
    given = tuple(sorted(labels.items()))
    return _interned_labels(given) if len(given) <= bounds.MOST_LABELS_KEPT else given


@lru_cache(maxsize=8192)
def _interned_labels(labels: Labels) -> Labels:
    """One object per distinct set of labels."""
    return labels
