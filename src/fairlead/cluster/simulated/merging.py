"""JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.simulated.errors import bad_request
from fairlead.cluster.simulated.schema import Node

_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_DELETE_PRIMITIVE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch: objects are merged, null deletes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target: Any, patch: Any, node: Node | None) -> Any:
    """Strategic merge: as a merge patch, but lists with a merge key are merged item by item.

    Directives `$patch: delete | replace | merge`, `$retainKeys`, `$deleteFromPrimitiveList/...` and
    `$setElementOrder/...` are understood. Raises `StatusError` for an item without its key.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get(_DIRECTIVE) == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if isinstance(retained := patch.get(_RETAIN), list):
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name in (_DIRECTIVE, _RETAIN) or name.startswith(_ORDER):
            continue
        if name.startswith(_DELETE_PRIMITIVE):
            field = name.removeprefix(_DELETE_PRIMITIVE)
            result[field] = [each for each in result.get(field, []) if each not in value]
            if not result[field]:
                del result[field]
            continue
        child = _child(node, name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _lists(result.get(name), value, child, patch.get(_ORDER + name))
        elif isinstance(value, dict):
            result[name] = strategic(result.get(name), value, child)
        else:
            result[name] = value
    return result


def _child(node: Node | None, name: str) -> Node | None:
    if node is None:
        return None
    return node.item if node.kind == "map" else node.children.get(name)


def _lists(target: Any, patch: list[Any], node: Node | None, order: Any) -> list[Any]:
    key = node.merge_key if node is not None else ""
    present = list(target) if isinstance(target, list) else []
    if node is not None and node.is_set:
        return present + [each for each in patch if each not in present]
    if not key or not all(isinstance(each, dict) for each in patch):
        return [each for each in patch if not (isinstance(each, dict) and _DIRECTIVE in each and len(each) == 1)]
    if any(each.get(_DIRECTIVE) == "replace" for each in patch):
        return [each for each in patch if _DIRECTIVE not in each]
    item = node.item if node is not None else None
    for each in patch:
        if key not in each:
            raise bad_request(f"map: {each} does not contain declared merge key: {key}")
        where = next((index for index, found in enumerate(present) if found.get(key) == each[key]), None)
        if each.get(_DIRECTIVE) == "delete":
            if where is not None:
                del present[where]
        elif where is None:
            present.append(strategic({}, each, item))
        else:
            present[where] = strategic(present[where], each, item)
    if isinstance(order, list):
        places = {each.get(key) if isinstance(each, dict) else each: index for index, each in enumerate(order)}
        present.sort(key=lambda found: places.get(found.get(key), len(places)))
    return present
