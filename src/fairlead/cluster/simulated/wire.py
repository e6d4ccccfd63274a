"""From method, path, query and bytes to verbs, and back: Kubernetes' wire format as a plain function.

`Wire.handle` answers one request with a `Reply`, or with a `Stream` for a watch. Neither sockets nor
tasks are involved: HTTP (`http.py`) and the in-process transport (`transport.py`) share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
import structlog
import yaml
from lightkube.models import autoscaling_v1, core_v1, meta_v1, policy_v1

from fairlead.cluster.simulated import errors, eventforms, merging, openapi, protobuf, reviews, schema, selectors, tables
from fairlead.cluster.simulated.api import PODS, ApiServer, Selection, Watch
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object, Record

log = structlog.get_logger("wire")

BODY_LIMIT = 3 << 20
_JSON, _YAML, _PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_READABLE = f"{_JSON}, {_YAML}, {_PROTOBUF}"
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "simulated",
}
_MOST_NODES = 1_000_000
_SHOWN_BYTES = 30  # of a body that cannot be read
_METADATA_ONLY = "PartialObjectMetadata"


class Request(msgspec.Struct, frozen=True):
    """One request. path: as sent, still percent-encoded; headers: names in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Reply(msgspec.Struct):
    """One answer."""

    status: int
    body: bytes
    content_type: str = _JSON
    headers: dict[str, str] = {}


class Stream:
    """A watch on its way out. seconds: how long it may last."""

    def __init__(
        self,
        watch: Watch,
        encode: Callable[[str, Record], bytes],
        bookmark: Callable[[int], bytes],
        seconds: float,
        *,
        bookmarks: bool,
    ) -> None:
        self.watch = watch
        self.seconds = seconds
        self.bookmarks = bookmarks
        self._encode = encode
        self._bookmark = bookmark
        self._first: list[bytes] = []

    def take(self) -> list[bytes]:
        """Lines for everything that has happened since the last call."""
        lines, self._first = self._first, []
        changes = self.watch.changes
        while changes:
            kind, record = changes.popleft()
            lines.append(self._encode(kind, record))
        return lines

    def bookmark(self, version: int) -> bytes:
        """A line that says how far the watch has come."""
        return self._bookmark(version)

    def end_of_initial(self, line: bytes) -> None:
        """What existed is told, then a line that says so."""
        self._first = [*self.take(), line]

    def close(self) -> None:
        """Stop listening."""
        self.watch.close()


