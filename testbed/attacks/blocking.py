"""Blocking: what keeps others from what is theirs without taking it."""

from __future__ import annotations

from typing import Any

from testbed.attacks.checks import starves
from testbed.attacks.lab import GPUS, NODES, OVERRIDE, PATIENCE, SOON, VICTIM, Range, is_bound, waits
from testbed.attacks.manifests import ai_job, budget, group, pod
from testbed.attacks.model import Catalogue

SUBJECT = Catalogue("blocking")
attack = SUBJECT.attack
_HELD = SOON + OVERRIDE + VICTIM


def _borrows(lab: Range, prefix: str, count: int = 4, gpus: int = GPUS, **more: Any) -> None:
    made = [pod(f"{prefix}-{number}", gpus=gpus, queue="borrow", **more) for number in range(count)]
    lab.runs(lab.mallory, "mal", *made)


@attack(
    "D4",
    "a PodDisruptionBudget without disruptions over borrowed GPUs",
    check=starves("d4v", devices=GPUS, limit=_HELD),
    quick=True,
)
def _(lab: Range) -> None:
    _borrows(lab, "d4")
    lab.mallory.creates(budget("all"), "mal")
    lab.soon(lambda: any(each.get("status", {}).get("expectedPods") for each in lab.all("poddisruptionbudgets", "mal")), 8.0)


def _silent(lab: Range) -> str:
    lab.ann.makes(pod("d4bv", gpus=GPUS, queue="vision"), "vision")

    def judged() -> object:
        found = lab.get("pods", "vision", "d4bv") or {}
        return is_bound(found) or waits(found)[0]

    return "" if lab.soon(judged, 8.0) else "the owner's pod waits 8 s behind the budget and is told nothing"


@attack("D4b", "whether the owner behind such a budget is told", check=_silent)
def _(lab: Range) -> None:
    _borrows(lab, "d4b")
    lab.mallory.creates(budget("all"), "mal")
    lab.soon(lambda: any(each.get("status", {}).get("expectedPods") for each in lab.all("poddisruptionbudgets", "mal")), 8.0)


@attack(
    "D4c",
    "annotations that keep autoscalers away (safe-to-evict, do-not-disrupt) over borrowed GPUs",
    check=starves("d4cv", devices=GPUS, limit=_HELD),
)
def _(lab: Range) -> None:
    notes = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
    _borrows(lab, "d4c", annotations=notes)


_STAYS: dict[str, Any] = {"terminationGracePeriodSeconds": 1_000_000_000}


def _stubborn(lab: Range, prefix: str, count: int = 4) -> None:
    made = []
    for number in range(count):
        each = pod(f"{prefix}-{number}", gpus=GPUS, queue="borrow", **_STAYS)
        each["metadata"]["finalizers"] = ["mallory.example/x"]
        made.append(each)
    lab.runs(lab.mallory, "mal", *made)


def _other_place(lab: Range) -> str:
    lab.ann.makes(pod("d5v", gpus=GPUS, queue="vision"), "vision")
    terminating = lab.soon(lambda: [n for n, p in lab.pods("mal", "d5").items() if p["metadata"].get("deletionTimestamp")])
    if not terminating:
        return "" if lab.soon(lambda: is_bound(lab.get("pods", "vision", "d5v") or {})) else "no victim, and ann's pod waits"
    other = next(name for name in lab.pods("mal", "d5") if name not in terminating)
    free = {"metadata": {"finalizers": None}}
    lab.admin.ask("PATCH", f"/api/v1/namespaces/mal/pods/{other}", free, "application/merge-patch+json")
    lab.admin.ask("DELETE", f"/api/v1/namespaces/mal/pods/{other}", {"gracePeriodSeconds": 0})
    if lab.soon(lambda: is_bound(lab.get("pods", "vision", "d5v") or {}), _HELD):
        return ""
    return f"a whole node is free, ann's pod waits {_HELD:g} s for a victim that does not go"


