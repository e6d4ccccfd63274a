"""Which pods belong together where nobody says so: those of kinds that are gangs by nature, told by their controllers' labels.

The names are those of PodGroups that the operator makes for the objects behind them (`fairlead.operator.gangs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fairlead.cluster.rules import Rule
from fairlead.cluster.views import SchedulingGroup

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
TRAINING_NAME: Final = "training.kubeflow.org/job-name"
RAY_CLUSTER: Final = "ray.io/cluster"


def jobset(name: str) -> str:
    """The gang of a JobSet."""
    return f"jobset-{name}"


def leader_worker_set(name: str, group: str) -> str:
    """The gang of one group of a LeaderWorkerSet."""
    return f"lws-{name}-{group}"


def training_job(name: str) -> str:
    """The gang of a PyTorchJob, MPIJob and their like."""
    return f"training-{name}"


def ray_cluster(name: str) -> str:
    """The gang of a RayCluster."""
    return f"raycluster-{name}"


_RULES: tuple[tuple[str, Callable[[str, Mapping[str, str]], str]], ...] = (
    (JOBSET_NAME, lambda name, _: jobset(name)),
    (LWS_NAME, lambda name, labels: leader_worker_set(name, labels.get(LWS_GROUP, "0"))),
    (TRAINING_NAME, lambda name, _: training_job(name)),
    (RAY_CLUSTER, lambda name, _: ray_cluster(name)),
)


RULES: dict[str, Rule] = {}
"""What an administrator says of other kinds, by the label of their pods. Set once by a process, before it reads anything."""


def use(rules: Iterable[Rule]) -> None:
    """These rules, and no others, besides what is known of itself."""
    RULES.clear()
    RULES.update({rule.pod_label: rule for rule in rules})


def uid_by_name(kind: str, name: str) -> str:
    """What stands for the UID of an object of which its pods tell no more than the name."""
    return f"{kind}/{name}"


def root_by_rule(labels: Mapping[str, str]) -> tuple[str, str]:
    """The object that a pod is suspended by where a rule says so: `apiVersion/kind/name`, and what stands for its UID."""
    for label, rule in RULES.items():
        name = labels.get(label)
        if name and rule.suspend is not None:
            return f"{rule.api_version}/{rule.kind}/{name}", uid_by_name(rule.kind, name)
    return "", ""


_UPSTREAM = "upstream-"


def upstream(name: str) -> str:
    """The gang of a PodGroup of scheduling.k8s.io."""
    return f"{_UPSTREAM}{name}"


def is_upstream(key: str) -> bool:
    """Whether a PodGroup, `namespace/name`, stands for one of scheduling.k8s.io."""
    return key.partition("/")[2].startswith(_UPSTREAM)


def group_of(labels: Mapping[str, str], scheduling: SchedulingGroup | None = None) -> str:
    """The PodGroup of a pod that names none; empty if it is a pod by itself. scheduling: its `spec.schedulingGroup`."""
    if scheduling is not None and scheduling.pod_group_name:
        return upstream(scheduling.pod_group_name)
    for label, rule in _RULES:
        name = labels.get(label)
        if name:
            return rule(name, labels)
    for label, described in RULES.items():
        name = labels.get(label)
        if name and described.gang is not None:
            return described.group(name)
    return ""
