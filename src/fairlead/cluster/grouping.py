"""Which pods belong together although they name no PodGroup: pods of kinds that are gangs, by their controllers' labels.

The names are those of PodGroups that the operator makes for the objects behind them (`fairlead.operator.gangs`): `KIND.NAME`. No
two objects have the same. AIJobs, whose gangs have their own names, have no dots in them. Before the first dot stands what kind
it is. The rest is split at the last dot, since only the part before it may contain further dots. `fairlead.cluster.serving`
decides which PodGroup a gang has: earlier versions gave other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fairlead.api import names
from fairlead.cluster.rules import Rule
from fairlead.cluster.views import Metadata, SchedulingGroup

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_PART: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_BY_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
TRAINING_NAME: Final = "training.kubeflow.org/job-name"
TRAINING_ROLE: Final = "training.kubeflow.org/job-role"
RAY_CLUSTER: Final = "ray.io/cluster"
TRAINING_KINDS: Final = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")


def jobset(name: str) -> str:
    """The gang of a JobSet, or of what of it starts first."""
    return names.fitting(f"jobset.{name}")


def jobset_stage(name: str, first: str) -> str:
    """The gang of what of a JobSet starts together later. first: the first of its replicated jobs."""
    return names.fitting(f"jobsetstage.{name}.{first}")


def jobset_followers(name: str, first: str) -> str:
    """The gang of the pods of such a stage that are made once the leaders of their Jobs have nodes. first: as of the stage."""
    return names.fitting(f"jobsetfollowers.{name}.{first}")


def leader_worker_set(name: str, group: str) -> str:
    """The gang of one group of a LeaderWorkerSet."""
    return names.fitting(f"lws.{name}.{group}")


def workers(name: str, group: str) -> str:
    """The gang of the workers of such a group, where they are made once their leader is ready, or has a node."""
    return names.fitting(f"lwsworkers.{name}.{group}")


def training_job(kind: str, name: str) -> str:
    """The gang of a PyTorchJob, MPIJob and their like."""
    return names.fitting(f"{kind.lower()}.{name}")


def launcher(name: str) -> str:
    """The gang of an MPIJob's launcher, where it starts once the workers are ready."""
    return names.fitting(f"mpilauncher.{name}")


def ray_cluster(name: str) -> str:
    """The gang of a RayCluster."""
    return names.fitting(f"raycluster.{name}")


_RULES: tuple[tuple[str, Callable[[str, Mapping[str, str], str], str]], ...] = (
    (JOBSET_NAME, lambda name, *_: jobset(name)),
    (LWS_NAME, lambda name, labels, _: leader_worker_set(name, labels.get(LWS_GROUP, "0"))),
    # An MPIJob's launcher is a Job's pod; all others have the training job itself as their controller.
    (TRAINING_NAME, lambda name, _, owner: training_job(owner if owner in TRAINING_KINDS else "MPIJob", name)),
    (RAY_CLUSTER, lambda name, *_: ray_cluster(name)),
)


def label_of(kind: str) -> str:
    """The label that pods of an object of a kind carry, with its name; empty: they carry none."""
    own = {
        "JobSet": JOBSET_NAME,
        "LeaderWorkerSet": LWS_NAME,
        "RayCluster": RAY_CLUSTER,
        **dict.fromkeys(TRAINING_KINDS, TRAINING_NAME),
    }
    return next((rule.pod_label for rule in RULES.values() if rule.kind == kind), own.get(kind, ""))


RULES: dict[str, Rule] = {}
"""The administrator's rules for other kinds, by the label of their pods. Set once by a process, before it reads anything."""


def use(rules: Iterable[Rule]) -> None:
    """These rules, and no others, besides what is known of itself."""
    RULES.clear()
    RULES.update({rule.pod_label: rule for rule in rules})


def uid_by_name(kind: str, name: str) -> str:
    """What stands for the UID of an object of which its pods give only the name."""
    return f"{kind}/{name}"


