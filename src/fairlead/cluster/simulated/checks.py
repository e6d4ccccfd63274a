"""The rules that objects keep: names, labels and the like of all kinds, and those of built-in kinds that people break."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster.simulated import device_defaults, device_rules, schema, slice_rules
from fairlead.cluster.simulated.errors import Cause, forbidden_field, invalid, invalid_value, required, unhandled
from fairlead.cluster.simulated.formats import (
    KEY_RULE,
    LABEL,
    LABEL_RULE,
    QUALIFIED,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    label_value,
    qualified,
)
from fairlead.cluster.simulated.pod_rules import check_amount, check_effect, check_pod, check_pod_update
from fairlead.cluster.simulated.resources import CLAIMS, DEVICE_CLASSES, DEVICES, SLICES, TEMPLATES, Resource
from fairlead.cluster.simulated.store import Object

_NAMED_BY_LABEL = {"namespaces", "services"}
_ANY_NAME = {
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/rolebindings",
}
_ANNOTATIONS_LIMIT = 256 << 10
_MOST_BYTES = 1 << 20
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
    SLICES,
    DEVICE_CLASSES,
}


def _check_name(resource: Resource, name: str) -> list[Cause]:
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if resource.table in _ANY_NAME and resource.table not in _NAMED_BY_LABEL:
        return []
    longest, pattern, rule = (63, LABEL, LABEL_RULE) if resource.table in _NAMED_BY_LABEL else (253, SUBDOMAIN, SUBDOMAIN_RULE)
    if len(name) > longest:
        message = f'Invalid value: "{name}": must be no more than {longest} characters'
        return [Cause("FieldValueInvalid", message, "metadata.name")]
    return [] if pattern.match(name) else [invalid_value("metadata.name", name, rule)]


def check_metadata(resource: Resource, obj: Object) -> list[Cause]:
    """The rules on names, labels, annotations and owners."""
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    causes: list[Cause] = []
    prefix = metadata.get("generateName", "")
    if prefix and not SUBDOMAIN.match(prefix[:-1] + "a" if prefix.endswith("-") else prefix):
        causes.append(invalid_value("metadata.generateName", prefix, SUBDOMAIN_RULE))
    causes += _check_name(resource, name)
    for key, value in (metadata.get("labels") or {}).items():
        prefix, slash, last = key.rpartition("/")
        if len(last) > 63 or not QUALIFIED.match(last) or (slash and not SUBDOMAIN.match(prefix)):
            causes.append(invalid_value("metadata.labels", key, KEY_RULE))
        causes += label_value("metadata.labels", str(value))
    annotations = metadata.get("annotations") or {}
    size = sum(len(key) + len(str(value)) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        causes.append(
            Cause("FieldValueTooLong", f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes", "metadata.annotations")
        )
    causes += [
        invalid_value("metadata.annotations", key, KEY_RULE) for key in annotations if not QUALIFIED.match(key.rpartition("/")[2])
    ]
    for owner in metadata.get("ownerReferences") or ():
        causes += [
            invalid_value(
                f"metadata.ownerReferences.{field}", "", f"{'version ' if field == 'apiVersion' else ''}must not be empty"
            )
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    return causes + _check_finalizers(metadata.get("finalizers") or ())


def _check_finalizers(finalizers: Iterable[str]) -> list[Cause]:
    causes: list[Cause] = []
    for index, finalizer in enumerate(finalizers):
        place = f"metadata.finalizers[{index}]"
        prefix, slash, last = finalizer.rpartition("/")
        if not QUALIFIED.match(last) or (slash and not SUBDOMAIN.match(prefix)):
            causes.append(invalid_value(place, finalizer, KEY_RULE))
        elif not slash and finalizer not in _FINALIZERS:
            causes.append(invalid_value(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


def read_quantities(resource: Resource, obj: Any) -> None:
    """Every quantity of the known places can be read. Raises `StatusError`, as Go's decoder does."""
    if resource.group == DEVICES:
        device_defaults.read_quantities(resource, obj)
        return
    if not _all_read(obj):
        detail = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise unhandled(resource.api_version, resource.kind, resource.kind, detail)


