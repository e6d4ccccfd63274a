"""What a path names: a resource, a discovery document, or a page beside them."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cluster.simulated import openapi
from fairlead.cluster.simulated.messages import Reply
from fairlead.cluster.simulated.resources import Catalog, Resource

_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "simulated",
}


class Target(msgspec.Struct, frozen=True):
    """What a path names."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


def target(catalog: Catalog, parts: list[str]) -> Target | None:
    """The resource, or the object of one, that a path names. parts: of the path."""
    if parts[0] == "api":
        version, rest = parts[1], parts[2:]
    else:
        version, rest = "/".join(parts[1:3]), parts[3:]
    if not rest:
        return None
    find = catalog.find
    if rest[0] == "namespaces" and len(rest) >= 3:
        resource = find(version, rest[2])
        if resource is not None and resource.namespaced:
            return _named(resource, rest[1], rest[3:])
    resource = find(version, rest[0])
    if resource is None:
        return None
    if resource.namespaced:
        return Target(resource, None, "", "") if len(rest) == 1 else None
    return _named(resource, "", rest[1:])


def _named(resource: Resource, namespace: str, rest: list[str]) -> Target | None:
    if len(rest) > 2 or (len(rest) == 2 and rest[1] not in resource.subresources):
        return None
    return Target(resource, namespace, rest[0] if rest else "", rest[1] if len(rest) == 2 else "")


def discovery(catalog: Catalog, parts: list[str]) -> dict[str, Any] | None:
    """The discovery document that a path names."""
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": catalog.groups()}
    if parts == ["api", "v1"]:
        listed = catalog.resource_list("v1") or {}
        return {name: value for name, value in listed.items() if name != "apiVersion"}  # older than that field
    if parts[0] == "apis" and len(parts) == 2:
        return catalog.group(parts[1])
    if parts[0] == "apis" and len(parts) == 3:
        return catalog.resource_list("/".join(parts[1:]))
    return None


def elsewhere(catalog: Catalog, parts: list[str]) -> Reply:
    """What lies beside the resources: health, version, OpenAPI."""
    path = "/".join(parts)
    if path.removesuffix("/ping") in ("healthz", "livez", "readyz"):
        return Reply(200, b"ok", "text/plain; charset=utf-8")
    if path == "version":
        return Reply(200, msgspec.json.encode(_VERSION))
    if path == "":
        listed = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
        return Reply(200, msgspec.json.encode({"paths": listed}))
    if path == "openapi/v3":
        return Reply(200, msgspec.json.encode(openapi.index(catalog)))
    if parts[:2] == ["openapi", "v3"]:
        document = openapi.document(catalog, "/".join(parts[3:]))
        if document is not None:
            return Reply(200, msgspec.json.encode(document))
    return no_page()


def no_page() -> Reply:
    """There is nothing of that name."""
    return Reply(404, b"404 page not found\n", "text/plain; charset=utf-8")
