"""The API server's errors: `Status` objects, worded as kube-apiserver words them."""

from __future__ import annotations

from typing import Any

import msgspec


class Cause(msgspec.Struct, frozen=True):
    """One thing that is wrong with an object. reason: `FieldValueInvalid` and its like."""

    reason: str
    message: str
    field: str = ""

    @property
    def line(self) -> str:
        """As it stands in the message of an Invalid status."""
        return f"{self.field}: {self.message}"


class StatusError(Exception):
    """A refusal. code: HTTP status. headers: more of the reply, such as Retry-After."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """The `Status` object of the reply."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def _about(group: str, kind: str, name: str) -> dict[str, Any]:
    about = {"name": name} if name else {}
    if group:
        about["group"] = group
    return about | {"kind": kind} if kind else about


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    """No such object."""
    return StatusError(404, "NotFound", f'{_qualified(group, plural)} "{name}" not found', _about(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """The name is taken."""
    return StatusError(409, "AlreadyExists", f'{_qualified(group, plural)} "{name}" already exists', _about(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str = "") -> StatusError:
    """A precondition does not hold; by default the resourceVersion."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> StatusError:
    """The object can be read but breaks rules."""
    why = causes[0].line if len(causes) == 1 else f"[{', '.join(cause.line for cause in causes)}]"
    shown = _qualified(group, kind)
    details = _about(group, kind, name) | {"causes": [msgspec.to_builtins(cause) for cause in causes]}
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {why}', details)


def required(field: str, more: str = "") -> Cause:
    """A field that must be there."""
    return Cause("FieldValueRequired", f"Required value{': ' + more if more else ''}", field)


def invalid_value(field: str, value: object, why: str) -> Cause:
    """A value that breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def unsupported(field: str, value: object, *supported: str) -> Cause:
    """A value that is none of those there are."""
    known = ", ".join(f'"{each}"' for each in supported)
    return Cause("FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {known}', field)


def duplicate(field: str, value: str) -> Cause:
    """A value that was given before."""
    return Cause("FieldValueDuplicate", f'Duplicate value: "{value}"', field)


def forbidden_field(field: str, why: str) -> Cause:
    """A field that may not be there, or not be so."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def bad_request(message: str) -> StatusError:
    """What was sent cannot be read."""
    return StatusError(400, "BadRequest", message)


def unregistered(version: str, kind: str) -> str:
    """Why an object of an unknown kind cannot be read."""
    return f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'


def unhandled(version: str, kind: str, wanted: str, why: str) -> StatusError:
    """What was sent is an object, but not one of the kind that is wanted. version: its apiVersion."""
    return bad_request(f'{kind} in version "{version.rpartition("/")[2]}" cannot be handled as a {wanted}: {why}')


def expired(message: str) -> StatusError:
    """A version that the history no longer holds."""
    return StatusError(410, "Expired", message)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """Admission refuses it."""
    message = f'{_qualified(group, plural)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _about(group, plural, name))


def method_not_allowed() -> StatusError:
    """A verb that the resource does not have."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media(accepted: str) -> StatusError:
    """A body in a form that is not understood."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message, {})


def not_acceptable(accepted: str) -> StatusError:
    """A reply in a form that is not spoken."""
    return StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {accepted}", {})


def too_large(limit: int) -> StatusError:
    """A body beyond the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})
