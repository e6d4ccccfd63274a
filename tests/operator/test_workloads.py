"""Kinds of others: which of their pods start together, which group a pod belongs to, and how they are suspended."""

import re

import pytest

from fairlead.cluster import views
from fairlead.cluster.grouping import (
    TRAINING_KINDS,
    group_of,
    jobset,
    leader_worker_set,
    name_before,
    ray_cluster,
    serves,
    training_job,
    upstream,
)
from fairlead.core.state.suspended import made_for
from fairlead.operator.workloads import WORKLOADS
from fairlead.operator.workloads.base import number

POD = {"spec": {"schedulerName": "fairlead", "containers": []}}
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
LWS = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
PYTORCH, MPI = ("kubeflow.org/v1", "PyTorchJob"), ("kubeflow.org/v2beta1", "MPIJob")
UPSTREAM = ("scheduling.k8s.io/v1alpha2", "PodGroup")
RAY = ("ray.io/v1", "RayCluster")
SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def replicated(name, replicas, parallelism, **more):
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": parallelism, "template": POD}}, **more}


def waits(*jobs):
    return [{"name": each, "status": "Complete"} for each in jobs]


def roles(**counts):
    return {role: {"replicas": count, "template": POD} for role, count in counts.items()}


def lws(**spec):
    return {"leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}, **spec}


def surge(amount):
    return {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 0, "maxSurge": amount}}


def ray(*groups, **spec):
    made = [{"template": POD, **each} for each in groups]
    return {"headGroupSpec": {"template": POD}, "workerGroupSpecs": made, **spec}


@pytest.mark.parametrize(
    ("kind", "spec", "gangs"),
    [
        (JOBSET, {"replicatedJobs": [replicated("a", 2, 4), replicated("b", 1, 1)]}, {"jobset.x": 9}),
        (
            JOBSET,
            {"replicatedJobs": [replicated("a", 2, 4), replicated("b", 1, 1, dependsOn=[{"name": "a"}])]},
            {"jobset.x": 8, "jobsetstage.x.b": 1},
        ),
        (
            JOBSET,
            {
                "replicatedJobs": [
                    replicated("data", 1, 1),
                    replicated("model", 1, 1),
                    replicated("ps", 2, 1, dependsOn=waits("data", "model")),
                    replicated("node", 1, 8, dependsOn=waits("model", "data")),
                    replicated("report", 1, 1, dependsOn=waits("node")),
                ]
            },
            {"jobset.x": 2, "jobsetstage.x.ps": 10, "jobsetstage.x.report": 1},
        ),
        (
            JOBSET,
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [replicated("a", 1, 2), replicated("b", 1, 8)],
            },
            {"jobset.x": 2, "jobsetstage.x.b": 8},
        ),
        (
            JOBSET,
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"parallelism": 8, "completions": 2}}}]},
            {"jobset.x": 2},
        ),
        (JOBSET, {}, {}),
        (LWS, lws(replicas=2), {"lws.x.0": 4, "lws.x.1": 4}),
        (LWS, lws(replicas=1, startupPolicy="LeaderReady"), {"lwsworkers.x.0": 3, "lws.x.0": 1}),
        (LWS, lws(replicas=0), {}),
        (LWS, lws(replicas=2, rolloutStrategy=surge(1)), {"lws.x.0": 4, "lws.x.1": 4, "lws.x.2": 4}),
        (LWS, lws(replicas=4, rolloutStrategy=surge("30%")), {f"lws.x.{each}": 4 for each in range(6)}),
        (LWS, lws(replicas=1, rolloutStrategy=surge(5)), {"lws.x.0": 4, "lws.x.1": 4}),
        (LWS, lws(replicas=0, rolloutStrategy=surge(5)), {}),
        (LWS, lws(replicas=1, rolloutStrategy=surge("many%")), {"lws.x.0": 4}),
        (
            LWS,
            lws(replicas=1, rolloutStrategy=surge(1), startupPolicy="LeaderReady"),
            {"lwsworkers.x.0": 3, "lwsworkers.x.1": 3, "lws.x.0": 1, "lws.x.1": 1},
        ),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Master=1, Worker=7)}, {"pytorchjob.x": 8}),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Worker=8), "elasticPolicy": {"minReplicas": 2}}, {"pytorchjob.x": 2}),
        (
            PYTORCH,
            {"pytorchReplicaSpecs": roles(Worker=8), "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
            {"pytorchjob.x": 5},
        ),
        (
            PYTORCH,
            {"pytorchReplicaSpecs": roles(Worker=8), "runPolicy": {"schedulingPolicy": {"minAvailable": 9}}},
            {"pytorchjob.x": 8},
        ),
        (
            PYTORCH,
            {"pytorchReplicaSpecs": roles(Worker=8), "runPolicy": {"schedulingPolicy": {"minAvailable": 0}}},
            {"pytorchjob.x": 1},
        ),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Worker=8), "elasticPolicy": {"minReplicas": 0}}, {"pytorchjob.x": 1}),
        (PYTORCH, {"pytorchReplicaSpecs": roles(Worker=0)}, {}),
        (MPI, {"mpiReplicaSpecs": roles(Launcher=1, Worker=4)}, {"mpijob.x": 5}),
        (
            MPI,
            {"mpiReplicaSpecs": roles(Launcher=1, Worker=4), "launcherCreationPolicy": "WaitForWorkersReady"},
            {"mpijob.x": 4, "mpilauncher.x": 1},
        ),
        (RAY, ray({"replicas": 3}, {"replicas": 2, "numOfHosts": 4}), {"raycluster.x": 12}),
        (RAY, ray({"replicas": 3, "minReplicas": 1}, enableInTreeAutoscaling=True), {"raycluster.x": 2}),
        (RAY, ray({"replicas": 3, "suspend": True}), {"raycluster.x": 1}),
        (RAY, ray({"replicas": "three"}), {"raycluster.x": 1}),
        (RAY, ray({"replicas": 5, "maxReplicas": 3}), {"raycluster.x": 4}),
        (RAY, ray({"replicas": 0, "minReplicas": 2, "maxReplicas": 3}), {"raycluster.x": 3}),
        (RAY, ray({"replicas": 0, "minReplicas": 2}, enableInTreeAutoscaling=True), {"raycluster.x": 3}),
        (UPSTREAM, {"schedulingPolicy": {"gang": {"minCount": 4}}}, {"upstream.x": 4}),
        (UPSTREAM, {"schedulingPolicy": {"basic": {}}}, {"upstream.x": 1}),
    ],
)
def test_what_starts_together(kind, spec, gangs):
    assert WORKLOADS[kind].gangs({"metadata": {"name": "x"}, "spec": spec}) == gangs


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
BY_SELECTOR = {**EXCLUSIVE, "alpha.jobset.sigs.k8s.io/node-selector": "true"}


