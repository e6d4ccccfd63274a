"""Whether Kubernetes' ResourceQuotas and LimitRanges admit pods that are not made yet, as the API server's admission decides.

The rules are those of kube-apiserver's plugins `ResourceQuota` and `LimitRanger` for pods (`pkg/quota/v1/evaluator/core/pods.go`,
`plugin/pkg/admission/limitranger`). Pods are manifests; amounts are exact, in the unit in which the quota gives them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster import views

Manifest = Mapping[str, Any]
Amounts = dict[str, Fraction]

COUNT = "count/pods"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_EXPLICIT = frozenset(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""Where a quota counts one of these, each container must give it."""
_POD_LEVEL = ("cpu", "memory")


class ScopeTerm(msgspec.Struct, rename="camel"):
    """One term of a quota's scope selector."""

    scope_name: str = ""
    operator: str = "Exists"
    values: list[str] | None = None


class ScopeSelector(msgspec.Struct, rename="camel"):
    """All of its terms hold."""

    match_expressions: list[ScopeTerm] | None = None


class QuotaSpec(msgspec.Struct, rename="camel"):
    """Which pods a quota is for. What it allows counts once it stands in its status."""

    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(msgspec.Struct):
    """What a quota allows, and how much of it is used."""

    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class Quota(msgspec.Struct):
    """A ResourceQuota."""

    metadata: views.Metadata
    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)
    status: QuotaStatus = msgspec.field(default_factory=QuotaStatus)


class LimitItem(msgspec.Struct, rename="camel"):
    """The limits of a LimitRange for containers, or for pods."""

    type: str = ""
    max: dict[str, str] | None = None
    min: dict[str, str] | None = None
    default: dict[str, str] | None = None
    default_request: dict[str, str] | None = None
    max_limit_request_ratio: dict[str, str] | None = None


class LimitSpec(msgspec.Struct):
    """Its rules."""

    limits: list[LimitItem] | None = None


class LimitRange(msgspec.Struct):
    """A LimitRange."""

    metadata: views.Metadata
    spec: LimitSpec = msgspec.field(default_factory=LimitSpec)


class Refusal(msgspec.Struct, frozen=True):
    """Why pods are not made. reason: `ResourceQuota` or `LimitRange`; for_good: it helps nothing that others end."""

    reason: str
    message: str
    for_good: bool = False


Held = dict[tuple[str, str], Fraction]
"""What is to be counted as used besides: (quota, resource) -> amount."""


def refused(
    pods: Sequence[tuple[Manifest, int]],
    quotas: Iterable[Quota],
    ranges: Iterable[LimitRange],
    held: Held,
    *,
    default_class: str = "",
) -> Refusal | None:
    """Why the API server would not admit all of these pods of one namespace; None: it would, and they are held from now on.

    pods: each with how many there are of its kind.
    default_class: the PriorityClass of pods that name none. Amounts that cannot be read are the API server's to refuse.
    """
    try:
        return _refused(pods, list(quotas), list(ranges), held, default_class)
    except (QuantityError, TypeError, AttributeError, ValueError):
        return None


def _refused(
    pods: Sequence[tuple[Manifest, int]], quotas: list[Quota], ranges: list[LimitRange], held: Held, default_class: str
) -> Refusal | None:
    wanted: Held = {}
    number: dict[str, int] = {}
    for given, count in pods:
        pod = defaulted(given, ranges, default_class)
        wrong = next(((each, why) for each in ranges if (why := beyond(pod, each))), None)
        if wrong is not None:
            where = f"LimitRange {wrong[0].metadata.name} in namespace {wrong[0].metadata.namespace}"
            return Refusal("LimitRange", f"{where}: {wrong[1]}: change the job's requests and limits", for_good=True)
        asked = usage(pod)
        for quota in quotas:
            if not is_for(quota, pod):
                continue
            if missing := unset(pod, quota):
                message = f"{_named(quota)}: it requires {missing}: set it in the job's containers, or by a LimitRange"
                return Refusal("ResourceQuota", message, for_good=True)
            number[quota.metadata.name] = number.get(quota.metadata.name, 0) + count
            for name in quota.status.hard or {}:
                if name in asked:
                    key = (quota.metadata.name, name)
                    wanted[key] = wanted.get(key, Fraction(0)) + asked[name] * count
    refusal = _beyond_quotas(quotas, wanted, held, number)
    if refusal is None:
        for key, amount in wanted.items():
            held[key] = held.get(key, Fraction(0)) + amount
    return refusal


def _beyond_quotas(quotas: list[Quota], wanted: Held, held: Held, number: dict[str, int]) -> Refusal | None:
    """The first quota that has less left than is wanted. number: quota -> pods that count in it."""
    for quota in sorted(quotas, key=lambda each: each.metadata.name):
        hard, used = quota.status.hard or {}, quota.status.used or {}
        for name in sorted(hard):
            key = (quota.metadata.name, name)
            if key not in wanted:
                continue
            most, taken = quantity.parse(hard[name]), signed(used.get(name, "0")) + held.get(key, Fraction(0))
            if taken + wanted[key] > most:
                return _short(quota, name, wanted[key], most, taken, number[quota.metadata.name])
    return None


