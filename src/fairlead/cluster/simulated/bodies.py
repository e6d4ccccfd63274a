"""Bodies of requests: JSON, YAML and protobuf into objects of the kind that is expected, or a refusal in Go's words."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
import yaml
from lightkube.models import meta_v1

from fairlead.cluster.simulated import errors, eventforms, protobuf, schema
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.messages import JSON, PROTOBUF, READABLE, YAML
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object

LIMIT = 3 << 20
"""Bytes that a body may have."""
_MOST_NODES = 1_000_000
_LONG = re.compile(rb"[0-9]{19}")  # no other whole number is beyond int64
_SHOWN_BYTES = 30  # of a body that cannot be read
_STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_MAP = "Go value of type map[string]interface {}"
_VERSIONS = {"Binding": ("v1",), "Eviction": ("policy/v1", "policy/v1beta1"), "Scale": ("autoscaling/v1",)}
"""What the bodies of subresources may call themselves. Where options are refused, the message does not name the expected kind."""


class Body(NamedTuple):
    """What was sent."""

    content: bytes
    content_type: str

    def check_size(self) -> None:
        """Raises `StatusError` 413 for one that is too large."""
        if len(self.content) > LIMIT:
            raise errors.too_large(LIMIT)

    def unrecognized(self, wanted: str, why: str) -> StatusError:
        """It is no object at all; its first bytes are shown, in hexadecimal where they are no JSON."""
        if not wanted:
            return errors.bad_request(why)
        first = self.content[:_SHOWN_BYTES]
        detail = first.decode(errors="replace") if first[:1] == b"{" else first.hex()
        data = (detail + " ..." if len(self.content) > _SHOWN_BYTES else detail) or "<empty>"
        return errors.bad_request(f"the object provided is unrecognized (must be of type {wanted}): {why} ({data})")


# -- objects of resources ----------------------------------------------------------------------


def of_resource(api: ApiServer, resource: Resource, body: Body, validation: str) -> tuple[Object, list[str]]:
    """(the object, warnings). validation: what becomes of unknown fields: Ignore, Warn or Strict. Raises `StatusError`."""
    raw = _read(body, (resource.api_version, resource.kind), resource.kind, protobuf_too=not resource.custom)
    kind, version = _kind_of(raw, body, resource.kind)
    if resource.custom:
        raw = _as_go(raw) if _LONG.search(body.content) else raw
        if not kind:
            shown = body.content.decode(errors="replace")
            raise body.unrecognized(resource.kind, f"Object 'Kind' is missing in '{shown}'")
        if version != resource.api_version:
            detail = f"does not match the expected API version ({resource.api_version})"
            raise errors.bad_request(f"the API version in the data ({version}) {detail}")
        api.definitions.check_custom_kind(resource, raw)
    else:
        _check_kind(api, resource, version or resource.api_version, kind or resource.kind)
    unknown: list[str] = []
    about = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    try:
        decoded = schema.decode(api.definitions.node_of(resource), raw, unknown)
    except schema.Mistyped as error:
        if not resource.custom:
            raise errors.bad_request(f"{about}: {error}") from error
        decoded = {**raw, "metadata": _metadata(raw.get("metadata"), about)}  # all else is for the schema to check
    if validation not in ("", "Ignore", "Warn", "Strict"):
        cause = errors.unsupported("fieldValidation", validation, "", "Ignore", "Strict", "Warn")
        raise errors.invalid("meta.k8s.io", "CreateOptions", "", [cause])
    warnings = [f'unknown field "{path}"' for path in unknown]
    if warnings and validation == "Strict":
        raise errors.bad_request(f"{about}: strict decoding error: {', '.join(warnings)}")
    return _stored(resource, decoded), warnings if validation in ("", "Warn") else []


def applied(api: ApiServer, resource: Resource, body: Body) -> Object:
    """The object of a server-side apply. Raises `StatusError`."""
    body.check_size()
    raw = _yaml(body.content)
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        detail = f"json: cannot unmarshal {schema.go_name(raw)} into {_MAP}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {detail}")
    kind, version = _kind_of(raw, body, resource.kind)
    if (kind, version) != (resource.kind, resource.api_version):
        raise errors.bad_request(f"invalid object type: {_group_version(version)}, Kind={kind}")
    unknown: list[str] = []
    metadata = raw.get("metadata")
    namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    where = f"failed to create typed patch object ({namespace}/{name}; {_group_version(version)}, Kind={kind})"
    try:
        decoded = schema.decode(api.definitions.node_of(resource), raw, unknown)
    except schema.Mistyped as error:
        raise StatusError(500, "", f"{where}: {error.typed}") from error
    if unknown:
        raise StatusError(500, "", f"{where}: .{unknown[0]}: field not declared in schema")
    return _stored(resource, decoded)


def _stored(resource: Resource, decoded: Object) -> Object:
    decoded.setdefault("metadata", {})
    return eventforms.stored(decoded) if resource.group == eventforms.GROUP else decoded


def _metadata(given: Any, about: str) -> Object:
    try:
        known: Object = schema.decode(schema.of_model(meta_v1.ObjectMeta), {} if given is None else given, [])
    except schema.Mistyped as error:
        raise errors.bad_request(f"{about}: {error}") from error
    return known


def _check_kind(api: ApiServer, resource: Resource, version: str, kind: str) -> None:
    if (version, kind) != (resource.api_version, resource.kind):
        raise errors.unhandled(version, kind, resource.kind, api.definitions.not_convertible(resource, version, kind))


def _group_version(version: str) -> str:
    return version if "/" in version else f"/{version}"


# -- objects of fixed types --------------------------------------------------------------------


def of_model(body: Body, model: type[Any]) -> Object:
    """What is sent to a subresource, or options. Raises `StatusError`."""
    name = model.__name__
    versions = _VERSIONS.get(name)
    wanted = name if versions else ""
    raw = _read(body, (versions[0] if versions else "v1", name), wanted)
    kind, version = _kind_of(raw, body, wanted)
    if (kind and kind != name) or (version and versions and version not in versions):
        version = version or (versions[0] if versions else "v1")
        detail = errors.unregistered(version, kind or name)
        raise errors.unhandled(version, kind or name, name, detail) if versions else errors.bad_request(detail)
    return typed(raw, model)


def typed(value: Any, model: type[Any]) -> Object:
    """A value of a fixed type, without what that does not know. Raises `StatusError` 400."""
    name = model.__name__
    try:
        decoded: Object = schema.decode(schema.of_model(model), value, [])
    except schema.Mistyped as error:
        if name not in _VERSIONS:
            raise errors.bad_request(str(error)) from error
        raise errors.unhandled(_VERSIONS[name][0], name, name, str(error)) from error
    return decoded


def patch(body: Body) -> Any:
    """A JSON, merge or strategic merge patch. Raises `StatusError`."""
    body.check_size()
    strategic, steps = "strategic" in body.content_type, "json-patch" in body.content_type
    detail = "" if strategic else "error decoding patch: "
    try:
        found = msgspec.json.decode(_text(body.content))
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"{detail}{_syntax(error, body.content)}") from error
    if steps or isinstance(found, dict):
        return found
    if found is None:
        if strategic:
            return {}
        raise errors.bad_request("Invalid JSON Patch")
    raise errors.bad_request(f"{detail}json: cannot unmarshal {schema.go_name(found)} into {_MAP}")


# -- bytes -------------------------------------------------------------------------------------


def _read(body: Body, expected: tuple[str, str], wanted: str, *, protobuf_too: bool = True) -> Any:
    """The decoded body. expected: apiVersion and kind; wanted: how the kind is called where it is refused."""
    body.check_size()
    if body.content_type == JSON:
        try:
            found = msgspec.json.decode(_text(body.content))
        except msgspec.DecodeError as error:
            why = f"couldn't get version/kind; json parse error: {_syntax(error, body.content)}"
            raise body.unrecognized(wanted, why) from error
    elif body.content_type == YAML:
        found = _yaml(body.content)
    elif body.content_type == PROTOBUF and protobuf_too:
        try:
            return protobuf.decode(body.content, expected)
        except protobuf.Malformed as error:
            if wanted and error.kind is not None:
                raise errors.unhandled(*error.kind, wanted, str(error)) from error
            raise body.unrecognized(wanted, str(error)) from error
    else:
        raise errors.unsupported_media(READABLE)
    return {} if found is None else found


def _kind_of(raw: Any, body: Body, wanted: str) -> tuple[str, str]:
    """(kind, apiVersion), empty where they are not given."""
    if not isinstance(raw, dict):
        detail = f"json: cannot unmarshal {schema.go_name(raw)} into Go value of type {_STRUCT}"
        raise body.unrecognized(wanted, f"couldn't get version/kind; json parse error: {detail}")
    found = {}
    for name in ("apiVersion", "kind"):
        found[name] = raw.get(name) or ""
        if not isinstance(found[name], str):
            detail = f"json: cannot unmarshal {schema.go_name(found[name])} into Go struct field .{name} of type string"
            raise body.unrecognized(wanted, f"couldn't get version/kind; json parse error: {detail}")
    return found["kind"], found["apiVersion"]


def _as_go(value: Any) -> Any:
    """The value with numbers that are no int64 as floats, as Go has them where the type is not known."""
    if isinstance(value, dict):
        return {name: _as_go(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_go(each) for each in value]
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _text(content: bytes) -> bytes:
    """What is no UTF-8 is replaced, as Go does."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return content.decode(errors="replace").encode()
    return content


