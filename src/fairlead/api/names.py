"""Names that appear on objects: labels, annotations, scheduler names, resource names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

GROUP: Final = "fairlead.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
VISIBILITY_GROUP: Final = f"visibility.{GROUP}"
VISIBILITY: Final = f"/apis/{VISIBILITY_GROUP}/{VERSION}"
VISIBILITY_SERVICE: Final = "fairlead-visibility"
HISTORY_GROUP: Final = f"history.{GROUP}"
HISTORY_SERVICE: Final = "fairlead-history"
EXTERNAL_METRICS_GROUP, EXTERNAL_METRICS_VERSION = "external.metrics.k8s.io", "v1beta1"
EXTERNAL_METRICS_SERVICE: Final = "fairlead-external-metrics"
"""The aggregated API by which the leader answers questions."""

SCHEDULER_NAME: Final = "fairlead"
KUBERNETES_SCHEDULER_NAME: Final = "fairlead-kubernetes"
AI_PROFILE: Final = "ai"
KUBERNETES_PROFILE: Final = "kubernetes"
PROFILES: Final = (AI_PROFILE, KUBERNETES_PROFILE)
DEFAULT_SCHEDULERS: Final[Mapping[str, str]] = MappingProxyType(
    {SCHEDULER_NAME: AI_PROFILE, KUBERNETES_SCHEDULER_NAME: KUBERNETES_PROFILE}
)
"""The scheduler names that we answer to where no configuration gives others, and the profile of each."""

FIRST_RELEASE: Final = "fairlead"
"""The name of a release where none is given. It serves what names no scheduler, and writes what is of the whole cluster."""

_schedulers = dict(DEFAULT_SCHEDULERS)
SCHEDULERS: Final[Mapping[str, str]] = MappingProxyType(_schedulers)
"""The scheduler names that this process answers to, and the profile of each: one list for all of its parts. A view that follows
`answer_to`, which a process calls before it begins anything."""


_release = [FIRST_RELEASE]


def release() -> str:
    """The name of the release of Fairlead that this process is of: several may run in one cluster."""
    return _release[0]


def lease(release: str, process: str) -> str:
    """The name of the Lease of a process (`scheduler`, `operator`) of a release; the account has the same name."""
    return f"{release}-{process}"


def lease_of_speeds(release: str) -> str:
    """The name of the Lease in which the scheduler of a release writes what it learned of speeds."""
    return f"{lease(release, 'scheduler')}-pair-speeds"


def answer_to(schedulers: Mapping[str, str], release: str = FIRST_RELEASE) -> None:
    """From now on the schedulers of this process have these names, and it is of this release."""
    given = dict(schedulers)
    _schedulers.clear()
    _schedulers.update(given)
    _release[0] = release


def own_scheduler() -> str:
    """The name that pods get which we make: the first of profile `ai`, else the first."""
    return next((name for name, profile in _schedulers.items() if profile == AI_PROFILE), next(iter(_schedulers)))


_LONGEST = 253  # characters of an object's name
_DIGEST = 16


def fitting(name: str) -> str:
    """The name of an object that is made for another. One that is too long ends in a digest of it: two names stay two."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1].rstrip('.-')}-{digest}"


CONFIG_VARIABLE: Final = "FAIRLEAD_CONFIG"
"""The environment's variable for the configuration file."""
ANY_SCHEDULER: Final = "*"
"""Pods of every scheduler count as ours: for shadow mode."""
DEFAULT_QUEUE: Final = "default"

