"""Label and field selectors, as they stand in query strings and in objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.cluster import label_queries
from fairlead.cluster.label_queries import Labels, Test
from fairlead.cluster.simulated.errors import bad_request

# Fields of each table that may be selected by, besides metadata.name and metadata.namespace.
_FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "resource.k8s.io/resourceslices": frozenset({"spec.nodeName", "spec.driver"}),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "batch/jobs": frozenset({"status.successful"}),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
}
_PLAIN_GROUPS = frozenset({"configmaps", "services", "serviceaccounts", "apps", "batch", "policy", "coordination.k8s.io"})
"""Groups, and tables of the core group, whose objects are selected by nothing but their names."""
_REGARDING = {
    "regarding.kind": "involvedObject.kind",
    "regarding.namespace": "involvedObject.namespace",
    "regarding.name": "involvedObject.name",
    "regarding.uid": "involvedObject.uid",
    "reportingController": "reportingComponent",
}


def labels(text: str) -> Test | None:
    """A label selector from a query string; None if it selects everything. Raises `StatusError`."""
    try:
        return label_queries.parse(text)
    except label_queries.LabelQueryError as error:
        raise bad_request(str(error)) from error


def in_object(selector: Mapping[str, Any] | None) -> Test:
    """A LabelSelector object; none matches nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()

    def test(found: Labels) -> bool:
        return all(found.get(key) == value for key, value in wanted.items()) and all(
            _expression(each, found) for each in expressions
        )

    return test


def _expression(expression: Mapping[str, Any], found: Labels) -> bool:
    key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or ()
    return {
        "In": found.get(key) in values,
        "NotIn": found.get(key) not in values,
        "Exists": key in found,
        "DoesNotExist": key not in found,
    }.get(str(operator), False)


def fields(text: str, table: str, selectable: frozenset[str] = frozenset()) -> Callable[[Mapping[str, Any]], bool] | None:
    """A field selector from a query string. selectable: what a CustomResourceDefinition adds to the fields of its kind.

    Raises `StatusError` for fields that cannot be selected by.
    """
    if not text.strip():
        return None
    wanted: list[tuple[str, str, bool]] = []
    for part in text.split(","):
        path, operator, value = re.split(r"(==|!=|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not operator:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path = _REGARDING.get(path.strip(), path.strip()) if table == "events" else path.strip()
        if path not in ("metadata.name", "metadata.namespace") and path not in selectable and path not in _FIELDS.get(table, ()):
            if table in _FIELDS or table.partition("/")[0] not in _PLAIN_GROUPS:
                raise bad_request(f"field label not supported: {path}")
            raise bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        wanted.append((path, value.strip(), operator != "!="))
    return lambda obj: all((_text(obj, path) == value) is same for path, value, same in wanted)


def _text(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return {"spec.unschedulable": "false", "spec.hostNetwork": "false"}.get(path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
