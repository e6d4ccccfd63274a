"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch, as the API server reads them."""

from __future__ import annotations

import copy
import re
from typing import Any

import jsonpatch

from fairlead.cluster.simulated.errors import StatusError, bad_request
from fairlead.cluster.simulated.schema import Node, go_name

_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_DELETE_PRIMITIVE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


_LONE_TILDE = re.compile(r"~(?![01])")


def json_patch(target: Any, patch: Any) -> Any:
    """JSON patch, as lax as Go's library. Raises `StatusError`.

    What is replaced need not be there, a value may be missing (it is null then), and a tilde may stand for itself.
    """
    if patch is not None and not isinstance(patch, list):
        raise _undecodable(patch, "Go value of type []handlers.jsonPatchOp")
    result = copy.deepcopy(target)
    for each in patch or ():
        if not isinstance(each, dict):
            raise _undecodable(each, "Go value of type handlers.jsonPatchOp")
        for name in ("op", "path", "from"):
            if not isinstance(each.get(name, ""), str):
                raise _undecodable(each[name], f"Go struct field jsonPatchOp.{name} of type string")
    for each in patch or ():
        step = {"value": None, **each}
        for name in ("path", "from"):
            if name in step:
                step[name] = _LONE_TILDE.sub("~0", step[name])
        try:
            if step.get("op") == "replace":
                pointer = jsonpatch.JsonPointer(step["path"])
                holder, last = pointer.to_last(result)
                if isinstance(holder, dict) and last not in holder:
                    step["op"] = "add"
            result = jsonpatch.apply_patch(result, [step], in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, LookupError, TypeError, ValueError) as error:
            raise StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {}) from error
    return result


def _undecodable(value: Any, into: str) -> StatusError:
    return bad_request(f"error decoding patch: json: cannot unmarshal {go_name(value)} into {into}")


def go_text(value: Any) -> str:
    """A value as Go prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{go_text(each)}' for name, each in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    return {True: "true", False: "false", None: "<nil>"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)


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


def _instead(patch: dict[str, Any]) -> dict[str, Any]:
    """What a patch with the directive `replace` or `delete` leaves."""
    if patch[_DIRECTIVE] == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if patch[_DIRECTIVE] == "delete":
        return {}
    raise StatusError(500, "", f"unknown patch type: {go_text(patch[_DIRECTIVE])} in map: {go_text(patch)}")


def strategic(target: Any, patch: Any, node: Node | None) -> Any:
    """Strategic merge: as a merge patch, but lists with a merge key are merged item by item.

    Directives `$patch: delete | replace | merge`, `$retainKeys`, `$deleteFromPrimitiveList/...` and
    `$setElementOrder/...` are understood. Raises `StatusError` for an item without its key.
    """
    if not isinstance(patch, dict):
        return patch
    if _DIRECTIVE in patch and patch[_DIRECTIVE] != "merge":
        return _instead(patch)
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
            raise StatusError(500, "", f"map: {go_text(each)} does not contain declared merge key: {key}")
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
