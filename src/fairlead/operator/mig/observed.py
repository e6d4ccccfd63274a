"""Nodes and pods as the planner of partitions needs them: what is free, who waits, which nodes are idle.

A pod waits for partitions if the scheduler reports it as unschedulable (capacity is missing; one that waits for quota has
another reason) and it requests resources of NVIDIA's device plugin. Whatever holds a device of the vendor on a node, or a
claim, makes it busy: mig-manager would stop it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api import names
from fairlead.api.quantity import QuantityError
from fairlead.cluster import convert, grouping, views
from fairlead.cluster.pod_specs import pod_spec
from fairlead.cluster.times import seconds
from fairlead.core.mig.demand import WHOLE, Offer, Partitions, Wish
from fairlead.core.mig.parts import PREFIX
from fairlead.core.mig.parts import WHOLE as WHOLE_RESOURCE
from fairlead.core.mig.planner import ConfigState
from fairlead.core.mig.reconfiguration import CORDONED, Phase, Record, rests
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.pods.filters import first_refusal
from fairlead.operator.mig.pools import Pool

_VENDOR = "nvidia.com/"
_ENDED = ("Succeeded", "Failed")
_UNSCHEDULABLE = "Unschedulable"
_NO_STATUS = views.PodStatus()
_MOST_WISHES = 500  # waiting pods that are planned for at once
_OFFERS_NOTHING = frozenset({Phase.FAILED, Phase.HUNG})


class PodFacts(msgspec.Struct, frozen=True):
    """A pod that has not ended. node: where it is bound; nominated: where a place is reserved for it. spec: None where it cannot
    be read. waits_since: since when it is unschedulable, 0: it is not. wants: partitions by profile. busy: it is a client of
    GPUs where it runs.
    """

    key: str
    uid: str
    node: str
    nominated: str
    spec: PodSpec | None
    waits_since: float
    priority: int
    created: float
    gang: str
    queue: str
    wants: Partitions
    busy: bool


def profile_of(resource: str) -> str:
    """The partition that a resource is one of: `gpu` for a whole GPU; empty: it is none."""
    if resource == WHOLE_RESOURCE:
        return WHOLE
    return resource.removeprefix(PREFIX) if resource.startswith(PREFIX) else ""


def facts(view: views.Pod) -> PodFacts | None:
    """What counts of a pod; None: it has ended."""
    metadata, spec, status = view.metadata, view.spec, view.status or _NO_STATUS
    if status.phase in _ENDED:
        return None
    labels = metadata.labels or {}
    try:
        wanted: PodSpec | None = pod_spec(view)
    except QuantityError:
        wanted = None
    requests = dict(wanted.requests) if wanted is not None else {}
    wants = tuple(
        sorted((profile, amount) for resource, amount in requests.items() if (profile := profile_of(resource)) and amount)
    )
    fraction = names.GPU_FRACTION_ANNOTATION in (metadata.annotations or {})
    busy = wanted is None or bool(spec.resource_claims) or fraction or any(each.startswith(_VENDOR) for each in requests)
    group = _gang_of(view) if labels.get(names.ELASTIC_REPLICA_LABEL) != "true" else ""
    since = _waits_since(view, status)
    others = any(each.startswith(_VENDOR) and not profile_of(each) for each in requests)
    if wanted is None or not wants or fraction or spec.resource_claims or others:
        since = 0.0
    return PodFacts(
        metadata.key,
        metadata.uid,
        spec.node_name,
        "" if spec.node_name else status.nominated_node_name,  # it is kept, perhaps, where a place was free before that one
        wanted,
        since,
        spec.priority or 0,
        seconds(metadata.creation_timestamp),
        f"{metadata.namespace}/{group}" if group else "",
        labels.get(names.QUEUE_LABEL, ""),
        wants,
        busy,
    )


def _gang_of(view: views.Pod) -> str:
    """The PodGroup that a pod names, or the workload that it is a member of."""
    metadata = view.metadata
    labels = metadata.labels or {}
    owner = next((each.kind for each in metadata.owner_references or () if each.controller), "")
    return labels.get(names.POD_GROUP_LABEL) or grouping.group_of(labels, view.spec.scheduling_group, owner)


def _waits_since(view: views.Pod, status: views.PodStatus) -> float:
    """When a pod without a node became unschedulable; 0: it is not, or is not one of ours."""
    spec, metadata = view.spec, view.metadata
    if spec.node_name or metadata.deletion_timestamp or spec.scheduling_gates or spec.scheduler_name not in names.SCHEDULERS:
        return 0.0
    for each in status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False" and each.reason == _UNSCHEDULABLE:
            return seconds(each.last_transition_time) or seconds(metadata.creation_timestamp)
    return 0.0


def is_cordoned(view: views.Node) -> bool:
    """Whether it has our taint."""
    return any(each.key == names.MIG_TAINT for each in view.spec.taints or ())


def label(view: views.Node, name: str) -> str:
    """A label; empty where it is not there."""
    return (view.metadata.labels or {}).get(name, "")


def record_of(view: views.Node) -> Record | None:
    """The record on a node; None: there is none that can be read."""
    text = (view.metadata.annotations or {}).get(names.MIG_RECORD_ANNOTATION, "")
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError:
        return None


def offered(view: views.Node) -> dict[str, int]:
    """The partitions that its kubelet offers, by profile."""
    return {
        profile: amount
        for resource, amount in convert.node(view).allocatable.items()
        if amount > 0 and (profile := profile_of(resource))
    }


class Pods:
    """The pods that have not ended, by key and by node. waiting: keys of those that wait for partitions."""

    def __init__(self) -> None:
        self.by_key: dict[str, PodFacts] = {}
        self.waiting: set[str] = set()
        self._on: dict[str, set[str]] = {}

    def set(self, key: str, pod: PodFacts | None) -> None:
        """A pod as it is now; None: it is gone, or has ended."""
        old = self.by_key.pop(key, None)
        if old is not None:
            self.waiting.discard(key)
            for node in {old.node, old.nominated} - {""}:
                self._on[node].discard(key)
        if pod is not None:
            self.by_key[key] = pod
            if pod.waits_since:
                self.waiting.add(key)
            for node in {pod.node, pod.nominated} - {""}:
                self._on.setdefault(node, set()).add(key)

    def on(self, node: str) -> list[PodFacts]:
        """Those that are bound to a node, or for which a place is reserved there."""
        return [self.by_key[key] for key in sorted(self._on.get(node, ()))]

    def busy(self, node: str) -> bool:
        """Whether a pod there is a client of its GPUs, or will be."""
        return any(pod.busy for pod in self.on(node))

    def queue_order(self, now: float, pending_for: float, served: Iterable[str]) -> list[PodFacts]:
        """Those of `served` that have waited for long enough: by priority, then by age, as far as is planned for."""
        found = [self.by_key[key] for key in served if now >= self.by_key[key].waits_since + pending_for]
        found.sort(key=lambda pod: (-pod.priority, pod.created, pod.key))
        return found[:_MOST_WISHES]


def wishes(waiting: Iterable[PodFacts]) -> tuple[list[Wish], list[PodSpec]]:
    """The pods as wishes, and their distinct shapes."""
    shapes: dict[PodSpec, int] = {}
    found = [
        Wish(pod.key, shapes.setdefault(pod.spec, len(shapes)), pod.wants, pod.gang) for pod in waiting if pod.spec is not None
    ]
    return found, list(shapes)


def offer(
    view: views.Node,
    pool: Pool | None,
    configs: Mapping[str, Partitions],
    pods: Pods,
    shapes: list[PodSpec],
    now: float,
) -> Offer | None:
    """A node as the planner sees it; None: it offers nothing that may be counted on. configs: those that it may get."""
    name, record, node = view.metadata.name, record_of(view), convert.node(view)
    state, config = label(view, names.MIG_STATE_LABEL), label(view, names.MIG_CONFIG_LABEL)
    phase = record.phase if record is not None else None
    if node.error is not None or (state == ConfigState.FAILED and phase != Phase.RELEASED) or phase in _OFFERS_NOTHING:
        return None
    used: Counter[str] = Counter()
    for pod in pods.on(name):
        used.update(dict(pod.spec.requests) if pod.spec is not None else {})
    if record is not None and record.phase in CORDONED:
        config, free = record.to, configs.get(record.to, ())
    elif state and state not in (ConfigState.SUCCESS, ConfigState.FAILED):
        free = configs.get(config, ())
    else:
        free = tuple(
            sorted(
                (profile, left)
                for resource, amount in node.allocatable.items()
                if (profile := profile_of(resource)) and (left := amount - used[resource]) > 0
            )
        )
    changeable = (
        pool is not None
        and bool(configs)
        and state == ConfigState.SUCCESS
        and rests(record, pool.times, now) <= 0
        and not is_cordoned(view)
        and not label(view, names.QUARANTINED_LABEL)
        and not pods.busy(name)
    )
    given = NodeClass(
        node.labels,
        tuple(each for each in node.taints if each.key != names.MIG_TAINT),
        unschedulable=node.unschedulable,
        features=node.features,
        name=name,
    )
    unused = {resource: amount - used[resource] for resource, amount in node.allocatable.items()}
    holds = tuple(first_refusal(shape, given) is None and _fits(shape, unused) for shape in shapes)
    return Offer(name, pool.name if pool is not None else "", config, free, changeable, holds)


def _fits(shape: PodSpec, left: Mapping[str, int]) -> bool:
    """Whether all but its partitions is free on a node."""
    return all(amount <= left.get(resource, 0) for resource, amount in shape.requests if not profile_of(resource))