JOB_LABEL: Final = "fairlead.dev/job"
ROLE_LABEL: Final = "fairlead.dev/role"
INDEX_LABEL: Final = "fairlead.dev/index"
ATTEMPT_LABEL: Final = "fairlead.dev/attempt"
"""On the pods of an AIJob."""
ROLES_LABEL: Final = "fairlead.dev/roles-digest"
"""On them, and as an annotation on their PodGroup: of the roles that they were made from, and of those that the job has now."""
COUNTS_ANNOTATION: Final = "fairlead.dev/counts-as"
"""On a failed pod of an AIJob: `Succeeded` where the job's rules for exit codes count it as such."""
ELEMENT_LABEL: Final = "fairlead.dev/array-index"
"""On the pods of an AIJob that is an array: which element they are."""
SINGLETON_LABEL: Final = "fairlead.dev/singleton"
"""On an AIJob: what a dependency `singleton` names."""
MADE_FOR_LABEL: Final = "fairlead.dev/made-for"
"""On a PodGroup that the scheduler made to store a target state: the kind of its owner."""
MOVES_TO: Final = "MovesTo"
"""Condition of a pod that is evicted to run elsewhere; the message is the node where a place is reserved for its replacement."""
SERVES_ANNOTATION: Final = "fairlead.dev/serves"
"""On a PodGroup: further gangs that it is for, `GROUP/PART`, with spaces between (`fairlead.cluster.serving`)."""
UPSTREAM_LABEL: Final = "fairlead.dev/upstream"
"""`true` on a PodGroup that stands for one of scheduling.k8s.io, to which its conditions are written."""
QUARANTINED_LABEL: Final = "fairlead.dev/quarantined"
"""`true` on a Node that is blamed for failures: gangs of AIJobs are kept off. Removing it releases the node and forgets them."""
QUARANTINED_UNTIL_ANNOTATION: Final = "fairlead.dev/quarantined-until"
QUARANTINE_REASON_ANNOTATION: Final = "fairlead.dev/quarantine-reason"
"""Beside them: what speaks against the node, in words."""
RELEASED_ANNOTATION: Final = "fairlead.dev/released"
"""On a Node: when the label was last removed; earlier failures no longer count against the node."""
MIG_TAINT: Final = "fairlead.dev/mig-reconfiguring"
"""On a Node that mig-manager is to reconfigure, or does: nothing is placed there. Its value is the configuration."""
MIG_PHASE_LABEL: Final = "fairlead.dev/mig-reconfiguration"
"""Beside the taint: how far that is (`fairlead.core.mig.reconfiguration.Phase`)."""
MIG_RECORD_ANNOTATION: Final = "fairlead.dev/mig-reconfiguration-record"
"""On a Node: its latest reconfiguration, as JSON (`fairlead.core.mig.reconfiguration.Record`)."""
MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
MIG_STATE_LABEL: Final = "nvidia.com/mig.config.state"
"""On a Node: the configuration that mig-manager applies, and how far it is: pending, rebooting, success, failed."""
FAILURES_ANNOTATION: Final = "fairlead.dev/failures"
"""On a Node: the latest that speaks against it, `TIME NAMESPACE/JOB USER HOW SHARE`, with commas between."""
ALTERNATIVES_ANNOTATION: Final = "fairlead.dev/alternatives"
"""On the PodGroup of an AIJob with alternatives: the forms in which it may run, for the scheduler. The operator's."""
FOLLOWERS_ANNOTATION: Final = "fairlead.dev/followers"
"""On the PodGroup of leaders: the pods that are created once these have nodes, for the scheduler. The operator's."""
PAUSED_ANNOTATION: Final = "fairlead.dev/paused"
"""`true` on a PodGroup whose AIJob its user suspends though the scheduler did so, too: it waits for nothing. The operator's."""
ENDED_ANNOTATION: Final = "fairlead.dev/ended"
"""`Failed` or `Succeeded` on the PodGroup of an AIJob, or of an element, that ended so, where its pods do not show it.

The operator's.
"""
SUSPENDED_BY_ANNOTATION: Final = "fairlead.dev/suspended-by"
"""`policy` on a workload that Fairlead suspended: only such are resumed by it."""
TARGET_EPOCH_ANNOTATION: Final = "fairlead.dev/target-epoch"
"""Beside it: the epoch of the target state that it was suspended for."""
SUSPENDED_FOR_ANNOTATION: Final = "fairlead.dev/suspended-for"
"""Beside it: the name of the PodGroup with that target state. The workload is resumed once the PodGroup no longer has it."""
SUSPENDED_BY_LABEL: Final = SUSPENDED_BY_ANNOTATION
"""The same as a label, by which what is suspended is found."""
QUEUE_LABEL: Final = "fairlead.dev/queue"
SERVICE_CLASS_LABEL: Final = "fairlead.dev/service-class"
POD_GROUP_LABEL: Final = "fairlead.dev/pod-group"
ELASTIC_REPLICA_LABEL: Final = "fairlead.dev/elastic-replica"
"""`true` on a member of a gang that it can do without: placed after all who wait with its priority, and first to go for them."""
LAST_ACTIVITY_ANNOTATION: Final = "fairlead.dev/last-activity"
"""On an Interactive AIJob: when its user was active last, such as 2027-01-31T08:00:00Z."""
DEFAULT_QUEUE_LABEL: Final = "fairlead.dev/default-queue"
SCHEDULER_NAME_LABEL: Final = "fairlead.dev/scheduler-name"
"""On namespaces: the scheduler of pods that name none, where an administrator has chosen so (policies/defaults)."""
GPU_TOPOLOGY_ANNOTATION: Final = "fairlead.dev/gpu-topology"
NUMA_ANNOTATION: Final = "fairlead.dev/numa"
"""On nodes: what `nvidia-smi topo -m` prints there."""
GPU_SHARING_LABEL: Final = "fairlead.dev/gpu-sharing"
"""On nodes: the agent there that gives pods their part of a GPU."""
OWN_AGENT: Final = "fairlead-agent"
"""That of `fairlead agent`, which gives fractions out by itself."""
DEFAULT_SHARING_AGENTS: Final = frozenset({OWN_AGENT})
_sharing_agents = set(DEFAULT_SHARING_AGENTS)
SHARING_AGENTS: Final[AbstractSet[str]] = _sharing_agents
"""The agents of this process's configuration (`gpuSharing.agents`): fractions are placed on nodes that name one of them."""


