"""The CustomResourceDefinition of NodeResourceTopology, as far as it is read."""

from __future__ import annotations

from typing import Any


def definition() -> dict[str, Any]:
    """Cluster-scoped, `topology.node.k8s.io/v1alpha2`, one object for each node."""
    text: dict[str, Any] = {"type": "string"}
    amount: dict[str, Any] = {"anyOf": [{"type": "integer"}, text], "x-kubernetes-int-or-string": True}
    pair = {"type": "object", "properties": {"name": text, "value": text}}
    cost = {"type": "object", "properties": {"name": text, "value": {"type": "integer", "format": "int64"}}}
    resource = {"type": "object", "properties": {"name": text, **dict.fromkeys(("capacity", "allocatable", "available"), amount)}}
    zone = {
        "name": text,
        "type": text,
        "costs": {"type": "array", "items": cost},
        "attributes": {"type": "array", "items": pair},
        "resources": {"type": "array", "items": resource},
    }
    schema = {
        "type": "object",
        "properties": {
            "topologyPolicies": {"type": "array", "items": text},
            "attributes": {"type": "array", "items": pair},
            "zones": {"type": "array", "items": {"type": "object", "properties": zone}},
        },
    }
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    named = {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies", "singular": "noderesourcetopology"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": "topology.node.k8s.io", "names": named, "scope": "Cluster", "versions": [version]},
    }