@attack("D5", "a victim that does not go, while another node becomes free", check=_other_place)
def _(lab: Range) -> None:
    _stubborn(lab, "d5")


def _one_goes(lab: Range) -> str:
    lab.ann.makes(pod("k5v", gpus=GPUS, queue="vision"), "vision")
    limit = _HELD + 3 * VICTIM
    if lab.soon(lambda: is_bound(lab.get("pods", "vision", "k5v") or {}), limit):
        return ""
    leaving = [name for name, each in lab.pods("mal", "k5").items() if each["metadata"].get("deletionTimestamp")]
    return f"ann's pod waits {limit:g} s for {leaving}, though others would go"


@attack("K5", "one victim that does not go beside victims that would", check=_one_goes)
def _(lab: Range) -> None:
    # The stubborn one is what has just begun, and so the cheapest.
    _borrows(lab, "k5-good", 3)
    _stubborn(lab, "k5-bad", 1)


def _grace(lab: Range) -> str:
    lab.ann.makes(pod("k5bv", gpus=GPUS, queue="vision"), "vision")
    lab.soon(lambda: [p for p in lab.pods("mal", "k5b").values() if p["metadata"].get("deletionTimestamp")])
    spans = [each["metadata"].get("deletionGracePeriodSeconds", 0) for each in lab.pods("mal", "k5b").values()]
    longest = max(spans, default=0)
    return f"it was evicted with a grace of {longest} s" if longest > 86_400 else ""


@attack("K5b", "a container that does not heed SIGTERM, with a grace period of 10^9 s", check=_grace)
def _(lab: Range) -> None:
    notes = {"testbed.fairlead.dev/stays": "true"}
    _borrows(lab, "k5b", annotations=notes, **_STAYS)


def _reserved(lab: Range) -> str:
    lab.soon(lambda: False, PATIENCE + 2)  # the gang becomes patient, and reserves if it may
    # Of another queue, beyond its quota as the gang is. In the gang's own queue a reservation binds until it is given up.
    lab.ann.makes(pod("j2v", gpus=4, queue="per"), "vision")
    if lab.soon(lambda: is_bound(lab.get("pods", "vision", "j2v") or {}), 8.0):
        return ""
    return f"idle GPUs are kept from ann: {': '.join(waits(lab.get('pods', 'vision', 'j2v') or {}))[:200]}"


@attack("J2", "a gang that its own pods keep out, which reserves all nodes", check=_reserved)
def _(lab: Range) -> None:
    lab.runs(
        lab.mallory,
        "mal",
        *(pod(f"j2-{i}", gpus=1, queue="borrow", nodeSelector={"kubernetes.io/hostname": node}) for i, node in enumerate(NODES)),
    )
    lab.mallory.creates(group("j2", 4, "borrow"), "mal")
    for number in range(4):
        lab.mallory.creates(pod(f"j2-g{number}", gpus=GPUS, queue="", group="j2"), "mal")
    lab.settled("mal", "j2-g", 4, 4.0)


@attack("J2b", "a gang beyond its queue's limit, which reserves", check=_reserved)
def _(lab: Range) -> None:
    made = (pod(f"j2-{i}", gpus=1, queue="borrow", nodeSelector={"kubernetes.io/hostname": n}) for i, n in enumerate(NODES))
    lab.runs(lab.mallory, "mal", *made)
    lab.mallory.creates(group("j2", 4, "mal"), "mal")
    for number in range(4):
        lab.mallory.creates(pod(f"j2-g{number}", gpus=GPUS, queue="", group="j2"), "mal")
    lab.settled("mal", "j2-g", 4, 4.0)


def _quarantined(lab: Range) -> list[str]:
    nodes = lab.admin.ask("GET", "/api/v1/nodes").body["items"]
    return [each["metadata"]["name"] for each in nodes if each["metadata"]["labels"].get("fairlead.dev/quarantined")]


