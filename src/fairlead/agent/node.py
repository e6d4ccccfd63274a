"""The agent: registers this host as a node, and runs the containers of pods that are bound to it as processes.

The pods come from the API server; the processes are the agent's own. After a restart of the agent no earlier process is left
(processes end with their agent), so pods whose status is Running have failed, through no fault of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead.agent.devices import WHOLE, Devices, found
from fairlead.agent.process import Container
from fairlead.agent.recipe import Manifest, RecipeError, recipe, volumes
from fairlead.api import names
from fairlead.api.names import HOSTNAME_LABEL
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import REFUSAL_GRACE, ApiError, Client, Unreachable, encode, refuses
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.pod_specs import gpu_fraction
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Change
from fairlead.core.links.matrix import Links

log = structlog.get_logger("agent")

_MERGE = "application/merge-patch+json"
_HEARTBEAT = 10.0
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 60.0
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0  # of what the API server did not answer
_GOODBYE = 3.0  # seconds for the last word
_ENDED = ("Succeeded", "Failed")
GPU = names.GPU_RESOURCES[0]


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


class _Object(msgspec.Struct):
    metadata: views.Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Agent:
    """One node. `run` returns when it is cancelled; whatever ran is ended then."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.name = options.name or socket.gethostname().lower()
        self.folder = options.folder.absolute()
        self.devices = Devices(found() if options.gpus is None else options.gpus, options.links)
        self._since = timestamp(client.clock())
        self._running: dict[str, _Run] = {}
        self._over: set[str] = set()  # uids of pods that have run; a late update of one starts nothing
        self._jobs: dict[str, int] = {}  # job and attempt -> the port where its members meet
        self._tasks: set[asyncio.Task[None]] = set()
        self._informer = Informer(
            client,
            "/api/v1/pods",
            _Object,
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

    def _changed(self, changes: list[Change[_Object]]) -> None:
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
                    running.stop()
            elif running is None and change.key not in self._over and pod.status.get("phase") not in _ENDED:
                self._running[change.key] = run = _Run(self, pod)
                self.spawn(run.live())

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Have something done beside all else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def remove(self, pod: _Object) -> None:
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

    async def write_status(self, pod: _Object, status: Manifest) -> None:
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

    def port_of(self, pod: _Object) -> int:
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

    def forget(self, pod: _Object) -> None:
        """A pod has ended."""
        self._over.add(pod.metadata.uid)
        self._running.pop(pod.metadata.uid, None)
        self.devices.give_back(pod.metadata.uid)


class _Run:
    """One pod: its containers from the first to the last."""

    def __init__(self, agent: Agent, pod: _Object) -> None:
        self.agent = agent
        self.pod = pod
        self._containers: list[Container] = []
        self.named: dict[str, Container] = {}  # those that run now
        self._states: dict[str, Manifest] = {}
        self._restarts: dict[str, int] = {}
        self._stopping = False
        self._started = timestamp(agent.client.clock())

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when the pod's grace is over."""
        if not self._stopping:
            self._stopping = True
            grace = float(self.pod.spec.get("terminationGracePeriodSeconds", 30))
            for each in self._containers:
                self.agent.spawn(each.stop(grace))

    def kill(self) -> None:
        """At once."""
        self._stopping = True
        for each in self._containers:
            each.kill()

    async def live(self) -> None:
        """Run the pod to its end; then write its status, or remove it if it was being deleted."""
        agent, pod = self.agent, self.pod
        try:
            if pod.status.get("phase") == "Running":
                message = "the agent restarted; containers from before the restart are gone"
                await agent.write_status(pod, {"phase": "Failed", "reason": "NodeLost", "message": message})
                return
            await self._play()
        except (RecipeError, ApiError) as error:
            log.warning("pod cannot be run", pod=pod.metadata.key, error=str(error))
            await agent.write_status(pod, {"phase": "Failed", "reason": "CreateContainerError", "message": str(error)[:1000]})
        finally:
            agent.forget(pod)
        if self._stopping:
            await agent.remove(pod)

    async def _play(self) -> None:
        agent, pod = self.agent, self.pod
        spec, metadata = pod.spec, pod.metadata
        folder = agent.log_of(metadata.namespace, metadata.uid, "x").parent
        folder.mkdir(parents=True, exist_ok=True)
        known = await self._lookup()
        manifest: Manifest = {"metadata": _plain(metadata), "spec": spec}

        def lookup(kind: str, name: str) -> Mapping[str, str] | None:
            return known.get((kind, name))

        mounted = await asyncio.to_thread(volumes, manifest, folder, lookup)
        outside = dict(os.environ)
        port = agent.port_of(pod)
        visible = self._devices()

        def made(container: Manifest) -> Container:
            cooked = recipe(manifest, container, folder, mounted, lookup, outside, port)
            cooked.env["CUDA_VISIBLE_DEVICES"] = visible
            cooked.env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # numbers are those of nvidia-smi
            return Container(cooked, agent.log_of(metadata.namespace, metadata.uid, container["name"]))

        for container in _all(spec):
            made(container)  # raises for a container that cannot be run before anything runs
        for container in spec.get("initContainers") or ():
            code = 0 if self._stopping else await self._one(container, made, "OnFailure")
            if code or self._stopping:
                await self._end(code or 128 + signal.SIGTERM)
                return
        policy = spec.get("restartPolicy", "Always")
        codes = await asyncio.gather(*(self._one(each, made, policy) for each in spec.get("containers") or ()))
        await self._end(max(codes))

    async def _one(self, container: Manifest, made: Callable[[Manifest], Container], policy: str) -> int:
        """One container, restarted according to its pod's policy."""
        name, wait = container["name"], _FIRST_BACKOFF
        while not self._stopping:
            run = made(container)
            self._containers.append(run)
            self._states[name] = {"running": {"startedAt": timestamp(self.agent.client.clock())}}
            await self._write_status("Running")
            self.named[name] = run
            code = await run.run()
            self._containers.remove(run)
            del self.named[name]
            ended = {
                "exitCode": code,
                "reason": "Completed" if code == 0 else "Error",
                "finishedAt": timestamp(self.agent.client.clock()),
            }
            self._states[name] = {"terminated": ended}
            if self._stopping or policy == "Never" or (policy == "OnFailure" and code == 0):
                return code
            self._restarts[name] = self._restarts.get(name, 0) + 1
            await self._write_status("Running")
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_BACKOFF)
        return 128 + signal.SIGTERM

    async def _write_status(self, phase: str, **more: str) -> None:
        spec = self.pod.spec
        initial = {each["name"] for each in spec.get("initContainers") or ()}
        started = any(name not in initial for name in self._states)
        statuses = [
            {
                "name": name,
                "image": next(each.get("image", "") for each in _all(spec) if each["name"] == name),
                "imageID": "",
                "ready": "running" in state,
                "started": "running" in state,
                "restartCount": self._restarts.get(name, 0),
                "state": state,
            }
            for name, state in self._states.items()
        ]
        ready = str(phase == "Running" and started)
        conditions = [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")]
        conditions.append({"type": "Initialized", "status": str(started or not initial)})
        conditions.append({"type": "PodScheduled", "status": "True"})
        status = {
            "phase": phase if started or phase in _ENDED else "Pending",
            "startTime": self._started,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "conditions": conditions,
            "initContainerStatuses": [each for each in statuses if each["name"] in initial],
            "containerStatuses": [each for each in statuses if each["name"] not in initial],
            **more,
        }
        await self.agent.write_status(self.pod, status)

    async def _end(self, code: int) -> None:
        await self._write_status("Succeeded" if code == 0 else "Failed")

    def _devices(self) -> str:
        """What CUDA is to see: the pod's devices, and none for a pod that asked for none."""
        asked = sum(
            int((each.get("resources") or {}).get("requests", {}).get(GPU, 0) or 0) for each in self.pod.spec["containers"]
        )
        fraction = (self.pod.metadata.annotations or {}).get(names.GPU_FRACTION_ANNOTATION)
        milli = gpu_fraction(fraction) if fraction else WHOLE
        if fraction:
            asked = max(asked, 1)
        if not asked:
            return ""
        partner = (self.pod.metadata.annotations or {}).get(names.GPU_PARTNER_ANNOTATION)
        if partner and not fraction and asked == 1:
            taken = self.agent.devices.take_half(self.pod.metadata.uid, partner)
        else:
            taken = self.agent.devices.take(self.pod.metadata.uid, asked, milli)
        if taken is None:
            raise RecipeError(
                f"{asked} GPUs are not free on {self.agent.name}; free thousandths of its GPUs: {self.agent.devices.free}"
            )
        return ",".join(map(str, taken))

    async def _lookup(self) -> dict[tuple[str, str], Mapping[str, str]]:
        """The ConfigMaps and Secrets that the pod names."""
        spec, wanted = self.pod.spec, set()
        for volume in spec.get("volumes") or ():
            if "configMap" in volume:
                wanted.add(("configmaps", volume["configMap"].get("name", "")))
            if "secret" in volume:
                wanted.add(("secrets", volume["secret"].get("secretName", "")))
        for container in _all(spec):
            sources = [*(container.get("envFrom") or ()), *((each.get("valueFrom") or {}) for each in container.get("env") or ())]
            for source in sources:
                for field, reference in source.items():
                    if field.startswith(("configMap", "secret")) and isinstance(reference, dict):
                        wanted.add(("configmaps" if field.startswith("configMap") else "secrets", reference.get("name", "")))
        namespace = self.pod.metadata.namespace
        found = {each: await self.agent.data(namespace, *each, lambda: self._stopping) for each in sorted(wanted)}
        return {each: data for each, data in found.items() if data is not None}


def waits() -> Iterator[float]:
    """How long to wait after each attempt that the API server did not answer."""
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(wait * 2, _LONGEST_WAIT)


def passing(error: Exception) -> bool:
    """Whether it may be otherwise in a moment: no answer, too many requests, or a fault of the server."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and (error.code == 429 or error.code >= 500))


def _all(spec: Manifest) -> list[Manifest]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _plain(metadata: views.Metadata) -> Manifest:
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "labels": metadata.labels or {},
        "annotations": metadata.annotations or {},
    }


def _path(pod: _Object) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
