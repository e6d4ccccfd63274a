"""Objects that attacks make: workloads of every kind around a pod."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed import objects

Object = dict[str, Any]
FORGED = {names.USER_ANNOTATION: "ann"}
GOLD = {names.SERVICE_CLASS_LABEL: "gold"}


def pod(name: str, *, gpus: int | str = 1, queue: str = "mal", cls: str = "", **more: Any) -> Object:
    """A small pod in a queue and a class."""
    labels = dict(more.pop("labels", {}))
    if cls:
        labels[names.SERVICE_CLASS_LABEL] = cls
    return objects.pod(name, gpus=gpus, queue=queue, labels=labels, cpu=more.pop("cpu", "100m"), memory="64Mi", **more)


def template(name: str, **more: Any) -> Object:
    """The template of such a pod, with the label `app`."""
    made = pod(name, labels={"app": name, **more.pop("labels", {})}, **more)
    return {"metadata": {each: made["metadata"][each] for each in ("labels", "annotations")}, "spec": made["spec"]}


def workload(kind: str, name: str, inside: Object, **spec: Any) -> Object:
    """A workload of a kind with a template."""
    version = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    given: Object = {"template": inside, **spec}
    if kind in ("Job", "CronJob"):
        given["template"] = {**inside, "spec": {**inside["spec"], "restartPolicy": "Never"}}
        if kind == "CronJob":
            given = {"schedule": "0 3 * * *", "jobTemplate": {"metadata": {"annotations": FORGED}, "spec": given}}
    else:
        selector = {"app": name}
        given["selector"] = selector if kind == "ReplicationController" else {"matchLabels": selector}
        if kind != "DaemonSet":
            given.setdefault("replicas", 1)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "annotations": dict(FORGED)}, "spec": given}


def ai_job(name: str, *, workers: int = 1, gpus: int = 1, labels: Object | None = None, **spec: Any) -> Object:
    """An AIJob in queue mal unless told otherwise."""
    made = objects.ai_job(name, workers=workers, gpus=gpus, **{"queue": "mal", **spec})
    inside = made["spec"]["roles"][0]["template"]
    inside["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "100m", "memory": "64Mi"}
    if labels:
        inside["metadata"] = {"labels": labels}
    return made


def group(name: str, least: int, queue: str = "mal", **spec: Any) -> Object:
    """A PodGroup."""
    made = objects.pod_group(name, least, queue)
    made["spec"] |= spec
    return made


def budget(name: str, most: int = 0) -> Object:
    """A PodDisruptionBudget over everything in its namespace."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": most, "selector": {}},
    }


def affinity(app: str, weight: int = 1, *, anti: bool = True) -> Object:
    """Preferred pod (anti-)affinity to an app, by host."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
