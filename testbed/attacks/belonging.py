"""Belonging: queues and classes that do not admit a tenant, and what runs relabelled, regrouped, resized, prolonged."""

from __future__ import annotations

from fairlead.api import names
from testbed.attacks.checks import answered, holds_more_than, lives, runs, runs_in, starves
from testbed.attacks.lab import GPUS, Range, is_bound
from testbed.attacks.manifests import ai_job, group, pod, template, workload
from testbed.attacks.model import Catalogue
from testbed.attacks.people import APPLY, where

SUBJECT = Catalogue("belonging")
attack = SUBJECT.attack
_FOREIGN = "foreign queues"
_TIMES = "time limits"


# -- queues and classes of others ----------------------------------------------------------------


@attack("A1", "a pod with the label of a queue that does not admit its namespace", group=_FOREIGN, check=runs("a1-"), quick=True)
def _(lab: Range) -> None:
    lab.mallory.creates(pod("a1-x", queue="vision"), "mal")


@attack("A1b", "the same by server-side apply", group=_FOREIGN, check=runs("a1b-"))
def _(lab: Range) -> None:
    made = pod("a1b-x", queue="vision")
    lab.mallory.tries("PATCH", f"{where('pods', 'mal', 'a1b-x')}?fieldManager=m&force=true", made, APPLY)


@attack("A2", "the label in a Job's template", group=_FOREIGN, check=runs("a2"))
def _(lab: Range) -> None:
    lab.mallory.creates(workload("Job", "a2", template("a2", queue="vision")), "mal")


@attack("A3", "the label on the Job only", group=_FOREIGN, check=runs_in("vision", "a3"))
def _(lab: Range) -> None:
    made = workload("Job", "a3", template("a3", queue=""))
    made["metadata"]["labels"] = {names.QUEUE_LABEL: "vision"}
    lab.mallory.creates(made, "mal")


@attack("A4", "an AIJob in a queue that does not admit its namespace", group=_FOREIGN, check=runs("a4"))
def _(lab: Range) -> None:
    lab.mallory.creates(ai_job("a4", queue="vision"), "mal")


@attack("A5", "an AIJob whose template carries the label and another user's stamp", group=_FOREIGN, check=runs("a5"))
def _(lab: Range) -> None:
    made = ai_job("a5", labels={names.QUEUE_LABEL: "vision"})
    del made["spec"]["queue"]
    made["spec"]["roles"][0]["template"]["metadata"]["annotations"] = {names.USER_ANNOTATION: "ann"}
    lab.mallory.creates(made, "mal")


@attack("A6", "a PodGroup in such a queue", group=_FOREIGN, check=runs("a6-"))
def _(lab: Range) -> None:
    lab.mallory.creates(group("a6", 1, "vision"), "mal")
    lab.mallory.creates(pod("a6-x", queue="", group="a6"), "mal")


@attack("A8", "a Deployment whose template gets the label by patch", group=_FOREIGN, check=runs_in("vision", "a8"))
def _(lab: Range) -> None:
    made = workload("Deployment", "a8", template("a8", gpus=0, queue="mal"))
    lab.mallory.makes(made, "mal")
    labels = {names.QUEUE_LABEL: "vision"}
    lab.mallory.patches("deployments", "mal", "a8", {"spec": {"template": {"metadata": {"labels": labels}}}})


@attack("A9", "a class of service that names other users", group=_FOREIGN, check=runs("a9-"))
def _(lab: Range) -> None:
    lab.mallory.creates(pod("a9-x", cls="gold"), "mal")


@attack("A10", "a CronJob for a queue that does not admit it", group=_FOREIGN, check=runs("a10"))
def _(lab: Range) -> None:
    lab.mallory.creates(workload("CronJob", "a10", template("a10", queue="vision")), "mal")


@attack("A11", "names of queues with odd characters, spaces and cases", group=_FOREIGN, check=runs("a11-"))
def _(lab: Range) -> None:
    for number, name in enumerate(("Vision", "vision.", "vision_", "..", "v" * 63)):
        lab.mallory.creates(pod(f"a11-{number}", queue=name), "mal")


@attack("A12", "the namespace's label fairlead.dev/default-queue, by a tenant with edit", group=_FOREIGN, check=answered("a12"))
def _(lab: Range) -> None:
    body = {"metadata": {"labels": {names.DEFAULT_QUEUE_LABEL: "vision"}}}
    if not lab.mallory.tries("PATCH", "/api/v1/namespaces/mal", body, "application/merge-patch+json").refused:
        lab.kept["a12"] = "the namespace's default queue is vision"


