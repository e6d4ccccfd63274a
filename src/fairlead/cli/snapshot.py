"""A snapshot of a cluster: everything listed once, and the scheduler's own core on it.

The commands that show things (`queue`, `nodes`, `share`, `explain`) share this. They only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cluster import device_views, gpu_parts, views
from fairlead.cluster.kinds import STORAGE
from fairlead.cluster.port import Synced, Upsert
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Place, Preempt, Refuse, Resume

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.cluster.translate import Change, Objects
    from fairlead.core.state.cluster import ClusterState
    from fairlead.scheduler.core_loop import CoreLoop
    from fairlead.scheduler.outputs import Output as Decision


class Snapshot:
    """All relevant objects, and a core that has applied them. now: seconds since the epoch, by the server's clock."""

    def __init__(self, now: float, *, missing: tuple[str, ...] = ()) -> None:
        self.now = now
        self.missing = missing  # kinds that the server does not serve
        self.nodes: list[views.Node] = []
        self.pods: list[views.Pod] = []
        self.groups: list[views.PodGroup] = []
        self.classes: list[views.ServiceClass] = []
        self.priorities: list[views.PriorityClass] = []
        self.queues: list[views.Queue] = []
        self.reservations: list[views.Reservation] = []
        self.pools: list[views.NodePool] = []
        self.budgets: list[views.Budget] = []
        self.namespaces: list[views.Namespace] = []
        self.slices: list[device_views.ResourceSlice] = []
        self.device_classes: list[device_views.DeviceClass] = []
        self.claim_templates: list[device_views.ResourceClaimTemplate] = []
        self.device_claims: list[device_views.ResourceClaim] = []
        self.storage: dict[str, list[Change[Any]]] = {}  # kind -> objects; only where a pod has volumes
        self.decisions: list[Decision] = []
        self._labels: dict[str, dict[str, str]] = {}
        self._open_queues: set[str] | None = None
        self._core: CoreLoop | None = None
        self._counted: dict[str, Pod] | None = None
        self._outlook: dict[str, Reason | None] | None = None

    def labels_of(self, node: str) -> dict[str, str] | None:
        """A node's labels; None: there is no such node."""
        if len(self._labels) != len(self.nodes):
            self._labels = {view.metadata.name: view.metadata.labels or {} for view in self.nodes}
        return self._labels.get(node)

    @property
    def open_queues(self) -> set[str]:
        """The queues that take jobs of any namespace and user."""
        if self._open_queues is None:
            specs = ((each.metadata.name, each.spec) for each in self.queues)
            self._open_queues = {name for name, spec in specs if spec.users is None and spec.namespace_selector is None}
        return self._open_queues

    @property
    def state(self) -> ClusterState:
        """The core's state, nothing decided yet."""
        return self.core.state

    @property
    def core(self) -> CoreLoop:
        """A core that knows everything and has decided nothing."""
        from fairlead.cluster.translate import first_events
        from fairlead.scheduler.core_loop import CoreLoop

        if self._core is None:
            objects = self.objects()
            policy = Policy(charge_foreign=objects.charges_foreign, gpu_parts=gpu_parts.listed())
            self._core = CoreLoop(policy, self.decisions.extend)
            self._core.apply([*first_events(objects, self.storage), Synced()], self.now)
            self._core.state.begin(self.now)
            self._core.state.settle(self.now)
            self._core.state.queues.settle(self.now)
        return self._core

    def outlook(self) -> dict[str, Reason | None]:
        """What a pass would decide now for each pending pod: UID -> why it waits, None: it would start.

        Pods that a pass cut short did not reach are left out. The state of `core` does not change.
        """
        from fairlead.scheduler.explanations import reason_of

        if self._outlook is None:
            other = Snapshot(self.now)
            other.__dict__ |= {**self.__dict__, "_core": None, "decisions": []}
            reasons = other.decide()
            starts = other.would_start()
            found: dict[str, Reason | None] = {}
            for uid, task in other.state.tasks.items():
                if uid in starts:
                    found[uid] = None
                elif not task.pod.node and (reason := reasons.get(uid) or reason_of(other.state, [task], task.gang)) is not None:
                    found[uid] = reason
            self._outlook = found
        return self._outlook

    @property
    def counted(self) -> dict[str, Pod]:
        """Pod UID -> the pod as it counts: in its PodGroup, and with its class's priority, as far as its queue lets it."""
        from fairlead.cluster.translate import first_events

        if self._counted is None:
            events = first_events(self.objects())
            pods = [each.object for each in events if isinstance(each, Upsert) and isinstance(each.object, Pod)]
            self._counted = {pod.uid: pod for pod in pods}
        return self._counted

    def default_queue(self, namespace: str) -> str:
        """The queue of a namespace's pods that name none."""
        for each in self.namespaces:
            if each.metadata.name == namespace:
                return (each.metadata.labels or {}).get(names.DEFAULT_QUEUE_LABEL, names.DEFAULT_QUEUE)
        return names.DEFAULT_QUEUE

    def objects(self) -> Objects:
        """What it shows, without volumes."""
        from fairlead.cluster.translate import Objects

        return Objects(
            self.now,
            self.nodes,
            self.pods,
            self.namespaces,
            self.queues,
            self.groups,
            self.classes,
            self.priorities,
            self.reservations,
            self.pools,
            self.budgets,
            self.slices,
            self.device_classes,
            self.claim_templates,
            self.device_claims,
        )

    def decide(self) -> dict[str, Reason]:
        """What a pass would decide now: pod UID -> why it waits; pods that would start have none."""
        self.core.decide(self.now)
        reasons: dict[str, Reason] = {}
        for each in self.decisions:
            if isinstance(each, Refuse):
                reasons |= {pod.uid: each.reason for pod in each.pods}
        return reasons

    def would_start(self) -> dict[str, str]:
        """After `decide`: pod UID -> node, of those that would be placed at once or after evictions."""
        placed: dict[str, str] = {}
        for each in self.decisions:
            bindings = each.bindings if isinstance(each, Place) else each.beneficiaries if isinstance(each, Preempt) else ()
            placed |= {binding.pod.uid: binding.node for binding in bindings}
            if isinstance(each, Resume):
                placed |= {pod.uid: node for pod, node in zip(each.pods, each.nodes, strict=True)}
        return placed

    def would_evict(self) -> dict[str, list[str]]:
        """After `decide`: pod UID -> the pods, `namespace/name`, that would be evicted for it and its gang."""
        return {
            binding.pod.uid: [victim.pod.key for victim in each.victims]
            for each in self.decisions
            if isinstance(each, Preempt)
            for binding in each.beneficiaries
        }