def exclusive(name, replicas, pods, annotations=EXCLUSIVE, **more):
    found = replicated(name, replicas, pods, **more)
    found["template"]["metadata"] = {"annotations": annotations}
    return found


@pytest.mark.parametrize(
    ("annotations", "jobs", "gangs", "serves"),
    [
        (
            EXCLUSIVE,
            [replicated("a", 3, 4), replicated("b", 1, 1)],
            {"jobsetfollowers.x.a": 9, "jobset.x": 4},
            {"jobsetfollowers.x.a": ("jobset.x/a/followers", "jobset.x/b/followers")},
        ),
        (
            {},
            [replicated("driver", 1, 2), exclusive("node", 2, 8)],
            {"jobsetfollowers.x.driver": 14, "jobset.x": 4},
            {"jobsetfollowers.x.driver": ("jobset.x/node/followers",)},
        ),
        (
            {},
            [replicated("init", 1, 2), exclusive("node", 2, 8, dependsOn=waits("init"))],
            {"jobsetfollowers.x.node": 14, "jobsetstage.x.node": 2, "jobset.x": 2},
            {"jobsetfollowers.x.node": ("jobset.x/node/followers",), "jobsetstage.x.node": ("jobset.x/node",)},
        ),
        (BY_SELECTOR, [replicated("a", 3, 4)], {"jobset.x": 12}, {}),
        (EXCLUSIVE, [exclusive("a", 3, 4, BY_SELECTOR)], {"jobset.x": 12}, {}),
        (EXCLUSIVE, [replicated("a", 3, 0)], {}, {"jobsetfollowers.x.a": ("jobset.x/a/followers",)}),
        (EXCLUSIVE, [], {}, {}),
    ],
)
def test_followers_of_jobs_that_have_a_domain_to_themselves_are_a_gang_that_starts_later(annotations, jobs, gangs, serves):
    manifest = {"metadata": {"name": "x", "annotations": annotations}, "spec": {"replicatedJobs": jobs}}
    assert WORKLOADS[JOBSET].gangs(manifest) == gangs
    assert WORKLOADS[JOBSET].serves(manifest) == serves


