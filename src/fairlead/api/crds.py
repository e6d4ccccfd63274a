"""CustomResourceDefinitions, generated from the types in `api.kinds`.

msgspec emits JSON Schema with `$ref` and `anyOf: null`, which structural schemas forbid; this
module inlines references, makes optional fields absent ones, and converts unions of string and
integer to `x-kubernetes-int-or-string`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from fairlead.api import names
from fairlead.api.kinds import KINDS
from fairlead.api.kinds.common import Kind
from fairlead.api.kinds.rules import strict
from fairlead.api.kinds.span_rules import span_rules

_KEPT = (
    "type",
    "description",
    "pattern",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "format",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def definitions() -> list[dict[str, Any]]:
    """All CustomResourceDefinitions, as plain objects."""
    return [_definition(kind) for kind in KINDS]


def render(objects: list[dict[str, Any]]) -> str:
    """The objects as one YAML stream."""
    return "---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in objects)


def _definition(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(kind.spec),
            "status": _structural(kind.status),
        },
        "required": ["spec"],
    }
    rules = [*kind.rules, *span_rules(kind.spec)]
    if rules:
        schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "categories": ["fairlead"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    **({"selectableFields": [{"jsonPath": path} for path in kind.selectable]} if kind.selectable else {}),
                    "additionalPrinterColumns": [
                        {"name": name, "type": type_, "jsonPath": path} for name, type_, path in kind.columns
                    ]
                    + [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _structural(struct: type[Any]) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([strict(struct)], ref_template="{name}")
    return _inline(root, components)


def _inline(node: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """One JSON Schema node as a structural one: no `$ref`, no `anyOf`, no null."""
    if "$ref" in node:
        described = {"description": node["description"]} if "description" in node else {}
        return _inline(components[node["$ref"]], components) | described
    if "anyOf" in node:
        branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
        described = {"description": node["description"]} if "description" in node else {}
        if len(branches) == 1:
            return _inline(branches[0], components) | described
        rules = {key: branch[key] for branch in branches for key in _KEPT if key in branch and key not in ("type", "format")}
        return {"x-kubernetes-int-or-string": True} | rules | described
    if isinstance(node.get("type"), list):
        kinds = [kind for kind in node["type"] if kind != "null"]
        return _inline({**node, "type": kinds[0]}, components)
    result = {key: node[key] for key in _KEPT if key in node}
    if result.get("type") == "integer":
        result["format"] = "int64"
    if "properties" in node:
        result["properties"] = {name: _inline(child, components) for name, child in node["properties"].items()}
        if node.get("required"):
            result["required"] = list(node["required"])
    if "items" in node:
        result["items"] = _inline(node["items"], components)
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _inline(node["additionalProperties"], components)
    return result
