"""The aggregated API `visibility.fairlead.dev`: positions and explanations for users that may not list the cluster.

    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pods/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/podgroups/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/jobs/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/aijobs/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pendingjobs
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/jobs       ?queue=NAME&since=VERSION
    /apis/visibility.fairlead.dev/v1alpha1/jobs                     ?queue=NAME&since=VERSION
    /apis/visibility.fairlead.dev/v1alpha1/nodes                    ?since=VERSION
    /apis/visibility.fairlead.dev/v1alpha1/queues
    /apis/visibility.fairlead.dev/v1alpha1/quotas
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/nodes      ?since=VERSION
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/queues
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/quotas
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/whatifs    POST {"spec": ...}

The leader answers from its state as it is, between two passes; nothing is decided and nothing is written for it. RBAC on these
resources decides who may ask, per namespace or in the cluster. `since` takes the version of an earlier answer: only what changed
is sent.

What is asked in a namespace does not name others: an explanation shows how many are ahead and why, not whose they are; `nodes`,
`queues` and `quotas` there are of the whole cluster, with pods of other namespaces and other users than who asks as counts; and
`jobs` has, as `others`, how many run and wait in each queue. `whatifs` takes a question, which makes nothing: it is played by a
process apart (`player`).
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from fairlead.api import names
from fairlead.cluster.kubernetes.aggregated import AggregatedApi, Handler, camelled, refusal
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.explanations import Explanation, PendingJob
from fairlead.scheduler.overview.rows import Job
from fairlead.scheduler.overview.served import Answer, Overview
from fairlead.scheduler.player import Asked, Player, TooMuch

GROUP, VERSION = names.VISIBILITY_GROUP, names.VERSION

_AT_ONCE = 4
_LIMIT = 10.0
_TOO_LONG = (
    "the question was not played to its end in time: the cluster is large, or the question is. Ask about fewer pods and nodes, "
    "or have an administrator ask, whose `fairlead whatif` has no such limit"
)

Ask = Callable[[Callable[[CoreLoop], Any]], Any]


class Visibility:
    """Serves on `host:port` while it runs.

    ask: has the core answer a question. service: that leads to it. player: of what-if questions; None: these are not served.
    """

    def __init__(
        self, client: Client, address: str, service: Service, ask: Ask, clock: Callable[[], float], player: Player | None = None
    ) -> None:
        self._player = player
        self._ask = ask
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._overview = Overview(self._asked)
        of_cluster = [("nodes", self._nodes), ("queues", self._queues), ("quotas", self._quotas)]
        routes = [
            ("namespaces/{namespace}/jobs", self._jobs),
            ("jobs", self._jobs),
            *((f"{where}{path}", handler) for where in ("", "namespaces/{namespace}/") for path, handler in of_cluster),
            ("namespaces/{namespace}/{plural:pods|podgroups|jobs|aijobs}/{name}/explanation", self._explanation),
            ("namespaces/{namespace}/pendingjobs", self._pending),
        ]
        timely = [(path, _in_time(handler)) for path, handler in routes]
        served = [*_RESOURCES, *([_WHATIFS] if player is not None else ())]
        self._api = AggregatedApi(client, address, GROUP, VERSION, service, served, timely, "charts/visibility.yaml")
        if player is not None:
            self._api.take("namespaces/{namespace}/whatifs", self._what_if)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self._api.run()
        finally:
            if self._player is not None:
                await self._player.close()

    # -- answers -------------------------------------------------------------------------------

    async def _asked(self, question: Callable[[CoreLoop], Any]) -> Any:
        return await asyncio.wrap_future(self._ask(question))

    async def _answer(self, question: Callable[[CoreLoop], Any]) -> Any:
        return await self._one_of_few(self._asked(question))

    async def _one_of_few(self, answer: Awaitable[Any]) -> Any:
        async with self._slots, asyncio.timeout(_LIMIT):
            return await answer

    async def _explanation(self, request: web.Request) -> web.Response:
        plural, namespace, name = (request.match_info[each] for each in ("plural", "namespace", "name"))
        kind, now = plural.removesuffix("s"), self._clock()
        found: Explanation | None = await self._answer(lambda core: explanations.live(core, kind, namespace, name, now))
        if found is None:
            return refusal(404, "NotFound", f'{plural} "{name}" is not known to the scheduler in namespace {namespace}')
        metadata = {"name": name, "namespace": namespace}
        body = {"kind": "Explanation", "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata, "status": camelled(found)}
        return web.json_response(body)

    async def _pending(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        jobs: list[PendingJob] = await self._answer(lambda core: explanations.pending(core, namespace))
        if "as=Table" in request.headers.get("Accept", ""):
            return web.json_response(_table(namespace, jobs))
        items = [
            {
                "kind": "PendingJob",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {"name": job.name, "namespace": namespace},
                "status": camelled(job),
            }
            for job in jobs
        ]
        body = {"kind": "PendingJobList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return web.json_response(body)

    async def _what_if(self, request: web.Request) -> web.Response:
        if self._player is None:
            raise web.HTTPNotFound
        namespace = request.match_info["namespace"]
        try:
            played = await self._player.play(Asked(namespace, self._api.user(request), await request.read()))
        except TooMuch as error:
            response = refusal(429, "TooManyRequests", str(error))
            response.headers["Retry-After"] = str(error.wait)
            return response
        except TimeoutError:
            return refusal(504, "Timeout", _TOO_LONG)
        if played.outcome:
            head = {"kind": "WhatIf", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"namespace": namespace}}
            body = msgspec.json.encode({**head, "status": msgspec.Raw(played.outcome)})
            return web.Response(body=body, content_type="application/json")
        return refusal(played.code, played.reason, played.message)

    # -- the cluster at a glance ---------------------------------------------------------------

    async def _jobs(self, request: web.Request) -> web.Response:
        namespace, queue = request.match_info.get("namespace", ""), request.query.get("queue", "")
        asked = self._overview.jobs(namespace, queue, request.query.get("since", ""))
        more = {"others": await self._one_of_few(self._overview.others(namespace))} if namespace else {}
        return await self._listed(request, "Job", asked, lambda row: (row.namespace, row.name), more)

    async def _nodes(self, request: web.Request) -> web.Response:
        asked = self._overview.nodes(request.match_info.get("namespace", ""), request.query.get("since", ""))
        return await self._listed(request, "Node", asked, lambda row: ("", row.name))

    async def _quotas(self, request: web.Request) -> web.Response:
        user = self._api.user(request) if "namespace" in request.match_info else None
        found = await self._one_of_few(self._overview.quotas(lambda name: user in (None, name)))
        return await _packed(request, await asyncio.to_thread(_list, "Quota", Answer("", found), lambda row: ("", row.queue)))

    async def _queues(self, request: web.Request) -> web.Response:
        found = await self._one_of_few(self._overview.queues())
        answer = Answer("", found.queues)
        more = {"outsideQueues": found.outside_queues, "resource": found.resource}
        return await _packed(request, await asyncio.to_thread(_list, "Queue", answer, lambda row: ("", row.name), more))

    async def _listed(
        self,
        request: web.Request,
        kind: str,
        asked: Awaitable[Answer],
        named: Callable[[Any], tuple[str, str]],
        more: dict[str, Any] | None = None,
    ) -> web.Response:
        answer = await self._one_of_few(asked)
        return await _packed(request, await asyncio.to_thread(_list, kind, answer, named, more))


def _in_time(handler: Handler) -> Handler:
    """A handler that refuses, instead of failing, where the scheduler does not answer in time."""

    async def answered(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except TimeoutError:
            return refusal(503, "ServiceUnavailable", "the scheduler is busy; retry")

    return answered


class _Named(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: str
    namespace: str = ""


class _Item(msgspec.Struct, frozen=True, gc=False):
    metadata: _Named
    status: Any


def _list(kind: str, answer: Answer, named: Callable[[Any], tuple[str, str]], more: dict[str, Any] | None = None) -> bytes:
    """A list of rows as JSON."""
    items = []
    for row in answer.rows:
        namespace, name = named(row)
        items.append(_Item(_Named(name, namespace), row if isinstance(row, Job) else camelled(row)))
    body = {
        "kind": f"{kind}List",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {"resourceVersion": answer.version},
        "since": answer.since,
        "gone": answer.gone,
        "items": items,
        **(more or {}),
    }
    return msgspec.json.encode(body)


async def _packed(request: web.Request, body: bytes) -> web.Response:
    """An answer, compressed where the client takes that."""
    response = web.Response(body=body, content_type="application/json")
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        packed = await asyncio.to_thread(gzip.compress, body, 5)
        response = web.Response(body=packed, content_type="application/json", headers={"Content-Encoding": "gzip"})
    return response


_EXPLAINED = {"namespaced": True, "kind": "Explanation", "singularName": "", "verbs": ["get"]}
_RESOURCES = [
    {
        "name": "pendingjobs",
        "namespaced": True,
        "kind": "PendingJob",
        "singularName": "pendingjob",
        "verbs": ["list"],
        "shortNames": ["pj"],
    },
    {"name": "jobs", "namespaced": True, "kind": "Job", "singularName": "job", "verbs": ["list"]},
    {"name": "nodes", "namespaced": False, "kind": "Node", "singularName": "node", "verbs": ["list"]},
    {"name": "queues", "namespaced": False, "kind": "Queue", "singularName": "queue", "verbs": ["list"]},
    {"name": "quotas", "namespaced": False, "kind": "Quota", "singularName": "quota", "verbs": ["list"]},
    {"name": "podgroups/explanation", **_EXPLAINED},
    {"name": "pods/explanation", **_EXPLAINED},
    {"name": "jobs/explanation", **_EXPLAINED},
    {"name": "aijobs/explanation", **_EXPLAINED},
]
_WHATIFS = {"name": "whatifs", "namespaced": True, "kind": "WhatIf", "singularName": "whatif", "verbs": ["create"]}
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
