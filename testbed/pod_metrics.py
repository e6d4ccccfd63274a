"""metrics.k8s.io for pods that nobody runs: what they use is what a test says.

The real API server passes requests on to it, as to a metrics server, through an APIService whose Service is this machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from fairlead.cluster.kubernetes.aggregated import AggregatedApi
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import from_file
from fairlead.cluster.kubernetes.endpoints import Service
from testbed.controlplane import ControlPlane, free_port

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_PODS = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
_SERVICE = "pod-metrics"


class PodMetrics:
    """Serves while the `with` block runs. used: of a pod, its CPU in cores; None: nothing is known."""

    def __init__(self, plane: ControlPlane, used: Callable[[dict[str, Any]], float | None]) -> None:
        self.plane, self.used = plane, used
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._task: asyncio.Task[None] | None = None
        self.port = free_port()

    def __enter__(self) -> Self:
        self._install()
        self._thread.start()
        self.plane.await_served(f"/apis/{GROUP}/{VERSION}/namespaces/default/pods")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)

    def _install(self) -> None:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE, "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        }
        self.plane.request("POST", "/api/v1/namespaces/kube-system/services", service)
        registered = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": _SERVICE, "namespace": "kube-system", "port": self.port},
            },
        }
        self.plane.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", registered)

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        routes = [("namespaces/{namespace}/pods", self._list)]
        host = f"127.0.0.1:{self.port}"
        try:
            async with Client(from_file(self.plane.kubeconfig)) as client:
                api = AggregatedApi(
                    client, host, GROUP, VERSION, Service(_SERVICE, "kube-system"), [_PODS], routes, "the testbed"
                )
                await api.run()
        except asyncio.CancelledError:
            pass

    async def _list(self, request: web.Request) -> web.Response:
        namespace, selector = request.match_info["namespace"], request.query.get("labelSelector", "")
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector.replace('=', '%3D')}"
        found = await asyncio.to_thread(self.plane.request, "GET", path)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = [
            {
                "metadata": {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")},
                "timestamp": at,
                "window": "10s",
                "containers": [
                    {"name": each["name"], "usage": {"cpu": f"{round(cores * 1000)}m", "memory": "64Mi"}}
                    for each in pod["spec"]["containers"]
                ],
            }
            for pod in found["items"]
            if (cores := self.used(pod)) is not None
        ]
        body = {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return web.json_response(body)
