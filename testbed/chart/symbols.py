"""Values whose contents are markers: the objects that are made of them show where each value is used.

A value on which the shape of the objects depends is a `Choice`: it is asked for, which ends the attempt, and both alternatives
are tried. So what makes the objects decides by itself on what they depend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from fairlead.api.names import FIRST_RELEASE
from fairlead.install import History, Values, kinds
from fairlead.install.accounts import PROCESSES
from fairlead.install.values import SYSTEM
from testbed.chart.nodes import ABSENT, Choice, merged

Manifest = dict[str, Any]


class Marker(NamedTuple):
    """What a template writes in place of a marker. whole: a pipeline for the value; each: one for a list or a mapping, whose
    elements or entries the marker stands for; some: it is used only where there are some; unit: the text that is repeated with
    each element, where the elements are not those of a list in CEL.
    """

    whole: str = ""
    each: str = ""
    some: bool = False
    unit: str = ""


def _text(name: str) -> str:
    return f"«{name}»"


_NAMESPACE, _REPLICAS, NAME = _text("namespace"), 918_273_600, _text("name")
_REACHED = {process: 918_273_610 + number for number, process in enumerate(PROCESSES)}
_STORAGE, _SECRET, _KEY = _text("storage"), _text("secret"), _text("key")
_IMAGE, _PROMETHEUS, _CONFIGURATION = _text("image"), _text("prometheus"), _text("configuration")
_PULL, _OTHER = _text("pull"), _text("other")
_RUNBOOK, _LABELS = _text("runbook"), _text("labels")
_TRUSTED, _CLASS, _SCHEDULER, _REQUESTS = _text("trusted"), _text("class"), _text("scheduler"), _text("requests")

MARKERS: dict[str | int, Marker] = {
    _NAMESPACE: Marker("$.Release.Namespace"),
    _REPLICAS: Marker("int $.Values.replicas"),
    _IMAGE: Marker("$.Values.image"),
    NAME: Marker("$.Values.name"),
    _OTHER: Marker(each="$.Values.otherSchedulers", some=True),
    _PROMETHEUS: Marker("$.Values.prometheus"),
    _REQUESTS: Marker('include "fairlead.requests" $ | fromJson'),
    _RUNBOOK: Marker("$.Values.monitoring.runbook"),
    _LABELS: Marker(each="$.Values.monitoring.labels"),
    _STORAGE: Marker("$.Values.history.storage"),
    _SECRET: Marker("$.Values.history.secretName"),
    _KEY: Marker('$.Values.history.key | default "url"'),
    _CONFIGURATION: Marker('include "fairlead.configuration" $'),
    _TRUSTED: Marker(each='include "fairlead.trusted" $ | fromJsonArray', unit=f" || request.userInfo.username == '{_TRUSTED}'"),
    _PULL: Marker(each="$.Values.imagePullSecrets", some=True),
    _CLASS: Marker(each="$.Values.provisioningClasses", some=True),
    _SCHEDULER: Marker(each='include "fairlead.schedulers" $ | fromJsonArray'),
    **{number: Marker(each=f'include "fairlead.reached.{process}" $ | fromJsonArray') for process, number in _REACHED.items()},
}
_PLAIN = {
    "image": _IMAGE,
    "name": NAME,
    "requests": {_REQUESTS: _REQUESTS},
    "monitoring.runbook": _RUNBOOK,
    "monitoring.labels": {_LABELS: _LABELS},
}
_CHOICES = {
    "namespace": Choice(f'ne $.Release.Namespace "{SYSTEM}"', _NAMESPACE, SYSTEM, {_NAMESPACE: SYSTEM}),
    "replicas": Choice("gt (int $.Values.replicas) 1", _REPLICAS, 1, {_REPLICAS: 1}),
    "history": Choice(
        "$.Values.history",
        Choice("$.Values.history.storage", History(storage=_STORAGE), History(secret_name=_SECRET, key=_KEY)),
        None,
    ),
    "prometheus": Choice("$.Values.prometheus", _PROMETHEUS, ""),
    "configuration": Choice("$.Values.configuration", {_CONFIGURATION: _CONFIGURATION}, {}),
    "provisioning_classes": Choice("$.Values.provisioningClasses", [_CLASS], []),
    "image_pull_secrets": Choice("$.Values.imagePullSecrets", [_PULL], []),
    "first": Choice(f'eq $.Values.name "{FIRST_RELEASE}"', True, False),
    "other_schedulers": Choice("$.Values.otherSchedulers", [_OTHER], []),
    "crds": Choice("$.Values.crds", True, False),
    "admission_policies": Choice("$.Values.admissionPolicies", True, False),
    "require_scheduler": Choice("$.Values.requireScheduler", True, False),
    "aggregated_api": Choice("$.Values.aggregatedApi", True, False),
    "external_metrics": Choice("$.Values.externalMetrics", True, False),
    "namespace_defaults": Choice("$.Values.namespaceDefaults", True, False),
    "monitoring.service_monitor": Choice("$.Values.monitoring.serviceMonitor", True, False),
    "monitoring.rules": Choice("$.Values.monitoring.rules", True, False),
    "network_policies": Choice("$.Values.networkPolicies", True, False),
}


_SECTIONS = ("monitoring",)


class _Undecided(Exception):
    """A value that was read, and has alternatives."""


class _Symbols:
    """In place of `Values`, or of the section of a name. decided: values by name."""

    def __init__(self, decided: Mapping[str, Any], section: str = "") -> None:
        self._decided, self._section = decided, section

    def __getattr__(self, name: str) -> Any:
        name = f"{self._section}{name}"
        if name in _SECTIONS:
            return _Symbols(self._decided, f"{name}.")
        if name in self._decided:
            return self._decided[name]
        if name in _CHOICES:
            raise _Undecided(name)
        return _PLAIN[name]

    def text(self) -> str:
        return _CONFIGURATION

    def schedulers(self) -> list[str]:
        return [_SCHEDULER]

    def privileged(self) -> list[str]:
        return [_TRUSTED]

    def reached(self, process: str) -> list[int]:
        return [_REACHED[process]]


def objects(part: Callable[[Values], Iterable[Manifest]], finished: Callable[[Manifest], Manifest]) -> dict[str, Any]:
    """Objects of a part of the installation by their paths, as trees; each is `finished` first."""
    return _explored(part, finished, {})


def _explored(
    part: Callable[[Values], Iterable[Manifest]], finished: Callable[[Manifest], Manifest], decided: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        made = [finished(each) for each in part(cast("Values", _Symbols(decided)))]
    except _Undecided as undecided:
        [name] = undecided.args
        return _both(part, finished, {**decided}, name, _CHOICES[name])
    return {kinds.path(each): each for each in made}


def _both(
    part: Callable[[Values], Iterable[Manifest]],
    finished: Callable[[Manifest], Manifest],
    decided: Mapping[str, Any],
    name: str,
    value: Any,
) -> dict[str, Any]:
    """The objects for both alternatives of a value in one."""
    if not isinstance(value, Choice):
        return _explored(part, finished, {**decided, name: value})
    then, other = (_both(part, finished, decided, name, each) for each in (value.then, value.other))
    found = {}
    for path, each in then.items():
        # An object may be where another one is besides it: in the namespace of the leases.
        elsewhere = path if path in other else _moved(path, value.same)
        counterpart = other.pop(elsewhere, ABSENT) if elsewhere == path or elsewhere not in then else ABSENT
        found[path] = merged(value.condition, each, counterpart, value.same)
    return found | {path: merged(value.condition, ABSENT, each, {}) for path, each in other.items()}


def _moved(path: str, same: Mapping[Any, Any]) -> str:
    for marker, text in same.items():
        if isinstance(marker, str):
            path = path.replace(marker, text)
    return path
