"""Adding a finalizer to an object in protobuf, all else byte for byte as the API server has it.

A patch has the API server read the whole object from JSON again. JSON within it, such as the opaque parameters of
ResourceClaims, then has its keys sorted and its spaces removed, and counts as changed although its value is equal.
Only protobuf carries its bytes.
Source of the wire format: https://protobuf.dev/programming-guides/encoding/; of the envelope:
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding; of the numbers of fields: apimachinery's
`generated.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_RAW = 2  # of the envelope: the object
_METADATA, _UID, _FINALIZERS = 1, 5, 14  # of every object, and of its metadata
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


class Malformed(ValueError):
    """Bytes that are no object in protobuf."""


def with_finalizer(body: bytes, finalizer: str) -> tuple[str, bytes]:
    """The UID of an object, and the object with a finalizer more; the same bytes if it has it. Raises `Malformed`.

    body: as the API server answers with `MEDIA_TYPE`. Parts of one message that come one after the other are merged where they
    are read, so the finalizer is a second part of the metadata at the end of the object.
    """
    if not body.startswith(_MAGIC):
        raise Malformed("the answer is not in protobuf")
    parts = list(_fields(body[len(_MAGIC) :]))
    obj = b"".join(value for number, value, _ in parts if number == _RAW)
    metadata = [each for number, value, _ in _fields(obj) if number == _METADATA for each in _fields(value)]
    uid = b"".join(value for number, value, _ in metadata if number == _UID).decode(errors="replace")
    if any(number == _FINALIZERS and value == finalizer.encode() for number, value, _ in metadata):
        return uid, body
    obj += _field(_METADATA, _field(_FINALIZERS, finalizer.encode()))
    others = b"".join(whole for number, _, whole in parts if number != _RAW)
    return uid, _MAGIC + others + _field(_RAW, obj)


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number of each field of a message, its value (empty for a whole number), and all bytes of it."""
    at = 0
    while at < len(data):
        begin = at
        key, at = _varint(data, at)
        number, form = key >> 3, key & 7
        if form == _VARINT:
            _, at = _varint(data, at)
            yield number, b"", data[begin:at]
            continue
        if form == _BYTES:
            length, at = _varint(data, at)
        elif form in _WIDTHS:
            length = _WIDTHS[form]
        else:
            raise Malformed(f"field {number} has wire type {form}")
        if at + length > len(data):
            raise Malformed(f"field {number} ends after the message")
        yield number, data[at : at + length], data[begin : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("a number ends after the message")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise Malformed("a number is longer than ten bytes")


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(value)) + value


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