def _short(quota: Quota, name: str, wanted: Fraction, most: Fraction, taken: Fraction, pods: int) -> Refusal:
    who = "its pod needs" if pods == 1 else f"its {pods} pods need"
    left = show(name, max(Fraction(0), most - taken))
    message = f"{_named(quota)}: {who} {show(name, wanted)} {name}, {left} of {show(name, most)} are left"
    if wanted > most:
        return Refusal(
            "ResourceQuota", f"{message}: the quota never allows this: request less, or raise the quota", for_good=True
        )
    return Refusal("ResourceQuota", f"{message} ({show(name, taken)} are used)")


def _named(quota: Quota) -> str:
    return f"ResourceQuota {quota.metadata.name} in namespace {quota.metadata.namespace}"


def show(name: str, amount: Fraction) -> str:
    """An amount as a quota gives it."""
    kind = name.removeprefix("requests.").removeprefix("limits.")
    if kind == "memory" or kind.endswith("storage") or kind.startswith("hugepages-"):
        return quantity.show("memory", int(amount))
    return f"{float(amount):g}"


def signed(text: str) -> Fraction:
    """An amount that may be below 0, as what is used may be. Raises `QuantityError`."""
    return quantity.parse(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)


# -- what a pod is once it is admitted ------------------------------------------------------------


def defaulted(pod: Manifest, ranges: Iterable[LimitRange] = (), default_class: str = "") -> dict[str, Any]:
    """A pod as the API server takes it: requests that are its limits, the defaults of LimitRanges, its PriorityClass."""
    made = copy.deepcopy(dict(pod))
    spec = made["spec"]
    for container in _containers(spec):
        resources = container["resources"] = dict(container.get("resources") or {})
        resources["requests"] = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        resources["limits"] = dict(resources.get("limits") or {})
    whole = spec.get("resources")
    if whole:
        asked = {name for each in _containers(spec) for name in each["resources"]["requests"]}
        limits = {name: text for name, text in (whole.get("limits") or {}).items() if name not in asked}
        spec["resources"] = {**whole, "requests": {**limits, **(whole.get("requests") or {})}}
    for item in _items(ranges, "Container"):
        for container in _containers(spec):
            for part, given in (("limits", item.default), ("requests", item.default_request)):
                container["resources"][part] = {**(given or {}), **container["resources"][part]}
    if default_class and not spec.get("priorityClassName"):
        spec["priorityClassName"] = default_class
    return made


def _containers(spec: Manifest) -> list[dict[str, Any]]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _items(ranges: Iterable[LimitRange], kind: str) -> list[LimitItem]:
    return [item for each in ranges for item in each.spec.limits or () if item.type == kind]


# -- LimitRanges ----------------------------------------------------------------------------------


def beyond(pod: Manifest, given: LimitRange) -> str:
    """What a LimitRange has against a pod with its defaults; empty: nothing."""
    for item in given.spec.limits or ():
        if item.type == "Container":
            parts = [
                (
                    f"container {each.get('name', '')}",
                    _amounts(each["resources"]["requests"]),
                    _amounts(each["resources"]["limits"]),
                )
                for each in _containers(pod["spec"])
            ]
        elif item.type == "Pod":
            parts = [("the pod", totals(pod, "requests", overhead=False), totals(pod, "limits", overhead=False))]
        else:
            continue
        for who, requests, limits in parts:
            if why := _against(item, requests, limits):
                return f"{who}: {why}"
    return ""


def _against(item: LimitItem, requests: Amounts, limits: Amounts) -> str:  # noqa: PLR0911 - the first rule that is broken
    for name, text in sorted((item.min or {}).items()):
        least = quantity.parse(text)
        if name not in requests:
            return f"at least {text} {name} must be requested, and there is no request"
        if requests[name] < least:
            return f"{show(name, requests[name])} {name} are requested, at least {text} are required"
        if name in limits and limits[name] < least:
            return f"its limit of {name} is {show(name, limits[name])}, it must be at least {text}"
    for name, text in sorted((item.max or {}).items()):
        most = quantity.parse(text)
        if name not in limits:
            return f"at most {text} {name} are allowed, and there is no limit"
        if limits[name] > most:
            return f"its limit of {name} is {show(name, limits[name])}, at most {text} are allowed"
        if name in requests and requests[name] > most:
            return f"{show(name, requests[name])} {name} are requested, at most {text} are allowed"
    for name, text in sorted((item.max_limit_request_ratio or {}).items()):
        if not requests.get(name) or not limits.get(name):
            return f"its limit of {name} may be at most {text} times its request, and one of them is missing"
        if limits[name] > requests[name] * quantity.parse(text):
            return f"its limit of {name} is more than {text} times its request"
    return ""


