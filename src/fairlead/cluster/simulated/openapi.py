"""OpenAPI v3 documents: enough for `kubectl explain` and for kubectl to see what the server supports."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from lightkube.models.meta_v1 import ObjectMeta

from fairlead.cluster.simulated.resources import Catalog, Resource
from fairlead.cluster.simulated.schema import Node, of_model

_TYPES = {str: "string", int: "integer", bool: "boolean", float: "number"}
_DESCRIPTIONS = {
    "apiVersion": "The version of the schema that the object is written in.",
    "kind": "The kind of resource that the object is.",
}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(catalog: Catalog) -> dict[str, Any]:
    """The document of /openapi/v3."""
    paths = {}
    for version in {resource.api_version for resource in catalog}:
        path = f"apis/{version}" if "/" in version else f"api/{version}"
        digest = hashlib.sha256(
            repr(sorted((each.plural, str(each.schema)) for each in catalog if each.api_version == version)).encode()
        )
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.hexdigest()[:32].upper()}"}
    return {"paths": dict(sorted(paths.items()))}


def document(catalog: Catalog, api_version: str) -> dict[str, Any] | None:
    """The document of one group and version; None if nothing of it is served."""
    found = [resource for resource in catalog if resource.api_version == api_version]
    if not found:
        return None
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in found:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        name = _name(resource)
        body = _custom(resource.schema, schemas) if resource.schema is not None else _built(_tree(resource), schemas)
        schemas[name] = {**body, "x-kubernetes-group-version-kind": [kind]}
        base = f"/apis/{api_version}" if resource.group else f"/api/{api_version}"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        reference = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
        paths[f"{base}{scope}/{resource.plural}"] = {
            "post": {
                "x-kubernetes-action": "post",
                "x-kubernetes-group-version-kind": kind,
                "parameters": _PARAMETERS,
                "requestBody": reference,
                "responses": {"200": {"description": "OK", **reference}},
            }
        }
        paths[f"{base}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "parameters": [*_PARAMETERS, {"name": "force", "in": "query", "schema": {"type": "boolean"}}],
                "responses": {"200": {"description": "OK", **reference}},
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _name(resource: Resource) -> str:
    group = resource.group.removesuffix(".k8s.io") or "core"
    if resource.custom:
        return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def _tree(resource: Resource) -> Node:
    return of_model(resource.model) if resource.model is not None else Node("any")


def _custom(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """A custom resource's schema as it was written, so that its descriptions are shown; its rules in CEL are not published."""
    body: dict[str, Any] = _without_rules(schema)
    known: dict[str, Any] = {name: {"type": "string", "description": description} for name, description in _DESCRIPTIONS.items()}
    known["metadata"] = {"description": "Standard object's metadata.", "allOf": [_reference(of_model(ObjectMeta), schemas)]}
    return {**body, "type": "object", "properties": {**known, **body.get("properties", {}), **known}}


def _without_rules(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _without_rules(each) for name, each in part.items() if name != "x-kubernetes-validations"}
    return [_without_rules(each) for each in part] if isinstance(part, list) else part


def _built(node: Node, schemas: dict[str, Any]) -> dict[str, Any]:
    if node.kind == "leaf":
        if len(node.python) > 1:
            return {"x-kubernetes-int-or-string": True}
        return {"type": _TYPES[node.python[0]]}
    if node.kind == "list":
        built: dict[str, Any] = {"type": "array", "items": _reference(node.item, schemas) if node.item else {}}
        if node.keys:
            built |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(node.keys)}
        elif node.is_set:
            built["x-kubernetes-list-type"] = "set"
        return built
    if node.kind == "map":
        return {"type": "object", "additionalProperties": _reference(node.item, schemas) if node.item else {}}
    if node.kind == "object":
        return {"type": "object", "properties": {name: _reference(child, schemas) for name, child in node.children.items()}}
    return {}


def _reference(node: Node | None, schemas: dict[str, Any]) -> dict[str, Any]:
    if node is None:
        return {}
    if node.kind != "object" or not node.name:
        return _built(node, schemas)
    name = f"io.k8s.types.{node.name}"
    if name not in schemas:
        schemas[name] = {}  # a type may contain itself
        schemas[name] = _built(node, schemas)
    return {"$ref": f"#/components/schemas/{name}"}


def encoded(document_: dict[str, Any]) -> bytes:
    """JSON."""
    return msgspec.json.encode(document_)
