"""The aggregated API `history.fairlead.dev`: what a namespace's jobs used, for users who may not read the database.

/apis/history.fairlead.dev/v1alpha1/namespaces/NS/jobs             ?name= user= queue= state=A,B since= until= limit=
/apis/history.fairlead.dev/v1alpha1/jobs                           the same of all namespaces
/apis/history.fairlead.dev/v1alpha1/namespaces/NS/jobs/UID/runs    the pods of one job
"""

from __future__ import annotations

import asyncio
import math

from aiohttp import web

from fairlead.api import names
from fairlead.cluster.kubernetes.aggregated import AggregatedApi, camelled, refusal
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.observability.history import Entry, HistoryError, State, Wanted
from fairlead.observability.store import History

GROUP, VERSION = names.HISTORY_GROUP, names.VERSION
BASE = f"/apis/{GROUP}/{VERSION}"

_AT_ONCE = 4
_MOST = 10_000  # jobs in one answer
_RESOURCES = [
    {"name": "jobs", "namespaced": True, "kind": "JobRecord", "singularName": "", "verbs": ["list"]},
    {"name": "jobs/runs", "namespaced": True, "kind": "RunRecordList", "singularName": "", "verbs": ["get"]},
]


class HistoryApi:
    """Serves a history on `host:port` while it runs. service: that leads to it."""

    def __init__(self, client: Client, address: str, service: Service, history: History) -> None:
        self.client = client
        self.history = history
        self._slots = asyncio.Semaphore(_AT_ONCE)
        routes = [
            ("jobs", self._jobs),
            ("namespaces/{namespace}/jobs", self._jobs),
            ("namespaces/{namespace}/jobs/{uid:.+}/runs", self._runs),
        ]
        self._api = AggregatedApi(client, address, GROUP, VERSION, service, _RESOURCES, routes, "charts/history.yaml")

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._api.run()

    async def _jobs(self, request: web.Request) -> web.Response:
        try:
            wanted = _wanted(request)
        except ValueError as error:
            return refusal(400, "BadRequest", str(error))
        try:
            async with self._slots:
                found = await asyncio.to_thread(self.history.jobs, wanted, self.client.clock())
        except HistoryError as error:
            return refusal(503, "ServiceUnavailable", str(error))
        body = {
            "kind": "JobRecordList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [_item(each) for each in found],
        }
        return web.json_response(body)

    async def _runs(self, request: web.Request) -> web.Response:
        namespace, uid = request.match_info["namespace"], request.match_info["uid"]
        try:
            async with self._slots:
                found = await asyncio.to_thread(self.history.runs, uid)
        except HistoryError as error:
            return refusal(503, "ServiceUnavailable", str(error))
        items = [{"metadata": {"name": each.name, "namespace": namespace}, "status": camelled(each)} for each in found]
        if not items or any(each.namespace != namespace for each in found):
            return refusal(404, "NotFound", f'nothing of job "{uid}" ran in namespace {namespace}')
        body = {"kind": "RunRecordList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return web.json_response(body)


def _item(entry: Entry) -> dict[str, object]:
    job = entry.job
    used = {"runs": entry.runs, "gpuSeconds": entry.gpu_seconds, "cpuSeconds": entry.cpu_seconds}
    metadata = {"name": job.name, "namespace": job.namespace, "uid": job.uid}
    return {"metadata": metadata, "status": camelled(job) | {"state": str(job.state)} | used}


def _wanted(request: web.Request) -> Wanted:
    """What a request asks for. Raises `ValueError`."""
    asked = request.query
    states = [each for each in asked.get("state", "").split(",") if each]
    unknown = set(states) - {str(each) for each in State}
    if unknown:
        raise ValueError(f"state {min(unknown)!r} is unknown: choose one of {', '.join(State)}")
    limit = asked.get("limit", "1000")
    if not limit.isdigit() or not int(limit):
        raise ValueError(f"limit {limit!r} is not a number above 0")
    return Wanted(
        namespace=request.match_info.get("namespace", ""),
        name=asked.get("name", ""),
        user=asked.get("user", ""),
        queue=asked.get("queue", ""),
        states=states,
        since=_moment(asked.get("since")),
        until=_moment(asked.get("until")),
        limit=min(int(limit), _MOST),
    )


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text!r} is not a time in seconds")
    return found