@attack("A13", "an ephemeral container and a resize that ask for GPUs", group=_FOREIGN, check=holds_more_than(0, prefix="a13-"))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("a13-x", gpus=0))
    wanted = {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
    ephemeral = [{"name": "e", "image": "x", "resources": wanted}]
    at = where("pods", "mal", "a13-x")
    kind = "application/strategic-merge-patch+json"
    lab.mallory.tries("PATCH", f"{at}/ephemeralcontainers", {"spec": {"ephemeralContainers": ephemeral}}, kind)
    lab.mallory.tries("PATCH", f"{at}/resize", {"spec": {"containers": [{"name": "main", "resources": wanted}]}}, kind)


@attack("M15", "a child of a queue that admits others only", group=_FOREIGN, check=runs("m15-"))
def _(lab: Range) -> None:
    lab.mallory.creates(pod("m15-x", gpus=0, queue="org-a"), "mal")


@attack(
    "D3", "no label: queue default, though nobody made it", group="", check=holds_more_than(0, prefix="d3-", pods=4), quick=True
)
def _(lab: Range) -> None:
    for number in range(4):
        lab.mallory.creates(pod(f"d3-{number}", gpus=GPUS, queue="default" if number % 2 else ""), "mal")


@attack("D3b", "no label: a Job, a Deployment and an AIJob", check=holds_more_than(0, prefix="d3b", pods=3))
def _(lab: Range) -> None:
    for kind in ("Job", "Deployment"):
        lab.mallory.creates(workload(kind, f"d3b-{kind.lower()}", template(f"d3b-{kind.lower()}", gpus=GPUS, queue="")), "mal")
    made = ai_job("d3b", gpus=GPUS)
    del made["spec"]["queue"]
    lab.mallory.creates(made, "mal")


# -- what waits ---------------------------------------------------------------------------------


@attack("A7", "a waiting pod relabelled to a queue that does not admit it", check=runs("a7-"))
def _(lab: Range) -> None:
    lab.mallory.makes(pod("a7-x", gpus=5), "mal")
    lab.settled("mal", "a7-x")
    lab.mallory.labels("pods", "mal", "a7-x", queue="vision")


@attack("A6b", "a waiting PodGroup patched to a queue that does not admit it", check=runs("a6b-"))
def _(lab: Range) -> None:
    lab.mallory.makes(group("a6b", 1), "mal")
    lab.mallory.makes(pod("a6b-x", gpus=5, queue="", group="a6b"), "mal")
    lab.settled("mal", "a6b-x")
    lab.mallory.patches("podgroups", "mal", "a6b", {"spec": {"queue": "vision"}})


@attack("F1", "a pod that joins another tenant's PodGroup in a shared namespace", check=runs("f1-mallory", "shared"))
def _(lab: Range) -> None:
    lab.ann.makes(group("f1", 1, "anns", serviceClass="gold"), "shared")
    lab.runs(lab.ann, "shared", pod("f1-ann", queue="", group="f1"))
    lab.mallory.creates(pod("f1-mallory", queue="", group="f1"), "shared")


def _joined(lab: Range) -> str:
    lab.settled("shared", "f1b-mallory")
    lab.ann.makes(pod("f1b-later", queue="", group="f1b"), "shared")
    mine = lab.soon(lambda: is_bound(lab.get("pods", "shared", "f1b-later") or {}))
    return "" if mine else "ann's own member no longer starts"


@attack("F1b", "a pod that joins another's PodGroup and keeps it from its own members", check=_joined)
def _(lab: Range) -> None:
    lab.ann.makes(group("f1b", 1, "anns", serviceClass="gold", maxMember=3), "shared")
    lab.runs(lab.ann, "shared", pod("f1b-ann", queue="", group="f1b"))
    for number in range(3):
        lab.mallory.creates(pod(f"f1b-mallory-{number}", gpus=1, queue="", group="f1b"), "shared")


# -- what runs ----------------------------------------------------------------------------------


def _relabelled(lab: Range, prefix: str, queue: str, rounds: int) -> None:
    """Run 4 GPUs in mal, relabel them, and so on."""
    for number in range(rounds):
        name = f"{prefix}{number}"
        lab.mallory.creates(pod(name, gpus=4), "mal")
        if not lab.settled("mal", name):
            return
        lab.mallory.labels("pods", "mal", name, queue=queue)


@attack("B1", "running pods relabelled to another queue, again and again", check=holds_more_than(4, prefix="b1-"), quick=True)
def _(lab: Range) -> None:
    _relabelled(lab, "b1-", "vision", 3)


@attack("B1b", "another tenant's queue filled with relabelled pods", check=starves("b1bv"))
def _(lab: Range) -> None:
    _relabelled(lab, "b1b-", "vision", 6)


@attack("N1", "running pods relabelled to a queue that is not there", check=holds_more_than(4, prefix="n1-"))
def _(lab: Range) -> None:
    _relabelled(lab, "n1-", "nosuch", 4)


@attack("N1b", "running pods whose queue label is taken away", check=holds_more_than(4, prefix="n1b-"))
def _(lab: Range) -> None:
    for number in range(3):
        lab.mallory.creates(pod(f"n1b-{number}", gpus=4), "mal")
        if not lab.settled("mal", f"n1b-{number}"):
            return
        lab.mallory.labels("pods", "mal", f"n1b-{number}", queue=None)


@attack("N1c", "running pods relabelled by server-side apply", check=holds_more_than(4, prefix="n1c-"))
def _(lab: Range) -> None:
    for number in range(3):
        lab.mallory.creates(pod(f"n1c-{number}", gpus=4), "mal")
        if not lab.settled("mal", f"n1c-{number}"):
            return
        metadata = {"name": f"n1c-{number}", "labels": {names.QUEUE_LABEL: "borrow"}}
        at = f"{where('pods', 'mal', f'n1c-{number}')}?fieldManager=m&force=true"
        lab.mallory.tries("PATCH", at, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, APPLY)


@attack("B2", "running pods on borrowed GPUs relabelled to a class that is never preempted", check=starves("b2v", devices=GPUS))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", *(pod(f"b2-{number}", gpus=GPUS, queue="borrow") for number in range(4)))
    for number in range(4):
        lab.mallory.labels("pods", "mal", f"b2-{number}", service_class="gold")


@attack(
    "B2b", "running pods on borrowed GPUs put into another queue within its quota", check=starves("b2bv", devices=GPUS, count=2)
)
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", *(pod(f"b2b-{number}", gpus=GPUS, queue="borrow") for number in range(4)))
    for number in range(4):
        lab.mallory.labels("pods", "mal", f"b2b-{number}", queue="vision" if number % 2 else "mal")


@attack("F2", "queue and class of a PodGroup changed after its start", check=holds_more_than(4, prefix="f2-"))
def _(lab: Range) -> None:
    for number in range(2):
        lab.mallory.creates(group(f"f2-{number}", 1), "mal")
        lab.mallory.creates(pod(f"f2-{number}", gpus=4, queue="", group=f"f2-{number}"), "mal")
        if not lab.settled("mal", f"f2-{number}"):
            return
        lab.mallory.patches("podgroups", "mal", f"f2-{number}", {"spec": {"queue": "vision", "serviceClass": "gold"}})


@attack("F2b", "the PodGroup of a running gang deleted and made again in another queue", check=holds_more_than(4, prefix="f2b-"))
def _(lab: Range) -> None:
    for number in range(2):
        lab.mallory.creates(group(f"f2b-{number}", 1), "mal")
        lab.mallory.creates(pod(f"f2b-{number}", gpus=4, queue="", group=f"f2b-{number}"), "mal")
        if not lab.settled("mal", f"f2b-{number}"):
            return
        lab.mallory.removes("podgroups", "mal", f"f2b-{number}")
        lab.mallory.creates(group(f"f2b-{number}", 1, "borrow"), "mal")


@attack("F2c", "running members moved to a PodGroup of another queue", check=holds_more_than(4, prefix="f2c-"))
def _(lab: Range) -> None:
    lab.mallory.makes(group("f2c-borrow", 1, "borrow"), "mal")
    for number in range(3):
        lab.mallory.creates(pod(f"f2c-{number}", gpus=4), "mal")
        if not lab.settled("mal", f"f2c-{number}"):
            return
        lab.mallory.labels("pods", "mal", f"f2c-{number}", pod_group="f2c-borrow")


@attack("F3", "members of one gang with labels of different queues", check=holds_more_than(4, prefix="f3-", pods=2))
def _(lab: Range) -> None:
    lab.mallory.creates(group("f3", 2), "mal")
    for number, queue in enumerate(("mal", "borrow")):
        lab.mallory.creates(pod(f"f3-{number}", gpus=4, queue=queue, group="f3"), "mal")


def _broken(lab: Range) -> str:
    gone = lab.soon(lambda: len(lab.bound("mal", "f4-")) < 2, 3.0)
    return "" if not gone else "the gang was taken apart"


@attack("F4", "minMember of a running gang raised beyond any cluster", check=_broken)
def _(lab: Range) -> None:
    lab.mallory.makes(group("f4", 2), "mal")
    lab.runs(lab.mallory, "mal", *(pod(f"f4-{number}", queue="", group="f4") for number in range(2)))
    lab.mallory.patches("podgroups", "mal", "f4", {"spec": {"minMember": 100_000}})


@attack("L16", "queue and class of an AIJob changed after its start", check=holds_more_than(4, prefix="l16"))
def _(lab: Range) -> None:
    for number in range(2):
        lab.mallory.creates(ai_job(f"l16-{number}", gpus=4), "mal")
        if not (lab.made("mal", f"l16-{number}") and lab.settled("mal", f"l16-{number}")):
            return
        lab.mallory.patches("aijobs", "mal", f"l16-{number}", {"spec": {"queue": "borrow"}})


def _false_queue(lab: Range) -> str:
    shown = (lab.get("aijobs", "mal", "l16b") or {}).get("spec", {}).get("queue", "")
    running = lab.bound("mal", "l16b")
    return f"it runs in mal and its object and its cost say {shown}" if running and shown != "mal" else ""


@attack("L16b", "an AIJob that runs shown, and paid for, in another's queue", check=_false_queue)
def _(lab: Range) -> None:
    lab.mallory.makes(ai_job("l16b"), "mal")
    lab.until("l16b runs", lambda: lab.bound("mal", "l16b"))
    lab.mallory.patches("aijobs", "mal", "l16b", {"spec": {"queue": "borrow"}})


def _fractions(lab: Range) -> str:
    lab.settled("mal", "l1-", 8)
    held = len(lab.bound("mal", "l1-"))
    return f"{held} pods of 0.9 GPUs run with a limit of 4" if held > 4 else ""


def _fraction(name: str, share: str) -> dict[str, object]:
    on = {"kubernetes.io/hostname": "n4"}
    return pod(name, gpus=0, annotations={names.GPU_FRACTION_ANNOTATION: share}, nodeSelector=on)


@attack("L1", "gpu-fraction made smaller after the start", check=_fractions)
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", *(_fraction(f"l1-{number}", "0.9") for number in range(4)))
    for number in range(4):
        lab.mallory.annotates("pods", "mal", f"l1-{number}", gpu_fraction="0.001")
    for number in range(4, 8):
        lab.mallory.creates(_fraction(f"l1-{number}", "0.9"), "mal")


@attack("L1b", "gpu-fraction taken away after the start", check=_fractions)
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", *(_fraction(f"l1-{number}", "0.9") for number in range(4)))
    for number in range(4):
        lab.mallory.annotates("pods", "mal", f"l1-{number}", gpu_fraction=None)
    for number in range(4, 8):
        lab.mallory.creates(_fraction(f"l1-{number}", "0.9"), "mal")


@attack("F5", "fractions that are no fractions", check=holds_more_than(0, prefix="f5-", pods=1))
def _(lab: Range) -> None:
    for number, share in enumerate(("1e999999999", "-1", "nan", "inf", "0", "0x1", "\u0665", "1e-30", "0.5 ", "1/2")):
        lab.mallory.creates(_fraction(f"f5-{number}", share), "mal")


@attack("L19", "more than a queue gives each user", check=holds_more_than(4, prefix="l19-", pods=4))
def _(lab: Range) -> None:
    for number in range(6):
        lab.mallory.creates(pod(f"l19-{number}", gpus=2, queue="per"), "mal")


def _sizes(lab: Range) -> str:
    lab.settled("mal", "m13-", 1)
    found = [name for name, each in lab.pods("mal", "m13-").items() if is_bound(each)]
    return f"run with a limit of 4: {found}" if found else ""


@attack("M13", "GPUs in init containers and sidecars, in limits only, below nothing, beyond integers", check=_sizes)
def _(lab: Range) -> None:
    for number, amount in enumerate(("8", "-5", str(2**63 - 1), "9e18")):
        lab.mallory.creates(pod(f"m13-{number}", gpus=amount), "mal")
    main = {"name": "i", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}}
    lab.mallory.creates(pod("m13-init", gpus=0, initContainers=[main]), "mal")
    lab.mallory.creates(pod("m13-side", gpus=0, initContainers=[{**main, "restartPolicy": "Always"}]), "mal")
    limits = pod("m13-limits", gpus=0)
    limits["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "8"}
    lab.mallory.creates(limits, "mal")


@attack("D6", "terminating pods kept by finalizers, to free their charge", check=holds_more_than(4, prefix="d6-", pods=2))
def _(lab: Range) -> None:
    kept = pod("d6-0", gpus=4)
    kept["metadata"]["finalizers"] = ["mallory.example/x"]
    lab.runs(lab.mallory, "mal", kept)
    lab.mallory.removes("pods", "mal", "d6-0")
    lab.mallory.creates(pod("d6-1", gpus=4), "mal")


@attack("L5", "names of PodGroups that point elsewhere", check=runs("l5-"))
def _(lab: Range) -> None:
    lab.ann.makes(group("bert", 1, "vision"), "vision")
    for number, name in enumerate(("vision/bert", "..", "vision.bert", "../vision/bert")):
        lab.mallory.creates(pod(f"l5-{number}", queue="", group=name), "mal")


# -- time limits --------------------------------------------------------------------------------


@attack("D8", "a pod's time limit raised by annotation after its start", group=_TIMES, check=lives("d8-", 10))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("d8-x", gpus=0, cls="batch", annotations={names.TIME_LIMIT_ANNOTATION: "3s"}))
    lab.mallory.annotates("pods", "mal", "d8-x", time_limit="1000h")


