"""Kinds of workloads: one small file for each family, found here by apiVersion and kind."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.cluster.rules import Rule
from fairlead.operator.workloads.base import Workload
from fairlead.operator.workloads.job import JOB
from fairlead.operator.workloads.jobset import JOB_SET
from fairlead.operator.workloads.kubeflow import TRAIN_JOB, TRAINING_JOBS
from fairlead.operator.workloads.leaderworkerset import LEADER_WORKER_SET
from fairlead.operator.workloads.ray import RAY_CLUSTER, RAY_JOB
from fairlead.operator.workloads.ruled import workload
from fairlead.operator.workloads.upstream import POD_GROUPS

WORKLOADS: dict[tuple[str, str], Workload] = {
    (each.api_version, each.kind): each
    for each in (JOB, JOB_SET, LEADER_WORKER_SET, *TRAINING_JOBS, TRAIN_JOB, RAY_CLUSTER, RAY_JOB, *POD_GROUPS)
}
"""(apiVersion, kind) -> what is known of it."""


def known(rules: Iterable[Rule]) -> dict[tuple[str, str], Workload]:
    """These, and those that rules describe; a rule about one of ours stands in its place."""
    return WORKLOADS | {(each.api_version, each.kind): workload(each) for each in rules}
