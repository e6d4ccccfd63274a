"""Nodes reconfigured through mig-manager on a real API server: the numbers behind `fairlead bench mig`.

Scheduler and operator are processes of their own. mig-manager, the device plugin and the kubelets are played: a bound pod runs if
its node offers the partition that it asks for, is refused otherwise, and ends after its time.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable

import structlog

from fairlead.api import names, spans
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.config import load
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from fairlead.core.mig.parts import PREFIX, WHOLE
from fairlead.simulation.mig.reconfigured import MigBench, Stream, play, result
from testbed.controlplane import SCHEDULER_USER, ControlPlane, free_port, scheduler_command

log = structlog.get_logger("kubelet")

_OPERATOR = "fairlead-operator"
_MERGE = "application/merge-patch+json"
_OUTCOMES = re.compile(r'^fairlead_operator_mig_reconfigurations_total\{outcome="(\w+)"\} ([0-9.e+]+)', re.MULTILINE)
_ENDED = ("Succeeded", "Failed")


class Kubelets:
    """The kubelets of all nodes, played. rejected: pods that asked for partitions which their node did not offer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rejected = 0
        self._offers: dict[str, dict[str, int]] = {}
        self._held: dict[str, Counter[str]] = {}
        self._known: dict[str, tuple[str, Counter[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.informers = (
            Informer(client, "/api/v1/nodes", views.Node, self._nodes, lambda: None, key=lambda metadata: metadata.name),
            Informer(client, "/api/v1/pods", views.Pod, self._pods, lambda: None),
        )

    def _nodes(self, changes: list[Change[views.Node]]) -> None:
        for change in changes:
            offered = (change.view.status.allocatable or {}) if change.view is not None and change.view.status is not None else {}
            self._offers[change.key] = {
                name: int(amount) for name, amount in offered.items() if name == WHOLE or name.startswith(PREFIX)
            }

    def _pods(self, changes: list[Change[views.Pod]]) -> None:
        for change in changes:
            pod = change.view
            if pod is None or (pod.status is not None and pod.status.phase in _ENDED):
                node, asked = self._known.pop(change.key, ("", Counter[str]()))
                self._held.get(node, Counter[str]()).subtract(asked)
            elif pod.spec.node_name and change.key not in self._known:
                self._admit(change.key, pod)

    def _admit(self, key: str, pod: views.Pod) -> None:
        node, asked = pod.spec.node_name, Counter[str]()
        for each in pod.spec.containers:
            requests = each.resources.requests or {} if each.resources is not None else {}
            asked.update({name: int(amount) for name, amount in requests.items() if name == WHOLE or name.startswith(PREFIX)})
        self._known[key] = node, asked
        held = self._held.setdefault(node, Counter())
        fits = all(held[name] + amount <= self._offers.get(node, {}).get(name, 0) for name, amount in asked.items())
        held.update(asked)
        self.rejected += not fits
        seconds = spans.seconds((pod.metadata.annotations or {})[names.SIMULATED_DURATION_ANNOTATION])
        task = asyncio.ensure_future(self._run(key, seconds) if fits else self._write(key, "Failed"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: str, seconds: float) -> None:
        await self._write(key, "Running")
        await asyncio.sleep(seconds)
        await self._write(key, "Succeeded")

    async def _write(self, key: str, phase: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            await self.client.patch(
                f"/api/v1/namespaces/{namespace}/pods/{name}/status", encode({"status": {"phase": phase}}), _MERGE
            )
        except ApiError as error:
            log.warning("status not written", pod=key, error=str(error)[:200])


def run(stream: Stream, progress: Callable[[str], None]) -> MigBench:
    """The stream on a fresh control plane."""
    return asyncio.run(_run(stream, progress))


async def _run(stream: Stream, progress: Callable[[str], None]) -> MigBench:
    plane = ControlPlane(flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"])
    processes: list[subprocess.Popen[bytes]] = []
    tasks: list[asyncio.Task[None]] = []
    port = free_port()
    try:
        await asyncio.to_thread(plane.start)
        await asyncio.to_thread(plane.install, SCHEDULER_USER)
        await asyncio.to_thread(plane.grant, _OPERATOR)
        scheduler = scheduler_command(plane.user("scheduler", SCHEDULER_USER))
        operator = [sys.executable, "-m", "fairlead", "operator", "--kubeconfig", str(plane.user(_OPERATOR, _OPERATOR))]
        operator += ["--no-leader-elect", "--address", f"127.0.0.1:{port}"]
        processes.extend(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in (scheduler, operator)
        )
        async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
            kubelets = Kubelets(client)
            tasks.extend(asyncio.create_task(each.run()) for each in kubelets.informers)
            played = await play(client, stream, speed=1.0, progress=progress)
            outcomes = await asyncio.to_thread(_outcomes, port)
            return await result(client, stream, played, outcomes, "real")
    finally:
        for task in tasks:
            task.cancel()
        await plane.stop_with(processes)


def _outcomes(port: int) -> dict[str, int]:
    """What the operator counts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return {name: int(float(count)) for name, count in _OUTCOMES.findall(reply.read().decode())}
