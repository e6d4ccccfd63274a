"""The agent: registers this host as a node, and runs the containers of pods that are bound to it as processes.

The pods come from the API server; the processes are the agent's own. After a restart of the agent no earlier process is left
(processes end with their agent), so pods whose status is Running have failed, through no fault of their own.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path

import msgspec
import structlog

from fairlead.agent.devices import Devices, found
from fairlead.agent.pod import ENDED, GPU, PodObject, PodRun
from fairlead.agent.process import Container
from fairlead.agent.recipe import Manifest
from fairlead.api import names
from fairlead.api.names import HOSTNAME_LABEL
from fairlead.cluster.kubernetes.client import REFUSAL_GRACE, ApiError, Client, Unreachable, encode, refuses
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Change
from fairlead.core.links.matrix import Links

log = structlog.get_logger("agent")

_MERGE = "application/merge-patch+json"
_HEARTBEAT = 10.0
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0  # of what the API server did not answer
_GOODBYE = 3.0  # seconds for the last word


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run. gpus: None: as many as are found; links: how they are connected, if that is known.

    folder: for logs, volumes and working directories.
    """

    name: str = ""
    gpus: int | None = None
    links: Links | None = None
    cpus: int = 0
    memory: int = 0
    pods: int = 110
    folder: Path = Path("fairlead-agent")
    labels: Mapping[str, str] = {}


