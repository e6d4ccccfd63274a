"""The rules of pods: their containers, and the constraints on where they may run.

Not all of the real server's rules: those that people break, and those without which a scheduler would meet pods that cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster.simulated.device_values import pod_claims
from fairlead.cluster.simulated.errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from fairlead.cluster.simulated.formats import LABEL, LABEL_RULE, label, label_value, qualified
from fairlead.cluster.simulated.store import Object

_MOST_SECONDS = (1 << 31) - 1
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_ENVIRONMENT = re.compile(r"[ -<>-~]+")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_CHOICES = {"imagePullPolicy": ("Always", "IfNotPresent", "Never"), "terminationMessagePolicy": ("File", "FallbackToLogsOnError")}
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def check_pod(obj: Object) -> list[Cause]:
    """What is wrong with a pod."""
    spec = obj.get("spec") or {}
    causes = _volumes(spec)
    containers = spec.get("containers") or []
    if not containers:
        causes.append(required("spec.containers"))
    seen: set[str] = set()
    mounted = {each.get("name") for each in spec.get("volumes") or ()}
    for field, listed in (("containers", containers), ("initContainers", spec.get("initContainers") or [])):
        for index, container in enumerate(listed):
            place = f"spec.{field}[{index}]"
            causes += _container(container, place, seen) + _ports(container, place, on_host=bool(spec.get("hostNetwork")))
            causes += _environment(container, place) + _mounts(container, place, mounted) + _probes(container, place)
            if field == "initContainers" and container.get("restartPolicy") not in (None, "Always", "Never", "OnFailure"):
                causes.append(unsupported(f"{place}.restartPolicy", container["restartPolicy"], "Always", "Never", "OnFailure"))
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), "Always", "OnFailure", "Never"))
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    if spec.get("dnsPolicy", "Default") not in policies:
        causes.append(unsupported("spec.dnsPolicy", spec["dnsPolicy"], *policies))
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= _MOST_SECONDS:
        detail = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        causes.append(invalid_value("spec.activeDeadlineSeconds", deadline, detail))
    return causes + _names(spec) + check_placement(spec) + pod_claims(spec)


def _names(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    if spec.get("hostname"):
        causes += label("spec.hostname", spec["hostname"])
    if spec.get("subdomain"):
        dotted = "." in spec["subdomain"]
        detail = "must not contain dots"
        causes += (
            [invalid_value("spec.subdomain", spec["subdomain"], detail)] if dotted else label("spec.subdomain", spec["subdomain"])
        )
    system = (spec.get("os") or {}).get("name")
    if system is not None and system not in ("linux", "windows"):
        causes.append(unsupported("spec.os", system, "linux", "windows"))
    return causes


# -- where a pod may go ------------------------------------------------------------------------


def check_placement(spec: Object) -> list[Cause]:
    """What is wrong with a spec's constraints on nodes and on other pods."""
    causes: list[Cause] = []
    for key, value in (spec.get("nodeSelector") or {}).items():
        causes += qualified("spec.nodeSelector", key) + label_value("spec.nodeSelector", str(value))
    affinity = spec.get("affinity") or {}
    causes += _node_affinity(affinity.get("nodeAffinity") or {}, "spec.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        causes += _pod_affinity(affinity.get(kind) or {}, f"spec.affinity.{kind}")
    for index, each in enumerate(spec.get("tolerations") or ()):
        causes += _toleration(each, f"spec.tolerations[{index}]")
    for index, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        causes += _spread(each, f"spec.topologySpreadConstraints[{index}]")
    gates: set[str] = set()
    for index, each in enumerate(spec.get("schedulingGates") or ()):
        name = each.get("name", "")
        causes += qualified(f"spec.schedulingGates[{index}]", name)
        if name in gates:
            causes.append(duplicate(f"spec.schedulingGates[{index}]", name))
        gates.add(name)
    if gates and spec.get("nodeName"):
        causes.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def _weight(each: Object, place: str) -> list[Cause]:
    weight = each.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid_value(f"{place}.weight", weight, "must be in the range 1-100")]


