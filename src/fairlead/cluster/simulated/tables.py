"""Tables as the server prints them for kubectl: columns per kind, rows from objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object

Column = tuple[str, str, int]
"""(name, type, priority); a priority above 0 shows in the wide form only."""
Row = Callable[[Object, float], list[Any]]


def seconds(text: str | None) -> float | None:
    """Seconds since the epoch of a Kubernetes time."""
    return datetime.fromisoformat(text).timestamp() if text else None


def age(text: str | None, now: float) -> str:
    """A duration as kubectl shows it: `45s`, `3m10s`, `5h`, `2d4h`."""
    at = seconds(text)
    if at is None:
        return "<unknown>"
    left = max(0, int(now - at))
    if left < 120:
        return f"{left}s"
    minutes, left = divmod(left, 60)
    if minutes < 10:
        return f"{minutes}m{left}s" if left else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, hours = divmod(hours, 24)
    if days < 8:
        return f"{days}d{hours}h" if hours else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def pod_status(pod: Object) -> str:
    """The STATUS column of a pod."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    shown = status.get("reason") or status.get("phase", "Unknown")
    for each in status.get("containerStatuses") or ():
        state = each.get("state") or {}
        for kind in ("waiting", "terminated"):
            if state.get(kind, {}).get("reason"):
                shown = state[kind]["reason"]
    if (pod.get("spec") or {}).get("schedulingGates") and not (pod["spec"].get("nodeName")):
        shown = "SchedulingGated"
    if metadata.get("deletionTimestamp"):
        shown = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(shown)


def _pod(pod: Object, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    states = status.get("containerStatuses") or ()
    return [
        _name(pod),
        f"{sum(bool(each.get('ready')) for each in states)}/{len(spec.get('containers') or ())}",
        pod_status(pod),
        str(sum(each.get("restartCount", 0) for each in states)),
        _age(pod, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _node(node: Object, now: float) -> list[Any]:
    status = node.get("status") or {}
    ready = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        shown += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in node["metadata"].get("labels") or {} if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    return [
        _name(node),
        shown,
        ",".join(roles) or "<none>",
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(event: Object, now: float) -> list[Any]:
    about = event.get("involvedObject") or {}
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        "",
        component,
        str(event.get("message", "")).strip(),
        age(event.get("firstTimestamp") or last, now),
        event.get("count") or 1,
        _name(event),
    ]


def _job(job: Object, now: float) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    wanted = spec.get("completions")
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    shown = next((kind for kind in ("Complete", "Failed", "Suspended") if conditions.get(kind) == "True"), "Running")
    start, end = seconds(status.get("startTime")), seconds(status.get("completionTime"))
    length = age(status["startTime"], end if end is not None else now) if start is not None else ""
    return [_name(job), shown, f"{status.get('succeeded', 0)}/{wanted or 1}", length, _age(job, now)]


_TABLES: dict[str, tuple[tuple[Column, ...], Row]] = {
    "pods": (
        (
            ("Name", "string", 0),
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            ("Age", "string", 0),
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ),
        _pod,
    ),
    "nodes": (
        (
            ("Name", "string", 0),
            ("Status", "string", 0),
            ("Roles", "string", 0),
            ("Age", "string", 0),
            ("Version", "string", 0),
            ("Internal-IP", "string", 1),
            ("External-IP", "string", 1),
            ("OS-Image", "string", 1),
            ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ),
        _node,
    ),
    "namespaces": (
        (("Name", "string", 0), ("Status", "string", 0), ("Age", "string", 0)),
        lambda obj, now: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)],
    ),
    "events": (
        (
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "string", 1),
            ("Name", "string", 1),
        ),
        _event,
    ),
    "batch/jobs": (
        (
            ("Name", "string", 0),
            ("Status", "string", 0),
            ("Completions", "string", 0),
            ("Duration", "string", 0),
            ("Age", "string", 0),
        ),
        _job,
    ),
    "configmaps": (
        (("Name", "string", 0), ("Data", "string", 0), ("Age", "string", 0)),
        lambda obj, now: [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)],
    ),
    "coordination.k8s.io/leases": (
        (("Name", "string", 0), ("Holder", "string", 0), ("Age", "string", 0)),
        lambda obj, now: [_name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), _age(obj, now)],
    ),
    "scheduling.k8s.io/priorityclasses": (
        (
            ("Name", "string", 0),
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            ("Age", "string", 0),
            ("PreemptionPolicy", "string", 0),
        ),
        lambda obj, now: [
            _name(obj),
            obj.get("value", 0),
            bool(obj.get("globalDefault")),
            _age(obj, now),
            obj.get("preemptionPolicy", ""),
        ],
    ),
    "policy/poddisruptionbudgets": (
        (
            ("Name", "string", 0),
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            ("Age", "string", 0),
        ),
        lambda obj, now: [
            _name(obj),
            str((obj.get("spec") or {}).get("minAvailable", "N/A")),
            str((obj.get("spec") or {}).get("maxUnavailable", "N/A")),
            (obj.get("status") or {}).get("disruptionsAllowed", 0),
            _age(obj, now),
        ],
    ),
    "apps/deployments": (
        (
            ("Name", "string", 0),
            ("Ready", "string", 0),
            ("Up-to-date", "string", 0),
            ("Available", "string", 0),
            ("Age", "string", 0),
        ),
        lambda obj, now: [
            _name(obj),
            f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{(obj.get('spec') or {}).get('replicas', 0)}",
            str((obj.get("status") or {}).get("updatedReplicas", 0)),
            str((obj.get("status") or {}).get("availableReplicas", 0)),
            _age(obj, now),
        ],
    ),
    "apps/replicasets": (
        (
            ("Name", "string", 0),
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            ("Age", "string", 0),
        ),
        lambda obj, now: [
            _name(obj),
            (obj.get("spec") or {}).get("replicas", 0),
            (obj.get("status") or {}).get("replicas", 0),
            (obj.get("status") or {}).get("readyReplicas", 0),
            _age(obj, now),
        ],
    ),
}
_PLAIN: tuple[Column, ...] = (("Name", "string", 0), ("Age", "string", 0))
_PLAIN_CUSTOM_PATH = re.compile(r"^\.?([A-Za-z0-9_.\-/\\]+)$")


