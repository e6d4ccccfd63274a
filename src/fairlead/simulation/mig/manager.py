"""mig-manager, played: it acts on the label `nvidia.com/mig.config` of nodes as NVIDIA's does, and counts what it hits.

On a new value it writes the state `pending`, stops every GPU client of the node (a pod that runs there on GPUs is hit: it is
deleted), takes the node's partitions away, and after a while offers the new ones and writes `success`. How long that takes, and
whether it fails or hangs, is given for each time. It plays the device plugin, too: the node's allocatable resources are its.
It works on any API server, real or simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, delete, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.kubernetes.listing import list_all
from fairlead.cluster.translate import Change
from fairlead.core.mig.parts import PREFIX, WHOLE

log = structlog.get_logger("mig-manager")

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_MERGE = "application/merge-patch+json"
_ENDED = ("Succeeded", "Failed")
_RETRY = 1.0


class Result(StrEnum):
    """How one reconfiguration ends."""

    SUCCESS = "success"
    FAILED = "failed"
    HANGS = "hangs"


class Fate(msgspec.Struct, frozen=True):
    """What becomes of one reconfiguration. seconds: it takes; delay: until mig-manager has seen the label."""

    result: Result
    seconds: float
    delay: float = 0.5


class Manager:
    """Acts on the labels of nodes until cancelled.

    layouts: partitions of a node by the name of the configuration, as resources and amounts. fate: of (node, configuration).
    speed: of the client's clock against the loop's. hits: pods that it stopped while they had GPUs there.
    """

    def __init__(
        self,
        client: Client,
        layouts: Mapping[str, Mapping[str, int]],
        fate: Callable[[str, str], Fate],
        *,
        speed: float = 1.0,
    ) -> None:
        self.client = client
        self.layouts = layouts
        self.fate = fate
        self.speed = speed
        self.reconfigurations = 0
        self.hits: list[str] = []
        self.results: list[tuple[str, str, Result]] = []
        self._wanted: dict[str, str] = {}
        self._applied: dict[str, str] = {}
        self._busy: set[str] = set()
        self._resources = sorted({resource for layout in layouts.values() for resource in layout})
        self._tasks: set[asyncio.Task[None]] = set()
        self.informer = Informer(client, _NODES, views.Node, self._changed, lambda: None, key=lambda metadata: metadata.name)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.informer.run()
        finally:
            for task in self._tasks:
                task.cancel()

    def _changed(self, changes: list[Change[views.Node]]) -> None:
        for change in changes:
            name, labels = change.key, change.view.metadata.labels or {} if change.view is not None else {}
            config = labels.get(names.MIG_CONFIG_LABEL, "")
            if config not in self.layouts:
                continue
            if name not in self._applied:
                # As it was installed.
                if labels.get(names.MIG_STATE_LABEL) == Result.SUCCESS:
                    self._applied[name] = config
                else:
                    self._applied[name] = ""
            self._wanted[name] = config
            if config != self._applied[name] and name not in self._busy:
                self._busy.add(name)
                task = asyncio.ensure_future(self._act(name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _act(self, name: str) -> None:
        try:
            while self._applied[name] != self._wanted[name]:
                config = self._wanted[name]
                await self._apply(name, config, self.fate(name, config))
        finally:
            self._busy.discard(name)

    async def _apply(self, name: str, config: str, fate: Fate) -> None:
        await self._sleep(fate.delay)
        self.reconfigurations += 1
        await self._labelled(name, "pending")
        await self._stop_clients(name)
        await self._offer(name, {})
        await self._sleep(fate.seconds)
        self.results.append((name, config, fate.result))
        self._applied[name] = config
        await self._stop_clients(name)
        if fate.result == Result.HANGS:
            return
        if fate.result == Result.SUCCESS:
            await self._offer(name, self.layouts[config])
        await self._labelled(name, str(fate.result))

    async def _stop_clients(self, name: str) -> None:
        for pod in await self._tried(lambda: list_all(self.client, _PODS, views.Pod, fields=f"spec.nodeName={name}")):
            phase = pod.status.phase if pod.status is not None else ""
            if phase not in _ENDED and uses_gpus(pod):
                self.hits.append(pod.metadata.key)
                log.error("a running pod is hit", node=name, pod=pod.metadata.key)
                where = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
                await self._tried(lambda where=where: delete(self.client, where))  # type: ignore[misc]

    async def _labelled(self, name: str, state: str) -> None:
        body = encode({"metadata": {"labels": {names.MIG_STATE_LABEL: state}}})
        await self._tried(lambda: self.client.patch(f"{_NODES}/{name}", body, _MERGE))

    async def _offer(self, name: str, layout: Mapping[str, int]) -> None:
        amounts = {resource: str(layout.get(resource, 0)) for resource in self._resources}
        body = encode({"status": {"capacity": amounts, "allocatable": amounts}})
        await self._tried(lambda: self.client.patch(f"{_NODES}/{name}/status", body, _MERGE))

    async def _tried(self, write: Callable[[], Any]) -> Any:
        """Again until the API server takes it; nothing, where the node is gone."""
        while True:
            try:
                return await write()
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code == 404:
                    return ()
                await self._sleep(_RETRY)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)


def uses_gpus(pod: views.Pod) -> bool:
    """Whether a pod is a client of GPUs: read from its manifest alone, as mig-manager's node sees it."""
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    asked = {
        name
        for each in containers
        if each.resources is not None
        for name in {**(each.resources.requests or {}), **(each.resources.limits or {})}
    }
    return any(name == WHOLE or name.startswith(PREFIX) for name in asked)