def test_workers_whose_group_has_a_domain_to_itself_are_a_gang_that_starts_later():
    annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    manifest = {"metadata": {"name": "x", "annotations": annotations}, "spec": lws(replicas=1)}
    assert WORKLOADS[LWS].gangs(manifest) == {"lwsworkers.x.0": 3, "lws.x.0": 1}
    assert WORKLOADS[LWS].serves(manifest) == {"lwsworkers.x.0": ("lws.x.0/workers",)}


@pytest.mark.parametrize(
    ("constraints", "level"),
    [
        ({"topology": [{"key": "example.com/rack"}]}, "example.com/rack"),
        ({"topology": [{}]}, ""),
        ({"topology": []}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_level_that_upstreams_gang_requires(constraints, level):
    assert WORKLOADS[UPSTREAM].level({"metadata": {"name": "x"}, "spec": {"schedulingConstraints": constraints}}) == level
    assert WORKLOADS[JOBSET].level({"metadata": {"name": "x"}, "spec": {}}) == ""


def test_a_later_stage_says_whose_pods_it_has():
    jobs = [replicated("init", 1, 1), *(replicated(name, 1, 4, dependsOn=waits("init")) for name in ("driver", "node"))]
    manifest = {"metadata": {"name": "x"}, "spec": {"replicatedJobs": jobs}}
    assert WORKLOADS[JOBSET].serves(manifest) == {"jobsetstage.x.driver": ("jobset.x/driver", "jobset.x/node")}
    manifest = {"metadata": {"name": "x"}, "spec": lws(replicas=1, startupPolicy="LeaderReady")}
    assert WORKLOADS[LWS].serves(manifest) == {"lwsworkers.x.0": ("lws.x.0/workers",)}


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "x"}, "jobset.x"),
        ({"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "1"}, "lws.x.1"),
        ({"training.kubeflow.org/job-name": "x"}, "mpijob.x"),
        ({"ray.io/cluster": "x"}, "raycluster.x"),
        ({"app": "x"}, ""),
    ],
)
def test_a_pod_belongs_to_the_group_that_is_made_for_its_workload(labels, group):
    assert group_of(labels) == group


def test_training_jobs_of_several_kinds_are_told_by_their_pods_controllers():
    labels = {"training.kubeflow.org/job-name": "x"}
    found = {kind: group_of(labels, None, kind) for kind in TRAINING_KINDS}
    assert len(set(found.values())) == len(TRAINING_KINDS)
    assert found["PyTorchJob"] == "pytorchjob.x"
    assert group_of(labels, None, "Job") == found["MPIJob"], "its launcher is a Job's"


ROOTS = (
    "batch/v1/Job",
    "batch.volcano.sh/v1alpha1/Job",
    "v1/ReplicationController",
    "a-b.example/v1/Sweep",
    "a.b.example/v1/Sweep",
)
NAMES = ("x", "x-0", "x.0", "a.x", "x-" + "y" * 250, "x." + "y" * 250, "job-x", "1")


def test_no_two_objects_have_one_group_whatever_their_kinds_and_names():
    """Names of AIJobs have no dots: those of none of these are without one."""
    namespace = "ns-" + "n" * 60
    found = [made_for(namespace, f"{root}/{name}").partition("/")[2] for root in ROOTS for name in NAMES]
    found += [made(name) for made in (jobset, ray_cluster, upstream) for name in NAMES]
    found += [training_job(kind, name) for kind in TRAINING_KINDS for name in NAMES]
    found += [leader_worker_set(name, index) for name in NAMES for index in ("0", "1", "10")]
    assert len(found) == len(set(found))
    assert all("." in each and len(each) <= 253 and re.fullmatch(SUBDOMAIN, each) for each in found)


@pytest.mark.parametrize(
    ("kind", "owner", "name", "gang"),
    [
        ("JobSet", "x", "jobset-x", "jobset.x"),
        ("JobSet", "x", "jobset-x-1", ""),
        ("JobSet", "x", "jobset.x", ""),
        ("LeaderWorkerSet", "x-1", "lws-x-1-0", "lws.x-1.0"),
        ("LeaderWorkerSet", "x", "lws-x-0", "lws.x.0"),
        ("RayCluster", "x", "raycluster-x", "raycluster.x"),
        ("PyTorchJob", "x", "training-x", "pytorchjob.x"),
        ("MPIJob", "x", "training-x", "mpijob.x"),
        ("PodGroup", "x", "upstream-x", "upstream.x"),
        ("AIJob", "jobset-x", "jobset-x", ""),
        ("AIJob", "lws-x", "lws-x-0", ""),
    ],
)
def test_a_group_that_an_earlier_version_made_is_still_its_objects(kind, owner, name, gang):
    reference = views.OwnerReference(kind=kind, name=owner, uid="u", controller=True)
    found = serves(views.Metadata(name=name, owner_references=[reference]))
    assert found == ((gang,) if gang else ())
    assert not gang or name_before(gang) == name


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_kind_is_suspended_by_its_own_field_and_resumed_only_by_who_did_it(kind):
    workload = WORKLOADS[kind]
    users = {"metadata": {}, "spec": {"shutdownAfterJobFinishes": True} if kind[1] == "RayJob" else {}}
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


@pytest.mark.parametrize(
    ("spec", "status", "may"),
    [
        ({"shutdownAfterJobFinishes": True}, {}, True),
        ({"shutdownAfterJobFinishes": True}, {"jobDeploymentStatus": "Running"}, True),
        ({"shutdownAfterJobFinishes": True}, {"jobDeploymentStatus": "Complete"}, False),
        ({"shutdownAfterJobFinishes": False}, {"jobDeploymentStatus": "Running"}, False),
        ({}, {}, False),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {"ray.io/cluster": "shared"}}, {}, False),
    ],
)
def test_a_ray_job_that_ray_would_fail_for_it_is_not_suspended(spec, status, may):
    job = {"metadata": {}, "spec": spec, "status": status}
    assert (WORKLOADS["ray.io/v1", "RayJob"].to_suspend(job, 3, "g") is not None) == may
    ours = {**job, "spec": {**spec, "suspend": True}, "metadata": {"annotations": {"fairlead.dev/suspended-by": "policy"}}}
    assert WORKLOADS["ray.io/v1", "RayJob"].to_resume(ours)["spec"]["suspend"] is False, "what was suspended before is resumed"


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


