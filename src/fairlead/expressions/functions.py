"""The functions that Kubernetes adds to CEL, in Python: quantities, versions, lists, regular expressions, URLs, addresses.

`declarations` has the types that they take; here they are by the kinds of values of an evaluation. A ValueError of one of them is
an error of the expression.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf import duration_pb2, timestamp_pb2

from fairlead.expressions import messages, quantities, urls, versions
from fairlead.expressions.messages import CIDR, IP, QUANTITY, SEMVER, URL, Address, Network, value_of
from fairlead.expressions.quantities import Quantity

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1

# -- quantities and versions: what compares them is in `defaults` ----------------


def _only(message: Any, name: str) -> Any:
    if messages.named(message) != name:
        raise ValueError(f"no such overload: {messages.named(message)} where {name} is due")
    return value_of(message)


def _no_such_overload(_: bool) -> Any:  # noqa: FBT001 - a function has an argument
    raise ValueError(
        "no such overload: a version or a quantity is compared with a value of another type; write semver() or quantity()"
    )


def _no_number(_: bool) -> Any:  # noqa: FBT001 - likewise
    raise ValueError("no such overload: no number is made of a bool")


def _as_integer(message: Any) -> int:
    whole: int | None = _only(message, QUANTITY).integer
    if whole is None:
        raise ValueError("cannot convert value to integer")
    return whole


def _add(left: Any, right: Any) -> Any:
    return messages.of_quantity(Quantity(_only(left, QUANTITY).value + _addend(right)))


def _sub(left: Any, right: Any) -> Any:
    return messages.of_quantity(Quantity(_only(left, QUANTITY).value - _addend(right)))


def _addend(right: Any) -> Any:
    return right if isinstance(right, int) else _only(right, QUANTITY).value


def _sign(message: Any) -> int:
    value = _only(message, QUANTITY).value
    return int(value > 0) - int(value < 0)


def _semver(text: str, normalize: bool = False) -> Any:  # noqa: FBT001, FBT002 - CEL has it by its position
    return messages.of_version(versions.parse_tolerant(text) if normalize else versions.parse(text))


def _valid(read: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a function takes its arguments."""

    def valid(*arguments: Any) -> bool:
        try:
            read(*arguments)
        except ValueError:
            return False
        return True

    return valid


# -- lists: homogeneous, where they are of no dynamic type --------------------------------------------------------------


def _given(value: Any) -> Any:
    """A value as the library takes it from a function: spans and times of Python become those of protobuf."""
    if isinstance(value, dt.timedelta):
        span = duration_pb2.Duration()
        span.FromTimedelta(value)
        return span
    if isinstance(value, dt.datetime):
        time = timestamp_pb2.Timestamp()
        time.FromDatetime(value)
        return time
    return value


def _ordered(items: list[Any]) -> list[tuple[str, Any]]:
    """Each value with its kind; values of different kinds are in no order, which is no error in Kubernetes."""
    kinds = [_family(each) for each in items]
    if None in kinds:
        raise ValueError("no such overload: a list of values that have no order")
    return [(kind or "", item) for kind, item in zip(kinds, items, strict=True)]


def _extreme(items: list[Any], name: str) -> Any:
    ordered = _ordered(items)
    if not ordered:
        raise ValueError(f"{name} called on empty list")
    best = ordered[0]
    for each in ordered[1:]:
        if each[0] == best[0] and (each[1] > best[1] if name == "max" else each[1] < best[1]):
            best = each
    return _given(best[1])


def _family(value: Any) -> str | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return next((kind.__name__ for kind in (str, bytearray, dt.datetime, dt.timedelta) if isinstance(value, kind)), None)


def _is_sorted(items: list[Any]) -> bool:
    return not any(left[0] == right[0] and left[1] > right[1] for left, right in itertools.pairwise(_ordered(items)))


def _sum(items: list[Any]) -> Any:
    families = {_family(each) for each in items}
    if families - {"number"} and families != {"timedelta"}:
        raise ValueError("no such overload: a list of values that have no sum")
    total: Any = sum(items, dt.timedelta()) if families == {"timedelta"} else sum(items)
    if isinstance(total, int) and not _LEAST <= total <= _MOST:
        raise ValueError("integer overflow")
    return _given(total)


