"""From method, path, query and bytes to verbs, and back: Kubernetes' wire format as a plain function.

`Wire.handle` answers one request with a `Reply`, or with a `Stream` for a watch. Neither sockets nor
tasks are involved: HTTP (`http.py`) and the in-process transport (`transport.py`) share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
import structlog
import yaml
from lightkube.models import autoscaling_v1, core_v1, meta_v1, policy_v1

from fairlead.cluster.simulated import bodies, errors, eventforms, merging, openapi, options, reviews, selectors, tables
from fairlead.cluster.simulated.api.reading import Selection, Watch
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.bodies import JSON, PROTOBUF, READABLE, YAML, Body
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import PODS, Resource
from fairlead.cluster.simulated.store import Object, Record

log = structlog.get_logger("wire")

_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "simulated",
}
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
    content_type: str = JSON
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
        parts = unquote(path, errors="strict").split("/")[1:]
        if parts and parts[-1] == "":
            parts.pop()
        if parts[:1] not in (["api"], ["apis"]):
            return self._elsewhere(request, parts)
        document = self._discovery(parts)
        if document is not None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return Reply(200, msgspec.json.encode(document))
        target = self._target(parts)
        if target is None:
            known = parts[0] == "api" or (len(parts) > 1 and self.api.catalog.group(parts[1]) is not None)
            if not known:
                return _no_page()
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        if target.namespace in (".", ".."):
            raise StatusError(500, "", f'invalid key: "/{target.resource.plural}/{target.namespace}"')
        if target.name in (".", ".."):
            raise errors.bad_request(f"Name parameter invalid: \"{target.name}\": may not be '{target.name}'")
        return self._serve(request, target)

    # -- what is not a resource ----------------------------------------------------------------

    def _elsewhere(self, request: Request, parts: list[str]) -> Reply:
        path = "/".join(parts)
        if path.removesuffix("/ping") in ("healthz", "livez", "readyz"):
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
            listed = catalog.resource_list("v1") or {}
            return {name: value for name, value in listed.items() if name != "apiVersion"}  # older than that field
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
        if method == "GET":
            if target.subresource == "scale":
                return self._reply(form, self.api.scale(resource, self._get(target)))
            if target.name:
                return self._one(form, resource, self._get(target))
            if "list" not in resource.verbs:
                raise errors.method_not_allowed()
            watch = options.flag(query, "watch")
            options.check_list(query, watch=watch)
            if watch:
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
        count = options.whole(query, "tailLines")
        pod = self._get(target).object
        names = [each["name"] for each in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if container not in names:
            raise errors.bad_request(f"container {container} is not valid for pod {target.name}")
        if not pod["spec"].get("nodeName"):
            return Reply(204, b"")
        text = self.api.logs(pod, container)
        if query.get("tailLines") and count >= 0:
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
        asked = options.version(query, self.api.store.version, watch=False)
        exact = asked if query.get("resourceVersionMatch") == "Exact" else None
        limit = max(0, options.whole(query, "limit"))
        page = self.api.page(resource, self._selection(target, query), limit=limit, token=query.get("continue", ""), exact=exact)
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

    def _watch(self, form: _Form, target: _Target, query: Mapping[str, str]) -> Stream:
        resource = target.resource
        selection = self._selection(target, query)
        version = options.version(query, self.api.store.version, watch=True)
        initial = options.flag(query, "sendInitialEvents")
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

        plain = (
            b'{"type":"BOOKMARK","object":{"kind":"%s","apiVersion":"%s",'
            b'"metadata":{"resourceVersion":"%d","creationTimestamp":null}}}\n'
        )
        about = resource.kind.encode(), resource.api_version.encode()

        def bookmark(at: int, **annotations: str) -> bytes:
            if not annotations:  # most of what an idle watch says
                return plain % (*about, at)
            metadata = {"resourceVersion": str(at), "creationTimestamp": None, "annotations": annotations}
            body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
            return b'{"type":"BOOKMARK","object":%s}\n' % msgspec.json.encode(body)

        seconds = float(options.whole(query, "timeoutSeconds") or 2700)
        bookmarks = options.flag(query, "allowWatchBookmarks")
        stream = Stream(watch, encode, bookmark, seconds, bookmarks=bookmarks)
        if initial and bookmarks:
            stream.end_of_initial(bookmark(self.api.store.version, **{"k8s.io/initial-events-end": "true"}))
        return stream

    def _create(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, api, sub = target.resource, self.api, target.subresource
        if target.namespace is None:
            raise errors.method_not_allowed()
        asked = options.of_write(request.method, request.query)
        if sub in ("binding", "eviction") and resource.table == PODS:
            model: type[Any] = core_v1.Binding if sub == "binding" else policy_v1.Eviction
            body = bodies.of_model(self._sent(request), model)
            if (body.get("metadata") or {}).get("name") != target.name:
                raise errors.bad_request(f"name in URL does not match name in {model.__name__} object")
            if sub == "binding":
                api.bind(target.namespace, target.name, body, dry_run=asked.dry_run)
            else:
                api.evict(target.namespace, target.name, body, dry_run=asked.dry_run)
            success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            return Reply(201, msgspec.json.encode(success))
        if target.name or sub or "create" not in resource.verbs:
            raise errors.method_not_allowed()
        if resource.plural.endswith("reviews"):
            body, _ = self._body(request, resource)
            return self._reply(form, reviews.answered(resource.kind, body), 201)
        body, warnings = self._body(request, resource)
        made = api.create(resource, target.namespace, body, manager=asked.manager, dry_run=asked.dry_run)
        return self._one(form, resource, Record(made, 0), 201, warnings)

    def _update(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, asked = target.resource, options.of_write(request.method, request.query)
        if target.subresource == "scale":
            body = bodies.of_model(self._sent(request), autoscaling_v1.Scale)
            changed = self.api.set_scale(resource, target.namespace or "", target.name, body, dry_run=asked.dry_run)
            return self._reply(form, changed)
        body, warnings = self._body(request, resource)
        existed = self.api.store.get(resource.table, (target.namespace or "", target.name)) is not None
        done = self.api.update(
            resource,
            target.namespace or "",
            target.name,
            body,
            subresource=target.subresource,
            manager=asked.manager,
            dry_run=asked.dry_run,
        )
        return self._one(form, resource, Record(done, 0), 200 if existed else 201, warnings)

    def _patch(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, asked = target.resource, options.of_write(request.method, request.query)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type not in _PATCHES or (resource.custom and "strategic" in content_type):
            if not resource.custom:
                raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
            raise errors.unsupported_media(", ".join(each for each in _PATCHES if "strategic" not in each))
        namespace, name, sub = target.namespace or "", target.name, target.subresource
        if content_type == "application/apply-patch+yaml":
            if not asked.manager:
                wrong = errors.required("fieldManager", "is required for apply patch")
                raise errors.invalid("meta.k8s.io", "PatchOptions", "", [wrong])
            body = bodies.applied(self.api, resource, self._sent(request))
            done, created = self.api.apply(
                resource,
                namespace,
                name,
                body,
                manager=asked.manager,
                force=options.flag(request.query, "force"),
                subresource=sub,
                dry_run=asked.dry_run,
            )
            return self._one(form, resource, Record(done, 0), 201 if created else 200)
        patch = bodies.patch(self._sent(request))
        if sub == "scale":
            merged = merging.merge(self.api.scale(resource, self._get(target)), patch)
            scale = bodies.typed(merged, autoscaling_v1.Scale)
            return self._reply(form, self.api.set_scale(resource, namespace, name, scale, dry_run=asked.dry_run))
        done = self.api.patch(
            resource, namespace, name, content_type, patch, subresource=sub, manager=asked.manager, dry_run=asked.dry_run
        )
        return self._one(form, resource, Record(done, 0))

    def _delete(self, request: Request, form: _Form, target: _Target) -> Reply:
        resource, query = target.resource, request.query
        asked = options.of_write(request.method, request.query)
        given: Object = {}
        if request.body:
            given = bodies.of_model(self._sent(request), meta_v1.DeleteOptions)
        if "gracePeriodSeconds" in query:
            given["gracePeriodSeconds"] = options.whole(query, "gracePeriodSeconds")
        if query.get("propagationPolicy"):
            given["propagationPolicy"] = query["propagationPolicy"]
        if target.name:
            last, gone = self.api.delete(resource, target.namespace or "", target.name, given, dry_run=asked.dry_run)
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
            items.append(self.api.delete(resource, namespace, name, given, dry_run=asked.dry_run)[0])
        metadata = {"resourceVersion": str(self.api.store.version)}
        return self._reply(
            form, {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
        )

    @staticmethod
    def _sent(request: Request) -> Body:
        return Body(request.body, request.headers.get("content-type", JSON).partition(";")[0].strip() or JSON)

    def _body(self, request: Request, resource: Resource) -> tuple[Object, list[str]]:
        return bodies.of_resource(self.api, resource, self._sent(request), request.query.get("fieldValidation", ""))

    # -- objects out ---------------------------------------------------------------------------

    def _reply(self, form: _Form, body: Object, status: int = 200) -> Reply:
        if form.yaml:
            return Reply(status, yaml.safe_dump(body, sort_keys=True).encode(), YAML)
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


def _negotiate(accept: str) -> _Form:
    """The first form asked for that is spoken. Raises `StatusError` 406."""
    if not accept:
        return _Form()
    unspoken = False
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        chosen = dict(part.split("=", 1) for part in parameters if "=" in part)
        shape = chosen.get("as", "")
        if shape and (chosen.get("g") != "meta.k8s.io" or chosen.get("v") != "v1"):
            unspoken = True
            continue
        if shape not in ("", "Table", _METADATA_ONLY, "PartialObjectMetadataList"):
            unspoken = True
            continue
        if media in (JSON, "*/*", "application/*"):
            return _Form(shape=shape)
        if media == YAML:
            return _Form(yaml=True, shape=shape)
    if unspoken:
        raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {READABLE}")
    raise errors.not_acceptable(f"{READABLE}, {JSON};stream=watch, {PROTOBUF};stream=watch")
