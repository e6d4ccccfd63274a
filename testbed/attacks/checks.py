"""Checks that many attacks share: each answers with evidence if the attack worked, else with ""."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api import names
from testbed.attacks.lab import SOON, Range, gpus, is_bound, stamp, waits
from testbed.attacks.people import where

Check = Callable[[Range], str]


def never(_: Range) -> str:
    """For attacks that work only if a request was answered; see `answered`."""
    return ""


def answered(key: str) -> Check:
    """The attempt kept what it was answered, where it should have been refused."""

    def check(lab: Range) -> str:
        return str(lab.kept.get(key, ""))

    return check


def runs(prefix: str, namespace: str = "mal") -> Check:
    """A pod that should not be bound is."""

    def check(lab: Range) -> str:
        if not lab.made(namespace, prefix):
            return ""
        found = lab.settled(namespace, prefix)
        return f"bound: {', '.join(found[:5])}" if found else ""

    return check


def runs_in(queue: str, prefix: str, namespace: str = "mal") -> Check:
    """A pod is bound under the label of a queue that does not admit it."""

    def check(lab: Range) -> str:
        if not lab.made(namespace, prefix):
            return ""
        lab.settled(namespace, prefix)
        for name, pod in lab.pods(namespace, prefix).items():
            if is_bound(pod) and (pod["metadata"].get("labels") or {}).get(names.QUEUE_LABEL) == queue:
                return f"{name} runs in queue {queue}"
        return ""

    return check


def says_ann(prefix: str, namespace: str = "mal") -> Check:
    """A pod of somebody else's is stamped as ann's."""

    def check(lab: Range) -> str:
        for pod in lab.made(namespace, prefix):
            if stamp(pod) == "ann":
                where_to = pod["spec"].get("nodeName") or waits(pod)[0] or "not judged"
                return f"{pod['metadata']['name']} says user ann ({where_to})"
        return ""

    return check


def holds_more_than(most: int, namespace: str = "mal", prefix: str = "", pods: int = 1) -> Check:
    """A tenant's pods hold more GPUs than its queue's limit."""

    def check(lab: Range) -> str:
        lab.settled(namespace, prefix, pods)
        held = gpus(lab.pods(namespace, prefix))
        return f"{held} GPUs are held with a limit of {most}" if held > most else ""

    return check


def starves(name: str, *, count: int = 1, devices: int = 1, limit: float = SOON, **more: Any) -> Check:
    """An ordinary pod of ann's, within her queue's quota, is not bound in time."""

    def check(lab: Range) -> str:
        before = lab.failed_passes()
        for number in range(count):
            if not lab.serves(f"{name}-{number}", gpus=devices, limit=limit, **more):
                reason = ": ".join(waits(lab.get("pods", "vision", f"{name}-{number}") or {}))
                failed = lab.failed_passes() - before
                told = f", {failed} passes failed" if failed else ""
                return f"vision/{name}-{number} waits after {limit:g} s ({reason[:160] or 'told nothing'}){told}"
        return ""

    return check


def lives(prefix: str, seconds: float, namespace: str = "mal") -> Check:
    """A pod still runs after so long, though its time limit is over."""

    def check(lab: Range) -> str:
        gone = lab.soon(lambda: not lab.bound(namespace, prefix), seconds)
        return "" if gone else f"still runs after {seconds:g} s: {', '.join(lab.bound(namespace, prefix)[:3])}"

    return check


def exists(plural: str, namespace: str, name: str) -> Check:
    """An object is there that should have been refused."""

    def check(lab: Range) -> str:
        return f"{where(plural, namespace, name)} is there" if lab.get(plural, namespace, name) else ""

    return check