def columns(resource: Resource) -> list[dict[str, Any]]:
    """The column definitions of a kind's table."""
    if resource.custom:
        found = [_definition("Name", "string", 0, "name")]
        for column in resource.columns:
            shown = "string" if column["type"] == "date" else column["type"]
            found.append(_definition(column["name"], shown, column.get("priority", 0), ""))
        if not resource.columns:
            found.append(_definition("Age", "string", 0, ""))
        return found
    listed = _TABLES[resource.table][0] if resource.table in _TABLES else _PLAIN
    return [_definition(name, kind, priority, "name" if name == "Name" else "") for name, kind, priority in listed]


def _definition(name: str, kind: str, priority: int, form: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "format": form, "description": "", "priority": priority}


def cells(resource: Resource, obj: Object, now: float) -> list[Any]:
    """One object's row."""
    if resource.custom:
        listed: list[Any] = [_name(obj)]
        for column in resource.columns:
            value = at_path(obj, column["jsonPath"])
            listed.append(age(value, now) if column["type"] == "date" else value)
        if not resource.columns:
            listed.append(_age(obj, now))
        return listed
    if resource.table in _TABLES:
        return _TABLES[resource.table][1](obj, now)
    return [_name(obj), _age(obj, now)]


def at_path(obj: Any, path: str) -> Any:
    """The value at a simple JSON path such as `.spec.minMember`; None where there is none."""
    if not _PLAIN_CUSTOM_PATH.match(path):
        return None
    for part in re.split(r"(?<!\\)\.", path.lstrip(".")):
        obj = obj.get(part.replace("\\.", ".")) if isinstance(obj, dict) else None
    return obj
