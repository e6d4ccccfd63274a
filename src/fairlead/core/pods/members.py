"""Which member of its gang a pod is: whether it leads, and its index, by what controllers write on pods.

A launcher, a master or a Ray head cannot be replaced by another member; without one that is labelled, the lowest index is rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from fairlead.api.names import INDEX_LABEL, ROLE_LABEL
from fairlead.core.model.pods import Pod
from fairlead.core.pods.rank import Rank

_ROLE_LABELS = (
    ROLE_LABEL,
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/node-type",
    "spark-role",
)
"""Labels that name the role of a member, the first that is there."""

_ROLES = frozenset(_ROLE_LABELS)

_LEADING = frozenset({"launcher", "master", "chief", "head", "leader", "driver", "coordinator"})

_OUTER = "jobset.sigs.k8s.io/job-global-index"
_INDEXES = (
    INDEX_LABEL,
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "volcano.sh/task-index",
)
"""Labels that number members, the first that is there."""

_NUMBERED = re.compile(r"-(\d{1,9})$", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


class Member(Protocol):
    """A pod of a gang and its rank among all that wait."""

    pod: Pod

    @property
    def rank(self) -> Rank:
        """Smaller goes first."""


M = TypeVar("M", bound=Member)


def role_of(pod: Pod) -> str:
    """The role of a member by its labels; empty where none names one."""
    labels = dict(pod.labels)
    return next((labels[key] for key in _ROLE_LABELS if labels.get(key)), "")


def leads(pod: Pod) -> bool:
    """Whether by a label a pod is the launcher, master or head of its gang."""
    return any(key in _ROLES and value.lower() in _LEADING for key, value in pod.labels)


def index_of(pod: Pod) -> tuple[int, int]:
    """A member's index: of its job among those of a set, and in its job; (0, -1) where neither a label nor its name has it."""
    labels = dict(pod.labels)
    own = next((labels[key] for key in _INDEXES if _NUMBER.fullmatch(labels.get(key, ""))), None)
    outer = labels.get(_OUTER, "")
    if own is None and (numbered := _NUMBERED.search(pod.name)) is not None:
        own = numbered[1]
    return int(outer) if _NUMBER.fullmatch(outer) else 0, int(own) if own is not None else -1


def first_to_start(tasks: Sequence[M]) -> list[M]:
    """Members that wait, in the order in which they get places: by rank, those that lead first, then by index."""

    def place(task: M) -> tuple[object, ...]:
        rank = task.rank
        return (*rank.precedence, not leads(task.pod), index_of(task.pod), rank.created, task.pod.uid)

    return sorted(tasks, key=place)


def first_to_go(tasks: Sequence[M], needed: int) -> tuple[list[M], list[M]]:
    """(those that a gang can do without, in the order in which they go; those that it needs).

    Labelled ones go first, then the least important, then the highest index. One that leads, or else rank 0, is always needed.
    """

    def place(task: M) -> tuple[object, ...]:
        pod = task.pod
        outer, own = index_of(pod)
        return leads(pod), not pod.elastic, pod.priority, -outer, -own, -pod.created, pod.uid

    spare = max(0, len(tasks) - needed)
    if not spare:
        return [], list(tasks)
    spare = min(spare, len(tasks) - max(1, sum(leads(task.pod) for task in tasks)))
    ordered = sorted(tasks, key=place)
    return ordered[:spare], ordered[spare:]
