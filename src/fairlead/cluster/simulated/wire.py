"""From method, path, query and bytes to verbs, and back: Kubernetes' wire format as a plain function.

`Wire.handle` answers one request with a `Reply`, or with a `Stream` for a watch. Neither sockets nor
tasks are involved: HTTP (`http.py`) and the in-process transport (`transport.py`) share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
import structlog
from lightkube.models import autoscaling_v1, core_v1, meta_v1, policy_v1

from fairlead.cluster.simulated import bodies, errors, merging, options, paths, reviews, selectors
from fairlead.cluster.simulated.api.reading import Selection
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.bodies import Body
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.forms import Answers, Form, bookmark_of, negotiate
from fairlead.cluster.simulated.messages import JSON, Reply, Request
from fairlead.cluster.simulated.paths import Target
from fairlead.cluster.simulated.resources import PODS, Resource
from fairlead.cluster.simulated.store import Object, Record
from fairlead.cluster.simulated.stream import Stream

log = structlog.get_logger("wire")

_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


class Wire:
    """The wire format of one API server."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._answers = Answers(api.clock)

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
            return paths.elsewhere(self.api.catalog, parts)
        document = paths.discovery(self.api.catalog, parts)
        if document is not None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return Reply(200, msgspec.json.encode(document))
        target = paths.target(self.api.catalog, parts)
        if target is None:
            known = parts[0] == "api" or (len(parts) > 1 and self.api.catalog.group(parts[1]) is not None)
            if not known:
                return paths.no_page()
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        if target.namespace in (".", ".."):
            raise StatusError(500, "", f'invalid key: "/{target.resource.plural}/{target.namespace}"')
        if target.name in (".", ".."):
            raise errors.bad_request(f"Name parameter invalid: \"{target.name}\": may not be '{target.name}'")
        return self._serve(request, target)

    # -- verbs ---------------------------------------------------------------------------------

    def _serve(self, request: Request, target: Target) -> Reply | Stream:  # noqa: PLR0911 - a verb each
        method, resource, query = request.method, target.resource, request.query
        if target.subresource == "log" and method == "GET":
            return self._log(target, query)
        form = negotiate(request.headers.get("accept", ""))
        if method == "GET":
            if target.subresource == "scale":
                return self._answers.plain(form, self.api.scale(resource, self._get(target)))
            if target.name:
                return self._answers.one(form, resource, self._get(target))
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

    def _get(self, target: Target) -> Record:
        return self.api.get(target.resource, target.namespace or "", target.name)

    def _log(self, target: Target, query: Mapping[str, str]) -> Reply:
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

    def _selection(self, target: Target, query: Mapping[str, str]) -> Selection:
        return Selection(
            target.namespace if target.resource.namespaced else None,
            selectors.labels(query.get("labelSelector", "")),
            selectors.fields(query.get("fieldSelector", ""), target.resource.table, target.resource.selectable),
        )

    def _list(self, form: Form, target: Target, query: Mapping[str, str]) -> Reply:
        resource = target.resource
        asked = options.version(query, self.api.store.version, watch=False)
        exact = asked if query.get("resourceVersionMatch") == "Exact" else None
        limit = max(0, options.whole(query, "limit"))
        page = self.api.page(resource, self._selection(target, query), limit=limit, token=query.get("continue", ""), exact=exact)
        return self._answers.listed(form, resource, page)

    def _watch(self, form: Form, target: Target, query: Mapping[str, str]) -> Stream:
        resource = target.resource
        selection = self._selection(target, query)
        version = options.version(query, self.api.store.version, watch=True)
        initial = options.flag(query, "sendInitialEvents")
        watch = self.api.watch(resource, selection, None if initial else version)
        bookmark = bookmark_of(resource)
        seconds = float(options.whole(query, "timeoutSeconds") or 2700)
        bookmarks = options.flag(query, "allowWatchBookmarks")
        stream = Stream(watch, self._answers.line(form, resource), bookmark, seconds, bookmarks=bookmarks)
        if initial and bookmarks:
            stream.end_of_initial(bookmark(self.api.store.version, **{"k8s.io/initial-events-end": "true"}))
        return stream

    def _create(self, request: Request, form: Form, target: Target) -> Reply:
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
            return self._answers.plain(form, reviews.answered(resource.kind, body), 201)
        body, warnings = self._body(request, resource)
        made = api.create(resource, target.namespace, body, manager=asked.manager, dry_run=asked.dry_run)
        return self._answers.one(form, resource, Record(made, 0), 201, warnings)

    def _update(self, request: Request, form: Form, target: Target) -> Reply:
        resource, asked = target.resource, options.of_write(request.method, request.query)
        if target.subresource == "scale":
            body = bodies.of_model(self._sent(request), autoscaling_v1.Scale)
            changed = self.api.set_scale(resource, target.namespace or "", target.name, body, dry_run=asked.dry_run)
            return self._answers.plain(form, changed)
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
        return self._answers.one(form, resource, Record(done, 0), 200 if existed else 201, warnings)

    def _patch(self, request: Request, form: Form, target: Target) -> Reply:
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
            return self._answers.one(form, resource, Record(done, 0), 201 if created else 200)
        patch = bodies.patch(self._sent(request))
        if sub == "scale":
            merged = merging.merge(self.api.scale(resource, self._get(target)), patch)
            scale = bodies.typed(merged, autoscaling_v1.Scale)
            return self._answers.plain(form, self.api.set_scale(resource, namespace, name, scale, dry_run=asked.dry_run))
        done = self.api.patch(
            resource, namespace, name, content_type, patch, subresource=sub, manager=asked.manager, dry_run=asked.dry_run
        )
        return self._answers.one(form, resource, Record(done, 0))

    def _delete(self, request: Request, form: Form, target: Target) -> Reply:
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
                return self._answers.one(form, resource, Record(last, 0))
            details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": last["metadata"]["uid"]}
            success = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {name: value for name, value in details.items() if value},
            }
            return self._answers.plain(form, success)
        if "deletecollection" not in resource.verbs or (resource.namespaced and target.namespace is None):
            raise errors.method_not_allowed()
        page = self.api.page(resource, self._selection(target, query))
        items = []
        for record in page.records:
            name, namespace = record.object["metadata"]["name"], record.object["metadata"].get("namespace", "")
            items.append(self.api.delete(resource, namespace, name, given, dry_run=asked.dry_run)[0])
        metadata = {"resourceVersion": str(self.api.store.version)}
        return self._answers.plain(
            form, {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
        )

    @staticmethod
    def _sent(request: Request) -> Body:
        return Body(request.body, request.headers.get("content-type", JSON).partition(";")[0].strip() or JSON)

    def _body(self, request: Request, resource: Resource) -> tuple[Object, list[str]]:
        return bodies.of_resource(self.api, resource, self._sent(request), request.query.get("fieldValidation", ""))
