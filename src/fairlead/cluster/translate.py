"""From changes of Kubernetes objects to events of the port, whatever delivers the objects.

What one object means may depend on another kind: a pod that names no queue is in its namespace's
default one, so a change of the namespace's label is a change of its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.quantity import QuantityError
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster import convert, device_views, grouping, numa, policies, storage_views, views
from fairlead.cluster.kinds import (
    BUDGET,
    KINDS,
    NAMESPACE,
    NODE,
    NODE_POOL,
    NODE_TOPOLOGY,
    POD,
    POD_GROUP,
    PRIORITY_CLASS,
    QUEUE,
    RESERVATION,
    SERVICE_CLASS,
    Kind,
    Watch,
    complete,
    watched,
)
from fairlead.cluster.ownership import Ownership
from fairlead.cluster.port import ClusterEvent, DevicesKnown, Gone, Judged, StorageKnown, Upsert
from fairlead.cluster.priorities import Priorities
from fairlead.cluster.releases import Releases
from fairlead.cluster.serving import Serving
from fairlead.cluster.workloads import Workloads
from fairlead.core.dra.model import DeviceObject
from fairlead.core.model.nodes import NodePool, Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.nodes.storage import StorageObject

View = TypeVar("View", bound=msgspec.Struct)
Policy = TypeVar("Policy", views.Queue, views.ServiceClass, views.Reservation, views.NodePool)

log = structlog.get_logger("translate")

_ENDED = ("Succeeded", "Failed")


class Change(msgspec.Struct, Generic[View], gc=False):
    """One object came, changed (`view`) or went (`view` is None). key: UID, or name where it is reused.

    error: why the object could not be decoded; then `view` holds only its metadata.
    """

    key: str
    view: View | None
    error: str = ""


class Translator:
    """Keeps what is needed to translate the next change.

    schedulers: those whose pods are ours, `*` for all, and their profiles; ownership: which queues this release serves.
    versions: pod UID -> resourceVersion last seen. reported: pod UID -> (reason, message) that its condition gives for
    waiting; after a restart it need not be written again. demands: which other kinds the pods seen so far make worth watching.
    needs_devices: whether some of them have claims, and not only resources that devices may serve.
    """

    def __init__(self, schedulers: Mapping[str, str] = names.SCHEDULERS, ownership: Ownership | None = None) -> None:
        self.schedulers = schedulers
        self.ownership = ownership if ownership is not None else Ownership(schedulers)
        self._releases = Releases(self.ownership, self._default_queue)
        self._begun = False
        self.versions: dict[str, str] = {}
        self._unbound: dict[str, Pod] = {}  # ours that have no node yet, as they were delivered last
        self.reported: dict[str, tuple[str, str]] = {}
        self.verdicts: dict[tuple[str, str], tuple[bool, str, str]] = {}  # (plural, name) -> condition Accepted, as it stands
        self._default_queues: dict[str, str] = {}
        self.demands: set[Watch] = set()
        self.needs_devices = False
        self._unlabelled: dict[str, dict[str, Pod]] = {}  # namespace -> our pods in its default queue
        self._workloads = Workloads()
        self._priorities = Priorities()
        self._serving = Serving()
        self._spread: dict[str, dict[str, tuple[views.Metadata, Pod]]] = {}  # namespace -> waiting pods that are spread

    def translate(self, kind: Kind[Any], changes: list[Change[Any]]) -> list[ClusterEvent]:
        """Changes of objects of one kind."""
        if kind.watch is Watch.STORAGE:
            return self.storage(kind.name, changes)
        if kind.watch is Watch.DEVICES:
            return self.devices(kind.name, changes)
        if kind.watch is Watch.UPSTREAM:
            return self.workloads(kind.name, changes)
        events = _TRANSLATIONS[kind.name](self, changes)
        if self._begun:
            return events
        self._begun = True
        return self._releases.begin() + events

    def namespaces(self, changes: list[Change[views.Namespace]]) -> list[ClusterEvent]:
        """Namespaces, by name."""
        events: list[ClusterEvent] = []
        for change in changes:
            labels = (change.view.metadata.labels if change.view else None) or {}
            queue = labels.get(names.DEFAULT_QUEUE_LABEL, "")
            if self._default_queues.get(change.key, "") != queue:
                if queue:
                    self._default_queues[change.key] = queue
                else:
                    del self._default_queues[change.key]
                pods = self._unlabelled.get(change.key, {})
                for uid, pod in pods.items():
                    pods[uid] = msgspec.structs.replace(pod, queue=queue or names.DEFAULT_QUEUE)
                events += [Upsert(self._as_counted(pod)) for pod in pods.values()]
                events += self._releases.default_changed(change.key)
            events.append(Gone(NAMESPACE.name, change.key) if change.view is None else Upsert(convert.namespace(change.view)))
        return events

    def queues(self, changes: list[Change[views.Queue]]) -> list[ClusterEvent]:
        """Queues, by name."""
        sole = self.ownership.sole
        moved = [self._settle(change) for change in changes]
        found = self._policies(changes, QUEUE, policies.queue, policies.all_acted_on, "policy")
        events = self._releases.policies(found)
        if any(moved) and not (sole and self.ownership.sole):
            events += self._releases.queues_moved()
        for event in found:
            if isinstance(event, Gone):
                events += [Upsert(pod) for pod in self._priorities.set_queue(event.key, "", None)]
            elif isinstance(event, Upsert) and isinstance(event.object, Queue):
                queue = event.object
                events += [Upsert(pod) for pod in self._priorities.set_queue(queue.name, queue.parent, queue.classes)]
        return events

    def _settle(self, change: Change[views.Queue]) -> bool:
        """Whether queues may have changed hands. One that cannot be read is whose it was."""
        if change.view is None:
            return self.ownership.remove(change.key)
        if change.error:
            return False
        spec = change.view.spec
        return self.ownership.set(change.key, spec.parent or "", spec.scheduler_name or "")

    def classes(self, changes: list[Change[views.ServiceClass]]) -> list[ClusterEvent]:
        """Classes of service, by name."""
        ranked = [Upsert(e) for c in changes for e in self._priorities.set_class(c.key, c.view, readable=not c.error)]
        return [*self._judged_classes(changes), *ranked]

    def _judged_classes(self, changes: list[Change[views.ServiceClass]]) -> list[ClusterEvent]:
        read = policies.service_class
        return self._releases.policies(self._policies(changes, SERVICE_CLASS, read, self._priorities.missing, "class"))

    def node_pools(self, changes: list[Change[views.NodePool]]) -> list[ClusterEvent]:
        """Node pools, by name."""
        found = self._policies(changes, NODE_POOL, policies.node_pool, policies.pool_unsupported, "node pool")
        return self._releases.policies(found)

    def reservations(self, changes: list[Change[views.Reservation]]) -> list[ClusterEvent]:
        """Reservations, by name."""
        read, unsupported = policies.reservation, policies.all_acted_on
        return self._releases.policies(self._policies(changes, RESERVATION, read, unsupported, "reservation"))

    def _policies(
        self,
        changes: list[Change[Policy]],
        kind: Kind[Policy],
        read: Callable[[Policy], Queue | ServiceClass | Reservation | NodePool],
        unsupported: Callable[[Policy], str],
        called: str,
    ) -> list[ClusterEvent]:
        """What an administrator edits: whatever cannot be used leaves what was there in force, and is complained of."""
        events: list[ClusterEvent] = []
        for change in changes:
            if change.view is None:
                self.verdicts.pop((kind.plural, change.key), None)
                events.append(Gone(kind.name, change.key))
                continue
            try:
                if change.error:
                    raise QuantityError(change.error)
                events.append(Upsert(read(change.view)))
                wrong = unsupported(change.view)
            except QuantityError as error:
                wrong = f"{error}; the {called} before this change stays in force"
            status = None if change.error else change.view.status  # of what cannot be read there are metadata only
            for condition in (status.conditions if status else None) or ():
                if condition.type == "Accepted":
                    self.verdicts[kind.plural, change.key] = condition.status == "True", condition.reason, condition.message
            events.append(Judged(kind.plural, change.view.metadata.name, wrong))
        return events

    def priorities(self, changes: list[Change[views.PriorityClass]]) -> list[ClusterEvent]:
        """PriorityClasses, by name."""
        ranked: list[ClusterEvent] = [
            Upsert(pod)
            for change in changes
            for pod in self._priorities.set_value(None if change.error else change.view, change.key)
        ]
        named = self._priorities.naming({change.key for change in changes})  # what is reported of them may be another
        return ranked + self._judged_classes([Change(each.metadata.name, each) for each in named])

    def nodes(self, changes: list[Change[views.Node]]) -> list[ClusterEvent]:
        """Nodes, by name."""
        events: list[ClusterEvent] = []
        for change in changes:
            if change.view is None:
                events.append(Gone(NODE.name, change.key))
            elif change.error:
                bare = views.Node(metadata=change.view.metadata)
                broken = Reason(ReasonCode.INVALID_SPEC, f"node {change.key} cannot be read: {change.error}")
                events.append(Upsert(msgspec.structs.replace(convert.node(bare), error=broken)))
            else:
                events.append(Upsert(convert.node(change.view)))
        return events

    def node_topologies(self, changes: list[Change[numa.NodeResourceTopology]]) -> list[ClusterEvent]:
        """NodeResourceTopologies, by name."""
        gone = NODE_TOPOLOGY.name
        return [Gone(gone, e.key) if e.view is None else Upsert(numa.topology(e.view, e.error)) for e in changes]

    def groups(self, changes: list[Change[views.PodGroup]]) -> list[ClusterEvent]:
        """PodGroups, by `namespace/name`."""
        events: list[ClusterEvent] = []
        for change in changes:
            if change.view is None:
                self._releases.group_gone(change.key)
                events.append(Gone(POD_GROUP.name, change.key))
                events += self._served(change.key, ())
                events += [Upsert(pod) for pod in self._priorities.set_group(change.key, "")]
            elif change.error:
                log.error("PodGroup cannot be read", group=change.key, error=change.error)
            else:
                group = convert.group(change.view)
                events += self._releases.group(group)
                events += self._served(change.key, grouping.serves(change.view.metadata))
                events += [Upsert(pod) for pod in self._priorities.set_group(change.key, group.service_class, group.queue)]
        return events

    def _served(self, key: str, serves: tuple[str, ...]) -> list[ClusterEvent]:
        return [Upsert(self._priorities.of(pod)) for pod in self._serving.set_group(key, serves)]

    def pods(self, changes: list[Change[views.Pod]]) -> list[ClusterEvent]:
        """Pods, by UID."""
        events: list[ClusterEvent] = []
        for change in changes:
            view = change.view
            if view is None:
                self._forget(change.key, events)
                continue
            metadata = view.metadata
            self.versions[change.key] = metadata.resource_version
            if change.error:
                self._drop(change.key)
                events.append(Upsert(self._unreadable(view, change.error)))
                continue
            pod = self._pod(view)
            if pod.ours:
                if pod.claims or pod.extended:
                    self.demands.add(Watch.DEVICES)  # also of pods on nodes: queues are charged for their devices
                self.needs_devices = self.needs_devices or bool(pod.claims or pod.extended_claim)
                if pod.node:
                    self._unbound.pop(change.key, None)
                else:
                    self._unbound[change.key] = pod
                    self._note_condition(change.key, view)
                    self._note_demands(pod)
                self._note_spread(view, pod)
                if (metadata.labels or {}).get(names.QUEUE_LABEL):
                    self._unlabelled.get(metadata.namespace, {}).pop(change.key, None)
                else:
                    self._unlabelled.setdefault(metadata.namespace, {})[change.key] = pod
            events.append(Upsert(self._as_counted(pod)))
        return events

    def _as_counted(self, pod: Pod) -> Pod:
        """In its PodGroup, with its priority."""
        return self._priorities.of(self._serving.of(pod))

    def unchanged(self, view: views.Pod) -> bool:
        """Whether a pod without a node is still as it was delivered, whatever was written to its status."""
        known, now = self._unbound.get(view.metadata.uid), self._pod(view)
        # The claim for its extended resources is in the status, and written by ourselves.
        return known is not None and msgspec.structs.replace(now, extended_claim=known.extended_claim) == known

    def _note_demands(self, pod: Pod) -> None:
        if pod.spec.claims:
            self.demands.add(Watch.STORAGE)
        if pod.profile == names.KUBERNETES_PROFILE:
            self.demands.add(Watch.UPSTREAM)

    def _note_spread(self, view: views.Pod, pod: Pod) -> None:
        """Waiting pods whose default spreading may change with the services and controllers that select them."""
        if pod.profile != names.KUBERNETES_PROFILE:
            return
        namespace = self._spread.setdefault(pod.namespace, {})
        if pod.node or view.spec.topology_spread_constraints:
            namespace.pop(pod.uid, None)
        else:
            namespace[pod.uid] = view.metadata, pod

    def workloads(self, kind: str, changes: list[Change[Any]]) -> list[ClusterEvent]:
        """Services and controllers, by `namespace/name`. kind: the name of theirs. Waiting pods that they select change."""
        namespaces = set()
        for change in changes:
            namespace, _, name = change.key.partition("/")
            namespaces.add(namespace)
            if change.view is None or change.error:
                self._workloads.remove(kind, namespace, name)
            else:
                self._workloads.upsert(kind, change.view)
        events: list[ClusterEvent] = []
        for namespace in namespaces:
            for uid, (metadata, pod) in list(self._spread.get(namespace, {}).items()):
                selector = self._workloads.selector_of(metadata)
                if selector != pod.spec.default_spread:
                    spec = msgspec.structs.replace(pod.spec, default_spread=selector)
                    changed = msgspec.structs.replace(pod, spec=spec)
                    self._spread[namespace][uid] = metadata, changed
                    events.append(Upsert(self._as_counted(changed)))
        return events

    @staticmethod
    def storage(kind: str, changes: list[Change[Any]]) -> list[ClusterEvent]:
        """Storage objects, by name, or `namespace/name`. kind: the name of theirs."""
        return _referred(kind, changes, storage_views.convert, "storage object cannot be read")

    @staticmethod
    def devices(kind: str, changes: list[Change[Any]]) -> list[ClusterEvent]:
        """Objects of `resource.k8s.io`, by name, or `namespace/name`. kind: the name of theirs."""
        return _referred(kind, changes, device_views.device_object, "object of resource.k8s.io cannot be read")

    def budgets(self, changes: list[Change[views.Budget]]) -> list[ClusterEvent]:
        """Disruption budgets, by `namespace/name`."""
        events: list[ClusterEvent] = []
        for change in changes:
            if change.view is None:
                events.append(Gone(BUDGET.name, change.key))
            elif change.error:
                log.error(
                    "PodDisruptionBudget cannot be read; its earlier version stays in force",
                    budget=change.key,
                    error=change.error,
                )
            else:
                events.append(Upsert(convert.budget(change.view)))
        return events

    def _forget(self, uid: str, events: list[ClusterEvent]) -> None:
        self.reported.pop(uid, None)
        self._unbound.pop(uid, None)
        if self.versions.pop(uid, None) is not None:
            events.append(Gone(POD.name, uid))
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        """What was kept of a pod is outdated, and must not be delivered again."""
        self._unbound.pop(uid, None)
        for pods in self._unlabelled.values():
            pods.pop(uid, None)
        for spread in self._spread.values():
            spread.pop(uid, None)
        self._serving.forget(uid)
        self._priorities.forget(uid)

    def _default_queue(self, namespace: str) -> str:
        return self._default_queues.get(namespace) or names.DEFAULT_QUEUE

    def _pod(self, view: views.Pod) -> Pod:
        return convert.pod(view, self._default_queue(view.metadata.namespace), self.schedulers, self._workloads)

    def _note_condition(self, uid: str, view: views.Pod) -> None:
        for condition in (view.status.conditions if view.status else None) or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                self.reported[uid] = (condition.reason, condition.message)
                return
        self.reported.pop(uid, None)

    def _unreadable(self, view: views.Pod, error: str) -> Pod:
        bare = views.Pod(metadata=view.metadata, spec=views.PodSpec(scheduler_name=next(iter(self.schedulers))))
        reason = Reason(ReasonCode.INVALID_SPEC, f"pod {view.metadata.namespace}/{view.metadata.name} cannot be read: {error}")
        return msgspec.structs.replace(self._pod(bare), error=reason, unsized=True)


def _referred(
    kind: str, changes: list[Change[Any]], read: Callable[[Any], StorageObject | DeviceObject], wrong: str
) -> list[ClusterEvent]:
    """What pods refer to. One that cannot be read is as if it did not exist: pods that need it wait, and report that."""
    events: list[ClusterEvent] = []
    for change in changes:
        if change.view is None:
            events.append(Gone(kind, change.key))
            continue
        try:
            if change.error:
                raise QuantityError(change.error)
            events.append(Upsert(read(change.view)))
        except (QuantityError, device_views.DeviceError) as error:
            log.error(wrong, kind=kind, name=change.key, error=str(error))
            events.append(Gone(kind, change.key))
    return events


_TRANSLATIONS: Mapping[str, Callable[[Translator, list[Change[Any]]], list[ClusterEvent]]] = complete(
    {
        NAMESPACE.name: Translator.namespaces,
        PRIORITY_CLASS.name: Translator.priorities,
        SERVICE_CLASS.name: Translator.classes,
        QUEUE.name: Translator.queues,
        NODE_POOL.name: Translator.node_pools,
        RESERVATION.name: Translator.reservations,
        NODE.name: Translator.nodes,
        NODE_TOPOLOGY.name: Translator.node_topologies,
        BUDGET.name: Translator.budgets,
        POD_GROUP.name: Translator.groups,
        POD.name: Translator.pods,
    },
    watched(Watch.ALWAYS) + watched(Watch.ALONE) + watched(Watch.SERVED),
)


class Objects(msgspec.Struct):
    """Everything that a decision rests on but volumes, as read from a cluster. now: seconds since the epoch.

    slices, device_classes, claim_templates, device_claims: objects of `resource.k8s.io`.
    """

    now: float
    nodes: list[views.Node] = []
    pods: list[views.Pod] = []
    namespaces: list[views.Namespace] = []
    queues: list[views.Queue] = []
    groups: list[views.PodGroup] = []
    classes: list[views.ServiceClass] = []
    priorities: list[views.PriorityClass] = []
    reservations: list[views.Reservation] = []
    pools: list[views.NodePool] = []
    budgets: list[views.Budget] = []
    slices: list[device_views.ResourceSlice] = []
    device_classes: list[device_views.DeviceClass] = []
    claim_templates: list[device_views.ResourceClaimTemplate] = []
    device_claims: list[device_views.ResourceClaim] = []

    @property
    def charges_foreign(self) -> bool:
        """Whether the scheduler charges queues for pods of others: it writes what these hold of each."""
        return any(queue.status is not None and bool(queue.status.foreign) for queue in self.queues)


FIELDS = complete(
    {
        NAMESPACE.name: "namespaces",
        PRIORITY_CLASS.name: "priorities",
        SERVICE_CLASS.name: "classes",
        QUEUE.name: "queues",
        NODE_POOL.name: "pools",
        RESERVATION.name: "reservations",
        NODE.name: "nodes",
        BUDGET.name: "budgets",
        POD_GROUP.name: "groups",
        POD.name: "pods",
        "resourceslice": "slices",
        "deviceclass": "device_classes",
        "resourceclaimtemplate": "claim_templates",
        "resourceclaim": "device_claims",
    },
    watched(Watch.ALWAYS) + watched(Watch.ALONE) + watched(Watch.DEVICES),
)
"""In which field of `Objects` a kind is."""


def first_events(objects: Objects, storage: Mapping[str, list[Change[Any]]] | None = None) -> list[ClusterEvent]:
    """The events by which a scheduler that has just started receives all objects; pods that have ended are left out.

    storage: objects of volumes by the name of their kind.
    """
    translator, events = Translator(), list[ClusterEvent]()
    for kind in KINDS:
        if kind is POD:
            events += [StorageKnown(), DevicesKnown()]
        if kind.name in FIELDS:
            found: list[Any] = getattr(objects, FIELDS[kind.name])
            if kind is POD:
                found = [each for each in found if each.status is None or each.status.phase not in _ENDED]
            changes = [Change[Any](kind.key(each.metadata), each) for each in found]
        else:
            changes = (storage or {}).get(kind.name, [])
        events += translator.translate(kind, changes)
    return events
