"""Workloads of others on the real API server: their pods start together, and they give way as a whole.

The kinds are served in a minimal form of ours, and their controllers' part is played by the test.
"""

import pytest

from testbed import objects
from testbed.objects import node, pod, service_class
from tests.e2e.planes import COLLECTS, NO_SERVICE_ACCOUNTS, Plane, with_urgent

pytestmark = pytest.mark.e2e

KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
    ("example.com", "v1", "Sweep", "sweeps"),
)
RBAC = "rbac.authorization.k8s.io"
RIGHTS = (
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "sweeps"},
        "rules": [{"apiGroups": ["example.com"], "resources": ["sweeps"], "verbs": ["get", "list", "watch", "patch"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "sweeps"},
        "subjects": [{"kind": "User", "name": "fairlead-operator", "apiGroup": RBAC}],
        "roleRef": {"kind": "ClusterRole", "name": "sweeps", "apiGroup": RBAC},
    },
)
TEMPLATE = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "i"}]}}


def definition(group, version, kind, plural):
    """As little of a kind as can be served: anything goes in its spec and status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


def with_kinds(plane):
    for manifest in RIGHTS:
        plane.request("POST", objects.path(manifest), manifest)
    for each in (definition(*kind) for kind in KINDS):
        plane.request("POST", objects.path(each), each)
    for group, version, _, plural in KINDS:
        plane.await_served(f"/apis/{group}/{version}/{plural}")
    with_urgent(plane)


PLANE = Plane(
    COLLECTS,
    [
        NO_SERVICE_ACCOUNTS,
        "--feature-gates=GenericWorkload=true,GangScheduling=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ],
    operator=True,
    prepare=with_kinds,
)


@pytest.fixture(autouse=True)
def emptied(cluster):
    yield
    for group, version, _, plural in KINDS:
        cluster.plane.request("DELETE", f"/apis/{group}/{version}/namespaces/default/{plural}")


def start(cluster):
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")


def make(cluster, kind, name, spec, *, annotations=None, **labels):
    group, version, _, plural = next(each for each in KINDS if each[2] == kind)
    metadata = {"name": name, "labels": labels, "annotations": annotations or {}}
    made = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": metadata, "spec": spec}
    return cluster.plane.request("POST", f"/apis/{group}/{version}/namespaces/default/{plural}", made)


def pods_of(owner, names, labels, **more):
    """What its controller would make."""
    made = []
    for name in names:
        each = pod(name, **more)
        each["metadata"]["labels"] = {**(each["metadata"].get("labels") or {}), **labels}
        each["metadata"]["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
        made.append(each)
    return made


def group(cluster, name):
    return cluster.get(f"/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/{name}")


SPECS = {
    "PyTorchJob": {
        "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    },
    "LeaderWorkerSet": {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
    "RayCluster": {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"replicas": 2, "template": TEMPLATE}]},
}
LABELS = {
    "PyTorchJob": ({"training.kubeflow.org/job-name": "x"}, "pytorchjob.x"),
    "LeaderWorkerSet": ({"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}, "lws.x.0"),
    "RayCluster": ({"ray.io/cluster": "x"}, "raycluster.x"),
}


@pytest.mark.parametrize("kind", SPECS)
def test_its_pods_start_together_or_not_at_all(cluster, kind):
    cluster.create(node("n", gpus=2))
    start(cluster)
    labels, name = LABELS[kind]
    made = make(cluster, kind, "x", SPECS[kind], **{"fairlead.dev/queue": "default"})
    cluster.until(lambda: group(cluster, name))
    assert group(cluster, name)["spec"]["minMember"] == 3
    cluster.create(*pods_of(made, ["x-0", "x-1", "x-2"], labels))
    cluster.until(lambda: "PodScheduled" in str(cluster.pods()["x-2"]["status"].get("conditions")))
    assert cluster.placed() == {}
    cluster.create(node("m", gpus=1))
    cluster.until(lambda: set(cluster.placed()) == {"x-0", "x-1", "x-2"})
    (owner,) = group(cluster, name)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (kind, made["metadata"]["uid"]), "it goes with it"


CONFIGURED = """
apiVersion: config.fairlead.dev/v1alpha1
kind: SchedulerConfiguration
profiles:
- {schedulerName: gpus, profile: ai}
"""


def test_gangs_start_together_under_a_name_that_the_configuration_gives(cluster, tmp_path):
    """A JobSet, and an AIJob beside it whose pods get that name; what uses a default name belongs to another object."""
    file = tmp_path / "fairlead.yaml"
    file.write_text(CONFIGURED)
    cluster.create(node("n", gpus=3))
    cluster.scheduler("--no-leader-elect", "--config", str(file))
    cluster.operator("--no-leader-elect", "--address", "", "--config", str(file))
    template = {"spec": {"schedulerName": "gpus", "containers": [{"name": "main", "image": "i"}]}}
    job = {"name": "worker", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2, "template": template}}}
    made = make(cluster, "JobSet", "js", {"replicatedJobs": [job]})
    cluster.until(lambda: group(cluster, "jobset.js"))
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"]}
    first, second = pods_of(made, ["js-0", "js-1"], labels, gpus=1, scheduler="gpus")
    cluster.create(pod("foreign", gpus=1), first)
    cluster.until(lambda: "PodScheduled" in str(cluster.pods()["js-0"]["status"].get("conditions")))
    assert cluster.placed() == {}, "not before the gang is complete"
    cluster.create(second)
    cluster.until(lambda: set(cluster.placed()) == {"js-0", "js-1"})
    template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    spec = {"roles": [{"name": "worker", "replicas": 1, "template": template}]}
    aijob = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "metadata": {"name": "train"}, "spec": spec}
    cluster.plane.request("POST", "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs", aijob)
    cluster.until(lambda: len(cluster.placed()) == 3)
    assert "foreign" not in cluster.placed()
    cluster.delete("/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/train")


def test_a_jobset_is_suspended_as_a_whole_and_resumed(cluster):
    cluster.create(node("n", gpus=2), service_class("patient", preemption={"mode": "Suspend"}))
    start(cluster)
    job = {"name": "worker", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}}
    made = make(cluster, "JobSet", "js", {"replicatedJobs": [job]}, **{"fairlead.dev/service-class": "patient"})
    cluster.until(lambda: group(cluster, "jobset.js"))
    uid = made["metadata"]["uid"]
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/jobset-uid": uid,
        "fairlead.dev/service-class": "patient",
    }
    cluster.create(*pods_of(made, ["js-0", "js-1"], labels))
    cluster.until(lambda: set(cluster.placed()) == {"js-0", "js-1"})
    cluster.create(pod("urgent", gpus=1, priorityClassName="urgent"))
    where = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/js"
    cluster.until(lambda: cluster.get(where)["spec"].get("suspend"))
    for name in ("js-0", "js-1"):
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    cluster.until(lambda: "urgent" in cluster.placed())
    assert cluster.get(where)["metadata"]["annotations"]["fairlead.dev/suspended-by"] == "policy"
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.until(lambda: not cluster.get(where)["spec"]["suspend"])
    cluster.create(*pods_of(made, ["js-a", "js-b"], labels))
    cluster.until(lambda: set(cluster.placed()) == {"js-a", "js-b"})


RACK = "example.com/rack"
JOBSET_KEY, LWS_KEY = "jobset.sigs.k8s.io/job-key", "leaderworkerset.sigs.k8s.io/group-key"


def exclusive(label):
    """What the controllers add to a leader: it is beside pods of its own Job or group, and in no domain of another."""

    def term(*rules):
        return {"topologyKey": RACK, "labelSelector": {"matchExpressions": list(rules)}, "namespaceSelector": {}}

    own, others = ({"key": label, "operator": operator, "values": ["own"]} for operator in ("In", "NotIn"))
    beside, apart = term(own), term({"key": label, "operator": "Exists"}, others)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAffinity": {required: [beside]}, "podAntiAffinity": {required: [apart]}}


def of_three(kind):
    """A JobSet or LeaderWorkerSet of a leader and two followers that have a rack to themselves: its annotation and spec."""
    asks_for_one = {"template": {"spec": {"schedulerName": "fairlead", "containers": pod("like", gpus=1)["spec"]["containers"]}}}
    if kind == "JobSet":
        job = {"parallelism": 3, "completions": 3, **asks_for_one}
        jobs = [{"name": "node", "replicas": 1, "template": {"spec": job}}]
        return "alpha.jobset.sigs.k8s.io/exclusive-topology", {"replicatedJobs": jobs}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": asks_for_one["template"]}}
    return "leaderworkerset.sigs.k8s.io/exclusive-topology", spec


def labels_of_three(kind, made, index):
    if kind == "JobSet":
        of_set = {"jobset.sigs.k8s.io/jobset-name": "x", "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"]}
        of_job = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": str(index)}
        return {**of_set, **of_job, JOBSET_KEY: "own"}
    of_group = {"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    return {**of_group, "leaderworkerset.sigs.k8s.io/worker-index": str(index), LWS_KEY: "own"}


@pytest.mark.parametrize(("kind", "name", "key"), [("JobSet", "jobset.x", JOBSET_KEY), ("LeaderWorkerSet", "lws.x.0", LWS_KEY)])
def test_a_leader_starts_where_its_followers_fit_and_they_get_the_places_kept_for_them(cluster, kind, name, key):
    """Racks of two and of three nodes with one GPU each. Followers are made once the leader has a node, as the controllers do."""

    def spares():
        return (group(cluster, name).get("status") or {}).get("spares") or {}

    cluster.create(*(node(f"small-{index}", gpus=1, labels={RACK: "small"}) for index in range(2)))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    annotation, spec = of_three(kind)
    made = make(cluster, kind, "x", spec, annotations={annotation: RACK})
    cluster.until(lambda: group(cluster, name))
    cluster.create(*pods_of(made, ["x-0"], labels_of_three(kind, made, 0), affinity=exclusive(key)))
    alone = "2 of them for followers that are created later"  # the leader alone would fit
    cluster.until(lambda: alone in (cluster.condition("x-0") or ("", ""))[1])
    cluster.create(*(node(f"large-{index}", gpus=1, labels={RACK: "large"}) for index in range(3)))
    where = cluster.until(lambda: cluster.placed().get("x-0"))
    kept = sorted({"large-0", "large-1", "large-2"} - {where})
    cluster.until(lambda: spares().get("kept") == 2)
    assert (spares()["wanted"], sorted(spares()["nodes"])) == (2, kept)

    cluster.create(*(pod(f"other-{index}", gpus=1) for index in range(3)))
    cluster.until(lambda: len(cluster.placed()) == 3 and any(cluster.condition(f"other-{index}") for index in range(3)))
    scheduler.kill()
    cluster.create(pod("late", gpus=1))
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: cluster.condition("late"))
    placed = cluster.placed()
    assert {each for other, each in placed.items() if other != "x-0"} == {"small-0", "small-1"}

    first, second = (
        pods_of(made, [f"x-{index}"], labels_of_three(kind, made, index), nodeSelector={RACK: "large"})[0] for index in (1, 2)
    )
    cluster.create(first)
    cluster.until(lambda: cluster.condition("x-1"))
    assert cluster.placed() == placed, "one of two is missing"
    cluster.create(second)
    cluster.until(lambda: len(cluster.placed()) == 5)
    assert sorted(cluster.placed()[each] for each in ("x-1", "x-2")) == kept
    cluster.until(lambda: not spares().get("nodes"))
    assert cluster.condition("late"), "all GPUs are in use"


@pytest.mark.parametrize(("kind", "name", "key"), [("JobSet", "jobset.x", JOBSET_KEY), ("LeaderWorkerSet", "lws.x.0", LWS_KEY)])
def test_leader_and_followers_keep_to_what_their_gang_requires_too(cluster, kind, name, key):
    """A rack of two blocks: KAI's annotation of a JobSet, Kueue's of templates, require one block for all three."""
    block = "example.com/block"
    cluster.create(
        {
            "apiVersion": "fairlead.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": {"name": "all"},
            "spec": {"topologyLevels": [{"name": "block", "label": block}]},
        }
    )
    parts = {"torn": ("x", "x", "y", "y"), "whole": ("z", "z", "z")}
    for rack, blocks in parts.items():
        labels = [{RACK: rack, block: each} for each in blocks]
        cluster.create(*(node(f"{rack}-{index}", gpus=1, labels=each) for index, each in enumerate(labels)))
    start(cluster)
    annotation, spec = of_three(kind)
    of_pods = {}
    annotations = {annotation: RACK}
    if kind == "JobSet":
        annotations["kai.scheduler/topology-required-placement"] = "block"
    else:
        of_pods = {"kueue.x-k8s.io/podset-required-topology": "block"}
        spec["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = {"annotations": of_pods}
    made = make(cluster, kind, "x", spec, annotations=annotations)
    cluster.until(lambda: group(cluster, name))

    def member(index, **more):
        (each,) = pods_of(made, [f"x-{index}"], labels_of_three(kind, made, index), **more)
        each["metadata"]["annotations"] = of_pods
        return each

    cluster.create(member(0, affinity=exclusive(key)))
    where = cluster.until(lambda: cluster.placed().get("x-0"))
    kept = sorted({"whole-0", "whole-1", "whole-2"} - {where})
    assert len(kept) == 2
    cluster.until(lambda: sorted(((group(cluster, name).get("status") or {}).get("spares") or {}).get("nodes") or ()) == kept)
    cluster.create(*(pod(f"other-{index}", gpus=1) for index in range(5)))
    cluster.until(lambda: len(cluster.placed()) == 5)
    cluster.create(*(member(index, nodeSelector={RACK: "whole"}) for index in (1, 2)))
    cluster.until(lambda: len(cluster.placed()) == 7)
    assert sorted(cluster.placed()[each] for each in ("x-1", "x-2")) == kept


def test_upstreams_gangs_are_gangs(cluster):
    cluster.create(node("n", gpus=2))
    start(cluster)
    gang = {"metadata": {"name": "up"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    made = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", **gang}
    cluster.plane.request("POST", "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", made)
    cluster.until(lambda: group(cluster, "upstream.up"))
    cluster.create(*(pod(f"up-{index}", schedulingGroup={"podGroupName": "up"}) for index in range(3)))
    cluster.until(lambda: "PodScheduled" in str(cluster.pods()["up-2"]["status"].get("conditions")))
    assert cluster.placed() == {}

    def told(kind):
        found = cluster.get("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/up")
        each = next((each for each in (found.get("status") or {}).get("conditions") or () if each["type"] == kind), {})
        return each.get("status"), each.get("reason"), each.get("message", "")

    cluster.until(lambda: told("PodGroupScheduled")[:2] == ("False", "Unschedulable"))
    cluster.until(lambda: "nvidia.com/gpu" in told("PodGroupScheduled")[2])  # before: that members are missing
    cluster.create(node("m", gpus=1))
    cluster.until(lambda: set(cluster.placed()) == {"up-0", "up-1", "up-2"})
    cluster.until(lambda: told("PodGroupScheduled") == ("True", "Scheduled", "3 of 3 members have nodes"))
    assert told("DisruptionTarget") == (None, None, "")
    cluster.create(pod("urgent", gpus=2, priorityClassName="urgent"))
    cluster.until(lambda: told("DisruptionTarget")[:2] == ("True", "PreemptionByScheduler"))
    assert "default/urgent" in told("DisruptionTarget")[2]
    for index in range(3):
        cluster.delete(f"/api/v1/namespaces/default/pods/up-{index}")
    cluster.until(lambda: "urgent" in cluster.placed())
    cluster.create(*(pod(f"again-{index}", schedulingGroup={"podGroupName": "up"}) for index in range(3)))
    cluster.until(lambda: told("PodGroupScheduled")[:2] == ("False", "Unschedulable"))
    assert told("DisruptionTarget")[0] == "True", "what happened stays known"


RULES = """
workloads:
- apiVersion: example.com/v1
  kind: Sweep
  plural: sweeps
  podLabel: example.com/sweep
  gang: {name: "sweep-{name}", minMember: [1, "spec.workers"]}
  suspend: {path: [metadata, annotations, example.com/stopped], suspended: "true", resumed: null}