def root_by_rule(labels: Mapping[str, str]) -> tuple[str, str]:
    """The object that a rule names for suspending a pod: `apiVersion/kind/name`, and what stands for its UID."""
    for label, rule in RULES.items():
        name = labels.get(label)
        if name and rule.suspend is not None:
            return f"{rule.api_version}/{rule.kind}/{name}", uid_by_name(rule.kind, name)
    return "", ""


WORKERS: Final = "workers"
LAUNCHER: Final = "launcher"


def followers(part: str) -> str:
    """The part of a JobSet that its pods of one replicated job are, but for the leader of each Job."""
    return f"{part}/followers"


def parts_of(labels: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Which parts of its object a pod is, if parts may start by themselves, the smallest first; empty: unknown.

    Of a JobSet which replicated job, and whether it follows the leader of its Job; of a group of a LeaderWorkerSet, whether it is
    a worker; of an MPIJob, the launcher.
    """
    part, follows = "", False
    for label, value in labels:
        if label == JOBSET_PART:
            part = value
        elif label == JOB_INDEX:
            follows = value != "0"
        elif label == LWS_WORKER and value != "0":
            return (WORKERS,)
        elif label == TRAINING_ROLE and value == LAUNCHER:
            return (LAUNCHER,)
    if not part:
        return ()
    return (followers(part), part) if follows else (part,)


def part(gang: str, name: str) -> str:
    """What a PodGroup serves that is one of a part of an object."""
    return f"{gang}/{name}"


_UPSTREAM = "upstream."


def upstream(name: str) -> str:
    """The gang of a PodGroup of scheduling.k8s.io."""
    return names.fitting(f"{_UPSTREAM}{name}")


def is_upstream(key: str) -> bool:
    """Whether a PodGroup, `namespace/name`, may stand for one of scheduling.k8s.io."""
    return key.partition("/")[2].startswith((_UPSTREAM, "upstream-"))


def group_of(labels: Mapping[str, str], scheduling: SchedulingGroup | None = None, owner: str = "") -> str:
    """The gang of a pod that names none; empty if it is a pod by itself.

    scheduling: its `spec.schedulingGroup`; owner: the kind of its controller.
    """
    if scheduling is not None and scheduling.pod_group_name:
        return upstream(scheduling.pod_group_name)
    for label, rule in _RULES:
        name = labels.get(label)
        if name:
            return rule(name, labels, owner)
    for label, described in RULES.items():
        name = labels.get(label)
        if name and described.gang is not None:
            return described.group(name)
    return ""


_BEFORE: Final[Mapping[str, tuple[str, str]]] = {
    "JobSet": ("jobset-", "jobset."),
    "LeaderWorkerSet": ("lws-", "lws."),
    "RayCluster": ("raycluster-", "raycluster."),
    "PodGroup": ("upstream-", _UPSTREAM),
    **{kind: ("training-", f"{kind.lower()}.") for kind in TRAINING_KINDS},
}
"""Kind -> how the names of its PodGroups began in earlier versions, and how they do."""


def name_before(gang: str) -> str:
    """What earlier versions called the PodGroup of a gang; empty: they had none, or called it so."""
    for kind, (before, now) in _BEFORE.items():
        if gang.startswith(now):
            name = gang.removeprefix(now)
            return before + ("-".join(name.rsplit(".", 1)) if kind == "LeaderWorkerSet" else name)
    return ""


def serves(metadata: Metadata) -> tuple[str, ...]:
    """The gangs that a PodGroup serves beside the one in its name: parts of an object, or one whose gang had another name."""
    found = tuple((metadata.annotations or {}).get(names.SERVES_ANNOTATION, "").split())
    for each in metadata.owner_references or ():
        before, now = _BEFORE.get(each.kind, ("", ""))
        if each.controller and before and metadata.name.startswith(f"{before}{each.name}"):
            rest = metadata.name.removeprefix(f"{before}{each.name}")
            gang = f"{now}{each.name}.{rest[1:]}" if rest.startswith("-") else f"{now}{each.name}"
            if name_before(gang) == metadata.name:
                found = (*found, gang)
    return found
