"""Who set which field: managedFields, and server-side apply on top of them.

A field set is a set of paths; a path is a tuple of parts: `("f", name)`, `("k", ((key, value), ...))`
for an item of a list with keys, `("v", value)` for an item of a set. After the design of
structured-merge-diff as documented by Kubernetes (FieldsV1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.schema import Node

Part = tuple[str, Any]
Path = tuple[Part, ...]
Fields = set[Path]

# Never owned by a manager: the server's own fields, and what identifies the object.
_UNOWNED = {
    (("f", "apiVersion"),),
    (("f", "kind"),),
    (("f", "metadata"),),
    *(
        (("f", "metadata"), ("f", name))
        for name in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        )
    ),
}


def fields_of(value: Any, node: Node | None, path: Path = ()) -> Fields:
    """Every field that an object sets: leaves, list items and empty containers."""
    found: Fields = set()
    _collect(value, node, path, found)
    return {each for each in found if each not in _UNOWNED and each[:2] not in _UNOWNED}


def _collect(value: Any, node: Node | None, path: Path, found: Fields) -> None:
    if isinstance(value, dict) and (node is None or node.kind in ("object", "map", "any")):
        if not value and path:
            found.add(path)
        for name, each in value.items():
            child = None if node is None else node.item if node.kind == "map" else node.children.get(name)
            _collect(each, child, (*path, ("f", name)), found)
    elif isinstance(value, list) and node is not None and node.keys:
        for each in value:
            item = (*path, ("k", _key_of(each, node)))
            found.add(item)
            _collect(each, node.item, item, found)
    elif isinstance(value, list) and node is not None and node.is_set:
        found.update((*path, ("v", each)) for each in value)
    elif path:
        found.add(path)


_DEFAULT_KEYS = {"protocol": "TCP"}


def _key_of(item: Any, node: Node) -> tuple[tuple[str, Any], ...]:
    got = item if isinstance(item, dict) else {}
    return tuple((key, got.get(key, _DEFAULT_KEYS.get(key))) for key in node.keys)


def lookup(value: Any, path: Path, node: Node | None) -> tuple[bool, Any]:
    """(whether it is set, its value)."""
    for kind, part in path:
        if kind == "f":
            if not isinstance(value, dict) or part not in value:
                return False, None
            value = value[part]
            node = None if node is None else node.item if node.kind == "map" else node.children.get(part)
        elif kind == "k":
            if not isinstance(value, list) or node is None:
                return False, None
            value = next((each for each in value if _key_of(each, node) == part), None)
            if value is None:
                return False, None
            node = node.item
        else:
            return (isinstance(value, list) and part in value), part
    return True, value


# -- FieldsV1 ----------------------------------------------------------------------------------


def to_v1(fields: Iterable[Path]) -> dict[str, Any]:
    """The FieldsV1 object."""
    root: dict[str, Any] = {}
    for path in sorted(fields, key=repr):
        here = root
        for kind, part in path:
            name = f"f:{part}" if kind == "f" else f"{kind}:{msgspec.json.encode(dict(part) if kind == 'k' else part).decode()}"
            here = here.setdefault(name, {})
        if path[-1][0] == "k":
            here.setdefault(".", {})
    return root


def from_v1(tree: dict[str, Any], path: Path = ()) -> Fields:
    """The paths of a FieldsV1 object."""
    found: Fields = set()
    for name, below in tree.items():
        if name == ".":
            found.add(path)
            continue
        kind, _, text = name.partition(":")
        part: Part = (kind, text)
        if kind == "k":
            part = (kind, tuple(msgspec.json.decode(text).items()))
        elif kind == "v":
            part = (kind, msgspec.json.decode(text))
        if below:
            found |= from_v1(below, (*path, part))
        else:
            found.add((*path, part))
    return found


Manager = tuple[str, str, str]
"""(name, operation, subresource)."""


def managers_of(obj: dict[str, Any]) -> dict[Manager, Fields]:
    """Who owns what of an object."""
    return {_manager_of(each): set(_parsed(each)) for each in obj["metadata"].get("managedFields") or ()}


def _manager_of(entry: dict[str, Any]) -> Manager:
    return entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")


_PARSED: dict[int, tuple[dict[str, Any], frozenset[Path]]] = {}
"""FieldsV1 objects that were read, by their identity: an entry stays the same object as long as nothing changes in it."""
_MOST_PARSED = 4096


def _parsed(entry: dict[str, Any]) -> frozenset[Path]:
    tree = entry.get("fieldsV1") or {}
    known = _PARSED.get(id(tree))
    if known is not None and known[0] is tree:
        return known[1]
    if len(_PARSED) >= _MOST_PARSED:
        _PARSED.clear()
    fields = frozenset(from_v1(tree))
    _PARSED[id(tree)] = tree, fields
    return fields


def _entry(manager: Manager, fields: Iterable[Path], time: str, api_version: str) -> dict[str, Any]:
    name, operation, subresource = manager
    entry: dict[str, Any] = {"manager": name, "operation": operation, "apiVersion": api_version, "time": time}
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_v1(fields)}
    if subresource:
        entry["subresource"] = subresource
    return entry


def write(obj: dict[str, Any], managers: dict[Manager, Fields], times: dict[Manager, str], api_version: str) -> None:
    """Put the managers into an object's metadata (which must be its own)."""
    entries = [_entry(each, fields, times.get(each, ""), api_version) for each, fields in managers.items() if fields]
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def times_of(obj: dict[str, Any]) -> dict[Manager, str]:
    """When each manager last wrote."""
    return {_manager_of(each): each.get("time", "") for each in obj["metadata"].get("managedFields") or ()}