# -- what a pod uses ------------------------------------------------------------------------------


def usage(pod: Manifest) -> Amounts:
    """What a pod with its defaults uses of quotas, by all the names under which they may speak of it."""
    return {COUNT: Fraction(1), **_names(totals(pod, "requests"), totals(pod, "limits"))}


def _names(requests: Amounts, limits: Amounts) -> Amounts:
    found: Amounts = {"pods": Fraction(1)}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            found[name] = found[f"requests.{name}"] = amount
        elif _is_extended(name):
            found[f"requests.{name}"] = amount
    found |= {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}
    return found


def _is_extended(name: str) -> bool:
    """Whether a name is an extended resource's: with a domain that is not Kubernetes' own."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and "kubernetes.io/" not in name and not domain.startswith("requests.")


def _of_pods(name: str) -> bool:
    """Whether a quota counts pods, or what they ask for, under this name."""
    bare = name.removeprefix("requests.")
    if name in ("pods", COUNT) or bare in _COMPUTE or name.removeprefix("limits.") in _COMPUTE:
        return True
    return bare.startswith("hugepages-") or (bare != name and _is_extended(bare))


def totals(pod: Manifest, part: str, *, overhead: bool = True) -> Amounts:
    """What a pod asks for as a whole. part: `requests` or `limits`."""
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts((container.get("resources") or {}).get(part)))
    sidecars: Amounts = {}
    steps: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _amounts((container.get("resources") or {}).get(part))
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        for name, amount in asked.items():
            steps[name] = max(steps.get(name, amount), amount)
    for name, amount in steps.items():
        total[name] = max(total.get(name, amount), amount)
    whole = _amounts((spec.get("resources") or {}).get(part))
    total |= {name: amount for name, amount in whole.items() if name in _POD_LEVEL or name.startswith("hugepages-")}
    for name, amount in _amounts(spec.get("overhead")).items() if overhead else ():
        if part == "requests" or total.get(name):
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _amounts(given: Mapping[str, Any] | None) -> Amounts:
    return {name: quantity.parse(text) for name, text in (given or {}).items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def is_for(quota: Quota, pod: Manifest) -> bool:
    """Whether a quota counts anything of a pod."""
    counts = any(_of_pods(name) for name in quota.status.hard or {})
    return counts and all(_in_scope(pod, term) for term in _terms(quota))


def unset(pod: Manifest, quota: Quota) -> str:
    """The amounts that a quota wants each container of a pod to give and some do not; empty: none."""
    counted = set(quota.status.hard or {})
    if (
        not is_for(quota, pod)
        or (pod["spec"].get("resources") or {}).get("requests")
        or (pod["spec"].get("resources") or {}).get("limits")
    ):
        return ""
    missing: dict[str, list[str]] = {}
    for container in _containers(pod["spec"]):
        resources = container.get("resources") or {}
        given = _names(_amounts(resources.get("requests")), _amounts(resources.get("limits")))
        for name in (counted & _EXPLICIT) - given.keys():
            missing.setdefault(name, []).append(str(container.get("name", "")))
    return "; ".join(f"{name} for {', '.join(sorted(who))}" for name, who in sorted(missing.items()))


# -- scopes ---------------------------------------------------------------------------------------


def _terms(quota: Quota) -> list[ScopeTerm]:
    selector = quota.spec.scope_selector
    return [*(ScopeTerm(each) for each in quota.spec.scopes or ()), *((selector.match_expressions or ()) if selector else ())]


def _in_scope(pod: Manifest, term: ScopeTerm) -> bool:  # noqa: PLR0911 - a scope each
    spec = pod["spec"]
    if term.scope_name == "Terminating":
        return spec.get("activeDeadlineSeconds") is not None
    if term.scope_name == "NotTerminating":
        return spec.get("activeDeadlineSeconds") is None
    if term.scope_name == "BestEffort":
        return _is_best_effort(spec)
    if term.scope_name == "NotBestEffort":
        return not _is_best_effort(spec)
    if term.scope_name == "PriorityClass":
        name = spec.get("priorityClassName") or ""
        if term.operator in ("Exists", "DoesNotExist"):
            return bool(name) is (term.operator == "Exists")
        return (name in (term.values or ())) is (term.operator == "In")
    if term.scope_name == "CrossNamespacePodAffinity":
        return _crosses_namespaces(spec)
    return False


def _is_best_effort(spec: Manifest) -> bool:
    parts = [*_containers(spec), spec]
    given = [(each.get("resources") or {}).get(part) or {} for each in parts for part in ("requests", "limits")]
    return not any(quantity.parse(text) for each in given for name, text in each.items() if name in _POD_LEVEL)


def _crosses_namespaces(spec: Manifest) -> bool:
    affinity = spec.get("affinity") or {}
    terms: list[Mapping[str, Any]] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind) or {}
        terms += given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = given.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each.get("podAffinityTerm") or {} for each in preferred]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)
