"""The aggregated API `visibility.fairlead.dev`: positions and explanations for whoever may not list the cluster.

    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pods/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/podgroups/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/jobs/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pendingjobs

The leader answers from its state as it is, between two passes; nothing is decided and nothing is written for it. RBAC on these
resources, per namespace, says who may ask; of other namespaces an answer tells how many are ahead and why, not whose they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web

from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.front_proxy import FrontProxy, FrontProxyError, Identity, read
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.explanations import Explanation, PendingJob

log = structlog.get_logger("visibility")

GROUP, VERSION = "visibility.fairlead.dev", "v1alpha1"
BASE = f"/apis/{GROUP}/{VERSION}"
SERVICE = "fairlead-visibility.kube-system.svc"

_AT_ONCE = 4
_LIMIT = 10.0
_RETRY = 30.0

Ask = Callable[[Callable[[CoreLoop], Any]], Any]


class Visibility:
    """Serves on `host:port` while it runs. ask: has the core answer a question."""

    def __init__(self, client: Client, address: str, ask: Ask, clock: Callable[[], float] = time.time) -> None:
        self.client = client
        self.address = address
        self._ask = ask
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._proxy: FrontProxy | None = None

    async def run(self) -> None:
        """Serve until cancelled; what stands in the way is said and tried again, and never ends the scheduler."""
        while True:
            try:
                await self._serve()
            except (FrontProxyError, ApiError, Unreachable, OSError) as error:
                log.error("not served", api=GROUP, error=str(error)[:300], again_in=_RETRY)
                await asyncio.sleep(_RETRY)

    async def _serve(self) -> None:
        self._proxy = await read(self.client)
        host, _, port = self.address.rpartition(":")
        identity = Identity(SERVICE, "localhost", *([host] if host not in ("", "0.0.0.0", "::") else []))  # noqa: S104
        application = web.Application(middlewares=[self._guard])
        named = f"{BASE}/namespaces/{{namespace}}"
        application.add_routes(
            [
                web.get("/apis", self._groups),
                web.get(f"/apis/{GROUP}", self._group),
                web.get(BASE, self._resources),
                web.get(f"{named}/{{plural:pods|podgroups|jobs}}/{{name}}/explanation", self._explanation),
                web.get(f"{named}/pendingjobs", self._pending),
            ]
        )
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host or None, int(port), ssl_context=identity.context(self._proxy)).start()
            await identity.publish(self.client, f"{VERSION}.{GROUP}")
            log.info("serving", api=GROUP, address=self.address)
            await asyncio.get_running_loop().create_future()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._proxy is None or not self._proxy.admits(request):
            return _status(403, "Forbidden", "only the API server's front proxy is answered")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _status(404, "NotFound", "the server could not find the requested resource")
        except web.HTTPMethodNotAllowed:
            return _status(405, "MethodNotAllowed", "this API can only be read")

    # -- discovery -----------------------------------------------------------------------------

    async def _groups(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]})

    async def _group(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIGroup", "apiVersion": "v1", **_GROUP})

    async def _resources(self, _: web.Request) -> web.Response:
        explained = {"namespaced": True, "kind": "Explanation", "singularName": "", "verbs": ["get"]}
        jobs = {"namespaced": True, "kind": "PendingJob", "singularName": "pendingjob", "verbs": ["list"], "shortNames": ["pj"]}
        resources = [
            {"name": "pendingjobs", **jobs},
            {"name": "podgroups/explanation", **explained},
            {"name": "pods/explanation", **explained},
            {"name": "jobs/explanation", **explained},
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": resources}
        return web.json_response(listed)

    # -- answers -------------------------------------------------------------------------------

    async def _answer(self, question: Callable[[CoreLoop], Any]) -> Any:
        async with self._turns, asyncio.timeout(_LIMIT):
            return await asyncio.wrap_future(self._ask(question))

    async def _explanation(self, request: web.Request) -> web.Response:
        plural, namespace, name = (request.match_info[each] for each in ("plural", "namespace", "name"))
        kind, now = plural.removesuffix("s"), self._clock()
        try:
            found: Explanation | None = await self._answer(lambda core: explanations.live(core, kind, namespace, name, now))
        except TimeoutError:
            return _status(503, "ServiceUnavailable", "the scheduler is busy; ask again")
        if found is None:
            return _status(404, "NotFound", f'{plural} "{name}" is not known to the scheduler in namespace {namespace}')
        metadata = {"name": name, "namespace": namespace}
        body = {"kind": "Explanation", "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata, "status": _camel(found)}
        return web.json_response(body)

    async def _pending(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        try:
            jobs: list[PendingJob] = await self._answer(lambda core: explanations.pending(core, namespace))
        except TimeoutError:
            return _status(503, "ServiceUnavailable", "the scheduler is busy; ask again")
        if "as=Table" in request.headers.get("Accept", ""):
            return web.json_response(_table(namespace, jobs))
        items = [
            {
                "kind": "PendingJob",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {"name": job.name, "namespace": namespace},
                "status": _camel(job),
            }
            for job in jobs
        ]
        body = {"kind": "PendingJobList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return web.json_response(body)


_VERSION = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}
_COLUMNS = ("Name", "Kind", "Queue", "Position", "Priority", "Pods", "Reason", "Expected")


def _table(namespace: str, jobs: list[PendingJob]) -> dict[str, Any]:
    """As kubectl prints it."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0} for name in _COLUMNS
        ],
        "rows": [
            {
                "cells": [
                    job.name,
                    job.kind,
                    job.queue,
                    job.position,
                    job.priority,
                    job.pods,
                    job.code,
                    job.expected_start or "<unknown>",
                ],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"name": job.name, "namespace": namespace},
                },
            }
            for job in jobs
        ],
    }


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return web.json_response({**body, "reason": reason, "message": message, "code": code}, status=code)


def _camel(value: Any) -> Any:
    """A struct as the API writes it: fields in camelCase, keys of maps as they are."""
    if isinstance(value, msgspec.Struct):
        return {camel(name): _camel(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_camel(each) for each in value]
    return value


def camel(name: str) -> str:
    """`expected_start` -> `expectedStart`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
