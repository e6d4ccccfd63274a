"""The types that Kubernetes adds to CEL, as messages: the library carries those between CEL and Python, and no other objects.

Each has one field with a canonical text, so that equal values are equal messages, as CEL compares them. The texts of quantities
and versions sort as their values do: comparing them calls no Python.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from fairlead.expressions import quantities, urls, versions
from fairlead.expressions.quantities import Quantity
from fairlead.expressions.versions import Version

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
URL: Final = "kubernetes.URL"
IP: Final = "net.IP"
CIDR: Final = "net.CIDR"
DEVICE: Final = "kubernetes.DRADevice"
FIELD: Final = "canonical_"
_BILLION: Final = 10**9
_COMPLEMENTS: Final = str.maketrans("0123456789", "9876543210")
_TYPES: Final = (QUANTITY, SEMVER, URL, IP, CIDR)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def _file(name: str, package: str) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for full in _TYPES:
        package, _, name = full.rpartition(".")
        file = files.setdefault(package, _file(f"fairlead/{package}.proto", package))
        file.message_type.add(name=name).field.add(
            name=FIELD,
            number=1,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    # The type of `device` itself: what it has is checked field by field, where it is mentioned as `device.driver`.
    device = files["kubernetes"].message_type.add(name=DEVICE.rpartition(".")[2])
    struct = ".google.protobuf.Struct"
    fields = [
        ("driver", "string", ""),
        ("allowMultipleAllocations", "bool", ""),
        ("attributes", "", struct),
        ("capacity", "", struct),
    ]
    kinds = {
        "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
        "": descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
    }
    for number, (name, kind, message) in enumerate(fields, 1):
        device.field.add(
            name=name,
            number=number,
            type=kinds[kind],
            type_name=message or None,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    files["kubernetes"].dependency.append(struct_pb2.DESCRIPTOR.name)
    for file in files.values():
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _pool()
_CLASSES: Final[dict[str, Callable[..., Any]]] = {
    name: message_factory.GetMessageClass(POOL.FindMessageTypeByName(name)) for name in _TYPES
}


def _made(name: str, text: str) -> Any:
    return _CLASSES[name](**{FIELD: text})


@lru_cache(maxsize=4096)
def of_quantity(value: Quantity) -> Any:
    """The message of a quantity."""
    return _made(QUANTITY, quantity_text(value))


@lru_cache(maxsize=4096)
def of_version(value: Version) -> Any:
    """The message of a version."""
    return _made(SEMVER, version_text(value))


def quantity_text(value: Quantity) -> str:
    """The text of a quantity: a sign, the number of digits and the digits of its billionths; of negative ones complements."""
    billionths = abs(value.value) * _BILLION
    digits = str(-(-billionths.numerator // billionths.denominator))  # rounded as a quantity is when it is read
    if value.value >= 0:
        return f"+{len(digits):04}{digits}"
    return f"!{9999 - len(digits):04}{digits.translate(_COMPLEMENTS)}"


def version_text(value: Version) -> str:
    """The text of a version: its numbers, then its identifiers, numbers before words, or what sorts after all of these."""
    release = f"{value.major:020}{value.minor:020}{value.patch:020}"
    if not value.prerelease:
        return f"{release}~{value}"
    parts = (f"1{each}" if isinstance(each, str) else f"0{each:020}" for each in value.prerelease)
    return release + "".join(f"{part}\x02" for part in parts) + f"\x01{value}"


def of_url(text: str) -> Any:
    """The message of a URL's text, which has been parsed."""
    return _made(URL, text)


def of_address(value: Address) -> Any:
    """The message of an IP address."""
    return _made(IP, str(value))


def of_network(value: Network) -> Any:
    """The message of a network: an address, whose lower bits are kept, and the length of its prefix."""
    return _made(CIDR, value.with_prefixlen)


def value_of(message: Any) -> Any:
    """The Python object of a message that one of the functions above made."""
    read: Callable[[str], Any] = _READERS[message.DESCRIPTOR.full_name]
    return read(getattr(message, FIELD))


def named(message: Any) -> str:
    """The type of a message."""
    return str(message.DESCRIPTOR.full_name)


@lru_cache(maxsize=4096)
def _quantity_of(text: str) -> Quantity:
    negative = text[0] == "!"
    billionths = int(text[5:].translate(_COMPLEMENTS) if negative else text[5:])
    return Quantity(Fraction(-billionths if negative else billionths, _BILLION))


def _version_of(text: str) -> Version:
    return versions.parse(text[61:] if text[60] == "~" else text.rpartition("\x01")[2])


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    QUANTITY: _quantity_of,
    SEMVER: _version_of,
    URL: urls.parse,
    IP: ipaddress.ip_address,
    CIDR: ipaddress.ip_interface,
}


def quantity(text: str) -> Any:
    """The message of a quantity's text. Raises ValueError."""
    return of_quantity(quantities.parse(text))
