"""The rules that objects keep: names, labels and the like of all kinds, and those of built-in kinds that people break."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster.simulated import schema
from fairlead.cluster.simulated.errors import Cause, bad_request, invalid_value, required
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NAMED_BY_LABEL = {"namespaces", "services"}
_ANY_NAME = {
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/rolebindings",
}
_ANNOTATIONS_LIMIT = 256 << 10
_MOST_BYTES = 1 << 20
_MOST_SECONDS = (1 << 31) - 1
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
WITH_GENERATION = {
    "pods",
    "apps/deployments",
    "apps/replicasets",
    "apps/statefulsets",
    "apps/daemonsets",
    "batch/jobs",
    "batch/cronjobs",
    "policy/poddisruptionbudgets",
    "scheduling.k8s.io/priorityclasses",
    "networking.k8s.io/networkpolicies",
    "networking.k8s.io/ingresses",
    "apiextensions.k8s.io/customresourcedefinitions",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
}


def check_metadata(resource: Resource, obj: Object) -> list[Cause]:
    """The rules on names, labels, annotations and owners."""
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    causes: list[Cause] = []
    prefix = metadata.get("generateName", "")
    if prefix and not _SUBDOMAIN.match(prefix[:-1] + "a" if prefix.endswith("-") else prefix):
        causes.append(invalid_value("metadata.generateName", prefix, _SUBDOMAIN_RULE))
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif resource.table in _NAMED_BY_LABEL:
        if len(name) > 63:
            causes.append(
                Cause("FieldValueInvalid", f'Invalid value: "{name}": must be no more than 63 characters', "metadata.name")
            )
        elif not _LABEL.match(name):
            causes.append(invalid_value("metadata.name", name, _LABEL_RULE))
    elif resource.table not in _ANY_NAME:
        if len(name) > 253:
            causes.append(
                Cause("FieldValueInvalid", f'Invalid value: "{name}": must be no more than 253 characters', "metadata.name")
            )
        elif not _SUBDOMAIN.match(name):
            causes.append(invalid_value("metadata.name", name, _SUBDOMAIN_RULE))
    for key, value in (metadata.get("labels") or {}).items():
        prefix, slash, last = key.rpartition("/")
        if len(last) > 63 or not _QUALIFIED.match(last) or (slash and not _SUBDOMAIN.match(prefix)):
            causes.append(invalid_value("metadata.labels", key, _KEY_RULE))
        if len(str(value)) > 63:
            causes.append(invalid_value("metadata.labels", value, "must be no more than 63 bytes"))
        elif not _LABEL_VALUE.match(str(value)):
            causes.append(invalid_value("metadata.labels", value, _VALUE_RULE))
    annotations = metadata.get("annotations") or {}
    size = sum(len(key) + len(str(value)) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        causes.append(
            Cause("FieldValueTooLong", f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes", "metadata.annotations")
        )
    causes += [
        invalid_value("metadata.annotations", key, _KEY_RULE)
        for key in annotations
        if not _QUALIFIED.match(key.rpartition("/")[2])
    ]
    for owner in metadata.get("ownerReferences") or ():
        causes += [
            invalid_value(
                f"metadata.ownerReferences.{field}", "", f"{'version ' if field == 'apiVersion' else ''}must not be empty"
            )
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        place = f"metadata.finalizers[{index}]"
        prefix, slash, last = finalizer.rpartition("/")
        if not _QUALIFIED.match(last) or (slash and not _SUBDOMAIN.match(prefix)):
            causes.append(invalid_value(place, finalizer, _KEY_RULE))
        elif not slash and finalizer not in _FINALIZERS:
            causes.append(invalid_value(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


def read_quantities(obj: Any) -> None:
    """Every quantity of the known places can be read. Raises `StatusError`, as Go's decoder does."""
    if isinstance(obj, dict):
        for name, value in obj.items():
            if name in ("requests", "limits", "capacity", "allocatable", "overhead", "hard") and isinstance(value, dict):
                for amount in value.values():
                    _readable(amount)
            elif isinstance(value, (dict, list)):
                read_quantities(value)
    elif isinstance(obj, list):
        for each in obj:
            read_quantities(each)


@lru_cache(maxsize=65_536)
def _parses(text: str) -> bool:
    try:
        quantity.parse(text)
    except QuantityError as error:
        return error.too_large or text.startswith("-")
    return True


def _readable(amount: object) -> None:
    if not isinstance(amount, (str, int, float)) or isinstance(amount, bool) or not _parses(str(amount)):
        raise bad_request("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")