@attack("D8b", "the label of its class taken away after the start", group=_TIMES, check=lives("d8b-", 10))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("d8b-x", gpus=0, cls="batch"))
    lab.mallory.labels("pods", "mal", "d8b-x", service_class=None)


@attack("D8c", "a time limit beyond its class's, as span, exponent and nonsense", group=_TIMES, check=lives("d8c-", 10))
def _(lab: Range) -> None:
    for number, span in enumerate(("1000h", "1e9", "-1s", "never")):
        lab.mallory.creates(pod(f"d8c-{number}", gpus=0, cls="batch", annotations={names.TIME_LIMIT_ANNOTATION: span}), "mal")
    lab.settled("mal", "d8c-")


@attack("D8d", "a PodGroup's time limit raised and its class taken away after its start", group=_TIMES, check=lives("d8d-", 10))
def _(lab: Range) -> None:
    lab.mallory.makes(group("d8d", 1, serviceClass="batch", timeLimit="3s"), "mal")
    lab.runs(lab.mallory, "mal", pod("d8d-x", gpus=0, queue="", group="d8d"))
    lab.mallory.patches("podgroups", "mal", "d8d", {"spec": {"timeLimit": "1000h", "serviceClass": None}})


@attack("D8e", "a running pod with a time limit put into a PodGroup without one", group=_TIMES, check=lives("d8e-", 10))
def _(lab: Range) -> None:
    lab.mallory.makes(group("d8e", 1), "mal")
    lab.runs(lab.mallory, "mal", pod("d8e-x", gpus=0, cls="batch"))
    lab.mallory.labels("pods", "mal", "d8e-x", pod_group="d8e")


def _prolonged(lab: Range) -> str:
    def ended() -> bool:
        phase = ((lab.get("aijobs", "mal", "l17") or {}).get("status") or {}).get("phase")
        return phase in ("Failed", "Succeeded")

    if lab.soon(ended, 16.0):
        return ""
    status = (lab.get("aijobs", "mal", "l17") or {}).get("status") or {}
    return f"phase {status.get('phase')} after 16 s, {status.get('interruptions', 0)} interruptions"


@attack("L17", "an AIJob's time limit raised after its start", group=_TIMES, check=_prolonged)
def _(lab: Range) -> None:
    lab.mallory.makes(ai_job("l17", gpus=0, timeLimit="4s"), "mal")
    lab.until("l17 runs", lambda: lab.bound("mal", "l17"))
    lab.mallory.patches("aijobs", "mal", "l17", {"spec": {"timeLimit": "1000h"}})
