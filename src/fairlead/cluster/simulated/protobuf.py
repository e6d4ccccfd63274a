"""Built-in objects in protobuf, as kubectl's generators and Go's typed clients send them, turned into the form that JSON has.

Answers are never written in it: clients that ask for it accept JSON, too. Numbers of fields stand in `protobuf.txt`,
which `make protobuf` writes. Source of the wire format: https://protobuf.dev/programming-guides/encoding/; of the envelope:
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding; messages with a form of their own: apimachinery.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from struct import unpack
from typing import Any, NamedTuple

import msgspec

from fairlead.cluster.simulated import errors
from fairlead.cluster.simulated.store import Object
from fairlead.cluster.times import timestamp

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KINDLESS = {"DeleteOptions": "meta.DeleteOptions"}
"""Kinds that every group has."""
_EITHER: dict[str, Any] = {"JSONSchemaPropsOrBool": False, "JSONSchemaPropsOrArray": [], "JSONSchemaPropsOrStringArray": []}
"""Messages that are a schema, or else something plain, and what that is if nothing was written."""


class Malformed(ValueError):
    """Bytes that are no object in protobuf: what is wrong. kind: (apiVersion, kind) that they claim, once that could be read."""

    def __init__(self, message: str, kind: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind


class _Field(NamedTuple):
    """One field of a message, by the table."""

    name: str
    type: str
    many: str
    pointer: bool
    inlined: bool


def decode(body: bytes, expected: tuple[str, str]) -> Object:
    """An object with its apiVersion and kind. expected: those, where it gives none. Raises `Malformed`."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(_MAGIC):
        prefix = " ".join(str(byte) for byte in _MAGIC)
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    envelope = _parts(body[len(_MAGIC) :])
    about = _parts(envelope.get(1, b""))
    version, kind = _text(about.get(1, b"")) or expected[0], _text(about.get(2, b"")) or expected[1]
    group, _, number = version.rpartition("/")
    message = _KINDLESS.get(kind) or f"{group.partition('.')[0] or 'core'}/{number}.{kind}"
    try:
        if message not in _table():
            raise Malformed(errors.unregistered(version, kind))
        return {"apiVersion": version, "kind": kind, **_message(message, _bytes(envelope.get(2, b"")))}
    except (Malformed, RecursionError) as error:
        raise Malformed(str(error), (version, kind)) from error


@cache
def _table() -> dict[str, dict[int, _Field]]:
    """Message -> number -> field."""
    found: dict[str, dict[int, _Field]] = {}
    for line in files(__package__).joinpath("protobuf.txt").read_text().splitlines():
        if not line.startswith("#"):
            message, _, fields = line.partition(":")
            found[message] = {}
            for number, name, described in re.findall(r"(\d+) (\S+) ([^,\s]+)", fields):
                plain = described.rstrip("?+")
                many = plain[-2:] if plain.endswith(("[]", "{}")) else ""
                kind = plain.removesuffix(many)
                found[message][int(number)] = _Field(name, kind, many, described.endswith("?"), described.endswith("+"))
    return found


def held_by(message: str, name: str) -> str:
    """What the values of a map of a message are; empty if that is not known."""
    return next((field.type for field in _table().get(message, {}).values() if field.name == name and field.many == "{}"), "")


def kind_of(message: str, name: str) -> str:
    """What a field of a message is, or each item of it; empty if that is not known."""
    return next((field.type for field in _table().get(message, {}).values() if field.name == name and field.many != "{}"), "")


# -- the wire ----------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values as they lie in a message: whole numbers unsigned, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, form = key >> 3, key & 7
        if not number:
            raise Malformed("proto: illegal tag 0")
        if form == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == _BYTES:
            length, at = _varint(data, at)
        elif form in (_FIXED64, _FIXED32):
            length = 8 if form == _FIXED64 else 4
        else:
            raise Malformed(f"proto: wrong wireType = {form} for field {number}")
        if at + length > len(data):
            raise Malformed("unexpected EOF")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise Malformed("proto: integer overflow")


def _signed(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise Malformed(f"proto: wrong wireType = {_BYTES} for a whole number")
    return value - (1 << 64) if value >> 63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Malformed(f"proto: wrong wireType = {_VARINT} for bytes")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode(errors="replace")


# -- messages ----------------------------------------------------------------------------------


def _message(name: str, data: bytes) -> Object:
    known = _table()[name]
    found: Object = {}
    for number, raw in _fields(data):
        field = known.get(number)
        if field is None:
            continue  # of a later version
        if field.many == "{}":
            entry = _parts(raw)
            found.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type, entry.get(2, b""))
        elif field.many:
            found.setdefault(field.name, []).append(_value(field.type, raw))
        elif field.inlined:
            found |= _message(field.type, _bytes(raw))
        else:
            value = _value(field.type, raw)
            # Go writes the zero of whatever is no pointer; there a zero stands for a field that was not given.
            if value is not None and (field.pointer or value not in ("", 0)):
                found[field.name] = value
    return found


def _value(kind: str, raw: int | bytes) -> Any:
    name = kind.rpartition(".")[2]
    plain = _PLAIN.get(kind) or _FORMS.get(name)
    if plain is not None:
        return plain(raw)
    found = _message(kind, _bytes(raw))
    return _either(found, _EITHER[name]) if name in _EITHER else found


def _either(found: Object, plain: Any) -> Any:
    """A schema, or what stands in its place."""
    return found["schema"] if "schema" in found else next(iter(found.values()), plain)


def _double(raw: int | bytes) -> int | float:
    data = _bytes(raw)
    if len(data) != 8:
        raise Malformed("unexpected EOF")
    (value,) = unpack("<d", data)
    return int(value) if value.is_integer() else float(value)


def _parts(raw: int | bytes) -> dict[int, int | bytes]:
    return dict(_fields(_bytes(raw)))


def _time(raw: int | bytes) -> str | None:
    """Nothing for Go's zero time, which is written as an empty message."""
    parts = _parts(raw)
    try:
        return timestamp(_signed(parts.get(1, 0))) if parts else None
    except (ValueError, OverflowError, OSError) as error:
        raise Malformed(f"a time is out of range: {error}") from error


def _micro_time(raw: int | bytes) -> str | None:
    whole = _time(raw)
    return whole and f"{whole[:-1]}.{_signed(_parts(raw).get(2, 0)) // 1000:06d}Z"


def _int_or_string(raw: int | bytes) -> int | str:
    parts = _parts(raw)
    return _text(parts.get(3, b"")) if parts.get(1) else _signed(parts.get(2, 0))


def _json(raw: int | bytes) -> Any:
    """Bytes of JSON in a message of their own."""
    try:
        return msgspec.json.decode(_bytes(_parts(raw).get(1, b"")) or b"null")
    except msgspec.DecodeError as error:
        raise Malformed(f"embedded JSON: {error}") from error


_PLAIN: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text,
    "bytes": lambda raw: b64encode(_bytes(raw)).decode(),
    "int": _signed,
    "double": _double,
    "bool": lambda raw: bool(_signed(raw)),
}
_FORMS: dict[str, Callable[[int | bytes], Any]] = {
    "Quantity": lambda raw: _text(_parts(raw).get(1, b"")) or "0",
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": _int_or_string,
    "FieldsV1": _json,
    "JSON": _json,
    "RawExtension": _json,
    "ExtraValue": lambda raw: [_text(value) for number, value in _fields(_bytes(raw)) if number == 1],
}
"""Messages that JSON has another form for."""
