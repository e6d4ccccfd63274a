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


def age(text: str | None, now: float) -> str:  # noqa: PLR0911 - a span each
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


def _columns(text: str) -> tuple[Column, ...]:
    """`Name|Count:integer|*Wide`: columns with their types, string if none is given; a star marks those of the wide form."""
    found = []
    for each in text.split("|"):
        name, _, kind = each.lstrip("*").partition(":")
        found.append((name, kind or "string", int(each.startswith("*"))))
    return tuple(found)


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _template(obj: Object, template: Object | None) -> list[Any]:
    """Containers, images and selector of what makes pods."""
    containers = _spec(template or {}).get("containers") or ()
    names, images = (",".join(each.get(part, "") for each in containers) for part in ("name", "image"))
    return [names, images, _selector(_spec(obj).get("selector"))]


def _selector(selector: Any) -> str:
    """A selector as kubectl shows it: of labels, or a LabelSelector."""
    if not selector:
        return "<none>"
    labels = selector
    if "matchLabels" in selector or "matchExpressions" in selector:
        labels = selector.get("matchLabels") or {}
    terms = [f"{key}={value}" for key, value in sorted(labels.items())]
    for each in (selector.get("matchExpressions") or ()) if labels is not selector else ():
        values = f" ({','.join(each['values'])})" if each.get("values") else ""
        how = {"In": "in", "NotIn": "notin"}.get(each["operator"], "")
        terms.append(f"!{each['key']}" if each["operator"] == "DoesNotExist" else f"{each['key']} {how}{values}".strip())
    return ",".join(terms) or "<none>"


def _ready(obj: Object, *, of: str = "replicas") -> str:
    return f"{_status(obj).get('readyReplicas', 0)}/{_spec(obj).get(of, 0)}"


def _service(obj: Object, now: float) -> list[Any]:
    spec = _spec(obj)
    ports = []
    for each in spec.get("ports") or ():
        outer = f":{each['nodePort']}" if each.get("nodePort") else ""
        ports.append(f"{each.get('port')}{outer}/{each.get('protocol', 'TCP')}")
    outside = ",".join(spec.get("externalIPs") or ()) or spec.get("externalName") or "<none>"
    shown = [_name(obj), spec.get("type", "ClusterIP"), spec.get("clusterIP") or "<none>", outside]
    return [*shown, ",".join(ports) or "<none>", _age(obj, now), _selector(spec.get("selector"))]


def _binding(obj: Object, now: float) -> list[Any]:
    role = obj.get("roleRef") or {}
    who: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for each in obj.get("subjects") or ():
        name = f"{each.get('namespace', '')}/{each['name']}" if each.get("kind") == "ServiceAccount" else each.get("name", "")
        who.setdefault(each.get("kind", ""), []).append(name)
    shown = [_name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", _age(obj, now)]
    return [*shown, *(", ".join(who[kind]) for kind in ("User", "Group", "ServiceAccount"))]


def _ingress(obj: Object, now: float) -> list[Any]:
    spec = _spec(obj)
    hosts = ",".join(each["host"] for each in spec.get("rules") or () if each.get("host")) or "*"
    points = (_status(obj).get("loadBalancer") or {}).get("ingress") or ()
    at = ",".join(each.get("ip") or each.get("hostname", "") for each in points)
    return [
        _name(obj),
        spec.get("ingressClassName") or "<none>",
        hosts,
        at,
        "80, 443" if spec.get("tls") else "80",
        _age(obj, now),
    ]


def _quota(obj: Object, now: float) -> list[Any]:
    hard, used = _status(obj).get("hard") or {}, _status(obj).get("used") or {}
    lines = {name: f"{name}: {used.get(name, 0)}/{amount}" for name, amount in sorted(hard.items())}
    limits = ", ".join(text for name, text in lines.items() if name.startswith("limits"))
    return [_name(obj), ", ".join(text for name, text in lines.items() if not name.startswith("limits")), limits, _age(obj, now)]


def _cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = _spec(obj), _status(obj)
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else "<none>"
    job = _spec(spec.get("jobTemplate") or {})
    shown = [_name(obj), spec.get("schedule", ""), spec.get("timeZone") or "<none>", str(bool(spec.get("suspend")))]
    return [*shown, len(status.get("active") or ()), last, _age(obj, now), *_template({"spec": job}, job.get("template"))]


def _replicas(obj: Object, now: float) -> list[Any]:
    counts = [_spec(obj).get("replicas", 0), _status(obj).get("replicas", 0), _status(obj).get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now), *_template(obj, _spec(obj).get("template"))]


