"""Kinds of workloads that an administrator describes: which pods are theirs, which start together, how they are suspended.

    workloads:
    - apiVersion: sparkoperator.k8s.io/v1beta2
      kind: SparkApplication
      plural: sparkapplications
      podLabel: sparkoperator.k8s.io/app-name      # on its pods; its value is the object's name
      schedulerNames: [spec.driver.schedulerName]  # the kind's objects that are ours; absent: all are
      gang: {name: "spark.{name}", minMember: [1, "spec.executor.instances|1"]}
      suspend: {path: spec.suspend}

Scheduler, operator and the commands that show things read the same file, so that all see the same gangs. A path leads through
maps by names and through lists by numbers or `*`; what follows `|` holds where it leads nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from fairlead.api.names import fitting

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_MOST_BYTES = 1 << 20

Steps = list[str]


class RulesError(ValueError):
    """A file of rules that cannot be used; the message names the place and the reason."""


class Suspend(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A field that suspends. path: to it, as text or as a list of names; suspended, resumed: its values; null removes it."""

    path: str | Steps
    suspended: bool | str | int = True
    resumed: bool | str | int | None = False


class GangRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Pods that start together. name: of their PodGroup, `{name}` being the object's; min_member: numbers and paths, added up."""

    name: str
    min_member: Annotated[list[int | str], msgspec.Meta(min_length=1)]


class Rule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One kind."""

    api_version: str
    kind: str
    plural: str
    pod_label: str
    gang: GangRule | None = None
    suspend: Suspend | None = None
    scheduler_names: list[str] = []

    def group(self, name: str) -> str:
        """The PodGroup of an object's pods; empty: they are none."""
        return fitting(self.gang.name.replace("{name}", name)) if self.gang is not None else ""

    def needed(self, manifest: Mapping[str, Any]) -> int:
        """How many pods of an object start together."""
        asked = self.gang.min_member if self.gang is not None else []
        return sum(each if isinstance(each, int) else _number(manifest, each) for each in asked)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    workloads: list[Rule]


def load(path: Path) -> tuple[Rule, ...]:
    """Read a file, or all `*.yaml` of a folder. Raises `RulesError`."""
    found = [rule for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path]) for rule in _read(file)]
    for what, names in (
        ("kind", [f"{rule.api_version} {rule.kind}" for rule in found]),
        ("podLabel", [rule.pod_label for rule in found]),
        ("gang.name", [rule.gang.name for rule in found if rule.gang is not None]),
    ):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise RulesError(f"{path}: {what} {twice[0]} occurs twice")
    return tuple(found)


def _read(path: Path) -> list[Rule]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise RulesError(f"{path}: more than 1 MiB")
        found = msgspec.convert(yaml.safe_load(path.read_text()), _File).workloads
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise RulesError(f"{path}: {str(error).splitlines()[0]}") from error
    for rule in found:
        wrong = _wrong(rule)
        if wrong:
            raise RulesError(f"{path}: {rule.kind}: {wrong}")
    return found


def _wrong(rule: Rule) -> str:
    if rule.gang is not None and not _NAME.match(rule.gang.name.replace("{name}", "x")):
        allowed = "use small letters, digits, '-', '.' and {name}"
        return f"gang.name {rule.gang.name!r} does not give a valid object name: {allowed}"
    if rule.gang is not None and "{name}" not in rule.gang.name:
        return f"gang.name {rule.gang.name!r} is the same for all objects: include {{name}}"
    for each in rule.gang.min_member if rule.gang is not None else ():
        _, bar, default = each.partition("|") if isinstance(each, str) else ("", "", "")
        if bar and not default.isdigit():
            return f"gang.minMember {each!r}: the default after | is not a number"
        if isinstance(each, int) and each < 0:
            return f"gang.minMember {each} is below 0"
    if rule.suspend is not None and not all(steps(rule.suspend.path)):
        return f"suspend.path {rule.suspend.path!r} has an empty step"
    return ""


def steps(path: str | Steps) -> Steps:
    """The names on a path."""
    return path.split(".") if isinstance(path, str) else path


def values(manifest: Any, path: Steps) -> Iterator[Any]:
    """What a path leads to: nothing, one thing, or several where it has a `*`."""
    if not path:
        yield manifest
        return
    first, rest = path[0], path[1:]
    if isinstance(manifest, Mapping):
        if first in manifest:
            yield from values(manifest[first], rest)
    elif isinstance(manifest, list):
        if first == "*":
            for each in manifest:
                yield from values(each, rest)
        elif first.isdigit() and int(first) < len(manifest):
            yield from values(manifest[int(first)], rest)


def _number(manifest: Mapping[str, Any], path: str) -> int:
    where, _, default = path.partition("|")
    found = [
        each for each in values(manifest, steps(where)) if isinstance(each, int) and not isinstance(each, bool) and each >= 0
    ]
    return sum(found) if found else int(default or 0)