def changed(before: dict[str, Any], after: dict[str, Any], node: Node) -> tuple[Fields, Fields]:
    """(fields set anew or to another value, fields gone) between two versions."""
    one, two = _differing(before, after)
    old, new = fields_of(one, node), fields_of(two, node)
    moved = {path for path in new if path not in old or lookup(before, path, node)[1] != lookup(after, path, node)[1]}
    # An item of a list is owned with its key; that something inside it moved does not move the item.
    moved = {path for path in moved if path not in old or path[-1][0] != "k"}
    return moved, old - new


def _differing(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of two versions differs, maps field by field and all else as a whole: most of an object stays as it is."""
    one, two = {}, {}
    for name, value in before.items():
        there = after.get(name, _ABSENT)
        if there is value:
            continue
        if there is _ABSENT:
            one[name] = value
        elif isinstance(value, dict) and isinstance(there, dict) and value and there:
            left, right = _differing(value, there)
            if left:
                one[name] = left
            if right:
                two[name] = right
        elif there != value:
            one[name], two[name] = value, there
    two |= {name: value for name, value in after.items() if name not in before}
    return one, two


_ABSENT = object()


def update(
    before: dict[str, Any] | None, after: dict[str, Any], manager: Manager, node: Node, now: str, api_version: str
) -> None:
    """Note in `after` what a create, update or patch by a manager changed."""
    if before is None:
        write(after, {manager: fields_of(after, node)}, {manager: now}, api_version)
        return
    moved, gone = changed(before, after, node)
    written = []
    new = bool(moved)
    for entry in before["metadata"].get("managedFields") or ():
        fields, whose, time = _parsed(entry), _manager_of(entry), entry.get("time", "")
        left = fields - gone
        if whose != manager:
            left -= moved
        elif moved:
            left |= moved
            time, new = now, False
        if left == fields and left:
            written.append(entry if time == entry.get("time", "") else {**entry, "time": time, "apiVersion": api_version})
        elif left:
            written.append(_entry(whose, left, time, api_version))
    if new:
        written.append(_entry(manager, moved, now, api_version))
    if written:
        after["metadata"]["managedFields"] = written
    else:
        after["metadata"].pop("managedFields", None)


# -- server-side apply -------------------------------------------------------------------------


def apply(
    live: dict[str, Any], applied: dict[str, Any], manager: Manager, node: Node, *, force: bool, now: str, api_version: str
) -> Any:
    """The live object with a configuration applied by a manager. Raises `StatusError` on conflicts."""
    managers, times = managers_of(live), times_of(live)
    if not managers:
        managers = {("before-first-apply", "Update", ""): fields_of(live, node)}
        times = dict.fromkeys(managers, now)
    wanted = fields_of(applied, node)
    conflicts: list[tuple[Manager, Path]] = []
    for other, fields in managers.items():
        if other == manager:
            continue
        for path in wanted & fields:
            if path[-1][0] == "k":
                continue
            there, value = lookup(live, path, node)
            if there and value != lookup(applied, path, node)[1]:
                conflicts.append((other, path))
    if conflicts and not force:
        raise _conflict(conflicts, api_version)
    result = _merge(live, applied, node)
    mine = managers.get(manager, set())
    others = set().union(*(fields for other, fields in managers.items() if other != manager))
    for path in sorted(mine - wanted - others, key=len):  # an item goes as a whole, before its key fields
        if not any(each[: len(path)] == path for each in wanted | others):
            result = _without(result, path, node)
    for other, path in conflicts:
        managers[other] = managers[other] - {path}
    before = mine
    managers[manager] = wanted
    if before != wanted or result != live:
        times[manager] = now
    result["metadata"] = dict(result["metadata"])
    write(result, managers, times, api_version)
    return result


def _conflict(conflicts: list[tuple[Manager, Path]], api_version: str) -> StatusError:
    ordered = sorted(conflicts, key=lambda each: (each[0], shown(each[1])))
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{other[0]}"{_using(other, api_version)}',
            "field": shown(path),
        }
        for other, path in ordered
    ]
    names = sorted({other[0] for other, _ in ordered})
    if len(causes) == 1:
        listed = f"{causes[0]['message']}: {causes[0]['field']}"
        message = f"Apply failed with 1 conflict: {listed}"
    else:
        listed = "\n".join(f"- {cause['field']}" for cause in causes)
        detail = " and ".join(f'conflicts with "{name}"' for name in names)
        message = f"Apply failed with {len(causes)} conflicts: {detail}:\n{listed}"
    return StatusError(409, "Conflict", message, {"causes": causes})


def _using(manager: Manager, api_version: str) -> str:
    return f" using {api_version}" if manager[1] == "Update" else ""


def shown(path: Path) -> str:
    """`.spec.containers[name="main"].image`."""
    text = ""
    for kind, part in path:
        if kind == "f":
            text += f".{part}"
        elif kind == "k":
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in part) + "]"
        else:
            text += f"[={msgspec.json.encode(part).decode()}]"
    return text


def _merge(live: Any, applied: Any, node: Node | None) -> Any:
    if isinstance(applied, dict) and isinstance(live, dict):
        result = dict(live)
        for name, value in applied.items():
            child = None if node is None else node.item if node.kind == "map" else node.children.get(name)
            result[name] = _merge(live.get(name), value, child)
        return result
    if isinstance(applied, list) and isinstance(live, list) and node is not None:
        if node.keys:
            keyed = {_key_of(each, node): each for each in live}
            for each in applied:
                key = _key_of(each, node)
                keyed[key] = _merge(keyed.get(key), each, node.item) if key in keyed else each
            return list(keyed.values())
        if node.is_set:
            return live + [each for each in applied if each not in live]
    return applied


def _without(value: Any, path: Path, node: Node | None) -> Any:
    """The value without one field, the containers on the way copied."""
    (kind, part), rest = path[0], path[1:]
    if kind == "f":
        if not isinstance(value, dict) or part not in value:
            return value
        result = dict(value)
        child = None if node is None else node.item if node.kind == "map" else node.children.get(part)
        if rest:
            result[part] = _without(result[part], rest, child)
            if result[part] in ({}, []) and value[part] not in ({}, []):
                del result[part]
        else:
            del result[part]
        return result
    if not isinstance(value, list) or node is None:
        return value
    if kind == "v":
        return [each for each in value if each != part]
    if rest:
        return [_without(each, rest, node.item) if _key_of(each, node) == part else each for each in value]
    return [each for each in value if _key_of(each, node) != part]
