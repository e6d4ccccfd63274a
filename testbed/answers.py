"""How soon a full cluster answers on a real API server: the numbers behind `fairlead bench answers`.

500 nodes of 8 GPUs, every GPU held by a pod of one queue, and a second queue that is guaranteed half. `verdict`: from the
creation of the last pod of a gang of 10 x 8 GPUs in the first queue to the condition on all ten that they cannot be placed.
`reclaim`: from the creation of a one-GPU pod in the second queue to the deletion of a pod of the first. Each is asked
several times, one after the other.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.config import load
from testbed import objects
from testbed.at_once import create_all
from testbed.controlplane import SCHEDULER_USER, ControlPlane, scheduler_command

SCENARIOS = ("verdict", "reclaim")
_GPUS, _GANG = 8, 10
_AT_ONCE = 32
_LIMIT = 120.0
_ROOT = Path(__file__).parent.parent


class AnswersBench(msgspec.Struct):
    """Milliseconds until the answer was seen, each time, and their median."""

    scenario: str
    nodes: int
    running: int
    milliseconds: list[float]
    median_milliseconds: float


class AnswersError(RuntimeError):
    """A run that does not count, and why."""


def run(scenario: str, nodes: int, repeats: int, progress: Callable[[str], None]) -> AnswersBench:
    """Time one scenario on a fresh control plane. Raises `AnswersError`."""
    return asyncio.run(_run(scenario, nodes, repeats, progress))


async def _run(scenario: str, nodes: int, repeats: int, progress: Callable[[str], None]) -> AnswersBench:
    plane = ControlPlane(flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"])
    await asyncio.to_thread(plane.start)
    process: subprocess.Popen[bytes] | None = None
    try:
        await asyncio.to_thread(plane.install, SCHEDULER_USER)
        async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
            progress(f"{nodes} nodes, {nodes * _GPUS} running pods")
            await _fill(client, nodes)
            process = _scheduler(plane)
            await _until_told(client)
            taken = []
            for number in range(repeats):
                ask = _verdict if scenario == "verdict" else _reclaim
                taken.append(await ask(client, number))
                progress(f"{scenario} {number + 1} of {repeats}: {taken[-1]:.0f} ms")
                await asyncio.sleep(1.0)
            return AnswersBench(scenario, nodes, nodes * _GPUS, taken, statistics.median(taken))
    finally:
        await plane.stop_with([process] if process is not None else [])


def _scheduler(plane: ControlPlane) -> subprocess.Popen[bytes]:
    kubeconfig = plane.user("scheduler", SCHEDULER_USER)
    command = scheduler_command(kubeconfig)
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _fill(client: Client, nodes: int) -> None:
    half = nodes * _GPUS // 2
    manifests: list[dict[str, Any]] = [objects.queue("guest", quota=half), objects.queue("owner", quota=half)]
    manifests += [objects.node(f"node-{number:05d}", gpus=_GPUS) for number in range(nodes)]
    manifests += [
        objects.pod(f"run-{number:06d}", queue="guest", nodeName=f"node-{number // _GPUS:05d}") for number in range(nodes * _GPUS)
    ]
    await create_all(client, manifests, _AT_ONCE)


async def _until_told(client: Client) -> None:
    """Until the scheduler answers at all: a pod that fits nowhere is told so."""
    await client.post(objects.path(objects.pod("probe")), encode(objects.pod("probe", gpus=64)))
    await _watched(client, lambda pod: pod["metadata"]["name"] == "probe" and _waits(pod))
    await client.delete("/api/v1/namespaces/default/pods/probe", encode({"gracePeriodSeconds": 0}))
    await asyncio.sleep(2.0)


def _waits(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def _verdict(client: Client, number: int) -> float:
    """Milliseconds until all of a gang know that they cannot be placed."""
    gang = f"gang-{number}"
    told: set[str] = set()

    def all_told(pod: dict[str, Any]) -> bool:
        if pod["metadata"]["labels"].get("fairlead.dev/pod-group") == gang and _waits(pod):
            told.add(pod["metadata"]["name"])
        return len(told) == _GANG

    manifest = objects.pod_group(gang, _GANG, "guest")
    await client.post(objects.path(manifest), encode(manifest))
    pods = [objects.pod(f"{gang}-{member}", gpus=_GPUS, queue="guest", group=gang) for member in range(_GANG)]
    seen = asyncio.ensure_future(_watched(client, all_told))
    await asyncio.sleep(0.5)
    for pod in pods:
        await client.post(objects.path(pod), encode(pod))
    began = time.monotonic()
    taken = 1000 * (await seen - began)
    for pod in pods:
        await client.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", encode({"gracePeriodSeconds": 0}))
    return taken


async def _reclaim(client: Client, number: int) -> float:
    """Milliseconds until a pod of the queue that has too much is deleted."""

    def falls(pod: dict[str, Any]) -> bool:
        leaving = pod["metadata"].get("deletionTimestamp") is not None or pod.get("deleted", False)
        return bool(leaving) and pod["metadata"]["name"].startswith("run-")

    seen = asyncio.ensure_future(_watched(client, falls))
    await asyncio.sleep(0.5)
    pod = objects.pod(f"owner-{number}", queue="owner")
    await client.post(objects.path(pod), encode(pod))
    began = time.monotonic()
    return 1000 * (await seen - began)


async def _watched(client: Client, done: Callable[[dict[str, Any]], bool]) -> float:
    """When a watch of pods first shows what is waited for."""
    version = json.loads(await client.get("/api/v1/pods", limit="1"))["metadata"]["resourceVersion"]

    async def look() -> float:
        async with client.stream("/api/v1/pods", {"watch": "true", "resourceVersion": version}, _LIMIT) as stream:
            rest = b""
            while chunk := await stream.readany():
                now = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if done({**event["object"], "deleted": event["type"] == "DELETED"}):
                        return now
        raise AnswersError("the watch ended")

    try:
        return await asyncio.wait_for(look(), _LIMIT)
    except TimeoutError as error:
        raise AnswersError(f"no answer within {_LIMIT:g} s") from error
    except ApiError as error:
        raise AnswersError(str(error)) from error
