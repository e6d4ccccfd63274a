"""Values in objects of `resource.k8s.io`: names, quantities, attributes, request policies, taints; and what is wrong with them.

The rules are those of kube-apiserver 1.36 (`pkg/apis/resource/validation`), with its wording.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from fairlead.api import quantity
from fairlead.cluster.simulated.errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from fairlead.cluster.simulated.formats import LABEL, LABEL_RULE, SUBDOMAIN, SUBDOMAIN_RULE, label_value, qualified
from fairlead.cluster.simulated.store import Object

MOST_PARAMETERS = 10 * 1024
_DRIVER, _IDENTIFIER, _VALUE, _POOL, _SHORT = 63, 32, 64, 253, 63
_MOST_VALID_VALUES = 10
_IDENTIFIERS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_RULE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_NUMBER, _PART = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", flags=re.ASCII
)
_SUFFIXES = tuple("numkKMGTPE")
_ENORMOUS = Fraction(10**80)
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or "
    "'_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
    "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_LONGEST_REASON, _LONGEST_MESSAGE = 1 << 10, 32 << 10
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_TYPES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


def too_many(place: str, count: int, most: int) -> Cause:
    """A list with too many items."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} items", place)


def too_long(place: str, most: int) -> Cause:
    """A text with too many bytes."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", place)


def nothing(place: str, why: str) -> Cause:
    """A value that is wrong and is not shown."""
    return Cause("FieldValueInvalid", f"Invalid value: null: {why}", place)


def listed(
    items: Iterable[Any] | None,
    place: str,
    most: int,
    check: Callable[[Any, str], list[Cause]],
    key: Callable[[Any], str] | None = None,
) -> list[Cause]:
    """What is wrong with the items of a list. most: so many at most, any number if negative; key: by which items differ."""
    found = list(items or ())
    if 0 <= most < len(found):
        return [too_many(place, len(found), most)]
    causes = [cause for index, each in enumerate(found) for cause in check(each, f"{place}[{index}]")]
    seen: set[str] = set()
    for index, each in enumerate(found):
        name = key(each) if key is not None else str(index)
        if name in seen:
            causes.append(duplicate(f"{place}[{index}]", name))
        seen.add(name)
    return causes


# -- names -------------------------------------------------------------------------------------


def subdomain(place: str, name: str) -> list[Cause]:
    """A name of an object."""
    causes = [] if len(name) <= _POOL else [invalid_value(place, name, f"must be no more than {_POOL} characters")]
    return causes if SUBDOMAIN.match(name) else [*causes, invalid_value(place, name, SUBDOMAIN_RULE)]


def driver_name(place: str, name: str) -> list[Cause]:
    """The name of a driver, which may have upper case."""
    if not name:
        return [required(place)]
    causes = [too_long(place, _DRIVER)] if len(name) > _DRIVER else []
    return causes + subdomain(place, name.lower())


def pool_name(place: str, name: str) -> list[Cause]:
    """The name of a pool: names of objects, with slashes between them."""
    if not name:
        return [required(place)]
    causes = [too_long(place, _POOL)] if len(name) > _POOL else []
    return causes + [cause for part in name.split("/") for cause in subdomain(place, part)]


def qualified_name(place: str, name: str) -> list[Cause]:
    """The name of an attribute or a capacity: an identifier, perhaps behind a domain."""
    domain, slash, short = name.partition("/")
    if not slash:
        return _identifier(place, name)
    if "/" in short:
        return []  # kube-apiserver accepts these
    causes = driver_name(place, domain) if domain else [invalid_value(place, "", "the domain must not be empty")]
    return causes + (_identifier(place, short) if short else [invalid_value(place, "", "the name must not be empty")])


def full_name(place: str, name: str) -> list[Cause]:
    """The name of an attribute with its domain."""
    causes = qualified_name(place, name)
    if "/" not in name:
        causes.append(invalid_value(place, name, "a fully qualified name must be a domain and a name separated by a slash"))
    return causes


def _identifier(place: str, name: str) -> list[Cause]:
    causes = [too_long(place, _IDENTIFIER)] if len(name) > _IDENTIFIER else []
    return causes if _IDENTIFIERS.fullmatch(name) else [*causes, invalid_value(place, name, _IDENTIFIER_RULE)]


def share_id(place: str, text: str) -> list[Cause]:
    """The UID of a share."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        detail = (
            f"error validating uid: invalid UUID length: {len(text)}"
            if len(text) != 36
            else "error validating uid: invalid UUID format"
        )
        return [invalid_value(place, text, detail)]
    if str(parsed) != text:
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        detail = f"uid must be in RFC 4122 normalized form, {form}"
        return [invalid_value(place, text, detail)]
    return []