def share_by(agents: Iterable[str]) -> None:
    """From now on these agents give fractions out."""
    given = set(agents)
    _sharing_agents.clear()
    _sharing_agents.update(given)


_gpu_parts: dict[tuple[str, str], int] = {}
GPU_PARTS: Final[Mapping[tuple[str, str], int]] = _gpu_parts
"""By this process's configuration (`gpuSharing.parts`): thousandths of a GPU that one of a resource counts as, by resource and
product; product empty: of every product."""


def count_parts(parts: Iterable[tuple[str, str, int]]) -> None:
    """From now on these resources count as such parts: (resource, product or empty, thousandths)."""
    given = {(resource, product): milli for resource, product, milli in parts}
    _gpu_parts.clear()
    _gpu_parts.update(given)


"""On a Node: `enabled` where a sharing plugin really gives out fractions of its GPUs."""

TIME_LIMIT_ANNOTATION: Final = "fairlead.dev/time-limit"
EXPECTED_DURATION_ANNOTATION: Final = "fairlead.dev/expected-duration"
"""On a pod of its own: how long it may run, and how long it is thought to, such as `90m` or `24h`."""
MAX_WAIT_CONDITION: Final = "MaxWaitExceeded"

GPU_FRACTION_ANNOTATION: Final = "fairlead.dev/gpu-fraction"
SHARED_RESOURCES_ANNOTATION: Final = "fairlead.dev/shared-resources"
"""What a pod takes of what the nodes of a pool share: `storage-bandwidth=2G,...`."""
SHARED_PREFIX: Final = "shared.fairlead.dev/"
"""Before the name of a shared resource where queues name it among their resources."""
PRESSURE_ANNOTATION: Final = "fairlead.dev/pressure"
"""On a pod: shares of its node's memory bandwidth, PCIe, network and disks that it uses: `memoryBandwidth=40%,pcie=5%`."""
MEASURED_PRESSURE_ANNOTATION: Final = "fairlead.dev/measured-pressure"
"""On a pod: the same as it was measured, with the time, such as `at=2027-01-31T08:00:00Z,network=20%`."""
GPU_PARTNER_ANNOTATION: Final = "fairlead.dev/gpu-partner"
"""On a pod that has half a GPU, written with its binding: UID of the pod beside which it is to run, or `alone`."""
ALONE: Final = "alone"
MEASURED_SPEED_ANNOTATION: Final = "fairlead.dev/measured-speed"
"""On a pod: steps per second as they were measured, with the time, such as `at=2027-01-31T08:00:00Z,speed=12.5`."""
LOAD_ANNOTATION: Final = "fairlead.dev/load"
"""On a Node: how much of it was in use, in the same form, with `cpu` besides."""
KUEUE_REQUIRED_ANNOTATION: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED_ANNOTATION: Final = "kueue.x-k8s.io/podset-preferred-topology"
"""On a pod: the label of the topology level in one domain of which its gang must run, or should."""
KAI_REQUIRED_ANNOTATION: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED_ANNOTATION: Final = "kai.scheduler/topology-preferred-placement"
"""On a workload: the same for its gang."""
KUEUE_PODSET_PREFIX: Final = "kueue.x-k8s.io/podset-"
KUEUE_SLICE_LEVEL_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-size"
"""On a pod: the label of the topology level in one domain of which each slice of its gang must run, and the pods of a slice."""
KUEUE_SLICES_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
"""The same for slices inside of one another, as JSON."""
USER_ANNOTATION: Final = "fairlead.dev/user"
"""Who submitted a workload; written by an admission policy from what the API server knows, see `fairlead crds --policies`."""
EPOCH_ANNOTATION: Final = "fairlead.dev/epoch"
"""On bindings: the epoch of the Lease that the scheduler held."""
FAILED_DEVICES_ANNOTATION: Final = "fairlead.dev/failed-devices"
"""On the scheduler's Lease: because of which devices bindings failed, for the scheduler that leads next."""
KEPT_PLACES_ANNOTATION: Final = "fairlead.dev/kept-places"
"""On the same: places that are reserved for pods which do not exist, for the scheduler that leads next."""
PAIR_SPEEDS_ANNOTATION: Final = "fairlead.dev/pair-speeds"
"""On a Lease beside that one: what is learned of speeds of jobs that share GPUs, for the scheduler that leads next."""
PAIR_SPEEDS_IN_ANNOTATION: Final = "fairlead.dev/pair-speeds-in"
"""On the scheduler's Lease: the name of the one that has it."""
LEASE_ANNOTATION: Final = "fairlead.dev/lease"
"""Beside the epoch: the name of that Lease, where it is not that of the first release."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
POOL_LABELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "fairlead.dev/pool")
"""Labels with a node's device model, or with its pool where no NodePool selects it; the first one present counts."""
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "habana.ai/gaudi")
"""Extended resources whose units are whole devices; the first that a node offers is its devices."""

