"""Which pods belong together where nobody says so: those of kinds that are gangs by nature, told by their controllers' labels.

The names are those of PodGroups that the operator makes for the objects behind them (`fairlead.operator.gangs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fairlead.cluster.views import SchedulingGroup

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
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


def upstream(name: str) -> str:
    """The gang of a PodGroup of scheduling.k8s.io."""
    return f"upstream-{name}"


def group_of(labels: Mapping[str, str], scheduling: SchedulingGroup | None = None) -> str:
    """The PodGroup of a pod that names none; empty if it is a pod by itself. scheduling: its `spec.schedulingGroup`."""
    if scheduling is not None and scheduling.pod_group_name:
        return upstream(scheduling.pod_group_name)
    for label, rule in _RULES:
        name = labels.get(label)
        if name:
            return rule(name, labels)
    return ""
