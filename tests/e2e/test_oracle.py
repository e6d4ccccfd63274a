"""Our filters, scores and preemption against kube-scheduler's real plugins, on random clusters."""

from __future__ import annotations

import json
import random

import pytest

from fairlead.cli.feasibility import describe
from fairlead.cluster.cases import decode
from testbed.differential import ask_oracle, compare, differences

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_no_difference_on_random_clusters(first):
    assert differences(range(first, first + 500)) == []


def test_each_filter_can_be_asked_alone():
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    answer = ask_oracle([json.dumps({"nodes": [node], "pods": [pod("p", cpu="2")]}).encode()], alone=True)[0]
    assert answer["pods"][0]["alone"] == {"n": ["NodeUnschedulable", "NodeResourcesFit"]}


def pod(name, at="", resources=None, **requests):
    made = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made["spec"]["containers"][0]["resources"] = {"requests": requests}
    if at:
        made["spec"]["nodeName"] = at
    return made


def node(name, cpu="8", memory="32Gi"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}}


WRAPPING = [
    # Two pods whose CPU wraps to -1000m each free ten CPUs on a node of eight.
    ("cpu that wraps", {"cpu": "9223372036854775807"}, {"cpu": "10"}),
    # Memory beyond int64 counts as nothing: the node, full without end, takes more.
    ("memory that counts as nothing", {"memory": "10E"}, {"memory": "1Gi"}),
]


@pytest.mark.parametrize(("name", "running", "waiting"), WRAPPING, ids=[each[0] for each in WRAPPING])
def test_where_upstream_wraps_we_close_the_node(name, running, waiting):
    pods = [pod("r1", "n", **running), pod("r2", "n", **running), pod("w", **waiting)]
    case = json.dumps({"id": name, "nodes": [node("n")], "pods": pods}).encode()
    assert ask_oracle([case])[0]["pods"][0]["feasible"] == ["n"]
    assert describe(decode(case))["pods"][0]["rejects"] == {"n": "NodeResourcesFit"}


def test_where_upstream_adds_overhead_again_and_again_we_add_it_once():
    """It adds a pod's overhead to its pod-level requests in place where these have a fraction."""
    waiting = pod("w", memory="128Mi")
    waiting["spec"]["resources"] = {"requests": {"cpu": "500m", "memory": "1.5Gi"}}
    waiting["spec"]["overhead"] = {"cpu": "100m", "memory": "512Mi"}
    case = json.dumps({"id": "overhead", "nodes": [node("n", cpu="1", memory="8Gi")], "pods": [waiting]}).encode()
    upstream = ask_oracle([case])[0]["pods"][0]["scores"]["n"]["NodeResourcesBalancedAllocation"]
    ours = describe(decode(case))["pods"][0]["scores"]["n"]["NodeResourcesBalancedAllocation"]
    # 600m of 1 CPU and 2 GiB of 8: (0.6 - 0.25) / 2 = 0.175 off balance, from an even start.
    assert ours == 50 + (50 + 82 - 100) // 2
    assert upstream > ours


# What upstream cannot judge, or judges without reading, Fairlead decides on purpose.


def zoned(name):
    return {**node(name), "metadata": {"name": name, "labels": {"zone": name}}}


def bound_claim(name, volume, owner=""):
    about = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    if owner:
        about["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "controller": True}]
    size = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size, "storageClassName": "c", "volumeName": volume}
    return {"metadata": about, "spec": spec, "status": {"phase": "Bound"}}


def volume(name, claim, term):
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
        "claimRef": {"namespace": "ns", "name": claim, "uid": f"uid-{claim}"},
        "csi": {"driver": "d", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}


STORAGE = [{"metadata": {"name": "c"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}]
ANYWHERE = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}


def asked(**case):
    """(ours, upstream's) of the last pod."""
    line = json.dumps({"id": "case", **case}).encode()
    return describe(decode(line))["pods"][-1], ask_oracle([line])[0]["pods"][-1]


