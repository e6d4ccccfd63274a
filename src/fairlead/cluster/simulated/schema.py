"""What fields an object may have: one tree of nodes for built-in types and for custom resources.

The tree serves strict decoding (unknown fields, wrong types), merging by list keys (strategic merge
and server-side apply) and field ownership.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import types
import typing
from typing import Any, Union

import jsonschema_rs
import msgspec

from fairlead.cluster.simulated import protobuf
from fairlead.cluster.simulated.errors import Cause, invalid_value, required
from fairlead.cluster.simulated.list_keys import LIST_KEYS, MERGE_KEYS, RAW, SETS


class Node:
    """One place in the tree. kind: object, map, list, leaf or any.

    keys: those that identify the items of a list; is_set: of a list of distinct scalars;
    merge_key: the strategic-merge key. go: the Go name of a leaf's type, for messages.
    """

    __slots__ = ("_lazy", "children", "go", "is_set", "item", "keys", "kind", "merge_key", "name", "preserve", "python")

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name
        self.children: dict[str, Node] = {}
        self.item: Node | None = None
        self.keys: tuple[str, ...] = ()
        self.is_set = False
        self.merge_key = ""
        self.preserve = False
        self.python: tuple[type, ...] = ()
        self.go = ""


_ANY = Node("any")


def _leaf(go: str, *python: type) -> Node:
    node = Node("leaf")
    node.python, node.go = python, go
    return node


_STRING, _INTEGER, _BOOLEAN = _leaf("string", str), _leaf("int64", int), _leaf("bool", bool)
_NUMBER, _EITHER = _leaf("float64", int, float), _leaf("intstr.IntOrString", int, str)
_TIME, _BYTES = _leaf("time.Time", str), _leaf("[]uint8", str)
_QUANTITY = _leaf("resource.Quantity", str, int, float)
_PLAIN = {"quantity.Quantity": _QUANTITY, "int": _INTEGER, "bool": _BOOLEAN}
_MAPS = {"string": _STRING, "bytes": _BYTES}
"""The types of maps' values in protobuf's table; lightkube has none."""


# -- built-in types ----------------------------------------------------------------------------


def of_model(model: type[Any]) -> Node:
    """The tree of a lightkube type, made once."""
    if model in _STARTED:
        return _STARTED[model]
    node = Node("object", model.__name__)
    _STARTED[model] = node  # a type may contain itself
    for field in msgspec.structs.fields(model):
        child = _of_type(field.type)
        place = (model.__name__, field.encode_name)
        child = _ANY if place in RAW else _corrected(child, protobuf.kind_of(_message_of(model), field.encode_name))
        if child.kind == "map":
            child.item = _held_by(model, field.encode_name)
        if child.kind == "list":
            child.keys = LIST_KEYS.get(place, ())
            child.is_set = place in SETS
            if field.encode_name == "conditions" and child.item is not None and "type" in child.item.children:
                child.keys = ("type",)
            child.merge_key = MERGE_KEYS.get(place, child.keys[0] if child.keys else "")
        node.children[field.encode_name] = child
    return node


_STARTED: dict[type[Any], Node] = {}


def _corrected(child: Node, kind: str) -> Node:
    """Lightkube has quantities as strings, and no type for a field that is called as its type is."""
    known = _PLAIN.get(kind)
    place = child.item if child.kind == "list" else child
    if known is None or place is None or (place.kind != "any" and known is not _QUANTITY):
        return child
    if child.kind != "list":
        return known if child.kind in ("any", "leaf") else child
    child.item = known
    return child


def _held_by(model: type[Any], name: str) -> Node:
    """The tree of a map's values: those of a message of the same group have one of their own."""
    held = protobuf.held_by(_message_of(model), name)
    group, _, message = held.rpartition(".")
    found = getattr(sys.modules[model.__module__], message, None)
    if group == _message_of(model).rpartition(".")[0] and isinstance(found, type) and issubclass(found, msgspec.Struct):
        return of_model(found)
    return _MAPS.get(held, _ANY)


def _message_of(model: type[Any]) -> str:
    """What protobuf's table calls a lightkube type."""
    group, _, version = model.__module__.rpartition(".")[2].rpartition("_")
    return f"meta.{model.__name__}" if group == "meta" else f"{group}/{version}.{model.__name__}"


def _of_type(kind: Any) -> Node:
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [each for each in typing.get_args(kind) if each is not type(None)]
        return _EITHER if set(options) == {int, str} else _of_type(options[0])
    if origin in (list, typing.List):  # noqa: UP006
        node = Node("list")
        node.item = _of_type(typing.get_args(kind)[0])
        return node
    if kind is dict or origin is dict:
        node = Node("map")
        node.item = _ANY
        return node
    simple = {str: _STRING, int: _INTEGER, bool: _BOOLEAN, float: _NUMBER, dt.datetime: _TIME}
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return of_model(kind)
    return _ANY


