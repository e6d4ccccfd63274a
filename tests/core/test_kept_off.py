"""The rule that excludes a gang from every node gives the code: too large only if no labels and taints would help."""

import random

import pytest

from fairlead.api.names import QUARANTINED_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import Toleration
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.scheduler.explanations import advice_of
from tests.builders import cluster, group, node, pod, refused, run, spec

SOUND = (SelectorTerm((Requirement(QUARANTINED_LABEL, "DoesNotExist"),)),)
"""What the pods of a gang of an AIJob ask of their nodes."""


def told(nodes, members, size, **more):
    """Why a gang of so many of these pods waits."""
    asked = spec(gpus=size, **more)
    pods = [pod(f"g-{number}", group="g", spec_=asked) for number in range(members)]
    first, *others = refused(run(cluster(nodes, pods=pods, groups=[group("g", members)]))).values()
    assert others == [first] * (members - 1)
    return first


@pytest.mark.parametrize(
    ("code", "words", "of_nodes", "of_pods"),
    [
        (ReasonCode.NODE_AFFINITY, "4 node(s) didn't match Pod's node affinity/selector", {}, {"selector": {"gpu": "h100"}}),
        (ReasonCode.TAINTS, "4 node(s) had untolerated taint {vip: }", {"taints": (Taint("vip", "", "NoSchedule"),)}, {}),
        (ReasonCode.TAINTS, "4 node(s) were unschedulable", {"unschedulable": True}, {}),
        (ReasonCode.NODE_AFFINITY, "4 node(s) are quarantined", {"labels": {QUARANTINED_LABEL: "true"}}, {"affinity": SOUND}),
        (ReasonCode.NODE_CLOSED, "4 node(s) were closed", {"error": Reason(ReasonCode.INVALID_SPEC, "no")}, {}),
        (ReasonCode.DEVICES, "4 node(s) don't share their GPUs", {"shares": False}, {"milli": 500}),
        (
            ReasonCode.DEVICES,
            "4 node(s) have the label fairlead.dev/gpu-sharing=enabled, which is not listed in gpuSharing.agents",
            {"shares": False, "labels": {"fairlead.dev/gpu-sharing": "enabled"}},
            {"milli": 500},
        ),
        (
            ReasonCode.DEVICES,
            "4 node(s) offer partitions or replicas of GPUs, of which no fractions are given",
            {"shares": False, "labels": {"fairlead.dev/gpu-sharing": "fairlead-agent", "nvidia.com/gpu.replicas": "4"}},
            {"milli": 500},
        ),
    ],
    ids=["labels", "taints", "cordoned", "quarantined", "closed", "not shared", "shared by nobody", "replicas"],
)
def test_a_gang_that_something_keeps_off_every_node_is_not_too_large(code, words, of_nodes, of_pods):
    nodes = [node(f"n{number}", **of_nodes) for number in range(4)]
    reason = told(nodes, 4, 1 if "milli" in of_pods else 8, **of_pods)
    assert (reason.code, words in reason.message) == (code, True), reason
    assert reason.is_capacity, "more nodes would help"
    assert "exceeds the whole cluster" not in advice_of(reason)


def test_the_rule_that_excludes_most_capacity_gives_the_code():
    tainted = [node(f"t{number}", taints=(Taint("vip", "", "NoSchedule"),)) for number in range(2)]
    others = [node(f"o{number}") for number in range(3)]
    reason = told([*tainted, *others, node("fits", labels={"gpu": "h100"})], 3, 8, selector={"gpu": "h100"})
    assert reason.code is ReasonCode.NODE_AFFINITY
    assert reason.numbers == {"needed": 3, "ceiling": 1}
    assert "2 node(s) had untolerated taint" in reason.message
    assert "3 node(s) didn't match" in reason.message


def test_a_gang_that_is_larger_than_the_cluster_is_too_large_whatever_its_labels():
    reason = told([node("a", labels={"gpu": "h100"}), node("b")], 3, 8, selector={"gpu": "h100"})
    assert reason.code is ReasonCode.TOO_LARGE
    assert reason.numbers == {"needed": 3, "ceiling": 2}
    assert advice_of(reason).startswith("The request exceeds the whole cluster")


def test_advice_for_quarantined_nodes_speaks_of_the_quarantine():
    reason = told([node("n", labels={QUARANTINED_LABEL: "true"})], 2, 4, affinity=SOUND)
    assert reason.numbers["quarantined"] == 1
    assert "quarantine" in advice_of(reason)


@pytest.mark.parametrize("seed", range(150))
def test_too_large_is_what_the_amounts_of_all_nodes_do_not_hold(seed):
    """Against a judge that knows nothing but numbers of GPUs, labels and taints."""
    rnd = random.Random(seed)
    nodes, holds, free = [], 0, 0
    size, wants = rnd.choice([1, 2, 4]), rnd.choice([{}, {"gpu": "a"}, {"gpu": "b"}])
    tolerated = rnd.random() < 0.3
    more = {"selector": wants, "affinity": SOUND}
    if tolerated:
        more["tolerations"] = (Toleration("vip", "Exists"),)
    for number in range(rnd.randint(1, 5)):
        gpus, labels = rnd.choice([0, 2, 4, 8]), {"gpu": rnd.choice("ab")}
        if rnd.random() < 0.3:
            labels[QUARANTINED_LABEL] = "true"
        taints = (Taint("vip", "", "NoSchedule"),) if rnd.random() < 0.3 else ()
        cordoned = rnd.random() < 0.2
        nodes.append(node(f"n{number}", gpus=gpus, labels=labels, taints=taints, unschedulable=cordoned))
        holds += gpus // size
        fits = all(labels[key] == value for key, value in wants.items()) and QUARANTINED_LABEL not in labels
        free += gpus // size if fits and not cordoned and (tolerated or not taints) else 0
    members = rnd.randint(max(2, free + 1), free + 8)
    reason = told(nodes, members, size, **more)
    assert (reason.code is ReasonCode.TOO_LARGE) == (holds < members), reason
    if reason.code is not ReasonCode.TOO_LARGE:
        assert reason.code in (ReasonCode.NODE_AFFINITY, ReasonCode.TAINTS)
        assert reason.numbers["ceiling"] == free


def test_a_quarantined_node_that_would_have_capacity_is_named_though_others_are_full():
    quarantined = node("bad", labels={QUARANTINED_LABEL: "true"})
    busy = [pod(f"r{number}", gpus=4, at=name) for number, name in enumerate(("a", "b"))]
    asked = spec(gpus=4, affinity=SOUND)
    pods = [pod(f"g-{number}", group="g", spec_=asked) for number in range(4)]
    state = cluster([quarantined, node("a"), node("b")], pods=[*busy, *pods], groups=[group("g", 4)])
    reason = next(iter(refused(run(state)).values()))
    assert reason.code is ReasonCode.RESOURCES
    assert "capacity for 2 of 4; 1 node(s) are quarantined" in reason.message
    assert "quarantine" in advice_of(reason)