def test_a_volume_that_names_a_node_by_a_field_is_on_no_node_where_upstream_takes_it_for_everywhere():
    """Upstream asks a volume's affinity with a node's labels alone, and passes over `matchFields` without a word."""
    waiting = pod("w", cpu="1")
    waiting["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    ours, upstream = asked(
        nodes=[zoned("a"), zoned("b")],
        pods=[waiting],
        persistentVolumes=[volume("pv", "x", term)],
        persistentVolumeClaims=[bound_claim("x", "pv")],
        storageClasses=STORAGE,
    )
    assert upstream["feasible"] == ["a", "b"]
    assert ours["rejects"] == {"a": "VolumeBinding", "b": "VolumeBinding"}


def test_a_preference_that_cannot_be_parsed_counts_for_nothing_where_upstream_never_places_the_pod():
    waiting = pod("w", cpu="1")
    wishes = [
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["five"]}]}},
        {"weight": 3, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}},
    ]
    waiting["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
    ours, upstream = asked(nodes=[zoned("a"), zoned("b")], pods=[waiting])
    assert 'running PreScore plugin "NodeAffinity"' in upstream["error"]
    assert ours["feasible"] == ["a", "b"]


@pytest.mark.parametrize("owner", ["", "other"])
def test_an_ephemeral_claim_of_another_pod_closes_its_node_where_upstream_stops_all_that_ask_for_volumes(owner):
    """The claim that a running pod should have had made for it is not its own: what it holds there is not known."""
    running, waiting = pod("r", "a"), pod("w", cpu="1")
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c"}}
    running["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    waiting["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]
    drivers = [{"name": "d", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 9}}]
    ours, upstream = asked(
        nodes=[zoned("a"), zoned("b")],
        pods=[running, waiting],
        persistentVolumes=[volume("pv", "r-v", ANYWHERE), volume("pv-x", "x", ANYWHERE)],
        persistentVolumeClaims=[bound_claim("r-v", "pv", owner), bound_claim("x", "pv-x")],
        storageClasses=STORAGE,
        csiNodes=[{"metadata": {"name": name}, "spec": {"drivers": drivers}} for name in "ab"],
    )
    assert "was not created for pod ns/r" in upstream["error"]
    assert (ours["feasible"], ours["rejects"]) == (["b"], {"a": "NodeVolumeLimits"})


MEMORY = ("1500m", "0.5", "1.5Gi", "100m", "1.25", "2.7Mi", "1", "512Mi", "333333333m")


def fractional(rnd, name, at=""):
    """A pod with CPU as a whole and memory by container, in fractions of bytes too."""
    made = pod(name, at)
    containers = [{"name": f"c{number}", "image": "i"} for number in range(rnd.randint(1, 3))]
    first = [{"name": f"i{number}", "image": "i"} for number in range(rnd.randint(0, 2))]
    for each in (*containers, *first):
        each["resources"] = {"requests": {"memory": rnd.choice(MEMORY)}}
        if each in first and rnd.random() < 0.5:
            each["restartPolicy"] = "Always"
    made["spec"] |= {"containers": containers, "initContainers": first}
    made["spec"]["resources"] = {"requests": {"cpu": rnd.choice(["1", "500m", "2"])}}
    if rnd.random() < 0.3:
        made["spec"]["overhead"] = {"cpu": "100m", "memory": rnd.choice(["512Mi", "100m", "0.3Gi"])}
    return made


def test_fractions_of_memory_beside_cpu_of_the_whole_pod_are_counted_as_upstream_does():
    rnd = random.Random(5)
    lines = []
    for number in range(300):
        nodes = [node(f"n{each}", memory=rnd.choice(["1", "2", "3", "4", "2Gi", "5Gi"])) for each in range(3)]
        pods = [fractional(rnd, "r1", "n0"), fractional(rnd, "r2", "n1"), fractional(rnd, "w1"), fractional(rnd, "w2")]
        lines.append(json.dumps({"id": number, "nodes": nodes, "pods": pods}).encode())
    found = [each for line, answer in zip(lines, ask_oracle(lines), strict=True) for each in compare(line, answer)]
    assert found == []


def test_integers_of_gt_and_lt_may_be_longer_than_any_number():
    zeros = "0" * 40
    made = {**node("n"), "metadata": {"name": "n", "labels": {"rank": f"{zeros}7"}}}
    waiting = pod("w", cpu="1")
    term = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": [f"{zeros}5"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    waiting["spec"]["affinity"] = {"nodeAffinity": required}
    ours, upstream = asked(nodes=[made], pods=[waiting])
    assert ours["feasible"] == upstream["feasible"] == ["n"]