class _Target(msgspec.Struct, frozen=True):
    """What a path names."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


class _Form(msgspec.Struct, frozen=True):
    """How the answer shall look."""

    yaml: bool = False
    shape: str = ""  # "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"


class Wire:
    """The wire format of one API server."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api

    def handle(self, request: Request) -> Reply | Stream:
        """Answer one request; never raises."""
        try:
            return self._handle(request)
        except StatusError as error:
            return Reply(error.code, msgspec.json.encode(error.status()), headers=error.headers)
        except RecursionError:
            return self._status(errors.bad_request("the object is nested too deeply"))
        except UnicodeError as error:
            return self._status(errors.bad_request(f"the request is not valid UTF-8: {error}"))
        except Exception as error:
            log.exception("request failed", method=request.method, path=request.path[:300])
            return self._status(StatusError(500, "InternalError", f"Internal error occurred: {error!r}"))

    @staticmethod
    def _status(error: StatusError) -> Reply:
        return Reply(error.code, msgspec.json.encode(error.status()), headers=error.headers)

    def _handle(self, request: Request) -> Reply | Stream:
        path = request.path
        parts = [unquote(part) for part in path.split("/")[1:]]
        if parts and parts[-1] == "":
            parts.pop()
        if parts[:1] not in (["api"], ["apis"]):
            return self._elsewhere(request, parts)
        document = self._discovery(parts)
        if document is not None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return Reply(200, msgspec.json.encode(document))
        target = None if any("/" in part for part in parts) else self._target(parts)
        if target is None:
            version = parts[1] if parts[0] == "api" and len(parts) > 1 else "/".join(parts[1:3])
            if self.api.catalog.resource_list(version) is None:
                return _no_page()
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        return self._serve(request, target)

    # -- what is not a resource ----------------------------------------------------------------

    def _elsewhere(self, request: Request, parts: list[str]) -> Reply:
        path = "/".join(parts)
        if path in ("healthz", "livez", "readyz"):
            return Reply(200, b"ok", "text/plain; charset=utf-8")
        if path == "version":
            return Reply(200, msgspec.json.encode(_VERSION))
        if path == "":
            listed = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
            return Reply(200, msgspec.json.encode({"paths": listed}))
        if path == "openapi/v3":
            return Reply(200, msgspec.json.encode(openapi.index(self.api.catalog)))
        if parts[:2] == ["openapi", "v3"]:
            document = openapi.document(self.api.catalog, "/".join(parts[3:]))
            if document is not None:
                return Reply(200, msgspec.json.encode(document))
        return _no_page()

    def _discovery(self, parts: list[str]) -> dict[str, Any] | None:
        catalog = self.api.catalog
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if parts == ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": catalog.groups()}
        if parts == ["api", "v1"]:
            return catalog.resource_list("v1")
        if parts[0] == "apis" and len(parts) == 2:
            return catalog.group(parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return catalog.resource_list("/".join(parts[1:]))
        return None

    def _target(self, parts: list[str]) -> _Target | None:
        if parts[0] == "api":
            version, rest = parts[1], parts[2:]
        else:
            version, rest = "/".join(parts[1:3]), parts[3:]
        if not rest:
            return None
        find = self.api.catalog.find
        if rest[0] == "namespaces" and len(rest) >= 3:
            resource = find(version, rest[2])
            if resource is not None and resource.namespaced:
                return self._named(resource, rest[1], rest[3:])
        resource = find(version, rest[0])
        if resource is None:
            return None
        if resource.namespaced:
            return _Target(resource, None, "", "") if len(rest) == 1 else None
        return self._named(resource, "", rest[1:])

    @staticmethod
    def _named(resource: Resource, namespace: str, rest: list[str]) -> _Target | None:
        if len(rest) > 2 or (len(rest) == 2 and rest[1] not in resource.subresources):
            return None
        return _Target(resource, namespace, rest[0] if rest else "", rest[1] if len(rest) == 2 else "")

    # -- resources -----------------------------------------------------------------------------

    def _serve(self, request: Request, target: _Target) -> Reply | Stream:
        method, resource, query = request.method, target.resource, request.query
        if target.subresource == "log" and method == "GET":
            return self._log(target, query)
        form = _negotiate(request.headers.get("accept", ""))
        if method in ("GET", "HEAD"):
            if target.subresource == "scale":
                return self._reply(form, self.api.scale(resource, self._get(target)))
            if target.name:
                return self._one(form, resource, self._get(target))
            if "list" not in resource.verbs:
                raise errors.method_not_allowed()
            if query.get("watch") in ("true", "1"):
                return self._watch(form, target, query)
            return self._list(form, target, query)
        if method == "POST":
            return self._create(request, form, target)
        if method == "PUT" and target.name:
            return self._update(request, form, target)
        if method == "PATCH" and target.name:
            return self._patch(request, form, target)
        if method == "DELETE" and not target.subresource:
            return self._delete(request, form, target)
        raise errors.method_not_allowed()

    def _get(self, target: _Target) -> Record:
        return self.api.get(target.resource, target.namespace or "", target.name)

    def _log(self, target: _Target, query: Mapping[str, str]) -> Reply:
        pod = self._get(target).object
        names = [each["name"] for each in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if container not in names:
            raise errors.bad_request(f"container {container} is not valid for pod {target.name}")
        if not pod["spec"].get("nodeName"):
            return Reply(204, b"")
        text = self.api.logs(pod, container)
        if query.get("tailLines", "").isdigit():
            count = int(query["tailLines"])
            text = "".join(text.splitlines(keepends=True)[-count:]) if count else ""
        return Reply(200, text.encode(), "text/plain")

    def _selection(self, target: _Target, query: Mapping[str, str]) -> Selection:
        return Selection(
            target.namespace if target.resource.namespaced else None,
            selectors.labels(query.get("labelSelector", "")),
            selectors.fields(query.get("fieldSelector", ""), target.resource.table),
        )

    def _list(self, form: _Form, target: _Target, query: Mapping[str, str]) -> Reply:
        resource = target.resource
        self._version(query)
        limit = _whole(query, "limit")
        page = self.api.page(resource, self._selection(target, query), limit=limit, token=query.get("continue", ""))
        metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.next:
            metadata["continue"] = page.next
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        if form.shape == "Table":
            return Reply(200, msgspec.json.encode(self._table(resource, page.records, metadata)))
        if form.shape.startswith(_METADATA_ONLY):
            items = [_only_metadata(record.object) for record in page.records]
            body = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
            return Reply(200, msgspec.json.encode(body))
        items = [self._shown(resource, record) for record in page.records]
        if not resource.custom:
            items = [{name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items]
        return self._reply(
            form, {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
        )

    def _version(self, query: Mapping[str, str]) -> int | None:
        """The resourceVersion that was asked for. Raises `StatusError` for one from the future."""
        text = query.get("resourceVersion", "")
        if not text:
            return None
        if not text.isdigit():
            told = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise errors.bad_request(f"invalid resource version: {told}")
        version = int(text)
        if version > self.api.store.version and not query.get("watch"):
            told = f"Too large resource version: {version}, current: {self.api.store.version}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise StatusError(504, "Timeout", f"Timeout: {told}", {"causes": [cause], "retryAfterSeconds": 1})
        return version

    def _watch(self, form: _Form, target: _Target, query: Mapping[str, str]) -> Stream:
        resource = target.resource
        selection = self._selection(target, query)
        version = self._version(query)
        initial = query.get("sendInitialEvents") == "true"
        watch = self.api.watch(resource, selection, None if initial else version)
        described = False

        def encode(kind: str, record: Record) -> bytes:
            nonlocal described
            if form.shape == "Table":
                table = self._table(resource, [record], {"resourceVersion": str(record.version)})
                if described:
                    table["columnDefinitions"] = []
                described = True
                body = msgspec.json.encode(table)
            elif form.shape == _METADATA_ONLY:
                body = msgspec.json.encode(_only_metadata(record.object))
            else:
                body = self._encoded(resource, record)
            return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

        def bookmark(at: int, **annotations: str) -> bytes:
            metadata: dict[str, Any] = {"resourceVersion": str(at), "creationTimestamp": None}
            if annotations:
                metadata["annotations"] = annotations
            body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
            return b'{"type":"BOOKMARK","object":%s}\n' % msgspec.json.encode(body)

        seconds = float(_whole(query, "timeoutSeconds") or 2700)
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        stream = Stream(watch, encode, bookmark, seconds, bookmarks=bookmarks)
        if initial and bookmarks:
            stream.end_of_initial(bookmark(self.api.store.version, **{"k8s.io/initial-events-end": "true"}))
        return stream

    def _create(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, api, sub = target.resource, self.api, target.subresource
        if target.namespace is None:
            raise errors.method_not_allowed()
        options = _write_options(request)
        if sub in ("binding", "eviction") and resource.table == PODS:
            body, _ = self._body(request, None, model=core_v1.Binding if sub == "binding" else policy_v1.Eviction)
            if sub == "binding":
                api.bind(target.namespace, target.name, body, dry_run=options.dry_run)
            else:
                api.evict(target.namespace, target.name, body, dry_run=options.dry_run)
            success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            return Reply(201, msgspec.json.encode(success))
        if target.name or sub or "create" not in resource.verbs:
            raise errors.method_not_allowed()
        if resource.plural.endswith("reviews"):
            body, _ = self._body(request, resource)
            return self._reply(form, reviews.answered(resource.kind, body), 201)
        body, warnings = self._body(request, resource)
        made = api.create(resource, target.namespace, body, manager=options.manager, dry_run=options.dry_run)
        return self._one(form, resource, Record(made, 0), 201, warnings)

    def _update(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, options = target.resource, _write_options(request)
        if target.subresource == "scale":
            body, _ = self._body(request, None, model=autoscaling_v1.Scale)
            changed = self.api.set_scale(resource, target.namespace or "", target.name, body, dry_run=options.dry_run)
            return self._reply(form, changed)
        body, warnings = self._body(request, resource)
        existed = self.api.store.get(resource.table, (target.namespace or "", target.name)) is not None
        done = self.api.update(
            resource,
            target.namespace or "",
            target.name,
            body,
            subresource=target.subresource,
            manager=options.manager,
            dry_run=options.dry_run,
        )
        return self._one(form, resource, Record(done, 0), 200 if existed else 201, warnings)

    def _patch(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, options = target.resource, _write_options(request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type not in _PATCHES or (resource.custom and "strategic" in content_type):
            if not resource.custom:
                raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
            raise errors.unsupported_media(", ".join(each for each in _PATCHES if "strategic" not in each))
        self._check_size(request)
        namespace, name, sub = target.namespace or "", target.name, target.subresource
        if content_type == "application/apply-patch+yaml":
            if not options.manager:
                wrong = errors.required("fieldManager", "is required for apply patch")
                raise errors.invalid("meta.k8s.io", "PatchOptions", "", [wrong])
            body, warnings = self._body(request, resource, applied=True)
            done, created = self.api.apply(
                resource,
                namespace,
                name,
                body,
                manager=options.manager,
                force=request.query.get("force") in ("true", "1"),
                subresource=sub,
                dry_run=options.dry_run,
            )
            return self._one(form, resource, Record(done, 0), 201 if created else 200, warnings)
        try:
            patch = msgspec.json.decode(request.body)
        except msgspec.DecodeError as error:
            told = "" if "strategic" in content_type else "error decoding patch: "
            raise errors.bad_request(f"{told}{_syntax(error)}") from error
        if "json-patch" not in content_type and not isinstance(patch, dict):
            if patch is None and "strategic" not in content_type:
                raise errors.bad_request("Invalid JSON Patch")
            if patch is not None:
                told = "" if "strategic" in content_type else "error decoding patch: "
                into = "Go value of type map[string]interface {}"
                raise errors.bad_request(f"{told}json: cannot unmarshal {schema.go_name(patch)} into {into}")
            patch = {}
        if sub == "scale":
            merged = merging.merge(self.api.scale(resource, self._get(target)), patch)
            scale = _typed(autoscaling_v1.Scale, merged)
            return self._reply(form, self.api.set_scale(resource, namespace, name, scale, dry_run=options.dry_run))
        done = self.api.patch(
            resource, namespace, name, content_type, patch, subresource=sub, manager=options.manager, dry_run=options.dry_run
        )
        return self._one(form, resource, Record(done, 0))

    def _delete(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, query = target.resource, request.query
        options = _write_options(request)
        given: Object = {}
        if request.body:
            given, _ = self._body(request, None, model=meta_v1.DeleteOptions)
        if "gracePeriodSeconds" in query:
            given["gracePeriodSeconds"] = _whole(query, "gracePeriodSeconds")
        if query.get("propagationPolicy"):
            given["propagationPolicy"] = query["propagationPolicy"]
        if target.name:
            last, gone = self.api.delete(resource, target.namespace or "", target.name, given, dry_run=options.dry_run)
            if not gone or resource.table == PODS:
                return self._one(form, resource, Record(last, 0))
            details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": last["metadata"]["uid"]}
            success = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {name: value for name, value in details.items() if value},
            }
            return self._reply(form, success)
        if "deletecollection" not in resource.verbs or (resource.namespaced and target.namespace is None):
            raise errors.method_not_allowed()
        page = self.api.page(resource, self._selection(target, query))
        items = []
        for record in page.records:
            name, namespace = record.object["metadata"]["name"], record.object["metadata"].get("namespace", "")
            items.append(self.api.delete(resource, namespace, name, given, dry_run=options.dry_run)[0])
        metadata = {"resourceVersion": str(self.api.store.version)}
        return self._reply(
            form, {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
        )

    # -- bodies in -----------------------------------------------------------------------------

    @staticmethod
    def _check_size(request: Request) -> None:
        if len(request.body) > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)

    def _body(
        self, request: Request, resource: Resource | None, *, applied: bool = False, model: type[Any] | None = None
    ) -> tuple[Object, list[str]]:
        """(the object, warnings). resource: None for the bodies of subresources and options, which are of a `model`."""
        self._check_size(request)
        content_type = request.headers.get("content-type", _JSON).partition(";")[0].strip() or _JSON
        if content_type == _JSON:
            body = self._json(request.body, resource)
        elif content_type == _YAML or applied:
            body = _yaml(request.body)
        elif content_type == _PROTOBUF and not (resource is not None and resource.custom):
            body = _protobuf(request.body, resource, model)
        else:
            raise errors.unsupported_media(_READABLE)
        if body is None and not applied:
            body = {}
        if resource is None:
            if not isinstance(body, dict):
                raise errors.bad_request("the object provided is unrecognized: it must be an object")
            return _typed(model, body), []
        self._check_kind(body, resource, request.body, applied=applied)
        unknown: list[str] = []
        about = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        try:
            decoded = schema.decode(self.api.node_of(resource), body, unknown)
        except schema.Mistyped as error:
            if not resource.custom:
                raise errors.bad_request(f"{about}: {error}") from error
            metadata = body.get("metadata")
            try:  # all else is for the schema to say
                known = schema.decode(schema.of_model(meta_v1.ObjectMeta), {} if metadata is None else metadata, [])
            except schema.Mistyped as wrong:
                raise errors.bad_request(f"{about}: {wrong}") from wrong
            decoded = {**body, "metadata": known}
        validation = request.query.get("fieldValidation", "Strict" if applied else "Warn") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            cause = errors.Cause(
                "FieldValueNotSupported",
                f'Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"',
                "fieldValidation",
            )
            raise errors.invalid("meta.k8s.io", "CreateOptions", "", [cause])
        told = [f'unknown field "{path}"' for path in unknown]
        if told and applied:
            about = f"{request.path.rsplit('/', 1)[-1]}; {resource.api_version}, Kind={resource.kind}"
            where = f"failed to create typed patch object ({about})"
            raise StatusError(500, "", f"{where}: .{unknown[0]}: field not declared in schema")
        if told and validation == "Strict":
            raise errors.bad_request(f"{about}: strict decoding error: {', '.join(told)}")
        decoded.setdefault("metadata", {})
        if resource.group == eventforms.GROUP:
            decoded = eventforms.stored(decoded)
        return decoded, told if validation == "Warn" else []

    def _json(self, content: bytes, resource: Resource | None) -> Any:
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise _unrecognized(content, resource, f"couldn't get version/kind; json parse error: {_syntax(error)}") from error

    def _check_kind(self, body: Any, resource: Resource, content: bytes, *, applied: bool) -> None:
        if not isinstance(body, dict):
            go = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
            told = f"json: cannot unmarshal {schema.go_name(body)} into Go value of type {go}"
            raise _unrecognized(content, resource, f"couldn't get version/kind; json parse error: {told}")
        kind, version = body.get("kind") or "", body.get("apiVersion") or ""
        for name, value in (("apiVersion", version), ("kind", kind)):
            if not isinstance(value, str):
                told = f"json: cannot unmarshal {schema.go_name(value)} into Go struct field .{name} of type string"
                raise _unrecognized(content, resource, f"couldn't get version/kind; json parse error: {told}")
        if applied and not (kind and version):
            raise errors.bad_request(f'invalid object type: "{version}, Kind={kind}"')
        if resource.custom:
            if not kind:
                raise _unrecognized(content, resource, f"Object 'Kind' is missing in '{content.decode(errors='replace')}'")
            if version != resource.api_version:
                told = f"does not match the expected API version ({resource.api_version})"
                raise errors.bad_request(f"the API version in the data ({version}) {told}")
        if resource.custom:
            self.api.check_custom_kind(resource, body)
            return
        version, kind = version or resource.api_version, kind or resource.kind
        if (version, kind) == (resource.api_version, resource.kind):
            return
        other = self.api.catalog.of_kind(version, kind)
        told = errors.unregistered(version, kind)
        if other is not None and not other.custom:
            ours = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
            told = f"converting ({other.version}.{kind}) to ({ours}): unknown conversion"
        raise errors.unhandled(version, kind, resource.kind, told)

    # -- objects out ---------------------------------------------------------------------------

    def _reply(self, form: _Form, body: Object, status: int = 200) -> Reply:
        if form.yaml:
            return Reply(status, yaml.safe_dump(body, sort_keys=True).encode(), _YAML)
        return Reply(status, msgspec.json.encode(body))

    def _one(
        self, form: _Form, resource: Resource, record: Record, status: int = 200, warnings: list[str] | None = None
    ) -> Reply:
        if form.shape == "Table":
            metadata = {"resourceVersion": record.object["metadata"].get("resourceVersion", "")}
            reply = Reply(status, msgspec.json.encode(self._table(resource, [record], metadata)))
        elif form.shape == _METADATA_ONLY:
            reply = Reply(status, msgspec.json.encode(_only_metadata(record.object)))
        elif form.yaml:
            reply = self._reply(form, self._shown(resource, record), status)
        else:
            reply = Reply(status, self._encoded(resource, record))
        if warnings:
            reply.headers = {"Warning": ", ".join(f'299 - "{each.replace(chr(34), chr(92) + chr(34))}"' for each in warnings)}
        return reply

    @staticmethod
    def _shown(resource: Resource, record: Record) -> Object:
        return eventforms.shown(record.object) if resource.group == eventforms.GROUP else record.object

    def _encoded(self, resource: Resource, record: Record) -> bytes:
        if resource.group == eventforms.GROUP:
            return msgspec.json.encode(eventforms.shown(record.object))
        return record.encoded

    def _table(self, resource: Resource, records: list[Record], metadata: dict[str, Any]) -> dict[str, Any]:
        now = self.api.clock.now()
        rows = [
            {"cells": tables.cells(resource, record.object, now), "object": _only_metadata(record.object)} for record in records
        ]
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": tables.columns(resource),
            "rows": rows,
        }


# -- small parts -------------------------------------------------------------------------------


def _no_page() -> Reply:
    return Reply(404, b"404 page not found\n", "text/plain; charset=utf-8")


def _only_metadata(obj: Object) -> Object:
    return {"kind": _METADATA_ONLY, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


class _WriteOptions(msgspec.Struct, frozen=True):
    manager: str
    dry_run: bool


def _write_options(request: Request) -> _WriteOptions:
    dry_run = request.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        kind = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}.get(request.method, "DeleteOptions")
        cause = errors.Cause("FieldValueNotSupported", f'Unsupported value: ["{dry_run}"]: supported values: "All"', "dryRun")
        raise errors.invalid("meta.k8s.io", kind, "", [cause])
    manager = request.query.get("fieldManager", "")
    if len(manager) > 128:
        cause = errors.Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager")
        raise errors.invalid("meta.k8s.io", "CreateOptions", "", [cause])
    return _WriteOptions(manager, dry_run == "All")


def _whole(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _negotiate(accept: str) -> _Form:
    """The first form asked for that is spoken. Raises `StatusError` 406."""
    if not accept:
        return _Form()
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        shape = options.get("as", "")
        if shape and (options.get("g") != "meta.k8s.io" or options.get("v") != "v1"):
            continue
        if shape not in ("", "Table", _METADATA_ONLY, "PartialObjectMetadataList"):
            continue
        if media in (_JSON, "*/*", "application/*"):
            return _Form(shape=shape)
        if media == _YAML:
            return _Form(yaml=True, shape=shape)
    raise errors.not_acceptable(_READABLE)


def _typed(model: type[Any] | None, body: Any) -> Object:
    """A body of a fixed type without what it does not know. Raises `StatusError` 400."""
    try:
        decoded: Object = schema.decode(schema.of_model(model) if model is not None else schema.Node("any"), body, [])
    except schema.Mistyped as error:
        raise errors.bad_request(f"the object provided is unrecognized: {error}") from error
    return decoded


def _protobuf(content: bytes, resource: Resource | None, model: type[Any] | None) -> Object:
    expected = (resource.api_version, resource.kind) if resource else ("v1", model.__name__ if model else "")
    try:
        return protobuf.decode(content, expected)
    except protobuf.Malformed as error:
        if resource is None:
            raise errors.bad_request(str(error)) from error
        if error.kind is not None:
            raise errors.unhandled(*error.kind, resource.kind, str(error)) from error
        raise _unrecognized(content, resource, str(error)) from error


def _unrecognized(content: bytes, resource: Resource | None, why: str) -> StatusError:
    """What was sent is no object at all; its first bytes are shown, in hexadecimal where they are no JSON."""
    if resource is None:
        return errors.bad_request(f"the object provided is unrecognized: {why}")
    told = content[:_SHOWN_BYTES].hex() if content[:1] != b"{" else content[:_SHOWN_BYTES].decode(errors="replace")
    data = (told + " ..." if len(content) > _SHOWN_BYTES else told) or "<empty>"
    return errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why} ({data})")


def _syntax(error: msgspec.DecodeError) -> str:
    """What Go's parser says, where that is known."""
    return "unexpected end of JSON input" if "truncated" in str(error) else str(error)


def _yaml(content: bytes) -> Any:
    """YAML without code, and without documents that unfold beyond a bound."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        pass
    try:
        tree = yaml.compose(content, Loader=yaml.CSafeLoader)
        if tree is None:
            return None
        if _unfolded(tree, {}) > _MOST_NODES:
            raise errors.bad_request("error decoding YAML: document contains excessive aliasing")
        return _plain(yaml.load(content, Loader=_TextLoader))  # noqa: S506 - a safe loader without times
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error


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