def _equal(left: Any, right: Any) -> bool:
    """Equality as CEL has it: numbers by their values, and nothing equals what is of another kind."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index, each in enumerate(items) if _equal(each, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(items))) if _equal(items[index], wanted)), -1)


# -- maps: what the macros `transformMap` and `transformMapEntry` call, which the library declares and does not have --------


def _insert(held: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _inserted(held, [(key, value)])


def _inserted(held: dict[Any, Any], more: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    result = dict(held)
    for key, value in more:
        if key in result:
            raise ValueError(f"insert failed: key {key!r} already exists")
        result[key] = value
    return result


# -- strings: what the library does otherwise ----------------------------------------------------------------------------


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    """As Go does: an empty separator gives the characters, of which an empty text has none."""
    if most in (0, 1):
        return [text] * most
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    return [*text[: most - 1], text[most - 1 :]] if 0 < most < len(text) else list(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= end <= len(text):
        raise ValueError(f"index out of range: {start} or {end} of a text of {len(text)} characters")
    if start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


# -- regular expressions: the library has RE2 inside, and does not give what was found ----------------------------------


def _found(text: str, pattern: str) -> str:
    import re2

    match = _regex(re2, pattern).search(text)
    return match.group(0) if match else ""


def _all_found(text: str, pattern: str, most: int = -1) -> list[str]:
    import re2

    regex, found = _regex(re2, pattern), list[str]()
    ended = -1
    for match in regex.finditer(text):
        if 0 <= most <= len(found):
            break
        if match.end() > match.start() or match.start() != ended:  # nothing is found right behind what was found
            found.append(match.group(0))
        ended = match.end()
    return found


def _regex(re2: Any, pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"Illegal regex: {error}") from error


# -- URLs and addresses --------------------------------------------------------------------------------------------------


def _url(text: str) -> Any:
    urls.parse(text)
    return messages.of_url(text)


def address(text: str) -> Address:
    """An IP address without a zone, and not IPv4 in the form of IPv6. Raises ValueError."""
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id is not None or found.ipv4_mapped is not None):
        raise ValueError(f"{text!r} has a zone, or is IPv4 in the form of IPv6")
    return found


def network(text: str) -> Network:
    """An address and the length of a prefix. Raises ValueError."""
    before, slash, length = text.partition("/")
    if not slash or not length.isdecimal() or (len(length) > 1 and length[0] == "0"):
        raise ValueError(f"{text!r} is not an address, a slash and the length of a prefix")
    address(before)
    return ipaddress.ip_interface(text)


def _contains_address(holder: Any, member: Any) -> bool:
    outer: Network = _only(holder, CIDR)
    inner: Address = address(member) if isinstance(member, str) else _only(member, IP)
    return inner.version == outer.version and inner in outer.network


def _contains_network(holder: Any, member: Any) -> bool:
    outer: Network = _only(holder, CIDR)
    inner: Network = network(member) if isinstance(member, str) else _only(member, CIDR)
    return inner.version == outer.version and inner.network.subnet_of(outer.network)  # type: ignore[arg-type]


def _is_global_unicast(message: Any) -> bool:
    found: Address = _only(message, IP)
    if found.version == 4 and str(found) == "255.255.255.255":
        return False
    return not (found.is_unspecified or found.is_loopback or found.is_multicast or _link_local_unicast(found))


def _link_local_unicast(found: Address) -> bool:
    return found in ipaddress.ip_network("169.254.0.0/16" if found.version == 4 else "fe80::/10")


def _link_local_multicast(found: Address) -> bool:
    return (
        found in ipaddress.ip_network("224.0.0.0/24")
        if found.version == 4
        else found.packed[0] == 0xFF and found.packed[1] & 15 == 2
    )


def _to_string(message: Any) -> str:
    if messages.named(message) not in (IP, CIDR):
        raise ValueError(f"no such overload: string({messages.named(message)})")
    found = value_of(message)
    return str(found.with_prefixlen) if messages.named(message) == CIDR else str(found)


Implementation = tuple[tuple[str, ...], bool, Callable[..., Any]]
"""Kinds of the arguments, whether the first stands before the dot, and the function."""
_M, _S = "message", "string"
_KINDS: Final = ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "duration", "timestamp", "null", "message")


def _url_part(part: Callable[[urls.URL], Any]) -> list[Implementation]:
    return [((_M,), True, lambda message: part(_only(message, URL)))]


def _of_address(question: Callable[[Address], Any]) -> list[Implementation]:
    return [((_M,), True, lambda message: question(_only(message, IP)))]


IMPLEMENTATIONS: Final[dict[str, list[Implementation]]] = {
    "@noSuchOverload": [(("bool",), False, _no_such_overload)],
    "@noNumber": [(("bool",), False, _no_number)],
    "quantity": [((_S,), False, messages.quantity)],
    "isQuantity": [((_S,), False, _valid(quantities.parse))],
    "sign": [((_M,), False, _sign)],
    "asApproximateFloat": [((_M,), True, lambda message: float(_only(message, QUANTITY).value))],
    "asInteger": [((_M,), True, _as_integer)],
    "isInteger": [((_M,), True, lambda message: _only(message, QUANTITY).integer is not None)],
    "add": [((_M, _M), True, _add), ((_M, "int"), True, _add)],
    "sub": [((_M, _M), True, _sub), ((_M, "int"), True, _sub)],
    "semver": [((_S,), False, _semver), ((_S, "bool"), False, _semver)],
    "isSemver": [((_S,), False, _valid(_semver)), ((_S, "bool"), False, _valid(_semver))],
    "major": [((_M,), True, lambda message: _only(message, SEMVER).major)],
    "minor": [((_M,), True, lambda message: _only(message, SEMVER).minor)],
    "patch": [((_M,), True, lambda message: _only(message, SEMVER).patch)],
    "isSorted": [(("list",), True, _is_sorted)],
    "sum": [(("list",), True, _sum)],
    "max": [(("list",), True, lambda items: _extreme(items, "max"))],
    "min": [(("list",), True, lambda items: _extreme(items, "min"))],
    "indexOf": [(("list", kind), True, _index_of) for kind in _KINDS],
    "lastIndexOf": [(("list", kind), True, _last_index_of) for kind in _KINDS],
    "cel.@mapInsert": [
        (("map", "map"), False, lambda held, more: _inserted(held, more.items())),
        *((("map", key, kind), False, _insert) for key in ("bool", "int", "uint", "string") for kind in _KINDS),
    ],
    "@substring": [((_S, "int"), True, _substring), ((_S, "int", "int"), True, _substring)],
    "@split": [((_S, _S), True, _split), ((_S, _S, "int"), True, _split)],
    "find": [((_S, _S), True, _found)],
    "findAll": [((_S, _S), True, _all_found), ((_S, _S, "int"), True, _all_found)],
    "url": [((_S,), False, _url)],
    "isURL": [((_S,), False, _valid(urls.parse))],
    "getScheme": _url_part(lambda url: url.scheme),
    "getHost": _url_part(lambda url: url.host),
    "getHostname": _url_part(lambda url: url.hostname),
    "getPort": _url_part(lambda url: url.port),
    "getEscapedPath": _url_part(lambda url: url.path),
    "getQuery": _url_part(lambda url: url.query),
    "ip": [
        ((_S,), False, lambda text: messages.of_address(address(text))),
        ((_M,), True, lambda message: messages.of_address(_only(message, CIDR).ip)),
    ],
    "isIP": [((_S,), False, _valid(address))],
    "ip.isCanonical": [((_S,), False, lambda text: str(address(text)) == text)],
    "family": _of_address(lambda found: found.version),
    "isUnspecified": _of_address(lambda found: found.is_unspecified),
    "isLoopback": _of_address(lambda found: found.is_loopback),
    "isLinkLocalMulticast": _of_address(_link_local_multicast),
    "isLinkLocalUnicast": _of_address(_link_local_unicast),
    "isGlobalUnicast": [((_M,), True, _is_global_unicast)],
    "cidr": [((_S,), False, lambda text: messages.of_network(network(text)))],
    "isCIDR": [((_S,), False, _valid(network))],
    "containsIP": [((_M, _S), True, _contains_address), ((_M, _M), True, _contains_address)],
    "containsCIDR": [((_M, _S), True, _contains_network), ((_M, _M), True, _contains_network)],
    "prefixLength": [((_M,), True, lambda message: _only(message, CIDR).network.prefixlen)],
    "masked": [((_M,), True, lambda message: messages.of_network(_masked(_only(message, CIDR))))],
    "string": [((_M,), False, _to_string)],
}


def _masked(found: Network) -> Network:
    return ipaddress.ip_interface(f"{found.network.network_address}/{found.network.prefixlen}")
