"""Typed views of Kubernetes objects: only the fields that are used; the rest is skipped while decoding.

Objects of Fairlead's own kinds are read by the types from which their CustomResourceDefinitions are made. Quantities stay text
here: `convert.py` judges them, so that a bad one spoils its own object only.
"""

from __future__ import annotations

import msgspec

from fairlead.api.kinds import common, node_pool, pod_group, queue, reservation, service_class

Metadata = common.Metadata
OwnerReference = common.OwnerReference
LabelSelector = common.LabelSelector
SelectorRequirement = common.LabelRequirement
NodePool = node_pool.NodePool
PodGroup = pod_group.PodGroup
PodGroupSpec = pod_group.PodGroupSpec
PodGroupStatus = pod_group.PodGroupStatus
GroupTarget = pod_group.GroupTarget
Queue = queue.Queue
Reservation = reservation.Reservation
ServiceClass = service_class.ServiceClass
Quantities = dict[str, str | int | float]


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class View(msgspec.Struct, rename="camel", gc=False):
    pass


class Resources(View):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ResourceClaim(View):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ResourceClaimStatus(View):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerPort(View):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class RestartRule(View):
    action: str = ""


class Container(View):
    name: str = ""
    image: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None
    restart_policy_rules: list[RestartRule] | None = None


class Toleration(View):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(View):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(View):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredNode(View):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(View):
    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[PreferredNode] | None = msgspec.field(default=None, name=_PREFERRED)


class PodAffinityTerm(View):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PreferredPods(View):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(View):
    required: list[PodAffinityTerm] | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[PreferredPods] | None = msgspec.field(default=None, name=_PREFERRED)


class Affinity(View):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(View):
    claim_name: str = ""


class GceDisk(View):
    pd_name: str = ""
    read_only: bool = False


class AwsDisk(View):
    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(View):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class AzureFile(View):
    secret_name: str = ""
    share_name: str = ""


class CloudDisk(View):
    """Of OpenStack (cinder) and of Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereDisk(View):
    volume_path: str = ""


class Iscsi(View):
    iqn: str = ""
    read_only: bool = False


class Rbd(View):
    monitors: list[str] | None = None
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ImageVolume(View):
    reference: str = ""


class PodVolume(View):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, object] | None = None
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: CloudDisk | None = None
    portworx_volume: CloudDisk | None = None
    vsphere_volume: VsphereDisk | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None
    image: ImageVolume | None = None


class SchedulingGate(View):
    name: str = ""


class SchedulingGroup(View):
    """Upstream's gangs, where the API server has them switched on."""

    pod_group_name: str = ""


class PodSpec(View):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[PodVolume] | None = None
    host_network: bool = False
    active_deadline_seconds: int | None = None
    host_users: bool | None = None
    resource_claims: list[ResourceClaim] | None = None


class Condition(View):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Waiting(View):
    reason: str = ""
    message: str = ""


class Running(View):
    started_at: str | None = None


class Terminated(View):
    exit_code: int = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(View):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(View):
    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int = 0
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class ExtendedResourceClaimStatus(View):
    resource_claim_name: str = ""


class PodStatus(View):
    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


class Taint(View):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(View):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeImage(View):
    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(View):
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None
    images: list[NodeImage] | None = None
    declared_features: list[str] | None = None


class Node(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus | None = None


class Namespace(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class PriorityClass(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    value: int = 0
    preemption_policy: str = ""


class BudgetSpec(View):
    selector: LabelSelector | None = None


class BudgetStatus(View):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, object] | None = None


class Budget(View):
    """A PodDisruptionBudget."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


class ListMetadata(View):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class RawList(View):
    """A page of a list; each item is decoded on its own, so that a bad one spoils nothing else."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    items: list[msgspec.Raw] = []


class WatchEvent(View):
    """One line of a watch."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class OnlyMetadata(View):
    """What is left of an object whose other fields cannot be read, and of bookmarks."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class ErrorStatus(View):
    """The object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
