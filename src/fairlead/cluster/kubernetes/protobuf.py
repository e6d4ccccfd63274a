"""Adding a finalizer or the user of a claim, or taking a user away, in protobuf, all else byte for byte as the API server has it.

A patch has the API server read the whole object from JSON again. JSON within it, such as the opaque parameters of
ResourceClaims, then has its keys sorted and its spaces removed, and counts as changed although its value is equal.
Only protobuf carries its bytes.
Source of the wire format: https://protobuf.dev/programming-guides/encoding/; of the envelope:
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding; of the numbers of fields: `generated.proto` of
apimachinery and of `resource.k8s.io/v1`.
"""

from __future__ import annotations

from collections.abc import Iterator

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_RAW = 2  # of the envelope: the object
_METADATA, _UID, _VERSION, _FINALIZERS = 1, 5, 6, 14  # of every object, and of its metadata
_STATUS, _ALLOCATION, _RESERVED_FOR = 3, 1, 2  # of a ResourceClaim, and of its status
_USER_RESOURCE, _USER_NAME, _USER_UID = 3, 4, 5  # of an entry of `reservedFor`
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_Field = tuple[int, bytes, bytes]  # its number, its value, all bytes of it


class Malformed(ValueError):
    """Bytes that are no object in protobuf."""


class Outdated(Exception):
    """An object has another version by now."""


def with_finalizer(body: bytes, finalizer: str) -> tuple[str, bytes]:
    """The UID of an object, and the object with a finalizer more; the same bytes if it has it. Raises `Malformed`.

    body: as the API server answers with `MEDIA_TYPE`.
    """
    others, obj, uid = _object(body)
    if finalizer.encode() in _values(_parts(obj, _METADATA), _FINALIZERS):
        return uid, body
    return uid, _whole(others, obj, _field(_METADATA, _field(_FINALIZERS, finalizer.encode())))


def with_user(body: bytes, name: str, pod: str) -> tuple[str, bytes]:
    """The UID of a ResourceClaim, and the claim reserved for a pod (by UID); the same bytes if it is. Raises `Malformed`."""
    others, obj, uid = _object(body)
    for user in _values(_parts(obj, _STATUS), _RESERVED_FOR):
        if pod.encode() in _values(list(_fields(user)), _USER_UID):
            return uid, body
    user = _field(_USER_RESOURCE, b"pods") + _field(_USER_NAME, name.encode()) + _field(_USER_UID, pod.encode())
    return uid, _whole(others, obj, _field(_STATUS, _field(_RESERVED_FOR, user)))


def without_user(body: bytes, pod: str, version: str, *, deallocated: bool) -> tuple[str, bytes]:
    """The UID of a ResourceClaim, and the claim no longer reserved for a pod (by UID). Raises `Malformed`, `Outdated`.

    version: what the claim must have. deallocated: its devices are taken away, too.
    """
    others, obj, uid = _object(body)
    if b"".join(_values(_parts(obj, _METADATA), _VERSION)) != version.encode():
        raise Outdated
    status = b"".join(
        whole
        for number, value, whole in _parts(obj, _STATUS)
        if not (number == _ALLOCATION and deallocated)
        and not (number == _RESERVED_FOR and pod.encode() in _values(list(_fields(value)), _USER_UID))
    )
    kept = b"".join(whole for number, _, whole in _fields(obj) if number != _STATUS)
    return uid, _whole(others, kept, _field(_STATUS, status))


def _object(body: bytes) -> tuple[bytes, bytes, str]:
    """What the envelope has beside the object, the object, and its UID."""
    if not body.startswith(_MAGIC):
        raise Malformed("the answer is not in protobuf")
    parts = list(_fields(body[len(_MAGIC) :]))
    others, obj = b"".join(whole for number, _, whole in parts if number != _RAW), b"".join(_values(parts, _RAW))
    return others, obj, b"".join(_values(_parts(obj, _METADATA), _UID)).decode(errors="replace")


def _whole(others: bytes, obj: bytes, added: bytes) -> bytes:
    """The envelope with an object and one part more: parts of one message are merged where they are read."""
    return _MAGIC + others + _field(_RAW, obj + added)


def _parts(obj: bytes, within: int) -> list[_Field]:
    """The fields of one message of an object."""
    return [each for value in _values(list(_fields(obj)), within) for each in _fields(value)]


def _values(fields: list[_Field], wanted: int) -> list[bytes]:
    return [value for number, value, _ in fields if number == wanted]


def _fields(data: bytes) -> Iterator[_Field]:
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
