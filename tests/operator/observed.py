"""Pods and jobs as accounting observes them, and what it records of them."""

from __future__ import annotations

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster import views
from fairlead.observability.history import Wanted
from fairlead.operator.accounting.observations import JobObserved, PodObserved


def at(seconds: int) -> str:
    return f"1970-01-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"


def pod(
    name, *, uid="", node="", phase="Pending", owner=None, group="", bound=None, ended=None, exit_code=0, labels=None, **more
):
    """One GPU, two CPUs."""
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "2"}}}
    status = {"phase": phase, "conditions": list(more.pop("conditions", ()))}
    if bound is not None:
        status["conditions"].append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound)})
    if ended is not None:
        status["containerStatuses"] = [
            {"name": "main", "state": {"terminated": {"exitCode": exit_code, "finishedAt": at(ended)}}}
        ]
    metadata = {"name": name, "namespace": "vision", "uid": uid or f"uid-{name}", "creationTimestamp": at(5), **more}
    metadata["labels"] = {
        "fairlead.dev/queue": "research",
        **({"fairlead.dev/pod-group": group} if group else {}),
        **(labels or {}),
    }
    if owner is not None:
        kind, owner_name = owner.split("/")
        metadata["ownerReferences"] = [{"kind": kind, "name": owner_name, "uid": f"uid-{owner_name}", "controller": True}]
    spec = {"schedulerName": "fairlead", "containers": [container], "nodeName": node}
    view = msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, views.Pod)
    return PodObserved(f"vision/{name}", view)


def gone(name):
    return PodObserved(f"vision/{name}", None)


def job(phase, *, uid="uid-bert", **status):
    body = {
        "metadata": {"name": "bert", "namespace": "vision", "uid": uid, "creationTimestamp": at(3)},
        "spec": {"roles": [{"name": "worker", "template": {}}], "queue": "research"},
        "status": {"phase": phase, **status},
    }
    return JobObserved("vision/bert", msgspec.convert(body, AIJob))


def entries(history, now=1000.0):
    return history.jobs(Wanted(), now)
