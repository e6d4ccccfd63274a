"""Bodies in protobuf, written by hand: what Go's typed clients send."""

from __future__ import annotations


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, value):
    """One field of a message: text and bytes by length, whole numbers as they are."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(version, kind, *fields):
    """An object as Go's typed clients send it."""
    about = field(1, version) + field(2, kind)
    return b"k8s\x00" + field(1, about) + field(2, b"".join(fields)) + field(3, "") + field(4, "")
