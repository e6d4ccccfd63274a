"""An aggregated API: resources of a group of ours that the API server passes on to this process.

Discovery, the front proxy's certificate and our own, and errors as Statuses are done here; the server of a group gives its
resources and their routes. RBAC on the resources of the group, per namespace, decides who may ask; the API server checks it
before a request arrives here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog
from aiohttp import web

from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.cluster.kubernetes.front_proxy import FrontProxy, FrontProxyError, Identity, read

log = structlog.get_logger("aggregated")

_LARGEST = 1 << 20  # bytes of a question
_RETRY = (2.0, 30.0)  # seconds until it is tried again: at first, and at most

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AggregatedApi:
    """One group, served on `host:port` while it runs.

    service: through which the API server reaches it. resources: as discovery lists them; routes: (path below the
    group's version, handler). chart: the file that makes the APIService.
    """

    def __init__(
        self,
        client: Client,
        address: str,
        group: str,
        version: str,
        service: Service,
        resources: Sequence[dict[str, Any]],
        routes: Sequence[tuple[str, Handler]],
        chart: str,
    ) -> None:
        self.client = client
        self.address = address
        self.group = group
        self.version = version
        self._service = service
        self._listed = list(resources)
        self._routes = [web.get(f"{self.base}/{path}", handler) for path, handler in routes]
        self._chart = chart
        self._proxy: FrontProxy | None = None

    def take(self, path: str, handler: Handler) -> None:
        """Take POSTs, too, below the group's version, from now until it runs: questions, which make nothing."""
        self._routes.append(web.post(f"{self.base}/{path}", handler))

    @property
    def base(self) -> str:
        """Where the group's version is."""
        return f"/apis/{self.group}/{self.version}"

    async def run(self) -> None:
        """Serve until cancelled; what prevents it is logged and tried again, and never ends the process."""
        clock, rest = asyncio.get_running_loop().time, _RETRY[0]
        while True:
            begun = clock()
            try:
                await self._serve()
            except (FrontProxyError, ApiError, Unreachable, OSError, ValueError, msgspec.MsgspecError) as error:
                rest = _RETRY[0] if clock() - begun > _RETRY[1] else rest
                log.error("not served", api=self.group, error=str(error)[:300], again_in=rest)
                await asyncio.sleep(rest)
                rest = min(2 * rest, _RETRY[1])

    async def _serve(self) -> None:
        self._proxy = await read(self.client)
        host, _, port = self.address.rpartition(":")
        identity = Identity(self._service.host, "localhost", *([host] if host not in ("", "0.0.0.0", "::") else []))  # noqa: S104
        application = web.Application(middlewares=[self._guard], client_max_size=_LARGEST)
        application.add_routes(
            [
                web.get("/apis", self._groups),
                web.get(f"/apis/{self.group}", self._group),
                web.get(self.base, self._resources),
                *self._routes,
            ]
        )
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host or None, int(port), ssl_context=identity.context(self._proxy)).start()
            await identity.publish(self.client, f"{self.version}.{self.group}", self._chart)
            await self._service.lead_here(self.client, int(port))
            log.info("serving", api=self.group, address=self.address)
            await asyncio.get_running_loop().create_future()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._proxy is None or not self._proxy.admits(request):
            return refusal(403, "Forbidden", "only the API server's front proxy is answered")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        except web.HTTPRequestEntityTooLarge:
            return refusal(
                413, "RequestEntityTooLarge", f"the request is larger than {_LARGEST >> 20} MiB: ask about less at a time"
            )
        except web.HTTPMethodNotAllowed:
            return refusal(405, "MethodNotAllowed", "this API can only be read")

    def user(self, request: web.Request) -> str:
        """Who asked the API server; empty where that is not given."""
        headers = self._proxy.user_headers if self._proxy is not None else ()
        return next((name for each in headers if (name := request.headers.get(each))), "")

    # -- discovery -----------------------------------------------------------------------------

    def _group_version(self) -> dict[str, Any]:
        version = {"groupVersion": f"{self.group}/{self.version}", "version": self.version}
        return {"name": self.group, "versions": [version], "preferredVersion": version}

    async def _groups(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._group_version()]})

    async def _group(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIGroup", "apiVersion": "v1", **self._group_version()})

    async def _resources(self, _: web.Request) -> web.Response:
        version = f"{self.group}/{self.version}"
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": self._listed}
        return web.json_response(listed)


def refusal(code: int, reason: str, message: str) -> web.Response:
    """A Status that refuses a request."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return web.json_response({**body, "reason": reason, "message": message, "code": code}, status=code)


def camelled(value: Any) -> Any:
    """A struct as an API writes it: fields in camelCase, keys of maps as they are."""
    if isinstance(value, msgspec.Struct):
        return {camel(name): camelled(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [camelled(each) for each in value]
    return value


def camel(name: str) -> str:
    """`expected_start` -> `expectedStart`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
