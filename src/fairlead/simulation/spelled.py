"""Whether a manifest is spelled as its kind has it: apiVersion, and every field. What the API server would drop is an error here.

A misspelled field is left out when an object is read, so the answer would be of another object.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from lightkube.models.core_v1 import PodTemplateSpec

from fairlead.api import crds
from fairlead.cluster.simulated import schema
from fairlead.cluster.simulated.resources import Catalog, Resource

_MOST_SHOWN = 20


class Misspelled(ValueError):
    """A manifest with an apiVersion or a field that its kind does not have."""


def check(manifest: dict[str, Any]) -> None:
    """Raises `Misspelled`. An apiVersion that is not given is taken to be right."""
    kind, version = str(manifest.get("kind")), manifest.get("apiVersion")
    name = (manifest.get("metadata") or {}).get("name")
    served = _served().get(kind)
    if served is None:
        return
    if version is None or version == "":
        resource = next(iter(served.values()))
    elif isinstance(version, str) and version in served:
        resource = served[version]
    else:
        raise Misspelled(f"{kind} {name!r}: apiVersion {version!r} has no such kind, write {' or '.join(sorted(served))}")
    found = _unknown(_tree(resource.api_version, kind), manifest, "")
    for path, known in itertools.chain(found, _in_templates(manifest) if kind == "AIJob" else ()):
        raise Misspelled(f"{kind} {name!r}: unknown field {path!r}{_instead(path, known)}")


def check_rules(manifest: dict[str, Any]) -> None:
    """The rules of one of Fairlead's kinds, for a manifest that can be read. Raises `Misspelled` for what breaks one."""
    kind = str(manifest.get("kind"))
    resource = next(iter(_served()[kind].values()), None) if kind in _served() else None
    if resource is not None and resource.schema is not None:
        for cause in _validator(kind).causes(manifest):
            name = (manifest.get("metadata") or {}).get("name")
            raise Misspelled(f"{kind} {name!r}: {cause.line}")


def _instead(path: str, known: list[str]) -> str:
    """What is there instead of a field."""
    field = path.rpartition(".")[2]
    close = get_close_matches(field, known, 1) or [each for each in known if each.lower() == field.lower()]
    if close:
        return f"; it is {close[0]!r} there"
    return f"; known there: {', '.join(known[:_MOST_SHOWN])}{', ...' * (len(known) > _MOST_SHOWN)}"


def _in_templates(manifest: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The same of the pod templates of an AIJob, which its own schema leaves open."""
    spec = manifest.get("spec")
    roles = spec.get("roles") if isinstance(spec, dict) else None
    for index, role in enumerate(roles if isinstance(roles, list) else ()):
        if isinstance(role, dict):
            yield from _unknown(schema.of_model(PodTemplateSpec), role.get("template"), f"spec.roles[{index}].template")


def _unknown(node: schema.Node, value: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """(path, the fields that there are) of each that a tree does not have. What is of another type is left to who reads it."""
    if isinstance(value, list) and node.item is not None:
        for index, each in enumerate(value):
            yield from _unknown(node.item, each, f"{path}[{index}]")
    elif isinstance(value, dict) and node.kind == "map" and node.item is not None:
        for name, each in value.items():
            yield from _unknown(node.item, each, f"{path}.{name}")
    elif isinstance(value, dict) and node.kind == "object" and not node.preserve:
        for name, each in value.items():
            child = node.children.get(name)
            if child is None:
                yield f"{path}.{name}".lstrip("."), sorted(node.children)
            else:
                yield from _unknown(child, each, f"{path}.{name}")


@cache
def _catalog() -> Catalog:
    found = Catalog()
    for definition in crds.definitions():
        found.define(definition)
    return found


@cache
def _served() -> dict[str, dict[str, Resource]]:
    """Kind -> apiVersion -> what is served."""
    found: dict[str, dict[str, Resource]] = {}
    for resource in _catalog():
        found.setdefault(resource.kind, {})[resource.api_version] = resource
    return found


@cache
def _validator(kind: str) -> schema.Validator:
    return schema.Validator(next(iter(_served()[kind].values())).schema or {})


@cache
def _tree(version: str, kind: str) -> schema.Node:
    resource = _served()[kind][version]
    if resource.schema is not None:
        return schema.of_schema(resource.schema, root=True)
    return schema.of_model(resource.model) if resource.model is not None else schema.Node("any")
