"""Placement: nodes taken past the queues, and others' places taken by priority."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed.attacks.checks import Check, answered, holds_more_than, runs, starves
from testbed.attacks.lab import GPUS, NODES, Range, gpus, is_bound, waits
from testbed.attacks.manifests import ai_job, group, pod, template, workload
from testbed.attacks.model import Catalogue
from testbed.attacks.people import where

SUBJECT = Catalogue("placement")
attack = SUBJECT.attack
KUBERNETES = names.KUBERNETES_SCHEDULER_NAME
CRITICAL = "system-node-critical"


def _by_itself(name: str, node: str, scheduler: str, **more: Any) -> dict[str, object]:
    return pod(name, gpus=GPUS, queue="", scheduler=scheduler, nodeName=node, **more)


@attack("D1", "nodeName with the default scheduler's name", check=holds_more_than(0, prefix="d1-"), quick=True)
def _(lab: Range) -> None:
    lab.mallory.creates(_by_itself("d1-x", "n2", "default-scheduler"), "mal")


@attack(
    "D1b",
    "nodeName with the name of a scheduler that is not there, labelled with a queue",
    check=holds_more_than(4, prefix="d1b-"),
)
def _(lab: Range) -> None:
    lab.mallory.creates({**_by_itself("d1b-x", "n3", "nobody")}, "mal")
    lab.mallory.creates(pod("d1b-y", gpus=GPUS, scheduler="nobody", nodeName="n4"), "mal")


def _stays(prefix: str) -> Check:
    """GPUs taken beyond the limit are not taken back for ann's guarantee, or are not charged."""

    def check(lab: Range) -> str:
        for number in range(2):
            if not lab.serves(f"{prefix}v-{number}", gpus=GPUS):
                return f"ann's guarantee is not kept: {waits(lab.get('pods', 'vision', f'{prefix}v-{number}') or {})}"
        return ""

    return check


@attack("D1c", "nodeName on all nodes with our scheduler's name", check=_stays("d1c"))
def _(lab: Range) -> None:
    for number, node in enumerate(NODES):
        lab.mallory.creates(_by_itself(f"d1c-{number}", node, "fairlead"), "mal")


@attack("D1d", "nodeName through a Deployment's and a Job's template", check=holds_more_than(4, prefix="d1d", pods=2))
def _(lab: Range) -> None:
    for kind, node in (("Deployment", "n1"), ("Job", "n2")):
        inside = template(f"d1d-{kind.lower()}", gpus=GPUS, queue="", scheduler="default-scheduler", nodeName=node)
        lab.mallory.creates(workload(kind, f"d1d-{kind.lower()}", inside), "mal")
    for prefix in ("d1d-deployment", "d1d-job"):
        lab.made("mal", prefix)


@attack("D1e", "nodeName in an AIJob's template, made by the operator", check=holds_more_than(4, prefix="d1e"))
def _(lab: Range) -> None:
    made = ai_job("d1e", gpus=GPUS)
    made["spec"]["roles"][0]["template"]["spec"] |= {"nodeName": "n3", "schedulerName": "default-scheduler"}
    lab.mallory.creates(made, "mal")
    lab.made("mal", "d1e")


@attack("D1f", "GPUs in init containers of a pod with nodeName", check=answered("d1f"))
def _(lab: Range) -> None:
    main = {"name": "i", "image": "x", "restartPolicy": "Always"}
    main["resources"] = {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}  # type: ignore[assignment]
    made = pod("d1f-x", gpus=0, queue="", scheduler="default-scheduler", nodeName="n1", initContainers=[main])
    if not lab.mallory.creates(made, "mal").refused:
        lab.kept["d1f"] = "a sidecar holds 8 GPUs of n1 outside all queues"


@attack("D1g", "GPUs of another vendor, or a fraction, in a pod with nodeName", check=answered("d1g"))
def _(lab: Range) -> None:
    fraction = pod("d1g-f", gpus=0, queue="", scheduler="default-scheduler", nodeName="n4")
    fraction["metadata"]["annotations"] = {names.GPU_FRACTION_ANNOTATION: "0.9"}
    other = pod("d1g-a", gpus=0, queue="", scheduler="default-scheduler", nodeName="n1")
    other["spec"]["containers"][0]["resources"] = {"requests": {"amd.com/gpu": "8"}, "limits": {"amd.com/gpu": "8"}}
    accepted = [made["metadata"]["name"] for made in (fraction, other) if not lab.mallory.creates(made, "mal").refused]
    lab.kept["d1g"] = f"accepted: {', '.join(accepted)}" if accepted else ""


@attack("D1h", "a Binding to a node by the tenant", check=runs("d1h-"))
def _(lab: Range) -> None:
    lab.mallory.makes(pod("d1h-x", gpus=GPUS, scheduler="nobody"), "mal")
    body = {"metadata": {"name": "d1h-x"}, "target": {"kind": "Node", "name": "n1"}}
    lab.mallory.tries("POST", f"{where('pods', 'mal', 'd1h-x')}/binding", body)


def _closed(lab: Range) -> str:
    for name, each in lab.pods("mal", "d2-").items():
        if each["spec"].get("nodeName") == "n4":
            lab.not_admitted("mal", name)
    return starves("d2v", nodeSelector={"kubernetes.io/hostname": "n4"})(lab)


