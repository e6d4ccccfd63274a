"""The aggregated API `visibility.fairlead.dev`: positions and explanations for users that may not list the cluster.

    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pods/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/podgroups/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/jobs/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/aijobs/NAME/explanation
    /apis/visibility.fairlead.dev/v1alpha1/namespaces/NS/pendingjobs

The leader answers from its state as it is, between two passes; nothing is decided and nothing is written for it. RBAC on these
resources, per namespace, decides who may ask; of other namespaces an answer shows how many are ahead and why, not whose they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from fairlead.cluster.kubernetes.aggregated import AggregatedApi, camelled, refusal
from fairlead.cluster.kubernetes.client import Client
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.explanations import Explanation, PendingJob

GROUP, VERSION = "visibility.fairlead.dev", "v1alpha1"
BASE = f"/apis/{GROUP}/{VERSION}"
SERVICE = "fairlead-visibility.kube-system.svc"

_AT_ONCE = 4
_LIMIT = 10.0

Ask = Callable[[Callable[[CoreLoop], Any]], Any]


class Visibility:
    """Serves on `host:port` while it runs. ask: has the core answer a question."""

    def __init__(self, client: Client, address: str, ask: Ask, clock: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        routes = [
            ("namespaces/{namespace}/{plural:pods|podgroups|jobs|aijobs}/{name}/explanation", self._explanation),
            ("namespaces/{namespace}/pendingjobs", self._pending),
        ]
        self._api = AggregatedApi(client, address, GROUP, VERSION, SERVICE, _RESOURCES, routes, "charts/visibility.yaml")

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._api.run()

    # -- answers -------------------------------------------------------------------------------

    async def _answer(self, question: Callable[[CoreLoop], Any]) -> Any:
        async with self._slots, asyncio.timeout(_LIMIT):
            return await asyncio.wrap_future(self._ask(question))

    async def _explanation(self, request: web.Request) -> web.Response:
        plural, namespace, name = (request.match_info[each] for each in ("plural", "namespace", "name"))
        kind, now = plural.removesuffix("s"), self._clock()
        try:
            found: Explanation | None = await self._answer(lambda core: explanations.live(core, kind, namespace, name, now))
        except TimeoutError:
            return refusal(503, "ServiceUnavailable", "the scheduler is busy; retry")
        if found is None:
            return refusal(404, "NotFound", f'{plural} "{name}" is not known to the scheduler in namespace {namespace}')
        metadata = {"name": name, "namespace": namespace}
        body = {"kind": "Explanation", "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata, "status": camelled(found)}
        return web.json_response(body)

    async def _pending(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        try:
            jobs: list[PendingJob] = await self._answer(lambda core: explanations.pending(core, namespace))
        except TimeoutError:
            return refusal(503, "ServiceUnavailable", "the scheduler is busy; retry")
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
    {"name": "podgroups/explanation", **_EXPLAINED},
    {"name": "pods/explanation", **_EXPLAINED},
    {"name": "jobs/explanation", **_EXPLAINED},
    {"name": "aijobs/explanation", **_EXPLAINED},
]
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