def _node_affinity(affinity: Object, place: str) -> list[Cause]:
    causes: list[Cause] = []
    wanted = affinity.get(_REQUIRED)
    if wanted is not None:
        causes += check_node_selector(wanted, f"{place}.{_REQUIRED}")
    for index, each in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{place}.{_PREFERRED}[{index}]"
        causes += _weight(each, at)
        causes += _expressions(
            (each.get("preference") or {}).get("matchExpressions"), f"{at}.preference.matchExpressions", counts=True
        )
    return causes


def check_node_selector(selector: Object, place: str) -> list[Cause]:
    """What is wrong with a selector of nodes."""
    at = f"{place}.nodeSelectorTerms"
    causes = [] if selector.get("nodeSelectorTerms") else [required(at, "must have at least one node selector term")]
    for index, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        inside = f"{at}[{index}].matchExpressions"
        causes += _expressions(term.get("matchExpressions"), inside, counts=True)
        for number, each in enumerate(term.get("matchExpressions") or ()):
            for position, value in enumerate(each.get("values") or ()):
                causes += label_value(f"{inside}[{number}].values[{position}]", value)
    return causes


def _pod_affinity(affinity: Object, place: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        causes += _pod_term(term, f"{place}.{_REQUIRED}[{index}]")
    for index, each in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{place}.{_PREFERRED}[{index}]"
        causes += _weight(each, at) + _pod_term(each.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return causes


def _pod_term(term: Object, place: str) -> list[Cause]:
    causes = _expressions((term.get("labelSelector") or {}).get("matchExpressions"), f"{place}.labelSelector.matchExpressions")
    topology = term.get("topologyKey", "")
    if not topology:
        causes.append(required(f"{place}.topologyKey", "can not be empty"))
    return causes + qualified(f"{place}.topologyKey", topology)


def _expressions(listed: Iterable[Object] | None, place: str, *, counts: bool = False) -> list[Cause]:
    """Expressions of selectors. counts: whether values may be compared as numbers, as those of nodes may."""
    causes: list[Cause] = []
    for index, each in enumerate(listed or ()):
        at, operator, values = f"{place}[{index}]", each.get("operator", ""), each.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                causes.append(
                    forbidden_field(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
                )
        elif operator in ("Gt", "Lt") and counts:
            if len(values) != 1:
                causes.append(required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        else:
            causes.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        causes += qualified(f"{at}.key", each.get("key", ""))
    return causes


def _toleration(each: Object, place: str) -> list[Cause]:
    key, operator, value, effect = (each.get(name, "") for name in ("key", "operator", "value", "effect"))
    causes = qualified(f"{place}.key", key) if key else []
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{place}.operator", operator, detail))
    if each.get("tolerationSeconds") is not None and effect != "NoExecute":
        causes.append(invalid_value(f"{place}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    if operator in ("", "Equal"):
        causes += label_value(f"{place}.operator", value)
    elif operator != "Exists":
        causes.append(unsupported(f"{place}.operator", operator, "Equal", "Exists"))
    elif value:
        causes.append(invalid_value(f"{place}.operator", value, "value must be empty when `operator` is 'Exists'"))
    if effect:
        causes += check_effect(f"{place}.effect", effect)
    return causes


def check_effect(place: str, effect: str) -> list[Cause]:
    """The effect of a taint or a toleration."""
    known = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    return [] if effect in known else [unsupported(place, effect, *known)]


def _spread(each: Object, place: str) -> list[Cause]:
    causes = []
    for name in ("maxSkew", "minDomains"):
        number = each.get(name, 0 if name == "maxSkew" else 1)
        if number <= 0:
            causes.append(invalid_value(f"{place}.{name}", number, "must be greater than zero"))
    if not each.get("topologyKey"):
        causes.append(required(f"{place}.topologyKey", "can not be empty"))
    else:
        causes += qualified(f"{place}.topologyKey", each["topologyKey"])
    if each.get("whenUnsatisfiable") not in ("DoNotSchedule", "ScheduleAnyway"):
        causes.append(
            unsupported(f"{place}.whenUnsatisfiable", each.get("whenUnsatisfiable", ""), "DoNotSchedule", "ScheduleAnyway")
        )
    return causes + _expressions(
        (each.get("labelSelector") or {}).get("matchExpressions"), f"{place}.labelSelector.matchExpressions"
    )


# -- volumes and containers --------------------------------------------------------------------


def _volumes(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        place, name = f"spec.volumes[{index}]", volume.get("name", "")
        kinds = [kind for kind in volume if kind != "name"]
        causes += [forbidden_field(f"{place}.{kind}", "may not specify more than 1 volume type") for kind in kinds[1:]]
        causes += label(f"{place}.name", name) if name else [required(f"{place}.name")]
        if name in seen:
            causes.append(duplicate(f"{place}.name", name))
        seen.add(name)
    return causes


def _ports(container: Object, path: str, *, on_host: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, each in enumerate(container.get("ports") or ()):
        place, port, host, name = (
            f"{path}.ports[{index}]",
            each.get("containerPort", 0),
            each.get("hostPort", 0),
            each.get("name"),
        )
        if name and not re.fullmatch(r"[-a-z0-9]+", name):
            detail = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            causes.append(invalid_value(f"{place}.name", name, detail))
        if name and not re.search(r"[a-z]", name):
            causes.append(invalid_value(f"{place}.name", name, "must contain at least one letter (a-z)"))
        if not port:
            causes.append(required(f"{place}.containerPort"))
        for field, number in (("containerPort", port), ("hostPort", host)):
            if number and not 1 <= number <= 65535:
                causes.append(invalid_value(f"{place}.{field}", number, "must be between 1 and 65535, inclusive"))
        if on_host and host and 1 <= host <= 65535 and host != port:
            causes.append(invalid_value(f"{place}.hostPort", host, "must match `containerPort` when `hostNetwork` is true"))
        if each.get("protocol", "TCP") not in ("SCTP", "TCP", "UDP"):
            causes.append(unsupported(f"{place}.protocol", each["protocol"], "SCTP", "TCP", "UDP"))
    return causes


def _environment(container: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, each in enumerate(container.get("env") or ()):
        place, name, source = f"{path}.env[{index}]", each.get("name", ""), each.get("valueFrom")
        if not name:
            causes.append(required(f"{place}.name"))
        elif not _ENVIRONMENT.fullmatch(name):
            detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            causes.append(invalid_value(f"{place}.name", name, detail))
        if source is not None and not any(source.get(kind) for kind in _SOURCES):
            known = ", ".join(f"`{kind}`" for kind in _SOURCES[:-1])
            causes.append(invalid_value(f"{place}.valueFrom", "", f"must specify one of: {known} or `{_SOURCES[-1]}`"))
        elif source is not None and each.get("value"):
            causes.append(invalid_value(f"{place}.valueFrom", "", "may not be specified when `value` is not empty"))
    return causes


def _mounts(container: Object, path: str, volumes: set[Any]) -> list[Cause]:
    causes: list[Cause] = []
    for index, each in enumerate(container.get("volumeMounts") or ()):
        place, name = f"{path}.volumeMounts[{index}]", each.get("name", "")
        if not name:
            causes.append(required(f"{place}.name"))
        if name not in volumes:
            causes.append(Cause("FieldValueNotFound", f'Not found: "{name}"', f"{place}.name"))
        if not each.get("mountPath"):
            causes.append(required(f"{place}.mountPath"))
    return causes


def _probes(container: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe, place = container.get(kind), f"{path}.{kind}"
        handlers = [handler for handler in _HANDLERS if probe and probe.get(handler) is not None]
        causes += [forbidden_field(f"{place}.{handler}", "may not specify more than 1 handler type") for handler in handlers[1:]]
        if probe is not None and not handlers:
            causes.append(required(place, "must specify a handler type"))
        for handler in handlers:
            port = probe[handler].get("port") if probe else None
            if isinstance(port, int) and not 1 <= port <= 65535:
                causes.append(invalid_value(f"{place}.{handler}.port", port, "must be between 1 and 65535, inclusive"))
    return causes


def _container(container: Object, path: str, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif not LABEL.match(name) or len(name) > 63:
        causes.append(invalid_value(f"{path}.name", name, LABEL_RULE))
    elif name in seen:
        causes.append(duplicate(f"{path}.name", name))
    seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for field, known in _CHOICES.items():
        if container.get(field) is not None and container[field] not in known:
            causes.append(unsupported(f"{path}.{field}", container[field], *known))
    return causes + _container_amounts(container.get("resources") or {}, path)


def _container_amounts(resources: Object, path: str) -> list[Cause]:
    """The rules on what a container requests, and on its limits."""
    causes: list[Cause] = []
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            place = f"{path}.resources.{kind}[{resource}]"
            if "/" not in resource and resource not in _STANDARD and not resource.startswith("hugepages-"):
                causes.append(invalid_value(place, resource, "must be a standard resource type or fully qualified"))
                causes.append(invalid_value(place, resource, "must be a standard resource for containers"))
            causes += check_amount(place, resource, amount)
    for resource, amount in requests.items():
        place = f"{path}.resources.requests"
        extended = "/" in resource
        if extended and resource not in limits:
            causes.append(required(f"{path}.resources.limits", "Limit must be set for non overcommitable resources"))
        elif resource in limits and _value(amount) is not None and (limit := _value(limits[resource])) is not None:
            if (_value(amount) or 0) > limit:
                detail = f"must be less than or equal to {resource} limit of {limits[resource]}"
                causes.append(invalid_value(place, str(amount), detail))
            elif extended and _value(amount) != limit:
                causes.append(invalid_value(place, str(amount), f"must be equal to {resource} limit of {limits[resource]}"))
    return causes


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    try:
        return quantity.parse(text)
    except QuantityError:
        return None


def _value(amount: object) -> Any:
    return _parsed(str(amount))


def check_amount(place: str, resource: str, amount: object) -> list[Cause]:
    """An amount of a resource: none is negative, and what is counted is whole."""
    if str(amount).startswith("-"):
        return [invalid_value(place, str(amount), "must be greater than or equal to 0")]
    value = _value(amount)
    if "/" in resource and value is not None and value.denominator != 1:
        return [invalid_value(place, str(amount), "must be an integer")]
    return []


_POD_MUTABLE = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
_POD_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_pod_update(old: Object, new: Object) -> list[Cause]:
    """A running pod's spec stays, but for images, gates that are removed, and tolerations that are added."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    causes: list[Cause] = []

    def frozen(spec: Object) -> Object:
        kept = {name: value for name, value in spec.items() if name not in _POD_MUTABLE and value not in ([], None)}
        for field in ("containers", "initContainers"):
            if kept.get(field):
                kept[field] = [{name: value for name, value in each.items() if name != "image"} for each in kept[field]]
        if before.get("schedulingGates"):
            kept.pop("nodeSelector", None)
            kept.pop("affinity", None)
        return kept

    deadline = after.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 0 <= deadline <= _MOST_SECONDS:
        detail = f"must be between 0 and {_MOST_SECONDS}, inclusive"
        causes.append(invalid_value("spec.activeDeadlineSeconds", deadline, detail))
    if len(before.get("containers") or ()) != len(after.get("containers") or ()):
        return [
            *causes,
            forbidden_field("spec.containers", "pod updates may not add or remove containers"),
        ]
    if frozen(before) != frozen(after):
        causes.append(forbidden_field("spec", _POD_RULE))
    gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
    added = [gate for gate in after.get("schedulingGates") or () if gate.get("name") not in gates]
    if added:
        causes.append(forbidden_field("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate"))
    present = after.get("tolerations") or []
    if any(toleration not in present for toleration in before.get("tolerations") or ()):
        causes.append(forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"))
    return causes