PROVISIONING_CLASS_ANNOTATION: Final = "fairlead.dev/provisioning-class"
"""On a PodGroup, or on the workload that one is made for: nodes are asked for as a ProvisioningRequest of this class."""
PROVISIONING_PARAMETER_PREFIX: Final = "provisioning.fairlead.dev/"
"""Annotations beside it that begin so are the request's parameters."""
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""On a pod: `false` where Cluster Autoscaler may not evict it for the sake of fewer nodes; nor do we."""
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""On a pod: `true` where Karpenter may not, likewise."""

SIMULATED_DURATION_ANNOTATION: Final = "fairlead.dev/simulated-duration"
"""On a pod in a simulated cluster: how long it runs, such as `90s` or `2h`."""
SIMULATED_OUTCOME_ANNOTATION: Final = "fairlead.dev/simulated-outcome"
"""On a pod in a simulated cluster: `Succeeded` or `Failed`, how it ends."""
SIMULATED_START_FAILURE_ANNOTATION: Final = "fairlead.dev/simulated-start-failure"
"""On a pod in a simulated cluster: why its containers do not start, as a kubelet reports it: `REASON` or `REASON: MESSAGE`."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
"""Kubernetes' labels of nodes."""
CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Of a node: the NVLink domain that its GPUs are in, as NVIDIA's GPU feature discovery writes it."""
COMPUTE_DOMAIN_LABEL: Final = "resource.nvidia.com/computeDomain"
"""Of a node: UID of the ComputeDomain that it is in, as NVIDIA's DRA driver writes it; a node is in one at a time."""
COMPUTE_DOMAIN_CLASS: Final = "compute-domain-default-channel.nvidia.com"
"""The DeviceClass of the claims by which pods join a ComputeDomain."""