def _deployment(obj: Object, now: float) -> list[Any]:
    counts = [_status(obj).get(which, 0) for which in ("updatedReplicas", "availableReplicas")]
    return [_name(obj), _ready(obj), *counts, _age(obj, now), *_template(obj, _spec(obj).get("template"))]


def _daemon_set(obj: Object, now: float) -> list[Any]:
    counted = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
    template = _spec(obj).get("template")
    where = _selector(_spec(template or {}).get("nodeSelector"))
    return [_name(obj), *(_status(obj).get(each, 0) for each in counted), where, _age(obj, now), *_template(obj, template)]


def _autoscaler(obj: Object, now: float) -> list[Any]:
    spec, target = _spec(obj), _spec(obj).get("scaleTargetRef") or {}
    wanted = []
    for each in spec.get("metrics") or ():
        about = each.get("resource") or {}
        share = (about.get("target") or {}).get("averageUtilization")
        wanted.append(f"{about.get('name', each.get('type', ''))}: <unknown>/{f'{share}%' if share else '<auto>'}")
    counts = [str(spec.get("minReplicas", 1)), spec.get("maxReplicas", 0), _status(obj).get("currentReplicas", 0)]
    reference = f"{target.get('kind', '')}/{target.get('name', '')}"
    return [_name(obj), reference, ", ".join(wanted) or "<none>", *counts, _age(obj, now)]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(obj: Object) -> str:
    return ",".join(_MODES.get(each, each) for each in _spec(obj).get("accessModes") or ())


