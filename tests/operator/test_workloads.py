"""Kinds of others: which of their pods start together, which group a pod belongs to, and how they are suspended."""

import pytest

from fairlead.cluster.grouping import group_of
from fairlead.operator.workloads import WORKLOADS
from fairlead.operator.workloads.base import number

POD = {"spec": {"schedulerName": "fairlead", "containers": []}}
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
LWS = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
PYTORCH, MPI = ("kubeflow.org/v1", "PyTorchJob"), ("kubeflow.org/v2beta1", "MPIJob")
UPSTREAM = ("scheduling.k8s.io/v1alpha2", "PodGroup")
RAY = ("ray.io/v1", "RayCluster")


def replicated(name, replicas, parallelism, **more):
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": parallelism, "template": POD}}, **more}


def roles(**counts):
    return {role: {"replicas": count, "template": POD} for role, count in counts.items()}


def lws(**spec):
    return {"leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}, **spec}


def ray(*groups, **spec):
    made = [{"template": POD, **each} for each in groups]
    return {"headGroupSpec": {"template": POD}, "workerGroupSpecs": made, **spec}


@pytest.mark.parametrize(
    ("kind", "spec", "gangs"),
    [
        (JOBSET, {"replicatedJobs": [replicated("a", 2, 4), replicated("b", 1, 1)]}, {"jobset-x": 9}),
        (JOBSET, {"replicatedJobs": [replicated("a", 2, 4), replicated("b", 1, 1, dependsOn=[{"name": "a"}])]}, {"jobset-x": 8}),
        (
            JOBSET,
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [replicated("a", 1, 2), replicated("b", 1, 8)],
            },
            {"jobset-x": 2},
        ),
        (
            JOBSET,
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"parallelism": 8, "completions": 2}}}]},
            {"jobset-x": 2},
        ),
        (JOBSET, {}, {}),
        (LWS, lws(replicas=2), {"lws-x-0": 4, "lws-x-1": 4}),
        (LWS, lws(replicas=1, startupPolicy="LeaderReady"), {"lws-x-0": 1}),
        (LWS, lws(replicas=0), {}),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Master=1, Worker=7)}, {"training-x": 8}),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Worker=8), "elasticPolicy": {"minReplicas": 2}}, {"training-x": 2}),
        (
            PYTORCH,
            {"pytorchReplicaSpecs": roles(Worker=8), "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
            {"training-x": 5},
        ),
        (MPI, {"mpiReplicaSpecs": roles(Launcher=1, Worker=4)}, {"training-x": 5}),
        (
            MPI,
            {"mpiReplicaSpecs": roles(Launcher=1, Worker=4), "launcherCreationPolicy": "WaitForWorkersReady"},
            {"training-x": 4},
        ),
        (RAY, ray({"replicas": 3}, {"replicas": 2, "numOfHosts": 4}), {"raycluster-x": 12}),
        (RAY, ray({"replicas": 3, "minReplicas": 1}, enableInTreeAutoscaling=True), {"raycluster-x": 2}),
        (RAY, ray({"replicas": 3, "suspend": True}), {"raycluster-x": 1}),
        (RAY, ray({"replicas": "three"}), {"raycluster-x": 1}),
        (UPSTREAM, {"schedulingPolicy": {"gang": {"minCount": 4}}}, {"upstream-x": 4}),
        (UPSTREAM, {"schedulingPolicy": {"basic": {}}}, {"upstream-x": 1}),
    ],
)
def test_what_starts_together(kind, spec, gangs):
    assert WORKLOADS[kind].gangs({"metadata": {"name": "x"}, "spec": spec}) == gangs


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "x"}, "jobset-x"),
        ({"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "1"}, "lws-x-1"),
        ({"training.kubeflow.org/job-name": "x"}, "training-x"),
        ({"ray.io/cluster": "x"}, "raycluster-x"),
        ({"app": "x"}, ""),
    ],
)
def test_a_pod_belongs_to_the_group_that_is_made_for_its_workload(labels, group):
    assert group_of(labels) == group


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_kind_is_suspended_by_its_own_field_and_resumed_only_by_who_did_it(kind):
    workload = WORKLOADS[kind]
    users = {"metadata": {}, "spec": {}}
    patch = workload.to_suspend(users, 3, "g")
    if not workload.suspend_at:
        assert patch is None
        return
    found = patch
    for step in workload.suspend_at:
        found = found[step]
    assert found is True
    ours = {"metadata": patch["metadata"], "spec": patch["spec"]}
    assert workload.to_suspend(ours, 3, "g") is None, "it is"
    resumed = workload.to_resume(ours)
    for step in workload.suspend_at:
        resumed = resumed[step]
    assert resumed is False
    assert workload.to_resume({"metadata": {}, "spec": patch["spec"]}) is None, "its user did it"
    assert workload.to_suspend({**users, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}, 3, "g") is None


def test_only_what_fairlead_schedules_is_looked_at():
    workload = WORKLOADS[JOBSET]
    spec = {"replicatedJobs": [replicated("a", 1, 2)]}
    assert workload.ours({"spec": spec})
    spec["replicatedJobs"][0]["template"]["spec"]["template"] = {"spec": {"containers": []}}
    assert not workload.ours({"spec": spec})
    assert not workload.ours({"spec": {}})


@pytest.mark.parametrize(("value", "meant"), [(3, 3), (0, 0), (None, 7), ("3", 7), (-1, 7), (True, 7), (2.5, 7)])
def test_counts_that_cannot_be_meant(value, meant):
    assert number(value, 7) == meant