# -- custom resources --------------------------------------------------------------------------


def of_schema(schema: dict[str, Any], *, root: bool = False) -> Node:
    """The tree of a structural schema."""
    if root:
        from lightkube.models.meta_v1 import ObjectMeta

        node = of_schema({**schema, "type": "object"})
        node.children |= {"apiVersion": _STRING, "kind": _STRING, "metadata": of_model(ObjectMeta)}
        return node
    if schema.get("x-kubernetes-int-or-string"):
        return _EITHER
    kind = schema.get("type")
    if kind == "array":
        node = Node("list")
        node.item = of_schema(schema.get("items", {}))
        node.is_set = schema.get("x-kubernetes-list-type") == "set"
        if schema.get("x-kubernetes-list-type") == "map":
            node.keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        return node
    if kind == "object":
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            node = Node("map")
            node.item = of_schema(extra)
            return node
        node = Node("object")
        node.children = {name: of_schema(child) for name, child in schema.get("properties", {}).items()}
        node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        return node
    return {"string": _STRING, "integer": _INTEGER, "boolean": _BOOLEAN, "number": _NUMBER}.get(kind or "", _ANY)


class Defaults(typing.NamedTuple):
    """Where a schema has defaults; all else is left out, since most of it has none."""

    values: dict[str, Any]
    fields: dict[str, Defaults]
    item: Defaults | None

    def filled(self, value: Any) -> Any:
        """The value with defaults filled in; what has none below it is not copied."""
        if isinstance(value, dict):
            result = {**value, **{name: default for name, default in self.values.items() if name not in value}}
            for name, child in self.fields.items():
                if name in result:
                    result[name] = child.filled(result[name])
            return result
        if isinstance(value, list) and self.item is not None:
            return [self.item.filled(item) for item in value]
        return value


def defaults_of(schema: dict[str, Any]) -> Defaults | None:
    """The defaults of a schema; None if there are none."""
    properties, items = schema.get("properties", {}), schema.get("items")
    below = {name: defaults_of(child) for name, child in properties.items()}
    found = Defaults(
        {name: child["default"] for name, child in properties.items() if "default" in child},
        {name: child for name, child in below.items() if child is not None},
        defaults_of(items) if isinstance(items, dict) else None,
    )
    return found if any(found) else None


class Validator:
    """A structural schema's rules, its CEL rules included."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._rules = _rules_of(schema)
        self._validator = jsonschema_rs.validator_for(_plain(schema), validate_formats=True)

    def causes(self, obj: dict[str, Any], live: dict[str, Any] | None = None) -> list[Cause]:
        """Everything that is wrong, as kube-apiserver words it. live: what it replaces; of what is as there, rules hold."""
        found = [_cause(error) for error in self._validator.iter_errors(obj)]
        return found or (list(_broken_rules(self._rules, obj, "", live)) if self._rules is not None else [])


class _Rules(typing.NamedTuple):
    """Where a schema has rules that JSON Schema cannot express: of a value, its fields and its items; all else is left out."""

    rules: tuple[dict[str, Any], ...]
    keys: tuple[str, ...]
    fields: dict[str, _Rules]
    item: _Rules | None


def _rules_of(schema: dict[str, Any]) -> _Rules | None:
    below = {name: _rules_of(child) for name, child in schema.get("properties", {}).items()}
    items = schema.get("items")
    keys = schema.get("x-kubernetes-list-map-keys", ()) if schema.get("x-kubernetes-list-type") == "map" else ()
    found = _Rules(
        tuple(schema.get("x-kubernetes-validations", ())),
        tuple(keys),
        {name: child for name, child in below.items() if child is not None},
        _rules_of(items) if isinstance(items, dict) else None,
    )
    return found if any(found) else None


def _plain(schema: Any) -> Any:
    """JSON Schema proper, from a structural schema."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(value) for name, value in schema.items() if not name.startswith("x-") and name != "default"}
    if plain.get("format") not in ("date-time", None) and isinstance(plain["format"], str):
        del plain["format"]  # of the formats only this one is checked
    if schema.get("x-kubernetes-int-or-string"):
        return {"maximum": _MOST_INT, "minimum": -_MOST_INT, **plain, "type": ["integer", "string"]}
    if plain.get("nullable") and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
    return plain