def _like(labels, **spec):
    return {"metadata": {"labels": labels}, "spec": {"schedulerName": "fairlead", **spec}}


def test_the_pods_that_follow_each_leader_of_a_jobset():
    job = exclusive("node", 2, 8)
    container = {"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}
    container["resources"] = {"requests": {"nvidia.com/gpu": "8"}}
    job["template"]["spec"]["template"] = _like({"app": "x"}, containers=[container], nodeSelector={"kind": "gpu"})
    manifest = {"metadata": {"name": "x", "annotations": {}}, "spec": {"replicatedJobs": [replicated("driver", 1, 2), job]}}
    found = WORKLOADS[JOBSET].followers(manifest)
    assert list(found) == ["jobset.x"]
    (form,) = found["jobset.x"]
    leading = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": "0"}
    assert (form.gang, form.leaders, form.level, form.count) == ("jobsetfollowers.x.driver", leading, "rack", 7)
    kept = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    assert form.template == _like({"app": "x"}, containers=[kept], nodeSelector={"kind": "gpu"})


@pytest.mark.parametrize(
    ("annotations", "jobs"),
    [
        ({}, [replicated("a", 3, 4)]),
        (BY_SELECTOR, [replicated("a", 3, 4)]),
        (EXCLUSIVE, [replicated("a", 3, 1)]),
        (EXCLUSIVE, [replicated("a", 0, 4)]),
    ],
)
def test_a_jobset_none_of_whose_pods_follow(annotations, jobs):
    manifest = {"metadata": {"name": "x", "annotations": annotations}, "spec": {"replicatedJobs": jobs}}
    assert WORKLOADS[JOBSET].followers(manifest) == {}


def test_the_workers_of_each_group_that_has_a_domain_to_itself():
    annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    spec = lws(replicas=2)
    spec["leaderWorkerTemplate"]["workerTemplate"] = _like({"app": "w"})
    found = WORKLOADS[LWS].followers({"metadata": {"name": "x", "annotations": annotations}, "spec": spec})
    assert {gang: (each.gang, each.leaders, each.level, each.count) for gang, (each,) in found.items()} == {
        f"lws.x.{group}": (f"lwsworkers.x.{group}", {"leaderworkerset.sigs.k8s.io/worker-index": "0"}, "rack", 3)
        for group in range(2)
    }
    assert found["lws.x.0"][0].template == _like({"app": "w"})
    assert not found["lws.x.0"][0].ready
    waits = {"metadata": {"name": "x", "annotations": annotations}, "spec": {**spec, "startupPolicy": "LeaderReady"}}
    assert WORKLOADS[LWS].followers(waits)["lws.x.0"][0].ready
    assert WORKLOADS[LWS].followers({"metadata": {"name": "x", "annotations": {}}, "spec": spec}) == {}