"""


def test_a_kind_that_an_administrator_describes(cluster, tmp_path, monkeypatch):
    (tmp_path / "rules.yaml").write_text(RULES)
    monkeypatch.setenv("FAIRLEAD_WORKLOADS", str(tmp_path / "rules.yaml"))
    cluster.create(node("n", gpus=2), service_class("patient", preemption={"mode": "Suspend"}))
    start(cluster)
    made = make(cluster, "Sweep", "lr", {"workers": 1}, **{"fairlead.dev/service-class": "patient"})
    labels = {"example.com/sweep": "lr", "fairlead.dev/service-class": "patient"}
    cluster.until(lambda: (group(cluster, "sweep-lr") or {"spec": {}})["spec"].get("minMember") == 2)
    cluster.create(*pods_of(made, ["lr-0", "lr-1"], labels))
    cluster.until(lambda: set(cluster.placed()) == {"lr-0", "lr-1"})
    cluster.create(pod("urgent", gpus=1, priorityClassName="urgent"))
    where = "/apis/example.com/v1/namespaces/default/sweeps/lr"
    cluster.until(lambda: cluster.get(where)["metadata"].get("annotations", {}).get("example.com/stopped") == "true")
    for name in ("lr-0", "lr-1"):
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    cluster.until(lambda: "urgent" in cluster.placed())
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.until(lambda: "example.com/stopped" not in cluster.get(where)["metadata"].get("annotations", {}))
    cluster.create(*pods_of(made, ["lr-a", "lr-b"], labels))
    cluster.until(lambda: set(cluster.placed()) == {"lr-a", "lr-b"})