_MOST_INT = 2**63 - 1
_MOST_TEXT = 300  # of the error of an expression: it may quote the whole object
_JSON_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _cause(error: Any) -> Cause:  # noqa: PLR0911 - a rule each
    path = dotted(error.instance_path)
    kind = error.kind
    rule = type(kind).__name__.rpartition("_")[2]
    value = error.instance
    body = f"{path} in body"
    if rule == "Required":
        return required(f"{path}.{kind.property}".lstrip("."))
    if rule == "Type":
        expected = kind.types[0] if hasattr(kind, "types") and kind.types else "object"
        return Cause(
            "FieldValueTypeInvalid",
            f'Invalid value: "{_JSON_NAMES.get(type(value), "null")}": {body} must be of type {expected}: '
            f'"{_JSON_NAMES.get(type(value), "null")}"',
            path,
        )
    if rule in ("Minimum", "Maximum") and abs(value) > _MOST_INT:
        return Cause("FieldValueTypeInvalid", f'Invalid value: "number": {body} must be of type integer,string: "number"', path)
    if rule == "Minimum":
        return invalid_value(path, value, f"{body} should be greater than or equal to {kind.limit}")
    if rule == "Maximum":
        return invalid_value(path, value, f"{body} should be less than or equal to {kind.limit}")
    if rule == "Pattern":
        return invalid_value(path, value, f"{body} should match '{kind.pattern}'")
    if rule == "Format":
        return invalid_value(path, value, f'{body} must be of type {kind.format}: "{value}"')
    if rule == "MaxItems":
        return Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {kind.limit} items", path)
    if rule == "MinLength":
        return invalid_value(path, value, f"{body} should be at least {kind.limit} chars long")
    if rule == "MaxLength":
        return Cause("FieldValueTooLong", f"Too long: may not be more than {kind.limit} bytes", path)
    if rule == "Enum":
        return Cause("FieldValueNotSupported", f"Unsupported value: {msgspec.json.encode(value).decode()}", path)
    return invalid_value(path, value, error.message)


def _broken_rules(known: _Rules, value: Any, path: str, live: Any = None) -> typing.Iterator[Cause]:
    if live is not None and value == live:
        return
    yield from _broken_here(known, value, path)
    if isinstance(value, dict):
        for name, child in known.fields.items():
            if name in value:
                before = live.get(name) if isinstance(live, dict) else None
                yield from _broken_rules(child, value[name], f"{path}.{name}".lstrip("."), before)
    elif isinstance(value, list):
        seen: list[dict[str, Any]] = []
        for index, item in enumerate(value):
            if known.item is not None:
                yield from _broken_rules(known.item, item, f"{path}[{index}]")
            if known.keys:
                key = {name: item.get(name) for name in known.keys}
                if key in seen:
                    yield Cause(
                        "FieldValueDuplicate", f"Duplicate value: {msgspec.json.encode(key).decode()}", f"{path}[{index}]"
                    )
                seen.append(key)


def _broken_here(known: _Rules, value: Any, path: str) -> typing.Iterator[Cause]:
    """The rules on a value as a whole that it breaks."""
    if not known.rules:
        return
    from fairlead.cluster.simulated.rules import ExpressionError, evaluated

    for rule in known.rules:
        try:
            holds = evaluated(rule["rule"], {"self": value})
        except ExpressionError as error:
            yield invalid_value(path, "object", f"rule evaluation error: {str(error)[:_MOST_TEXT]}")
            continue
        if not holds:
            message = rule.get("message") or f"failed rule: {rule['rule']}"
            yield Cause("FieldValueInvalid", f"Invalid value: {message}", path)


# -- strict decoding ---------------------------------------------------------------------------


class Mistyped(Exception):
    """A value of the wrong type; the message is that of Go's decoder. value: that one; wanted: what Go calls the right type."""

    def __init__(self, message: str, value: Any = None, wanted: str = "", path: str = "") -> None:
        super().__init__(message)
        self.value = value
        self.wanted = wanted
        self.path = path

    @property
    def converting(self) -> str:
        """The message of Go's converter, which reads strategic merge patches."""
        found = _GO_VALUES.get(type(self.value), "")
        if not found:
            return str(self)
        if self.wanted.startswith("map["):
            return f"cannot restore map from {found}"
        if self.wanted.startswith("[]"):
            return f"cannot restore slice from {found}"
        if self.wanted.startswith("v1."):
            return f"cannot restore struct from: {found}"
        if self.wanted == "int64" and found == "string":
            return "unrecognized type: int64"
        return f"cannot convert {found} to {self.wanted}"

    @property
    def typed(self) -> str:
        """The message of server-side apply, which reads objects by their schema."""
        found = self.value
        if self.wanted in ("int64", "float64"):
            detail = f"expected numeric (int or float), got {_GO_TYPES.get(type(found), 'nil')}"
        elif self.wanted == "bool":
            detail = f"expected boolean, got &{{{found}}}"
        elif self.wanted.startswith("[]"):
            detail = f"expected list, got &{{{found}}}"
        elif self.wanted.startswith(("map[", "v1.", "interface")):
            detail = f"expected map, got &{{{found}}}"
        elif self.wanted == "string":
            detail = f"expected string, got &value.valueUnstructured{{Value:{found}}}"
        else:
            detail = str(self)
        return f".{self.path}: {detail}"


