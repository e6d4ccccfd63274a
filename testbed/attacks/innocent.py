"""Ordinary use by ann in the cluster that was attacked: all of it must go on, or the figures are worth nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from testbed.attacks.lab import Range, is_bound, stamp
from testbed.attacks.manifests import ai_job, group, pod, template, workload
from testbed.attacks.people import MERGE, where

_LIMIT = 20.0
QUICK = ("a pod", "a Deployment", "an AIJob in a queue and a class with users", "a gang with a PodGroup")
"""Part of `make test`."""


def use(lab: Range, progress: Callable[[str], None], only: Sequence[str] = ()) -> dict[str, str]:
    """What was done -> "" or what went wrong; each by itself, and the range reset after it. only: some of `_USES`."""
    found = {}
    for name in only or _USES:
        said = _USES[name](lab)
        progress(f"{'ok' if not said else 'NOT'} {name}{': ' if said else ''}{said}")
        found[name] = said
        lab.reset()
    return found


def _run(lab: Range, manifests: list[dict[str, Any]], prefix: str, count: int, namespace: str = "vision") -> str:
    for manifest in manifests:
        answer = lab.ann.creates(manifest, namespace)
        if answer.refused:
            return f"{manifest['kind']} is refused: {answer.message[:200]}"
    if not lab.soon(lambda: len(lab.bound(namespace, prefix)) >= count, _LIMIT):
        return f"{len(lab.bound(namespace, prefix))} of {count} pods run after {_LIMIT:g} s"
    found = {stamp(each) for each in lab.pods(namespace, prefix).values()}
    return "" if found == {"ann"} else f"its pods are of {sorted(found)}, not of ann"


def _plain(kind: str, name: str, count: int, **spec: Any) -> Callable[[Range], str]:
    def do(lab: Range) -> str:
        made = workload(kind, name, template(name, gpus=1, queue="vision"), **spec)
        made["metadata"].pop("annotations")
        return _run(lab, [made], name, count)

    return do


def _gang(lab: Range) -> str:
    members = [pod(f"gang-{number}", gpus=8, queue="", group="gang") for number in range(2)]
    return _run(lab, [group("gang", 2, "vision"), *members], "gang", 2)


def _scaled(lab: Range) -> str:
    made = workload("Deployment", "web", template("web", gpus=0, queue="vision"), replicas=1)
    made["metadata"].pop("annotations")
    metric = {"name": "fairlead_queue_pending_jobs", "selector": {"matchLabels": {"queue": "vision"}}}
    external = {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "1"}}}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [external],
        },
    }
    lab.ann.makes(made, "vision")
    for number in range(3):
        lab.ann.makes(pod(f"late-{number}", gpus=8, queue="vision", nodeSelector={"no": "such"}), "vision")
    answer = lab.ann.tries("POST", where("horizontalpodautoscalers", "vision"), scaler)
    if answer.refused:
        return f"the autoscaler is refused: {answer.message}"

    def grown() -> bool:
        return bool(((lab.get("deployments", "vision", "web") or {}).get("spec") or {}).get("replicas", 1) > 1)

    return "" if lab.soon(grown, 30.0) else "the autoscaler does not follow ann's own queue"


def _changed(lab: Range) -> str:
    said = _run(lab, [pod("mine", gpus=1, queue="vision")], "mine", 1)
    if said:
        return said
    for patch in ({"labels": {"app": "x"}}, {"annotations": {"note": "x"}}, {"annotations": {"fairlead.dev/x": "y"}}):
        answer = lab.ann.tries("PATCH", where("pods", "vision", "mine"), {"metadata": patch}, MERGE)
        if answer.refused:
            return f"a running pod's own labels cannot be changed: {answer.message[:200]}"
    return ""


def _waiting(lab: Range) -> str:
    """A waiting pod may move to another queue that admits it."""
    lab.ann.makes(pod("moves", gpus=5, queue="mal"), "shared")
    lab.settled("shared", "moves")
    answer = lab.ann.labels("pods", "shared", "moves", queue="anns")
    if answer.refused:
        return f"a waiting pod cannot move: {answer.message[:200]}"
    return "" if lab.soon(lambda: lab.bound("shared", "moves"), _LIMIT) else "it moved, and does not start"


def _rolled(lab: Range) -> str:
    said = _plain("Deployment", "rolls", 2, replicas=2)(lab)
    if said:
        return said
    patch = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    lab.ann.patches("deployments", "vision", "rolls", patch)

    def new() -> bool:
        pods = [each for each in lab.pods("vision", "rolls").values() if is_bound(each)]
        fresh = [each for each in pods if (each["metadata"].get("annotations") or {}).get("restarted")]
        return len(fresh) == 2 and {stamp(each) for each in fresh} == {"ann"}

    return "" if lab.soon(new, _LIMIT) else "the Deployment's new pods do not come, or are not ann's"


def _reclaimed(lab: Range) -> str:
    lab.runs(lab.mallory, "mal", *(pod(f"borrows-{number}", gpus=8, queue="borrow") for number in range(4)))
    return _run(lab, [pod("owner", gpus=8, queue="vision")], "owner", 1)


_USES: dict[str, Callable[[Range], str]] = {
    "a pod": lambda lab: _run(lab, [pod("plain", gpus=1, queue="vision")], "plain", 1),
    "a pod in a queue and a class with users": lambda lab: _run(
        lab, [pod("golden", gpus=1, queue="anns", cls="gold")], "golden", 1
    ),
    "a Job": _plain("Job", "job", 2, parallelism=2, completions=2),
    "a Deployment": _plain("Deployment", "web", 3, replicas=3),
    "a StatefulSet": _plain("StatefulSet", "state", 1, replicas=1),
    "a ReplicationController": _plain("ReplicationController", "rc", 2, replicas=2),
    "an AIJob": lambda lab: _run(lab, [ai_job("train", workers=2, queue="vision")], "train", 2),
    "an AIJob in a queue and a class with users": lambda lab: _run(
        lab, [ai_job("named", workers=2, queue="anns", serviceClass="gold")], "named", 2
    ),
    "an elastic AIJob": lambda lab: _run(lab, [_elastic()], "grows", 4),
    "an array": lambda lab: _run(
        lab, [ai_job("array", gpus=1, queue="vision", array={"indexes": "0-9", "parallelism": 4})], "array", 4
    ),
    "a gang with a PodGroup": _gang,
    "an autoscaler that follows its own queue": _scaled,
    "labels of a running pod": _changed,
    "a waiting pod that moves to another queue": _waiting,
    "a Deployment that is rolled": _rolled,
    "a guarantee that is taken back": _reclaimed,
}


def _elastic() -> dict[str, Any]:
    made = ai_job("grows", gpus=1, queue="vision")
    made["spec"]["roles"][0] |= {"replicas": 2, "minReplicas": 2, "maxReplicas": 4}
    return made
