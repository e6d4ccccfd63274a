"""Members of AIJobs as runs that can be compared: how one asked for nodes, when it began and how it ended."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fairlead.api.kinds.ai_job import AIJob, Role
from fairlead.cluster.times import seconds
from fairlead.operator.jobs.attempt import action_on
from fairlead.operator.jobs.members import asks_gpus, stamp
from fairlead.operator.jobs.pods import PodSeen
from fairlead.operator.jobs.runs import Run

_PLACES = ("nodeSelector", "nodeName", "tolerations", "runtimeClassName", "topologySpreadConstraints", "resourceClaims")
GPUS, NO_GPUS = "gpus", "none"


def kind_of(role: Role) -> str:
    """How members of a role ask for nodes: equal for those that may run on the same nodes by their templates."""
    spec = role.template.get("spec") or {}
    asked: dict[str, Any] = {name: spec[name] for name in _PLACES if spec.get(name)}
    affinity = spec.get("affinity") or {}
    if affinity:
        asked["affinity"] = affinity
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16] if asked else ""
    return f"{GPUS if asks_gpus(role) else NO_GPUS} {digest}".rstrip()


def user_of(job: AIJob) -> str:
    """Whose a job is; its namespace where it has no stamp."""
    return next(iter(stamp(job.metadata.annotations).values()), job.metadata.namespace)


def run_of(key: str, job: AIJob, pod: PodSeen, kind: str, now: float) -> Run | None:
    """A member that has run, as its pod shows it; None: it has not."""
    began = pod.began or seconds(pod.started)
    if not pod.node or not began or pod.phase not in ("Running", "Succeeded", "Failed"):
        return None
    outcome, ended = "", 0.0
    if pod.phase != "Running":
        ended = pod.ended or now
        outcome = "Stopped"
        if pod.phase == "Succeeded" and (pod.done or not pod.terminating):
            outcome = "Succeeded"
        elif pod.phase == "Failed" and pod.exit_code is not None and not pod.disrupted and not action_on(job, pod.exit_code):
            outcome = "Failed"
    member = pod.element, pod.role, pod.index, pod.attempt
    return Run(key, user_of(job), kind, *member, pod.node, began, ended, outcome)