def check_pod(obj: Object) -> list[Cause]:
    """The rules that people break."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    containers = spec.get("containers") or []
    if not containers:
        causes.append(required("spec.containers"))
    seen: set[str] = set()
    for field, listed in (("containers", containers), ("initContainers", spec.get("initContainers") or [])):
        for index, container in enumerate(listed):
            causes += _check_container(container, f"spec.{field}[{index}]", seen)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(
            Cause(
                "FieldValueNotSupported",
                f'Unsupported value: "{spec.get("restartPolicy")}": supported values: "Always", "OnFailure", "Never"',
                "spec.restartPolicy",
            )
        )
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= _MOST_SECONDS:
        told = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        causes.append(invalid_value("spec.activeDeadlineSeconds", deadline, told))
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        causes.append(invalid_value("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        causes.append(
            Cause("FieldValueForbidden", "Forbidden: cannot be set until all schedulingGates have been cleared", "spec.nodeName")
        )
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            causes.append(
                invalid_value(
                    f"spec.tolerations[{index}].operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
                )
            )
    return causes


def _check_container(container: Object, path: str, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif not _LABEL.match(name) or len(name) > 63:
        causes.append(invalid_value(f"{path}.name", name, _LABEL_RULE))
    elif name in seen:
        causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name"))
    seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            place = f"{path}.resources.{kind}[{resource}]" if "/" in resource else f"{path}.resources.{kind}.{resource}"
            causes += _check_amount(place, resource, amount)
    for resource, amount in requests.items():
        place = f"{path}.resources.requests"
        extended = "/" in resource
        if extended and resource not in limits:
            causes.append(required(f"{path}.resources.limits", "Limit must be set for non overcommitable resources"))
        elif resource in limits and _value(amount) is not None and (limit := _value(limits[resource])) is not None:
            if (_value(amount) or 0) > limit:
                told = f"must be less than or equal to {resource} limit of {limits[resource]}"
                causes.append(invalid_value(place, str(amount), told))
            elif extended and _value(amount) != limit:
                causes.append(invalid_value(place, str(amount), f"must be equal to {resource} limit of {limits[resource]}"))
    return causes


@lru_cache(maxsize=65_536)
def _parsed(text: str) -> Any:
    try:
        return quantity.parse(text)
    except QuantityError:
        return None


def _value(amount: object) -> Any:
    return _parsed(str(amount))


def _check_amount(place: str, resource: str, amount: object) -> list[Cause]:
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
        told = f"must be between 0 and {_MOST_SECONDS}, inclusive"
        causes.append(invalid_value("spec.activeDeadlineSeconds", deadline, told))
    if len(before.get("containers") or ()) != len(after.get("containers") or ()):
        return [
            *causes,
            Cause("FieldValueForbidden", "Forbidden: pod updates may not add or remove containers", "spec.containers"),
        ]
    if frozen(before) != frozen(after):
        causes.append(Cause("FieldValueForbidden", f"Forbidden: {_POD_RULE}", "spec"))
    gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
    added = [gate for gate in after.get("schedulingGates") or () if gate.get("name") not in gates]
    if added:
        causes.append(
            Cause(
                "FieldValueForbidden",
                "Forbidden: only deletion is allowed, but found new scheduling gate",
                "spec.schedulingGates",
            )
        )
    kept = after.get("tolerations") or []
    if any(toleration not in kept for toleration in before.get("tolerations") or ()):
        causes.append(
            Cause(
                "FieldValueForbidden",
                "Forbidden: existing toleration can not be modified except its tolerationSeconds",
                "spec.tolerations",
            )
        )
    return causes


def check_node(obj: Object) -> list[Cause]:
    """Every taint says what it does."""
    return [
        required(f"metadata.taints[{index}].effect")
        for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ())
        if not taint.get("effect")
    ]


def check_priority_class(obj: Object) -> list[Cause]:
    """Values above a thousand million are the system's."""
    if obj.get("value", 0) > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-"):
        return [
            Cause(
                "FieldValueForbidden",
                "Forbidden: maximum allowed value of a user defined priority is 1000000000",
                "value",
            )
        ]
    return []