def _blamed(lab: Range) -> str:
    found = lab.soon(lambda: _quarantined(lab), 6.0)
    return f"quarantined for six hours: {', '.join(found)}" if found else ""


def _play_failures(lab: Range, prefix: str, namespace: str = "mal", times: int = 2) -> None:
    """Play the kubelet: members fail as soon as they are bound."""
    failed: set[str] = set()

    def enough() -> bool:
        for name in lab.bound(namespace, prefix):
            uid = lab.pods(namespace, name)[name]["metadata"]["uid"] if name in lab.pods(namespace, name) else ""
            if uid and uid not in failed:
                lab.fails(namespace, name)
                failed.add(uid)
        return len(failed) >= times

    lab.soon(enough, 10.0)


@attack("K1", "two failing AIJobs of one tenant, to have nodes quarantined", check=_blamed)
def _(lab: Range) -> None:
    for number in range(2):
        made = ai_job(f"k1-{number}", gpus=0, restart={"limit": 3, "backoff": "1s"})
        made["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n4"}
        lab.mallory.creates(made, "mal")
    _play_failures(lab, "k1-", times=6)


@attack("K1c", "the same from two namespaces", check=_blamed)
def _(lab: Range) -> None:
    for namespace in ("mal", "shared"):
        made = ai_job("k1c", gpus=0, restart={"limit": 3, "backoff": "1s"})
        made["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n4"}
        lab.mallory.creates(made, namespace)
    for namespace in ("mal", "shared"):
        _play_failures(lab, "k1c", namespace, 3)


@attack("K1b", "a node's quarantine, failures and taints written by the tenant", check=_blamed)
def _(lab: Range) -> None:
    marks = {"labels": {"fairlead.dev/quarantined": "true"}, "annotations": {"fairlead.dev/failures": "x"}}
    lab.mallory.tries("PATCH", "/api/v1/nodes/n1", {"metadata": marks}, "application/merge-patch+json")
    lab.mallory.tries("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, "application/merge-patch+json")


@attack("B4", "ports, disks and required anti-affinity that keep every other pod off all nodes", check=starves("b4v"))
def _(lab: Range) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(4):
        lab.mallory.creates(pod(f"b4-{number}", gpus=0, affinity=apart), "mal")
    lab.settled("mal", "b4-", 4, 4.0)


@attack("B5", "nominatedNodeName and gates set by the tenant, to hold places", check=starves("b5v", devices=GPUS, count=2))
def _(lab: Range) -> None:
    for number in range(4):
        made = pod(f"b5-{number}", gpus=GPUS, queue="borrow", schedulingGates=[{"name": "mallory.example/x"}])
        lab.mallory.creates(made, "mal")
        status = {"status": {"nominatedNodeName": f"n{number + 1}"}}
        at = f"/api/v1/namespaces/mal/pods/b5-{number}/status"
        lab.mallory.tries("PATCH", at, status, "application/merge-patch+json")


@attack(
    "B6",
    "an Inference job whose members are never to be evicted, on borrowed GPUs",
    check=starves("b6v", devices=GPUS, limit=_HELD),
)
def _(lab: Range) -> None:
    made = ai_job("b6", workers=4, gpus=GPUS, queue="borrow", workloadType="Inference")
    made["spec"]["roles"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 1_000_000_000
    lab.mallory.creates(made, "mal")
    lab.soon(lambda: len(lab.bound("mal", "b6")) == 4)
    lab.mallory.creates(budget("b6"), "mal")


@attack("B7", "a finalizer on the PodGroup of a gang that is to go", check=starves("b7v", devices=GPUS, limit=_HELD))
def _(lab: Range) -> None:
    made = group("b7", 4, "borrow")
    made["metadata"]["finalizers"] = ["mallory.example/x"]
    lab.mallory.makes(made, "mal")
    lab.runs(lab.mallory, "mal", *(pod(f"b7-{number}", gpus=GPUS, queue="", group="b7") for number in range(4)))
    lab.mallory.removes("podgroups", "mal", "b7")