def _syntax(error: msgspec.DecodeError, content: bytes) -> str:
    """The message of Go's parser, where that is known."""
    detail = str(error)
    if "truncated" in detail:
        return "unexpected end of JSON input"
    at = detail.rpartition("(byte ")[2].rstrip(")")
    if "trailing" in detail and at.isdecimal():
        return f"invalid character '{chr(content[int(at) - 1])}' after top-level value"
    if at == "0":
        return f"invalid character '{chr(content[0])}' looking for beginning of value"
    return detail


def _yaml(content: bytes) -> Any:
    """YAML without code, and without documents that unfold beyond a bound."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        tree = yaml.compose(content, Loader=yaml.CSafeLoader)
        if tree is None:
            return None
        if _unfolded(tree, {}) > _MOST_NODES:
            raise errors.bad_request("error decoding YAML: document contains excessive aliasing")
        return _plain(yaml.load(content, Loader=_TextLoader))  # noqa: S506 - a safe loader without times
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        detail = f"line {mark.line}: {problem}" if mark is not None and problem else str(error)
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {detail}") from error


class _TextLoader(yaml.CSafeLoader):
    """Times stay text, as in Kubernetes."""


_TextLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    size = known.get(id(node))
    if size is not None:
        return size
    known[id(node)] = _MOST_NODES + 1  # a node inside itself
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_unfolded(each, known) for each in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_unfolded(key, known) + _unfolded(value, known) for key, value in node.value)
    known[id(node)] = size
    return size


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