def check_priority_class_update(old: Object, new: Object) -> list[Cause]:
    """Its value stays."""
    if old.get("value") != new.get("value"):
        return [Cause("FieldValueForbidden", "Forbidden: may not be changed in an update.", "value")]
    if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
        return [invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")]
    return []


def check_budget(obj: Object) -> list[Cause]:
    """One of minAvailable and maxUnavailable."""
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def check_job(obj: Object) -> list[Cause]:
    """Its pods must not be restarted for ever."""
    spec = obj.get("spec") or {}
    causes = []
    template = (spec.get("template") or {}).get("spec") or {}
    if template.get("restartPolicy") not in ("OnFailure", "Never"):
        told = f'Unsupported value: "{template.get("restartPolicy", "")}": supported values: "OnFailure", "Never"'
        causes.append(Cause("FieldValueNotSupported", told, "spec.template.spec.restartPolicy"))
    if not template.get("containers"):
        causes.append(required("spec.template.spec.containers"))
    causes += [
        invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in ("parallelism", "completions", "backoffLimit")
        if isinstance(spec.get(name), int) and spec[name] < 0
    ]
    return causes


def check_workload(obj: Object) -> list[Cause]:
    """The selector selects the template's pods."""
    spec = obj.get("spec") or {}
    if not spec.get("selector"):
        return [required("spec.selector")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return [invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]
    return []


def check_definition(obj: Object) -> list[Cause]:
    """It is named after what it defines, and every version has a schema."""
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    causes = []
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"]["name"] != expected:
        causes.append(invalid_value("metadata.name", obj["metadata"]["name"], 'must be spec.names.plural+"."+spec.group'))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        told = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("FieldValueNotSupported", told, "spec.scope"))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(invalid_value("spec.versions", "", "must have exactly one version marked as storage version"))
    causes += [
        required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    causes += [
        cause
        for index, version in enumerate(versions)
        if (cause := _unusable((version.get("schema") or {}).get("openAPIV3Schema"), index)) is not None
    ]
    return causes


def _unusable(definition: Any, index: int) -> Cause | None:
    """Why a schema cannot be used, if so."""
    if not definition:
        return None
    place = f"spec.versions[{index}].schema.openAPIV3Schema"
    try:
        schema.of_schema(definition, root=True)
        schema.Validator(definition).causes({})
    except Exception as error:
        return Cause("FieldValueInvalid", f'Invalid value: "schema": {error}', place)
    if definition.get("type") != "object":
        return Cause(
            "FieldValueInvalid", f"Invalid value: {definition.get('type')!r}: must be object at the root", f"{place}.type"
        )
    return None


def check_lease(obj: Object) -> list[Cause]:
    """Durations and counts are positive."""
    spec = obj.get("spec") or {}
    causes = []
    if isinstance(spec.get("leaseDurationSeconds"), int) and spec["leaseDurationSeconds"] <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    if isinstance(spec.get("leaseTransitions"), int) and spec["leaseTransitions"] < 0:
        causes.append(invalid_value("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0"))
    return causes


def check_config_map(obj: Object) -> list[Cause]:
    """The rules on keys."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = []
    if sum(map(len, [*data.values(), *binary.values()])) > _MOST_BYTES:
        causes.append(Cause("FieldValueTooLong", f"Too long: may not be more than {_MOST_BYTES} bytes", "[]"))
    for key in sorted(data):
        if not _CONFIG_KEY.fullmatch(key):
            causes.append(invalid_value(f"data[{key}]", key, _CONFIG_KEY_RULE))
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
    wrong = [key for key in sorted(binary) if not _CONFIG_KEY.fullmatch(key)]
    return causes + [invalid_value(f"binaryData[{key}]", key, _CONFIG_KEY_RULE) for key in wrong]


def check_immutable(before: Object, obj: Object) -> list[Cause]:
    """ConfigMaps and Secrets that are immutable stay as they are."""
    if not before.get("immutable"):
        return []
    fields = [] if obj.get("immutable") else ["immutable"]
    fields += [field for field in ("data", "binaryData") if (before.get(field) or {}) != (obj.get(field) or {})]
    return [Cause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", field) for field in fields]


Check = Callable[[Object], list[Cause]]
CheckUpdate = Callable[[Object, Object], list[Cause]]
CHECKS: dict[str, Check] = {
    "pods": check_pod,
    "nodes": check_node,
    "scheduling.k8s.io/priorityclasses": check_priority_class,
    "policy/poddisruptionbudgets": check_budget,
    "batch/jobs": check_job,
    "apps/deployments": check_workload,
    "apps/replicasets": check_workload,
    "apps/statefulsets": check_workload,
    "apiextensions.k8s.io/customresourcedefinitions": check_definition,
    "coordination.k8s.io/leases": check_lease,
    "configmaps": check_config_map,
}
UPDATE_CHECKS: dict[str, CheckUpdate] = {
    "configmaps": check_immutable,
    "secrets": check_immutable,
    "pods": check_pod_update,
    "scheduling.k8s.io/priorityclasses": check_priority_class_update,
}