class Agent:
    """One node. `run` returns when it is cancelled; whatever ran is ended then."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.name = options.name or socket.gethostname().lower()
        self.folder = options.folder.absolute()
        self.devices = Devices(found() if options.gpus is None else options.gpus, options.links)
        self._since = timestamp(client.clock())
        self._running: dict[str, PodRun] = {}
        self._over: set[str] = set()  # uids of pods that have run; a late update of one starts nothing
        self._jobs: dict[str, int] = {}  # job and attempt -> the port where its members meet
        self._tasks: set[asyncio.Task[None]] = set()
        self._informer = Informer(
            client,
            "/api/v1/pods",
            PodObject,
            self._changed,
            lambda: None,
            key=lambda metadata: metadata.uid,
            fields=f"spec.nodeName={self.name}",
        )

    async def run(self) -> None:
        """Register, and run what comes. Raises `ApiError` where the node is refused for good at the start."""
        try:
            await self._begin()
        except asyncio.CancelledError:
            log.info("stopped before it was registered")
            raise
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._informer.run())
        finally:
            for each in self._running.values():
                each.kill()
            try:
                async with asyncio.timeout(_GOODBYE):
                    await self._report(ready=False)
            except (ApiError, Unreachable, TimeoutError) as error:
                log.warning("status of the node not written at shutdown", error=(str(error) or repr(error))[:300])

    # -- the node ------------------------------------------------------------------------------

    def _amounts(self) -> dict[str, str]:
        options = self.options
        memory = options.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        amounts = {"cpu": str(options.cpus or os.cpu_count() or 1), "memory": str(memory), "pods": str(options.pods)}
        return amounts | ({GPU: str(len(self.devices.free))} if self.devices.free else {})

    async def _begin(self) -> None:
        """Register, for as long as it takes; a refusal counts once an API server that starts would have loaded its roles."""
        loop, refused_at = asyncio.get_running_loop(), None
        for wait in waits():
            try:
                await self._register()
                return
            except (ApiError, Unreachable) as error:
                if not refuses(error):
                    refused_at = None
                    if not passing(error):
                        raise
                else:
                    refused_at = loop.time() if refused_at is None else refused_at
                    if loop.time() - refused_at >= REFUSAL_GRACE:
                        raise
                log.warning("not registered", error=str(error)[:300], wait=wait)
            await asyncio.sleep(wait)

    async def _register(self) -> None:
        labels = {HOSTNAME_LABEL: self.name, "fairlead.dev/agent": "true"}
        if self.devices.free:
            labels[names.GPU_SHARING_LABEL] = names.OWN_AGENT
        labels |= self.options.labels
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
        try:
            await self.client.post("/api/v1/nodes", encode(body))
        except ApiError as error:
            if error.code != 409:
                raise
            await self.client.patch(f"/api/v1/nodes/{self.name}", encode({"metadata": {"labels": labels}}), _MERGE)
        await self._report(ready=True)
        log.info("registered", node=self.name, **{name.rpartition("/")[2]: amount for name, amount in self._amounts().items()})

    async def _report(self, *, ready: bool) -> None:
        now = timestamp(self.client.clock())
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "AgentReady" if ready else "AgentStopped",
            "message": "the agent runs" if ready else "the agent has stopped",
            "lastHeartbeatTime": now,
            "lastTransitionTime": self._since if ready else now,
        }
        amounts = self._amounts()
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        status["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self.name}]
        await self.client.patch(f"/api/v1/nodes/{self.name}/status", encode({"status": status}), _MERGE)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                await self._report(ready=True)
            except (ApiError, Unreachable) as error:
                log.warning("heartbeat not written", error=str(error)[:300])
                if isinstance(error, ApiError) and error.code == 404:
                    await self._register_again()

    async def _register_again(self) -> None:
        """Register after the node was deleted."""
        try:
            await self._register()
        except (ApiError, Unreachable) as error:
            log.warning("not registered", error=str(error)[:300], wait=_HEARTBEAT)

    # -- pods ----------------------------------------------------------------------------------

    def _changed(self, changes: list[Change[PodObject]]) -> None:
        for change in changes:
            running = self._running.get(change.key)
            if change.view is None:
                self._over.discard(change.key)
                if running is not None:
                    running.kill()
                continue
            pod = change.view
            if pod.metadata.deletion_timestamp is not None:
                if running is None:
                    self.spawn(self.remove(pod))
                else:
                    running.stop(pod.metadata.deletion_grace_period_seconds)
            elif running is None and change.key not in self._over and pod.status.get("phase") not in ENDED:
                self._running[change.key] = run = PodRun(self, pod)
                self.spawn(run.live())

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Have something done beside all else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def remove(self, pod: PodObject) -> None:
        """Nothing of a pod runs: the API server may forget it. Tried until it has, or the pod is another's."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        for wait in waits():
            try:
                await self.client.delete(_path(pod), encode(body))
                return
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code in (404, 409):
                    return
                log.warning("pod not removed", pod=pod.metadata.key, error=str(error)[:300], wait=wait)
            await asyncio.sleep(wait)

    async def write_status(self, pod: PodObject, status: Manifest) -> None:
        """Write a pod's status. Retry until the API server accepts it or the pod is gone."""
        for wait in waits():
            try:
                await self.client.patch(
                    f"{_path(pod)}/status", encode({"metadata": {"uid": pod.metadata.uid}, "status": status}), _MERGE
                )
                return
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code in (404, 409, 422):
                    return
                log.warning("status not written", pod=pod.metadata.key, error=str(error)[:300], wait=wait)
            await asyncio.sleep(wait)

    async def data(self, namespace: str, kind: str, name: str, over: Callable[[], bool]) -> Mapping[str, str] | None:
        """What a ConfigMap or Secret holds. over: whether it is no longer needed. Raises `ApiError` where it is refused.

        The Node authorizer refuses what it does not know yet of a pod that was bound a moment ago.
        """
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        for wait in waits():
            if over():
                break
            try:
                found: Manifest = msgspec.json.decode(await self.client.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}"))
                return found.get("data") or {}
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code == 404:
                    break
                if not passing(error) and (not refuses(error) or loop.time() - began >= REFUSAL_GRACE):
                    raise
                log.warning("cannot be read", namespace=namespace, kind=kind, name=name, error=str(error)[:300], wait=wait)
            await asyncio.sleep(wait)
        return None

    def port_of(self, pod: PodObject) -> int:
        """Where the members of a pod's job meet: a port that no other job has on this host."""
        labels = pod.metadata.labels or {}
        job = "/".join(
            (pod.metadata.namespace, labels.get(names.JOB_LABEL, pod.metadata.name), labels.get(names.ELEMENT_LABEL, ""))
        )
        key = f"{job}/{labels.get(names.ATTEMPT_LABEL, '')}"
        if key not in self._jobs:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._jobs[key] = free.getsockname()[1]
        return self._jobs[key]

    def log_of(self, namespace: str, uid: str, container: str) -> Path:
        """What a container printed."""
        return self.folder / "pods" / namespace / uid / f"{container}.log"

    def container_of(self, uid: str, name: str) -> Container | None:
        """A pod's container, if it runs now."""
        run = self._running.get(uid)
        return run.named.get(name) if run is not None else None

    def forget(self, pod: PodObject) -> None:
        """A pod has ended."""
        self._over.add(pod.metadata.uid)
        self._running.pop(pod.metadata.uid, None)
        self.devices.give_back(pod.metadata.uid)


def waits() -> Iterator[float]:
    """How long to wait after each attempt that the API server did not answer."""
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(wait * 2, _LONGEST_WAIT)


def passing(error: Exception) -> bool:
    """Whether it may be otherwise in a moment: no answer, too many requests, or a fault of the server."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and (error.code == 429 or error.code >= 500))


def _path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