def _volume(obj: Object, now: float) -> list[Any]:
    spec, claim = _spec(obj), _spec(obj).get("claimRef") or {}
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(obj),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _status(obj).get("phase", ""),
        f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _status(obj).get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _claim(obj: Object, now: float) -> list[Any]:
    spec, status = _spec(obj), _status(obj)
    bound = bool(spec.get("volumeName"))
    return [
        _name(obj),
        status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _modes(obj) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _storage_class(obj: Object, now: float) -> list[Any]:
    default = (obj["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{_name(obj)} (default)" if default else _name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    ]


def _budget(obj: Object, now: float) -> list[Any]:
    bounds = [str(_spec(obj).get(which, "N/A")) for which in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *bounds, _status(obj).get("disruptionsAllowed", 0), _age(obj, now)]


def _priority(obj: Object, now: float) -> list[Any]:
    shown = [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault"))]
    return [*shown, _age(obj, now), obj.get("preemptionPolicy", "")]


def _slice(obj: Object, now: float) -> list[Any]:
    ports = ",".join(str(each["port"]) for each in obj.get("ports") or () if each.get("port"))
    points = ",".join(address for each in obj.get("endpoints") or () for address in each.get("addresses") or ())
    return [_name(obj), obj.get("addressType", ""), ports or "<unset>", points or "<unset>", _age(obj, now)]


def _endpoints(obj: Object, now: float) -> list[Any]:
    points = (
        f"{address['ip']}:{port['port']}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    )
    return [_name(obj), ",".join(points) or "<none>", _age(obj, now)]


def _created(obj: Object, _now: float) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp")]


def _device_claim(obj: Object, now: float) -> list[Any]:
    deleted, status = bool(obj["metadata"].get("deletionTimestamp")), _status(obj)
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return [_name(obj), ",".join(states), _age(obj, now)]


def _device_slice(obj: Object, now: float) -> list[Any]:
    spec = _spec(obj)
    return [_name(obj), spec.get("nodeName", ""), spec.get("driver", ""), spec.get("pool", {}).get("name", ""), _age(obj, now)]


_WIDE = "*Containers|*Images|*Selector"
_SCALED = f"Name|Desired:integer|Current:integer|Ready:integer|Age|{_WIDE}"
_BOUND = "Name|Role|Age|*Users|*Groups|*ServiceAccounts"
_DATED = "Name|Created At:date"
_WRITTEN: dict[str, tuple[str, Row]] = {
    "pods": ("Name|Ready|Status|Restarts|Age|*IP|*Node|*Nominated Node|*Readiness Gates", _pod),
    "nodes": (
        "Name|Status|Roles|Age|Version|*Internal-IP|*External-IP|*OS-Image|*Kernel-Version|*Container-Runtime",
        _node,
    ),
    "namespaces": ("Name|Status|Age", lambda obj, now: [_name(obj), _status(obj).get("phase", ""), _age(obj, now)]),
    "events": ("Last Seen|Type|Reason|Object|*Subobject|*Source|Message|*First Seen|*Count|*Name", _event),
    "configmaps": (
        "Name|Data|Age",
        lambda obj, now: [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)],
    ),
    "secrets": (
        "Name|Type|Data|Age",
        lambda obj, now: [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)],
    ),
    "services": ("Name|Type|Cluster-IP|External-IP|Port(s)|Age|*Selector", _service),
    "endpoints": ("Name|Endpoints|Age", _endpoints),
    "resourcequotas": ("Name|Request|Limit|Age", _quota),
    "limitranges": (_DATED, _created),
    "persistentvolumes": (
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|*VolumeMode",
        _volume,
    ),
    "persistentvolumeclaims": (
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|*VolumeMode",
        _claim,
    ),
    "podtemplates": (
        "Name|Containers|Images|Pod Labels",
        lambda obj, _: [
            _name(obj),
            *_template({}, obj.get("template"))[:2],
            _selector(((obj.get("template") or {}).get("metadata") or {}).get("labels")),
        ],
    ),
    "replicationcontrollers": (_SCALED, _replicas),
    "apps/replicasets": (_SCALED, _replicas),
    "apps/deployments": (f"Name|Ready|Up-to-date|Available|Age|{_WIDE}", _deployment),
    "apps/statefulsets": (
        "Name|Ready|Age|*Containers|*Images",
        lambda obj, now: [_name(obj), _ready(obj), _age(obj, now), *_template(obj, _spec(obj).get("template"))[:2]],
    ),
    "apps/daemonsets": (
        "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|" + _WIDE,
        _daemon_set,
    ),
    "apps/controllerrevisions": (
        "Name|Controller|Revision|Age",
        lambda obj, now: [
            _name(obj),
            next((f"{each['kind']}/{each['name']}" for each in obj["metadata"].get("ownerReferences") or ()), "<none>"),
            obj.get("revision", 0),
            _age(obj, now),
        ],
    ),
    "batch/jobs": (
        f"Name|Status|Completions|Duration|Age|{_WIDE}",
        lambda obj, now: [*_job(obj, now), *_template(obj, _spec(obj).get("template"))],
    ),
    "batch/cronjobs": (f"Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|{_WIDE}", _cron_job),
    "autoscaling/horizontalpodautoscalers": ("Name|Reference|Targets|MinPods|MaxPods|Replicas|Age", _autoscaler),
    "policy/poddisruptionbudgets": ("Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age", _budget),
    "scheduling.k8s.io/priorityclasses": ("Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy", _priority),
    "coordination.k8s.io/leases": (
        "Name|Holder|Age",
        lambda obj, now: [_name(obj), _spec(obj).get("holderIdentity", ""), _age(obj, now)],
    ),
    "rbac.authorization.k8s.io/roles": (_DATED, _created),
    "rbac.authorization.k8s.io/clusterroles": (_DATED, _created),
    "rbac.authorization.k8s.io/rolebindings": (_BOUND, _binding),
    "rbac.authorization.k8s.io/clusterrolebindings": (_BOUND, _binding),
    "networking.k8s.io/ingresses": ("Name|Class|Hosts|Address|Ports|Age", _ingress),
    "networking.k8s.io/networkpolicies": (
        "Name|Pod-Selector|Age",
        lambda obj, now: [_name(obj), _selector(_spec(obj).get("podSelector")), _age(obj, now)],
    ),
    "discovery.k8s.io/endpointslices": ("Name|AddressType|Ports|Endpoints|Age", _slice),
    "storage.k8s.io/storageclasses": (
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
        _storage_class,
    ),
    "node.k8s.io/runtimeclasses": (
        "Name|Handler|Age",
        lambda obj, now: [_name(obj), obj.get("handler", ""), _age(obj, now)],
    ),
    "apiextensions.k8s.io/customresourcedefinitions": (_DATED, _created),
    "resource.k8s.io/resourceclaims": ("Name|State|Age", _device_claim),
    "resource.k8s.io/resourceslices": ("Name|Node|Driver|Pool|Age", _device_slice),
}
_TABLES = {table: (_columns(text), row) for table, (text, row) in _WRITTEN.items()}
_PLAIN = _columns("Name|Age")
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