# -- quantities --------------------------------------------------------------------------------


def number(text: object) -> Fraction:
    """The value of a quantity that the API server has read: it may be negative, and larger than any machine."""
    return _number(str(text))


@lru_cache(maxsize=4096)
def _number(form: str) -> Fraction:
    if form.startswith("-"):
        return -_number(form[1:] or "0") if form[1:2] not in ("-", "+") else quantity.parse(form)
    if form == "+" or form[:1] in _SUFFIXES:  # Go reads no digits as zero
        form = f"0{form.removeprefix('+')}"
    try:
        return quantity.parse(form)
    except quantity.QuantityError as error:
        if error.too_large:
            return _ENORMOUS
        raise


def quantities(obj: Any) -> Iterator[object]:
    """Every quantity in an object of this group: of capacities, counters, policies, requests and consumption."""
    if isinstance(obj, list):
        for each in obj:
            yield from quantities(each)
    elif isinstance(obj, dict):
        for name, value in obj.items():
            if name in ("parameters", "data", "attributes"):
                continue
            if name in ("consumedCapacity", "requests") and isinstance(value, dict):
                yield from value.values()
            elif name in ("capacity", "counters") and isinstance(value, dict):
                for each in value.values():
                    if isinstance(each, dict):
                        yield from _amounts(each)
                        if name == "capacity":
                            yield from each.values() if not {"value", "requestPolicy"} & each.keys() else ()
            else:
                yield from quantities(value)


def _amounts(capacity: Mapping[str, Any]) -> Iterator[object]:
    if "value" in capacity:
        yield capacity["value"]
    policy = capacity.get("requestPolicy")
    if isinstance(policy, dict):
        if policy.get("default") is not None:
            yield policy["default"]
        yield from policy.get("validValues") or ()
        limits = policy.get("validRange")
        yield from limits.values() if isinstance(limits, dict) else ()


# -- what devices have -------------------------------------------------------------------------


def attribute(place: str, value: Object) -> list[Cause]:
    """One value, of one type."""
    given = [name for name in _TYPES if value.get(name) is not None]
    causes: list[Cause] = []
    if "string" in given and len(value["string"].encode()) > _VALUE:
        causes.append(too_long(f"{place}.string", _VALUE))
    if "version" in given:
        if not _VERSION.fullmatch(value["version"]):
            detail = "must be a string compatible with semver.org spec 2.0.0"
            causes.append(invalid_value(f"{place}.version", value["version"], detail))
        if len(value["version"].encode()) > _VALUE:
            causes.append(too_long(f"{place}.version", _VALUE))
    if not given:
        causes.append(invalid_value(place, "", "exactly one value must be specified"))
    elif len(given) > 1:
        causes.append(invalid_value(place, value, "exactly one value must be specified"))
    return causes


def capacity(place: str, value: Object, *, multiple: bool) -> list[Cause]:
    """How much a device has, and how it may be requested. multiple: the device may be allocated several times."""
    policy = value.get("requestPolicy")
    if policy is None:
        return []
    place = f"{place}.requestPolicy"
    if not multiple:
        return [forbidden_field(place, "allowMultipleAllocations must be true")]
    values, limits = policy.get("validValues") or (), policy.get("validRange")
    if values and limits is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(place, detail)]
    kind = "validValues" if values else "validRange"
    if not values and limits is None:
        return []
    if policy.get("default") is None:
        return [required(f"{place}.default", f"required when {kind} is defined")]
    most, default = value.get("value", "0"), policy["default"]
    return (
        _valid_values(f"{place}.{kind}", values, default, most)
        if values
        else _valid_range(f"{place}.{kind}", limits, default, most)
    )


