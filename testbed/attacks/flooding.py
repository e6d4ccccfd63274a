"""Flooding: objects without number or end."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from testbed import objects
from testbed.attacks.checks import answered, starves
from testbed.attacks.lab import SOON, Range, is_bound
from testbed.attacks.manifests import ai_job, group, pod, template, workload
from testbed.attacks.model import Catalogue

SUBJECT = Catalogue("flooding")
attack = SUBJECT.attack
_SLOTS = 440  # for pods, of all nodes of the range
_MANY = 460
_LEAST_AHEAD, _MOST_AHEAD = 32, 256  # members of one job that wait for a node at a time: as many as run, within these


def _elastic(name: str, **role: Any) -> dict[str, Any]:
    made = ai_job(name, gpus=0)
    made["spec"]["roles"][0] |= {"replicas": 1, **role}
    return made


def _most(jobs: int) -> int:
    """How many pods so many jobs may have, once all slots are taken."""
    return _SLOTS + min(_MOST_AHEAD * jobs, _LEAST_AHEAD * jobs + _SLOTS)


def _slots(lab: Range, jobs: int = 1) -> str:
    # The flood runs for some seconds; then ann, who is guaranteed GPUs, asks for them.
    begun = time.monotonic()
    lab.soon(lambda: lab.count("mal") >= _MANY, 1.0 if lab.refused else 15.0)
    after = time.monotonic() - begun
    if not lab.serves("slots", gpus=8, limit=2 * SOON):
        waiting = lab.get("pods", "vision", "slots") or {}
        told = [each.get("message", "") for each in waiting.get("status", {}).get("conditions", [])]
        return f"{len(lab.pods('mal'))} pods after {after:.0f} s; ann's pod waits ({'; '.join(told)[:120]})"
    made = lab.count("mal")
    return f"{made} pods of {jobs} jobs were made, at most {_most(jobs)} may be" if made > _most(jobs) else ""


@attack("E3", "one elastic AIJob of 100,000 members", check=_slots, quick=True)
def _(lab: Range) -> None:
    lab.mallory.creates(_elastic("e3", maxReplicas=100_000), "mal")


@attack("E3b", "ten elastic AIJobs of 10,000 members", check=partial(_slots, jobs=10))
def _(lab: Range) -> None:
    for number in range(10):
        lab.mallory.creates(_elastic(f"e3b-{number}", maxReplicas=10_000), "mal")


@attack("E3c", "a Deployment of 1,000 replicas without GPUs on every slot", check=_slots)
def _(lab: Range) -> None:
    made = workload("Deployment", "e3c", template("e3c", gpus=0, queue="borrow", cpu="1m"), replicas=600)
    lab.mallory.creates(made, "mal")


@attack("E3d", "an elastic AIJob and an array raised to 100,000 after their start", check=partial(_slots, jobs=2))
def _(lab: Range) -> None:
    lab.mallory.makes(_elastic("e3d", maxReplicas=2), "mal")
    lab.mallory.makes(ai_job("e3d-array", gpus=0, array={"indexes": "0-99999", "parallelism": 1}), "mal")
    lab.until("they run", lambda: len(lab.bound("mal", "e3d")) >= 2)
    grown = _elastic("e3d", maxReplicas=100_000)["spec"]["roles"]
    lab.mallory.patches("aijobs", "mal", "e3d", {"spec": {"roles": grown}})
    lab.mallory.patches("aijobs", "mal", "e3d-array", {"spec": {"array": {"indexes": "0-99999", "parallelism": 100_000}}})


@attack("E2", "replicas of 2,000,000,000", check=answered("e2"))
def _(lab: Range) -> None:
    for number, count in enumerate((2_000_000_000, 100_001, -1, 0)):
        if not lab.mallory.creates(_elastic(f"e2-{number}", replicas=count), "mal").refused:
            lab.kept["e2"] = f"replicas: {count} was accepted"


@attack("E4", "arrays without end, backwards, in many parts", check=starves("e4v"))
def _(lab: Range) -> None:
    for number, indexes in enumerate(("0-99999999999", "5-1", "0-100000", ",".join(["0-99999"] * 5000))):
        lab.mallory.creates(ai_job(f"e4-{number}", gpus=0, array={"indexes": indexes, "parallelism": 1}), "mal")


def _leads(lab: Range) -> str:
    lab.soon(lambda: False, 3.0)
    if not lab.serves("leads", gpus=8, limit=2 * SOON):
        return f"{len(lab.pods('mal'))} pods; ann's pod waits"
    lab.ann.makes(ai_job("leads-job", queue="vision"), "vision")
    ran = lab.soon(lambda: lab.bound("vision", "leads-job"), 2 * SOON)
    return "" if ran else f"{len(lab.pods('mal'))} pods; ann's AIJob does not start"


@attack("I2", "twenty arrays of 100,000 elements, as many at once", check=_leads)
def _(lab: Range) -> None:
    for number in range(20):
        lab.mallory.creates(ai_job(f"i2-{number}", gpus=0, array={"indexes": "0-99999", "parallelism": 100_000}), "mal")


@attack("I3", "an AIJob of 100,000 members that cannot all start", check=_leads)
def _(lab: Range) -> None:
    lab.mallory.creates(_elastic("i3", replicas=100_000), "mal")


def _series(lab: Range) -> str:
    text = lab.metrics()
    named = sum("nosuch-" in line for line in text.splitlines())
    if named > 20:
        return f"{named} series of queues that are not there"
    return starves("k3v", count=2)(lab)


@attack("K3", "a hundred pods with fifty labels each in a hundred queues that are not there", check=_series)
def _(lab: Range) -> None:
    for number in range(100):
        labels = {f"label-{each}": "v" * 60 for each in range(50)}
        lab.mallory.creates(pod(f"k3-{number}", gpus=0, queue=f"nosuch-{number}", labels=labels), "mal")


@attack("K4", "annotations of 250 kB, and PodGroups of a million members", check=starves("k4v", count=2))
def _(lab: Range) -> None:
    for number in range(5):
        lab.mallory.creates(pod(f"k4-{number}", gpus=0, annotations={"x": "y" * 250_000}), "mal")
    for number in range(60):
        lab.mallory.creates(group(f"k4-{number}", 1_000_000), "mal")
    lab.mallory.creates(pod("k4-large", gpus=0, annotations={"x": "y" * 4_000_000}), "mal")


@attack("K7", "two hundred waiting jobs that nothing satisfies, each of a kind of its own", check=starves("k7v", count=3))
def _(lab: Range) -> None:
    for number in range(200):
        lab.mallory.creates(pod(f"k7-{number}", gpus=1, queue="borrow", nodeSelector={"no": f"such-{number}"}), "mal")


@attack("K8", "labels of a running pod changed without pause", check=starves("k8v", count=2))
def _(lab: Range) -> None:
    lab.runs(lab.mallory, "mal", pod("k8-x", gpus=0))
    for number in range(300):
        lab.mallory.patches("pods", "mal", "k8-x", {"metadata": {"labels": {"turn": str(number)}}})


def _beats(lab: Range) -> str:
    status = (lab.get("aijobs", "mal", "q1") or {}).get("status") or {}
    made = int(lab.kept.get("q1", 0))
    # With a pause of a second at least, no more than some few attempts come about in the time that was watched.
    return f"{made} attempts in 8 s (restarts: {status.get('restarts', 0)})" if made > 12 else ""


@attack("Q1", "restart.backoff: 0s with a limit of 10^9", check=_beats)
def _(lab: Range) -> None:
    lab.mallory.creates(ai_job("q1", gpus=0, restart={"limit": 1_000_000_000, "backoff": "0s"}), "mal")
    seen: set[str] = set()

    def failing() -> bool:
        for name, each in lab.pods("mal", "q1").items():
            if is_bound(each) and each["metadata"]["uid"] not in seen:
                seen.add(each["metadata"]["uid"])
                lab.fails("mal", name)
        return False

    lab.soon(failing, 8.0)
    lab.kept["q1"] = len(seen)


@attack("Q2", "a CronJob of every minute, a thousand times", check=starves("q2v"))
def _(lab: Range) -> None:
    for number in range(40):
        lab.mallory.creates(workload("CronJob", f"q2-{number}", template(f"q2-{number}", gpus=0)), "mal")


@attack("Q3", "a list of five thousand pods' worth of owner references on one pod", check=starves("q3v"))
def _(lab: Range) -> None:
    made = objects.pod("q3-x", gpus=0, queue="mal")
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{i}", "uid": f"u{i}"} for i in range(5000)]
    made["metadata"]["ownerReferences"] = owners
    lab.mallory.creates(made, "mal")