@attack("D2", "nodeName with more CPUs than any node has, and of a node that is not there", check=_closed)
def _(lab: Range) -> None:
    lab.mallory.creates(pod("d2-x", gpus=0, cpu="5000", scheduler="default-scheduler", nodeName="n4"), "mal")
    lab.mallory.creates(pod("d2-y", gpus=0, scheduler="default-scheduler", nodeName="nosuch"), "mal")


# -- priority -----------------------------------------------------------------------------------


def _evicted(prefix: str, count: int, namespace: str = "vision") -> Check:
    """Pods of others that ran are evicted while the attacker's start."""

    def check(lab: Range) -> str:
        mine = lab.settled("mal", f"{prefix}m", 1, 8.0)
        lab.soon(lambda: len(lab.bound(namespace, f"{prefix}v")) < count, 3.0)
        left = len(lab.bound(namespace, f"{prefix}v"))
        if left < count:
            return f"{count - left} of {count} of ann's pods were evicted; {len(mine)} of mallory's run"
        return ""

    return check


def _critical(lab: Range, prefix: str, scheduler: str, queue: str, **more: Any) -> None:
    for number in range(4):
        made = pod(f"{prefix}m-{number}", gpus=GPUS, queue=queue, scheduler=scheduler, priorityClassName=CRITICAL, **more)
        lab.mallory.creates(made, "mal")


@attack("D7", "system-node-critical against other queues, profile ai", check=_evicted("d7", 2))
def _(lab: Range) -> None:
    lab.runs(lab.ann, "vision", *(pod(f"d7v-{number}", gpus=GPUS, queue="vision") for number in range(2)))
    _critical(lab, "d7", "fairlead", "borrow")


@attack("D7b", "the same with profile kubernetes", check=_evicted("d7b", 2), quick=True)
def _(lab: Range) -> None:
    lab.runs(lab.ann, "vision", *(pod(f"d7bv-{number}", gpus=GPUS, queue="vision") for number in range(2)))
    _critical(lab, "d7b", KUBERNETES, "borrow")


@attack("D7d", "the same against a gang within its quota of a class that is never preempted", check=_evicted("d7d", 2))
def _(lab: Range) -> None:
    lab.ann.makes(group("d7dv", 2, "vision", serviceClass="never"), "vision")
    lab.runs(lab.ann, "vision", *(pod(f"d7dv-{number}", gpus=GPUS, queue="", group="d7dv") for number in range(2)))
    _critical(lab, "d7d", KUBERNETES, "borrow")


@attack("D7e", "an administrator's ordinary PriorityClass with profile kubernetes", check=_evicted("d7e", 2))
def _(lab: Range) -> None:
    lab.runs(lab.ann, "vision", *(pod(f"d7ev-{number}", gpus=GPUS, queue="vision") for number in range(2)))
    for number in range(4):
        made = pod(f"d7em-{number}", gpus=GPUS, queue="borrow", scheduler=KUBERNETES, priorityClassName="gold")
        lab.mallory.creates(made, "mal")


@attack(
    "D7f",
    "a PriorityClass without a queue, profile kubernetes, GPUs beyond the tenant's limit",
    check=holds_more_than(4, prefix="d7f-", pods=2),
)
def _(lab: Range) -> None:
    for number in range(2):
        made = pod(f"d7f-{number}", gpus=GPUS, queue="mal", scheduler=KUBERNETES, priorityClassName=CRITICAL)
        lab.mallory.creates(made, "mal")


def _shared(lab: Range) -> str:
    lab.settled("mal", "m19m", 4, 8.0)
    lab.soon(lambda: len(lab.bound("vision", "m19v")) < 4, 3.0)
    left = len(lab.bound("vision", "m19v"))
    return f"{4 - left} of 4 of ann's pods in the shared queue were evicted" if left < 4 else ""


@attack("M19", "system-node-critical inside a shared queue, profile ai", check=_shared)
def _(lab: Range) -> None:
    lab.runs(lab.ann, "vision", *(pod(f"m19v-{number}", gpus=GPUS, queue="borrow") for number in range(4)))
    _critical(lab, "m19", "fairlead", "borrow")


@attack("M19b", "spec.priority and a PriorityClass of one's own", check=answered("m19b"))
def _(lab: Range) -> None:
    numbered = pod("m19b-x", gpus=0, priority=2_000_000_000)
    if not lab.mallory.creates(numbered, "mal").refused:
        lab.kept["m19b"] = "spec.priority of 2,000,000,000 was accepted"
    made = {"metadata": {"name": "mine"}, "value": 999_999_999}
    if not lab.mallory.tries("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made).refused:
        lab.kept["m19b"] = "a tenant made a PriorityClass"


def _ahead(lab: Range) -> str:
    return f"a waiting job of ann's queue waits behind {gpus(lab.pods('mal', 'm20'))} GPUs" if not _second(lab) else ""


def _second(lab: Range) -> bool:
    return bool(lab.soon(lambda: is_bound(lab.get("pods", "vision", "m20v") or {})))


@attack("M20", "many small high-priority jobs in a shared queue, to keep a waiting one behind", check=_ahead)
def _(lab: Range) -> None:
    lab.runs(lab.ann, "vision", pod("m20-first", gpus=GPUS, queue="vision"))
    lab.ann.makes(pod("m20v", gpus=GPUS, queue="vision"), "vision")
    for number in range(40):
        lab.mallory.creates(pod(f"m20-{number}", gpus=1, queue="borrow", priorityClassName=CRITICAL), "mal")
