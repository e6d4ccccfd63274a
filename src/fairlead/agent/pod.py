"""One pod of the agent: its containers as processes, from the first to the last, and what is reported of them.

As in Kubernetes: init containers run one after the other; those with `restartPolicy: Always` are sidecars, which run beside the
others and are ended once these have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from fairlead.agent.devices import WHOLE, Devices
from fairlead.agent.process import Container
from fairlead.agent.recipe import Manifest, RecipeError, recipe, volumes
from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.pod_specs import gpu_fraction
from fairlead.cluster.times import timestamp

log = structlog.get_logger("agent")

ENDED = ("Succeeded", "Failed")
GPU = names.GPU_RESOURCES[0]
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 60.0
_GRACE = 30.0
_TERMINATED = 128 + signal.SIGTERM


class PodObject(msgspec.Struct):
    """A pod as the API server gives it."""

    metadata: views.Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Host(Protocol):
    """The agent, as far as it concerns one pod."""

    client: Client
    devices: Devices
    name: str

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Have something done beside all else."""

    def forget(self, pod: PodObject) -> None:
        """A pod has ended."""

    async def remove(self, pod: PodObject) -> None:
        """Nothing of a pod runs: the API server may forget it."""

    async def write_status(self, pod: PodObject, status: Manifest) -> None:
        """Write a pod's status."""

    async def data(self, namespace: str, kind: str, name: str, over: Callable[[], bool]) -> Mapping[str, str] | None:
        """What a ConfigMap or Secret holds. over: whether it is no longer needed."""

    def port_of(self, pod: PodObject) -> int:
        """Where the members of a pod's job meet."""

    def log_of(self, namespace: str, uid: str, container: str) -> Path:
        """What a container printed."""


class PodRun:
    """One pod: its containers from the first to the last."""

    def __init__(self, agent: Host, pod: PodObject) -> None:
        self.agent = agent
        self.pod = pod
        self.named: dict[str, Container] = {}  # those that run now
        self._sidecars: dict[str, asyncio.Task[int]] = {}
        self._states: dict[str, Manifest] = {}
        self._restarts: dict[str, int] = {}
        self._stopping = self._late = self._closing = False
        self._killed_at = float("inf")  # by the loop's clock
        self._started = timestamp(agent.client.clock())

    def stop(self, grace: float | None = None) -> None:
        """SIGTERM, and SIGKILL when its grace is over, which a later call may shorten. grace: seconds; absent: the pod's own."""
        self._stopping = True
        self._end_all(self._grace if grace is None else float(grace))

    def kill(self) -> None:
        """At once."""
        self._stopping = True
        for each in self.named.values():
            each.kill()

    @property
    def _grace(self) -> float:
        return float(self.pod.spec.get("terminationGracePeriodSeconds", _GRACE))

    def _ending(self) -> bool:
        """Whether nothing of it is to be started any more."""
        return self._stopping or self._late

    def _end_all(self, grace: float) -> None:
        """End its containers; sidecars are ended after the others."""
        loop = asyncio.get_running_loop()
        first = self._killed_at == float("inf")
        if loop.time() + grace >= self._killed_at:
            return
        self._killed_at = loop.time() + grace
        others = [each for name, each in self.named.items() if name not in self._sidecars]
        for each in others:
            if first:
                self.agent.spawn(each.stop(grace))
            else:
                loop.call_later(grace, each.kill)

    def _reach_deadline(self) -> None:
        """It has run for its `activeDeadlineSeconds`."""
        self._late = True
        self._end_all(self._grace)

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
        deadline = spec.get("activeDeadlineSeconds")
        timer = asyncio.get_running_loop().call_later(deadline, self._reach_deadline) if deadline else None
        try:
            code = await self._one_after_the_other(made)
        finally:
            if timer is not None:
                timer.cancel()
            await self._end_sidecars()
        if self._late:
            message = "Pod was active on the node longer than the specified deadline"
            await self._write_status("Failed", reason="DeadlineExceeded", message=message)
        else:
            await self._write_status("Succeeded" if code == 0 else "Failed")

    async def _one_after_the_other(self, made: Callable[[Manifest], Container]) -> int:
        """Init containers, then all others: the exit code."""
        spec = self.pod.spec
        policy = spec.get("restartPolicy", "Always")
        for container in spec.get("initContainers") or ():
            if self._ending():
                return _TERMINATED
            if container.get("restartPolicy") == "Always":
                await self._begin_sidecar(container, made)
            elif code := await self._one(container, made, "Never" if policy == "Never" else "OnFailure"):
                return code
        codes = await asyncio.gather(*(self._one(each, made, policy) for each in spec.get("containers") or ()))
        return max(codes)

    async def _begin_sidecar(self, container: Manifest, made: Callable[[Manifest], Container]) -> None:
        """Start one; what comes after it waits until it runs."""
        begun = asyncio.Event()
        task = asyncio.create_task(self._one(container, made, "Always", begun))
        self._sidecars[container["name"]] = task
        waits = asyncio.create_task(begun.wait())
        await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()

    async def _end_sidecars(self) -> None:
        """The others have ended: the last one that was started is ended first."""
        self._closing = True
        for name, task in reversed(self._sidecars.items()):
            if (run := self.named.get(name)) is not None:
                await run.stop(self._grace)
            else:
                task.cancel()  # it waits for its next start
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _one(
        self, container: Manifest, made: Callable[[Manifest], Container], policy: str, begun: asyncio.Event | None = None
    ) -> int:
        """One container, restarted according to its pod's policy. begun: set once it is started."""
        name, wait = container["name"], _FIRST_BACKOFF
        while not self._ending():
            run = made(container)
            self._states[name] = {"running": {"startedAt": timestamp(self.agent.client.clock())}}
            await self._write_status("Running")
            if self._ending():
                break  # it is to end since then
            self.named[name] = run
            if begun is not None:
                begun.set()
            code = await run.run()
            del self.named[name]
            ended = {
                "exitCode": code,
                "reason": "Completed" if code == 0 else "Error",
                "finishedAt": timestamp(self.agent.client.clock()),
            }
            self._states[name] = {"terminated": ended}
            over = self._ending() or (self._closing and name in self._sidecars)
            if over or policy == "Never" or (policy == "OnFailure" and code == 0):
                return code
            self._restarts[name] = self._restarts.get(name, 0) + 1
            await self._write_status("Running")
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_BACKOFF)
        return _TERMINATED

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
            "phase": phase if started or phase in ENDED else "Pending",
            "startTime": self._started,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "conditions": conditions,
            "initContainerStatuses": [each for each in statuses if each["name"] in initial],
            "containerStatuses": [each for each in statuses if each["name"] not in initial],
            **more,
        }
        await self.agent.write_status(self.pod, status)

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