async def read(client: Client, report: Callable[[int, int], None] | None = None) -> Snapshot:
    """List everything. report: takes how many pods are listed, of all. Raises `ApiError` and `Unreachable`."""
    from fairlead.cluster.kubernetes.listing import everything, list_all
    from fairlead.cluster.translate import Change

    objects, missing = await everything(client, report)
    snapshot = Snapshot(objects.now, missing=missing)
    snapshot.nodes, snapshot.pods, snapshot.namespaces = objects.nodes, objects.pods, objects.namespaces
    snapshot.queues, snapshot.groups, snapshot.classes = objects.queues, objects.groups, objects.classes
    snapshot.reservations, snapshot.pools, snapshot.priorities = objects.reservations, objects.pools, objects.priorities
    snapshot.budgets = objects.budgets
    snapshot.slices, snapshot.device_classes = objects.slices, objects.device_classes
    snapshot.claim_templates, snapshot.device_claims = objects.claim_templates, objects.device_claims
    if any(volume.persistent_volume_claim or volume.ephemeral for pod in snapshot.pods for volume in pod.spec.volumes or ()):
        for kind in STORAGE:
            found = await list_all(client, kind.path, kind.view)
            snapshot.storage[kind.name] = [Change(kind.key(each.metadata), each) for each in found]
    return snapshot
