"""Options of requests as they stand in query strings: of lists, watches, writes and deletions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from fairlead.cluster.simulated import errors
from fairlead.cluster.simulated.errors import Cause, StatusError

Query = Mapping[str, str]
_MOST = (1 << 63) - 1


def whole(query: Query, name: str) -> int:
    """A whole number; 0 where none is given. Raises `StatusError` 400."""
    text = query.get(name, "")
    if not text:
        return 0
    if not re.fullmatch(r"[+-]?\d+", text):
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = int(text) if len(text) < 40 else _MOST + 1
    if not -_MOST - 1 <= number <= _MOST:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def flag(query: Query, name: str) -> bool:
    """Whether something is asked for: by whatever is not `false` or `0`."""
    return name in query and query[name].lower() not in ("false", "0")


# -- reading -----------------------------------------------------------------------------------


def check_list(query: Query, *, watch: bool) -> None:
    """Raises `StatusError` 422 for options that do not go together."""
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    initial = flag(query, "sendInitialEvents")
    forbidden = ""
    if initial and not watch:
        raise _invalid("ListOptions", errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if watch and initial and match != "NotOlderThan":
        forbidden = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif watch and match and not initial:
        forbidden = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    elif match and not watch:
        if not version:
            forbidden = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        elif query.get("continue"):
            forbidden = "resourceVersionMatch is forbidden when continue is provided"
        elif match not in ("Exact", "NotOlderThan"):
            raise _invalid("ListOptions", errors.unsupported("resourceVersionMatch", match, "Exact", "NotOlderThan", ""))
        elif match == "Exact" and version == "0":
            forbidden = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if forbidden:
        raise _invalid("ListOptions", errors.forbidden_field("resourceVersionMatch", forbidden))
    for name in ("limit", "timeoutSeconds"):
        whole(query, name)


def version(query: Query, current: int, *, watch: bool) -> int | None:
    """The resourceVersion that is asked for. Raises `StatusError` for none, and in a list for one from the future."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdecimal():
        detail = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(500, "", detail) if watch else errors.bad_request(f"invalid resource version: {detail}")
    asked = int(text)
    if watch:
        return asked
    if asked > current:
        detail = f"Too large resource version: {asked}, current: {current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise StatusError(504, "Timeout", f"Timeout: {detail}", {"causes": [cause], "retryAfterSeconds": 1})
    return asked


# -- writing -----------------------------------------------------------------------------------


class WriteOptions(msgspec.Struct, frozen=True):
    """Who writes, and whether it is only to be tried."""

    manager: str
    dry_run: bool


def of_write(method: str, query: Query) -> WriteOptions:
    """Raises `StatusError` 422."""
    kind = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}.get(method, "DeleteOptions")
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        detail = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        raise _invalid(kind, Cause("FieldValueNotSupported", detail, "dryRun"))
    manager = query.get("fieldManager", "")
    if len(manager) > 128:
        raise _invalid(kind, Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"))
    for at, letter in enumerate(manager):
        if not letter.isprintable():
            shown = _GO_ESCAPES.get(letter, f"\\u{ord(letter):04x}" if ord(letter) > 0x7F else f"\\x{ord(letter):02x}")
            detail = f"invalid character U+{ord(letter):04X} (at position {at})"
            quoted = manager.replace(letter, shown)
            raise _invalid(kind, Cause("FieldValueInvalid", f'Invalid value: "{quoted}": {detail}', "fieldManager"))
    return WriteOptions(manager, dry_run == "All")


_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def check_propagation(policy: str | None, *, orphans: bool) -> None:
    """Raises `StatusError` 422 for a policy that is none, or one that is given twice."""
    if policy and orphans:
        detail = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise _invalid("DeleteOptions", Cause("FieldValueInvalid", detail, "propagationPolicy"))
    if policy and policy not in ("Foreground", "Background", "Orphan"):
        known = ("Foreground", "Background", "Orphan", "nil")
        raise _invalid("DeleteOptions", errors.unsupported("propagationPolicy", policy, *known))


def _invalid(kind: str, cause: Cause) -> StatusError:
    return errors.invalid("meta.k8s.io", kind, "", [cause])