def _all_read(obj: Any) -> bool:
    if isinstance(obj, list):
        return all(_all_read(each) for each in obj)
    if not isinstance(obj, dict):
        return True
    for name, value in obj.items():
        if name in ("requests", "limits", "capacity", "allocatable", "overhead", "hard") and isinstance(value, dict):
            if not all(_readable(amount) for amount in value.values()):
                return False
        elif isinstance(value, (dict, list)) and not _all_read(value):
            return False
    return True


@lru_cache(maxsize=4096)
def _parses(text: str) -> bool:
    try:
        quantity.parse(text)
    except QuantityError as error:
        return error.too_large or text.startswith("-")
    return True


def _readable(amount: object) -> bool:
    return isinstance(amount, (str, int, float)) and not isinstance(amount, bool) and _parses(str(amount))


def check_node(obj: Object) -> list[Cause]:
    """The rules on taints and amounts."""
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        place, key, effect = f"metadata.taints[{index}]", taint.get("key", ""), taint.get("effect")
        causes += qualified(f"{place}.key", key)
        causes += check_effect(f"{place}.effect", effect) if effect else [required(f"{place}.effect")]
        if (key, effect) in seen:
            causes.append(duplicate_taint(place, taint))
        seen.add((key, effect))
    for kind in ("capacity", "allocatable"):
        for resource, amount in ((obj.get("status") or {}).get(kind) or {}).items():
            causes += check_amount(f"status.{kind}.{resource}", resource, amount)
    return causes


def duplicate_taint(place: str, taint: Object) -> Cause:
    """Two taints of one key and one effect."""
    shown = {"Key": taint.get("key", ""), "Value": taint.get("value", ""), "Effect": taint.get("effect", ""), "TimeAdded": None}
    detail = f"Duplicate value: {msgspec.json.encode(shown).decode()}: taints must be unique by key and effect pair"
    return Cause("FieldValueDuplicate", detail, place)


def check_priority_class(obj: Object) -> list[Cause]:
    """Values above a thousand million are the system's."""
    if obj.get("value", 0) > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-"):
        return [forbidden_field("value", "maximum allowed value of a user defined priority is 1000000000")]
    return []


def check_priority_class_update(old: Object, new: Object) -> list[Cause]:
    """Its value stays."""
    if old.get("value") != new.get("value"):
        return [forbidden_field("value", "may not be changed in an update.")]
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
        detail = f'Unsupported value: "{template.get("restartPolicy", "")}": supported values: "OnFailure", "Never"'
        causes.append(Cause("FieldValueNotSupported", detail, "spec.template.spec.restartPolicy"))
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
        detail = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("FieldValueNotSupported", detail, "spec.scope"))
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
    except Exception as error:  # noqa: BLE001 - any error in a schema is the answer
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
    return [forbidden_field(field, "field is immutable when `immutable` is set") for field in fields]


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
    CLAIMS: device_rules.check_claim,
    TEMPLATES: device_rules.check_template,
    DEVICE_CLASSES: slice_rules.check_class,
    SLICES: slice_rules.check_slice,
}
_IMMUTABLE = {CLAIMS, TEMPLATES}
"""Tables whose specs stay: a new version of one is only compared with the present one."""
UPDATE_CHECKS: dict[str, CheckUpdate] = {
    "configmaps": check_immutable,
    "secrets": check_immutable,
    "pods": check_pod_update,
    "scheduling.k8s.io/priorityclasses": check_priority_class_update,
    CLAIMS: device_rules.check_claim_update,
    TEMPLATES: device_rules.check_template_update,
    SLICES: slice_rules.check_slice_update,
}


def validate(
    resource: Resource, obj: Object, before: Object | None, *, known: bool = False, causes: Iterable[Cause] = ()
) -> None:
    """Raises `StatusError` 422. before: the version that it replaces; known: its spec was valid before; causes: found already."""
    causes = [*causes, *check_metadata(resource, obj)]
    stays = before is not None and resource.table in _IMMUTABLE
    check = None if known or stays else CHECKS.get(resource.table)
    if check is not None and (before is None or "spec" not in obj or before.get("spec") != obj["spec"]):
        causes += check(obj)
    update_check = UPDATE_CHECKS.get(resource.table)
    if before is not None and update_check is not None:
        causes += update_check(before, obj)
    if causes:
        raise invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), causes)