_GO_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}", dict: "map[string]interface {}"}
_GO_JSON = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_GO_VALUES = {bool: "bool", int: "int64", float: "float64", str: "string", list: "slice", dict: "map"}
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]|=(?=[^=])")


def decode(  # noqa: C901, PLR0912 - a case for each kind of node; it is called for every value
    node: Node, value: Any, unknown: list[str], path: str = "", known: Any = None, struct: str = ""
) -> Any:
    """The value without nulls and unknown fields; the paths of the latter are added to `unknown`.

    known: what was decoded before; what of it is still there is not decoded again. struct: Go's name of the type that the
    value is a field of. Raises `Mistyped`.
    """
    kind = node.kind
    if kind == "any" or (value is known and value is not None):
        return value
    if kind == "leaf":
        if not isinstance(value, node.python) or (isinstance(value, bool) and bool not in node.python):
            raise _mistyped(node, value, path, struct)
        if node is _TIME:
            _check_time(str(value))
        elif node is _BYTES:
            _check_base64(str(value))
        return value
    if kind == "list":
        if not isinstance(value, list):
            raise _mistyped(node, value, path, struct)
        item = node.item or _ANY
        if item.kind == "any":
            return value
        return [decode(item, each, unknown, f"{path}[{index}]", None, struct) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        raise _mistyped(node, value, path, struct)
    if kind == "map":
        return _decode_map(node.item or _ANY, value, unknown, path, struct)
    result = {}
    before = known if isinstance(known, dict) else {}
    struct = node.name or struct
    for name, each in value.items():
        child = node.children.get(name)
        if child is None:
            if node.preserve:
                result[name] = each
            else:
                unknown.append(f"{path}.{name}".lstrip("."))
        elif each is not None:
            result[name] = decode(child, each, unknown, f"{path}.{name}".lstrip("."), before.get(name), struct)
    return result


def mistyped(node: Node, value: Any) -> bool:
    """Whether a value, or anything in it, is of a wrong type."""
    try:
        decode(node, value, [])
    except Mistyped:
        return True
    return False


def _decode_map(item: Node, value: dict[str, Any], unknown: list[str], path: str, struct: str) -> dict[str, Any]:
    if item is not _STRING:
        given = ((name, each) for name, each in value.items() if each is not None)
        return {name: decode(item, each, unknown, f"{path}.{name}", None, struct) for name, each in given}
    for name, each in value.items():
        if type(each) is not str:
            if each is not None:
                raise _mistyped(item, each, f"{path}.{name}", struct, path)
            return {name: "" if text is None else text for name, text in value.items()}  # Go's empty string
    return dict(value)


def _mistyped(node: Node, value: Any, path: str, struct: str, shown: str = "") -> Mistyped:
    wanted, field = _go(node), re.sub(r"\[\d+\]", "", shown or path)
    found = go_name(value)
    into = f"Go struct field {struct}.{field}" if field else "Go value"
    return Mistyped(f"json: cannot unmarshal {found} into {into} of type {wanted}", value, wanted, path)


def go_name(value: Any) -> str:
    """What Go's JSON decoder calls a value."""
    return _GO_JSON.get(type(value), "null")


def _go(node: Node) -> str:
    """What Go calls a type."""
    if node.kind in ("list", "map"):
        return ("[]" if node.kind == "list" else "map[string]") + _go(node.item or _ANY)
    return node.go or (f"v1.{node.name}" if node.name else "interface {}")


def _check_time(text: str) -> None:
    if not _RFC3339.fullmatch(text):
        layout = "2006-01-02T15:04:05Z07:00"
        raise Mistyped(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')


def _check_base64(text: str) -> None:
    wrong = _NOT_BASE64.search(text)
    if wrong is not None or len(text.replace("\n", "").replace("\r", "")) % 4:
        raise Mistyped(f"illegal base64 data at input byte {wrong.start() if wrong else len(text)}")


def dotted(path: list[str | int]) -> str:
    """`spec.resources[0].name` from its parts."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")