def _valid_values(place: str, values: list[Any], default: object, most: object) -> list[Cause]:
    causes = [
        invalid_value(f"{place}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (before, after) in enumerate(pairwise(values))
        if number(before) > number(after)
    ]

    def check(option: object, at: str) -> list[Cause]:
        if number(option) <= number(most):
            return []
        return [invalid_value(at, str(option), f"option is larger than capacity value: {most}")]

    causes += listed(values, place, _MOST_VALID_VALUES, check, lambda each: str(-(-number(each) // 1)))
    if len(values) > _MOST_VALID_VALUES or number(default) not in [number(each) for each in values]:
        causes.append(invalid_value(place, str(default), "default value is not valid according to the requestPolicy"))
    return causes


def _valid_range(place: str, limits: Object, default: object, most: object) -> list[Cause]:
    low, high, step = limits.get("min"), limits.get("max"), limits.get("step")
    if low is None:
        return [required(f"{place}.min", "required when validRange is defined")]
    causes: list[Cause] = []

    def unless(field: str, value: object, detail: str, *, holds: bool) -> None:
        if not holds:
            causes.append(invalid_value(f"{place}.{field}", str(value), detail))

    unless("min", low, f"min is larger than capacity value: {most}", holds=number(low) <= number(most))
    unless("min", default, f"default is less than min: {low}", holds=number(default) >= number(low))
    if high is not None:
        unless("max", low, f"min is larger than max: {high}", holds=number(low) <= number(high))
        unless("max", high, f"max is larger than capacity value: {most}", holds=number(high) <= number(most))
        unless("max", default, f"default is more than max: {high}", holds=number(default) <= number(high))
    if step is not None and number(step) > 0:
        unless("step", step, f"one step is larger than capacity value: {most}", holds=number(low) + number(step) <= number(most))
        for value in (default, high):
            if value is not None:
                apart = number(value) - number(low)
                unless(
                    "step",
                    value,
                    f"value is not a multiple of a given step ({step}) from ({low})",
                    holds=not apart % number(step),
                )
    return causes


def taint(place: str, value: Object) -> list[Cause]:
    """A taint of a device."""
    causes = qualified(f"{place}.key", value.get("key", ""))
    if value.get("value"):
        causes += label_value(f"{place}.value", value["value"])
    effect = value.get("effect", "")
    if not effect:
        causes.append(required(f"{place}.effect"))
    elif effect not in _EFFECTS:
        causes.append(unsupported(f"{place}.effect", effect, *_EFFECTS))
    return causes


def toleration(place: str, value: Object) -> list[Cause]:
    """A toleration of taints of devices."""
    causes = qualified(f"{place}.key", value["key"]) if value.get("key") else []
    operator = value.get("operator", "")
    if operator == "Exists":
        if value.get("value"):
            causes.append(invalid_value(f"{place}.value", value["value"], "must be empty for operator `Exists`"))
    elif operator == "Equal":
        causes += label_value(f"{place}.value", value.get("value", ""))
    elif not operator:
        causes.append(required(f"{place}.operator"))
    else:
        causes.append(unsupported(f"{place}.operator", operator, "Equal", "Exists"))
    if value.get("effect") and value["effect"] not in _EFFECTS:
        causes.append(unsupported(f"{place}.effect", value["effect"], *_EFFECTS))
    return causes


def conditions(place: str, value: Object) -> list[Cause]:
    """Binding conditions and those of failure: few, none twice, both or neither."""
    causes: list[Cause] = []
    binding, failing = value.get("bindingConditions") or [], value.get("bindingFailureConditions") or []
    for name, found in (("bindingConditions", binding), ("bindingFailureConditions", failing)):
        causes += listed(found, f"{place}.{name}", 4, lambda each, at: qualified(at, each))
        causes += [duplicate(f"{place}.{name}[{at}]", each) for at, each in enumerate(found) if each in found[:at]]
    overlap = "bindingFailureConditions must not overlap with bindingConditions"
    causes += [
        invalid_value(f"{place}.bindingFailureConditions[{at}]", each, overlap)
        for at, each in enumerate(failing)
        if each in binding
    ]
    if failing and not binding:
        causes.append(nothing(f"{place}.bindingConditions", "bindingConditions are required to use bindingFailureConditions"))
    if binding and not failing:
        detail = "bindingFailureConditions are required to use bindingConditions"
        causes.append(nothing(f"{place}.bindingFailureConditions", detail))
    return causes


def condition(place: str, value: Object) -> list[Cause]:
    """A condition that a driver reports of a device."""
    causes = qualified(f"{place}.type", value.get("type", ""))
    if value.get("status") not in ("True", "False", "Unknown"):
        causes.append(unsupported(f"{place}.status", value.get("status", ""), "False", "True", "Unknown"))
    if value.get("observedGeneration", 0) < 0:
        detail = "must be greater than or equal to zero"
        causes.append(invalid_value(f"{place}.observedGeneration", value["observedGeneration"], detail))
    if not value.get("lastTransitionTime"):
        causes.append(required(f"{place}.lastTransitionTime"))
    reason = value.get("reason", "")
    if not reason:
        causes.append(required(f"{place}.reason"))
    elif not _REASON.fullmatch(reason):
        causes.append(invalid_value(f"{place}.reason", reason, _REASON_RULE))
    longest = (("reason", _LONGEST_REASON), ("message", _LONGEST_MESSAGE))
    return causes + [too_long(f"{place}.{field}", most) for field, most in longest if len(value.get(field, "").encode()) > most]


def opaque(place: str, value: Object) -> list[Cause]:
    """A configuration for a driver."""
    configuration = value.get("opaque")
    if configuration is None:
        return [required(f"{place}.opaque")]
    causes = driver_name(f"{place}.opaque.driver", configuration.get("driver", ""))
    return causes + raw(f"{place}.opaque.parameters", configuration.get("parameters"))


def raw(place: str, value: object) -> list[Cause]:
    """An object that only its driver can read."""
    if value is None:
        return [required(place)]
    if len(msgspec.json.encode(value)) > MOST_PARAMETERS:
        return [too_long(place, MOST_PARAMETERS)]
    if not isinstance(value, dict):
        return [invalid_value(place, "<value omitted>", "must be a valid JSON object")]
    return []


def short_name(place: str, name: str) -> list[Cause]:
    """The name of a request, a device or a counter."""
    causes = [] if len(name) <= _SHORT else [invalid_value(place, name, f"must be no more than {_SHORT} characters")]
    return causes if LABEL.match(name) else [*causes, invalid_value(place, name, LABEL_RULE)]


# -- pods --------------------------------------------------------------------------------------


def pod_claims(spec: Object) -> list[Cause]:
    """The claims of a pod, and those that its containers name."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims") or ()):
        place, name = f"spec.resourceClaims[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{place}.name"))
        elif name in names:
            causes.append(duplicate(f"{place}.name", name))
        else:
            causes += short_name(f"{place}.name", name)
            names.add(name)
        sources = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None]
        if len(sources) != 1:
            several = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            none = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid_value(place, claim, several if sources else none))
        causes += [cause for field in sources for cause in subdomain(f"{place}.{field}", claim[field])]
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            found = (container.get("resources") or {}).get("claims") or ()
            causes += _container_claims(f"spec.{field}[{index}].resources.claims", found, names)
    return causes


def _container_claims(place: str, claims: Iterable[Object], names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, each in enumerate(claims):
        at, name, request = f"{place}[{index}]", each.get("name", ""), each.get("request", "")
        if not name:
            causes.append(required(at))
            continue
        if request:
            causes += short_name(f"{at}.request", request)
        key = f"{name}/{request}" if request else name
        if name in seen or (not request and any(other.startswith(f"{name}/") for other in seen)):
            causes.append(duplicate(at, name))
        elif key in seen:
            causes.append(duplicate(at, key))
        seen.add(key)
        if name not in names:
            known = f": {', '.join(sorted(names))}" if names else " which is empty"
            detail = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{known}'
            causes.append(Cause("FieldValueNotFound", detail, at))
    return causes
