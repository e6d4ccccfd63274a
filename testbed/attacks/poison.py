"""Poison: objects that are to stop a pass, a reconciler, a node, or a process."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed.attacks.checks import starves
from testbed.attacks.lab import NODES, Range
from testbed.attacks.manifests import affinity, ai_job, group, pod, template, workload
from testbed.attacks.model import Catalogue

SUBJECT = Catalogue("poison")
attack = SUBJECT.attack
_BANANA = {names.GPU_FRACTION_ANNOTATION: "banana"}


def _on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


@attack("R1", "preferred pod anti-affinity that fits nowhere", check=starves("r1v", count=3), quick=True)
def _(lab: Range) -> None:
    # Ann holds something, so that a queue that stands better does not go before the poison.
    lab.runs(lab.ann, "vision", pod("r1-has", gpus=1, queue="vision"))
    prefers: dict[str, Any] = {"affinity": affinity("x")}
    lab.runs(lab.mallory, "mal", pod("r1-a", gpus=0, labels={"app": "x"}, **prefers))
    lab.mallory.creates(pod("r1-b", gpus=0, labels={"app": "x"}, nodeSelector={"no": "such"}, **prefers), "mal")


@attack("R2", "a Deployment of 7 GPUs each with the usual preferred anti-affinity", check=starves("r2v", count=2))
def _(lab: Range) -> None:
    inside = template("r2", gpus=7, queue="borrow", affinity=affinity("r2", 100))
    lab.mallory.creates(workload("Deployment", "r2", inside, replicas=5), "mal")
    lab.soon(lambda: len(lab.bound("mal", "r2")) >= 3)


@attack("R3", "preferred pod affinity and topology spread that fit nowhere", check=starves("r3v", count=2))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("r3-a", gpus=0, labels={"app": "y"}))
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "y"}},
        }
    ]
    made = pod("r3-b", gpus=0, labels={"app": "y"}, nodeSelector={"no": "such"}, affinity=affinity("y", anti=False))
    lab.mallory.creates(made, "mal")
    lab.mallory.creates(
        pod("r3-c", gpus=0, labels={"app": "y"}, nodeSelector={"no": "x"}, topologySpreadConstraints=spread), "mal"
    )


@attack("R4", "a gang with preferences that fits nowhere", check=starves("r4v", count=2))
def _(lab: Range) -> None:
    lab.mallory.makes(group("r4", 3, "borrow", topology={"preferred": "nosuch"}), "mal")
    for number in range(3):
        made = pod(f"r4-{number}", gpus=0, queue="", group="r4", labels={"app": "z"}, affinity=affinity("z"))
        made["spec"]["nodeSelector"] = {"no": "such"}
        lab.mallory.creates(made, "mal")


def _closes(name: str) -> Any:
    def check(lab: Range) -> str:
        return starves(name, nodeSelector=_on("n1"))(lab)

    return check


@attack("B3", "gpu-fraction=banana on a running pod of 10m CPU", check=_closes("b3v"), quick=True)
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("b3-x", gpus=0, cpu="10m", nodeSelector=_on("n1")))
    lab.mallory.annotates("pods", "mal", "b3-x", gpu_fraction="banana")


@attack("B3b", "the same by nodeName with another scheduler, on all nodes", check=starves("b3bv"))
def _(lab: Range) -> None:
    for node in NODES:
        made = pod(f"b3b-{node}", gpus=0, cpu="10m", scheduler="default-scheduler", nodeName=node, annotations=_BANANA)
        lab.mallory.creates(made, "mal")


@attack("B3c", "requests beyond exact integers by nodeName", check=_closes("b3cv"))
def _(lab: Range) -> None:
    for number, cpu in enumerate(("9223372036854775807", "2305843009213693952k", "1e30")):
        made = pod(f"b3c-{number}", gpus=0, cpu=cpu, scheduler="default-scheduler", nodeName="n1")
        if not lab.mallory.creates(made, "mal").refused:
            lab.not_admitted("mal", f"b3c-{number}")


@attack("B3d", "unreadable time limits, priorities, booleans on running pods", check=_closes("b3dv"))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", *(pod(f"b3d-{i}", gpus=0, cpu="10m", nodeSelector=_on("n1")) for i in range(3)))
    lab.mallory.annotates("pods", "mal", "b3d-0", time_limit="banana", expected_duration="-9e99h")
    labels = {"elastic_replica": "perhaps", "array_index": "99999999999999999999", "index": "x", "attempt": "-1"}
    lab.mallory.labels("pods", "mal", "b3d-1", **labels)
    lab.mallory.annotates("pods", "mal", "b3d-2", epoch="abc", simulated_duration="x", last_activity="never")


@attack("E1", "AIJobs with broken templates", check=starves("e1v"))
def _(lab: Range) -> None:
    broken: list[Any] = [
        {"containers": "x"},
        {"containers": [1]},
        {"containers": []},
        {},
        {"containers": [{"name": "main", "env": "str"}]},
        {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "banana"}}}]},
        {"affinity": [], "containers": [{"name": "m", "image": "x"}]},
        {"containers": [{"name": "m", "image": "x"}], "tolerations": {"a": 1}},
        {"containers": [{"name": "m", "image": "x"}], "nodeSelector": 7},
    ]
    for number, spec in enumerate(broken):
        made = ai_job(f"e1-{number}", gpus=0)
        made["spec"]["roles"][0]["template"] = {"spec": spec}
        lab.mallory.creates(made, "mal")
    lab.mallory.creates({**ai_job("e1-m"), "spec": {"roles": [{"name": "w", "template": {"metadata": 5, "spec": []}}]}}, "mal")


def _unsaid(lab: Range) -> str:
    def said() -> bool:
        status = (lab.get("aijobs", "mal", "e1b") or {}).get("status") or {}
        events = (lab.admin.ask("GET", "/apis/events.k8s.io/v1/namespaces/mal/events").body or {}).get("items", [])
        text = str([each for each in events if each["regarding"].get("name") == "e1b"]) + str(status)
        return any(word in text.lower() for word in ("template", "containers", "invalid"))

    return "" if lab.get("aijobs", "mal", "e1b") is None or lab.soon(said) else "no event and no condition on the AIJob"


@attack("E1b", "whether the user of a broken template is told", check=_unsaid)
def _(lab: Range) -> None:
    made = ai_job("e1b", gpus=0)
    made["spec"]["roles"][0]["template"] = {"spec": {"containers": [1]}}
    lab.mallory.creates(made, "mal")


def _operator_works(lab: Range) -> str:
    lab.soon(lab.ended, 2.0)
    lab.ann.makes(ai_job("works", queue="vision"), "vision")
    return "" if lab.soon(lambda: lab.bound("vision", "works")) else "ann's AIJob does not start"


@attack("J1", "a running pod moved to another PodGroup, and deleted", check=_operator_works, quick=True)
def _(lab: Range) -> None:
    for name in ("g1", "g2"):
        lab.mallory.makes(group(name, 1), "mal")
        lab.runs(lab.mallory, "mal", pod(f"j1-{name}", gpus=0, queue="", group=name))
    lab.soon(lambda: False, 0.5)  # the history has heard of them
    lab.mallory.labels("pods", "mal", "j1-g1", pod_group="g2")
    lab.mallory.removes("pods", "mal", "j1-g1")
    lab.mallory.patches("pods", "mal", "j1-g2", {"metadata": {"labels": {"x": "y"}}})


@attack("J1b", "a PodGroup deleted before its pods", check=_operator_works)
def _(lab: Range) -> None:
    lab.mallory.makes(group("j1b", 2), "mal")
    lab.runs(lab.mallory, "mal", *(pod(f"j1b-{number}", gpus=0, queue="", group="j1b") for number in range(2)))
    lab.soon(lambda: False, 0.5)
    lab.mallory.removes("podgroups", "mal", "j1b")
    lab.mallory.patches("pods", "mal", "j1b-0", {"metadata": {"labels": {"x": "y"}}})
    lab.mallory.removes("pods", "mal", "j1b-0")
    lab.mallory.patches("pods", "mal", "j1b-1", {"metadata": {"labels": {"x": "y"}}})
    lab.mallory.removes("pods", "mal", "j1b-1")


@attack("J1c", "a running pod relabelled as a member of an AIJob of another's", check=_operator_works)
def _(lab: Range) -> None:
    lab.ann.makes(ai_job("j1c", gpus=0, workers=2, queue="anns"), "shared")
    lab.mallory.makes(pod("j1c-x", gpus=0), "shared")
    lab.settled("shared", "j1c-x")
    lab.mallory.labels("pods", "shared", "j1c-x", pod_group="j1c", job="j1c", role="worker", index="0", attempt="1")
    lab.mallory.removes("pods", "shared", "j1c-x")


@attack("K9", "pods of 190 kB with hundreds of terms", check=starves("k9v", count=2))
def _(lab: Range) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a" * 60}}}
    terms = [{"topologyKey": f"k{number}", "labelSelector": term["labelSelector"]} for number in range(100)]
    nodes = [{"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": ["v" * 60] * 3}]} for i in range(300)]
    preferred = [{"weight": 1, "podAffinityTerm": term}] * 100
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": nodes}},
    }
    for number in range(10):
        lab.mallory.creates(pod(f"k9-{number}", gpus=0, affinity=apart), "mal")


@attack("M23", "escape sequences, right-to-left marks and NULs in names, labels, annotations", check=starves("m23v"))
def _(lab: Range) -> None:
    notes = {"fairlead.dev/x": "\x1b[2J\x1b]0;owned\x07", names.TIME_LIMIT_ANNOTATION: "\u202e5s\u0000"}
    lab.mallory.creates(pod("m23-x", gpus=0, annotations=notes), "mal")
    lab.mallory.creates(pod("m23-y", gpus=0, annotations={names.EXPECTED_DURATION_ANNOTATION: "\x1b[31m1h"}), "mal")


@attack("P1", "epoch, suspended-by, target-epoch, made-for, elastic-replica on pods and Jobs of one's own", check=starves("p1v"))
def _(lab: Range) -> None:
    notes = {f"fairlead.dev/{name}": "x" for name in ("epoch", "suspended-by", "target-epoch")}
    labels = {"fairlead.dev/made-for": "Job", "fairlead.dev/elastic-replica": "true", "fairlead.dev/upstream": "true"}
    lab.mallory.creates(pod("p1-x", gpus=0, annotations=notes, labels=labels), "mal")
    made = workload("Job", "p1", template("p1", gpus=0), suspend=True)
    made["metadata"]["annotations"] = {"fairlead.dev/suspended-by": "policy", "fairlead.dev/target-epoch": "-5"}
    lab.mallory.creates(made, "mal")
    stands = group("p1", 1)
    stands["metadata"]["labels"] = labels
    lab.mallory.creates(stands, "mal")


@attack("P2", "PodGroups of impossible sizes, times and topologies", check=starves("p2v"))
def _(lab: Range) -> None:
    odd: list[dict[str, Any]] = [
        {"minMember": 2**31},
        {"minMember": 5, "maxMember": 1},
        {"minMember": 1, "timeLimit": "99999999999999d", "expectedDuration": "0s"},
        {"minMember": 1, "topology": {"required": "x" * 300, "preferred": ""}},
        {"minMember": 1, "serviceClass": "\u0665"},
    ]
    for number, spec in enumerate(odd):
        lab.mallory.creates(group(f"p2-{number}", 1, "mal", **spec), "mal")
        lab.mallory.creates(pod(f"p2-{number}", gpus=0, queue="", group=f"p2-{number}"), "mal")


@attack("P3", "volumes, claims and selectors that do not parse or do not exist", check=starves("p3v"))
def _(lab: Range) -> None:
    claim = [{"name": "v", "persistentVolumeClaim": {"claimName": "nosuch"}}]
    lab.mallory.creates(pod("p3-a", gpus=0, volumes=claim), "mal")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}
    lab.mallory.creates(
        pod("p3-b", gpus=0, affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}), "mal"
    )
    greater = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Gt", "values": ["99999999999999999999"]}]}
    needs = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [greater]}}}
    lab.mallory.creates(pod("p3-c", gpus=0, affinity=needs), "mal")
    claims = [{"name": "g", "resourceClaimName": "nosuch"}]
    lab.mallory.creates(pod("p3-d", gpus=0, resourceClaims=claims), "mal")


@attack("P4", "a running gang whose PodGroup is deleted, made again larger, and deleted", check=starves("p4v", count=2))
def _(lab: Range) -> None:
    lab.mallory.makes(group("p4", 2), "mal")
    lab.runs(lab.mallory, "mal", *(pod(f"p4-{number}", gpus=0, queue="", group="p4") for number in range(2)))
    for least in (3, 1, 100):
        lab.mallory.removes("podgroups", "mal", "p4")
        lab.mallory.creates(group("p4", least), "mal")


@attack("P5", "a gang of AIJob members deleted, orphaned and relabelled under the operator", check=_operator_works)
def _(lab: Range) -> None:
    lab.mallory.makes(ai_job("p5", gpus=0, workers=3), "mal")
    lab.until("p5 runs", lambda: len(lab.bound("mal", "p5")) == 3)
    one, two, three = lab.bound("mal", "p5")
    lab.mallory.patches("pods", "mal", one, {"metadata": {"ownerReferences": None}})
    lab.mallory.patches("pods", "mal", two, {"metadata": {"labels": None}})
    lab.mallory.removes("pods", "mal", three)
    lab.mallory.removes("podgroups", "mal", "p5")
