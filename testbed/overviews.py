"""How soon the commands show a large cluster on a real API server, and what they read: the numbers behind `fairlead bench look`.

Every command runs as a process of its own, once with a leader that answers and once where it must list the cluster. What it
reads is counted between it and the API server, as it passes there: encrypted, and compressed where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil
import yaml

from fairlead.api import names
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import load
from testbed import aggregated, objects
from testbed.at_once import create_all
from testbed.controlplane import SCHEDULER_USER, ControlPlane, scheduler_command

COMMANDS = ("queue", "nodes", "share", "top", "explain")
_GPUS, _QUEUES, _WAITING = 8, 50, 10  # one pod in ten waits
_AT_ONCE = 64
_LIMIT = 600.0
_ROOT = Path(__file__).parent.parent


class CommandCost(msgspec.Struct):
    """One command. seconds: until it ended, megabytes: that it read; by lists: the same without a leader, None: not measured."""

    seconds: float
    megabytes: float
    seconds_by_lists: float | None = None
    megabytes_by_lists: float | None = None


class OverviewBench(msgspec.Struct):
    """All commands. scheduler_cpu_seconds: what the leader spent on the answers."""

    nodes: int
    pods: int
    commands: dict[str, CommandCost]
    scheduler_cpu_seconds: float


class MeasuringError(RuntimeError):
    """A run that does not count, and why."""


def run(nodes: int, pods: int, *, lists: bool, progress: Callable[[str], None]) -> OverviewBench:
    """Measure all commands on a fresh control plane. lists: also without a leader. Raises `MeasuringError`."""
    return asyncio.run(_run(nodes, pods, lists=lists, progress=progress))


async def _run(nodes: int, pods: int, *, lists: bool, progress: Callable[[str], None]) -> OverviewBench:
    plane = ControlPlane(flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"])
    await asyncio.to_thread(plane.start)
    scheduler: subprocess.Popen[bytes] | None = None
    try:
        await asyncio.to_thread(plane.install, SCHEDULER_USER)
        port = await asyncio.to_thread(aggregated.installed, plane, "visibility", SCHEDULER_USER, "viewer")
        async with Client(load(str(plane.kubeconfig)), timeout=120) as client:
            progress(f"creating {nodes} nodes and {pods} pods")
            await _fill(client, nodes, pods)
            progress("starting the scheduler")
            scheduler = _scheduler(plane, port)
            await _answers(client)
            async with _counted(plane) as (kubeconfig, read):
                found: dict[str, CommandCost] = {}
                for command in COMMANDS:
                    await _one(command, kubeconfig, read)  # compiled once, as an installed program was
                before = psutil.Process(scheduler.pid).cpu_times()
                for command in COMMANDS:
                    found[command] = CommandCost(*await _one(command, kubeconfig, read))
                    progress(f"{command}: {found[command].seconds:.1f} s, {found[command].megabytes:.2f} MB")
                after = psutil.Process(scheduler.pid).cpu_times()
                await _end(scheduler)
                for command in COMMANDS if lists else ():
                    seconds, megabytes = await _one(command, kubeconfig, read)
                    found[command].seconds_by_lists, found[command].megabytes_by_lists = seconds, megabytes
                    progress(f"{command} by lists: {seconds:.1f} s, {megabytes:.1f} MB")
        return OverviewBench(nodes, pods, found, round(after.user + after.system - before.user - before.system, 2))
    finally:
        if scheduler is not None:
            await _end(scheduler)
        await asyncio.to_thread(plane.stop)


def _scheduler(plane: ControlPlane, port: int) -> subprocess.Popen[bytes]:
    kubeconfig = plane.user("scheduler", SCHEDULER_USER)
    command = scheduler_command(kubeconfig, "--visibility-address", f"127.0.0.1:{port}")
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    await asyncio.to_thread(process.wait)


async def _fill(client: Client, nodes: int, pods: int) -> None:
    running = min(nodes * _GPUS, pods - pods // _WAITING)
    queues = [f"queue-{number:02d}" for number in range(_QUEUES)]
    first = [objects.queue(name, quota=nodes * _GPUS // _QUEUES) for name in queues]
    first += [objects.node(f"node-{number:05d}", gpus=_GPUS) for number in range(nodes)]
    await create_all(client, first, _AT_ONCE)
    made = (
        objects.pod(
            f"job-{number:06d}",
            queue=queues[number % _QUEUES],
            **({"nodeName": f"node-{number // _GPUS:05d}"} if number < running else {"gpus": _GPUS}),
        )
        for number in range(pods)
    )
    await create_all(client, made, _AT_ONCE)


async def _answers(client: Client) -> None:
    """Until the leader answers, through the API server."""
    path = f"{names.VISIBILITY}/queues"
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            found = json.loads(await client.get(path))
            if sum(each["status"]["pending"] for each in found["items"]):
                return
        await asyncio.sleep(1.0)
    raise MeasuringError(f"the leader did not answer within {_LIMIT:g} s")


def _compiled() -> dict[str, str]:
    """The environment of a command: what was compiled is kept, as by an installed program, whatever that of this process says."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": str(_ROOT / ".cache" / "pycache"), **kept}


async def _one(command: str, kubeconfig: Path, read: list[int]) -> tuple[float, float]:
    """Seconds, and megabytes read."""
    line = [sys.executable, "-m", "fairlead", command, "--kubeconfig", str(kubeconfig)]
    if command == "explain":
        line += [f"pod/{await _pending(kubeconfig)}", "-n", "default"]
    elif command == "top":
        line.append("--once")
    read[0] = 0
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *line, cwd=_ROOT, env=_compiled(), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    taken = time.monotonic() - begun
    if process.returncode:
        raise MeasuringError(f"fairlead {command} ended with {process.returncode}: {errors.decode()[-300:]}")
    return round(taken, 2), round(read[0] / 1e6, 3)


async def _pending(kubeconfig: Path) -> str:
    """A pod that waits."""
    async with Client(load(str(kubeconfig)), timeout=120) as client:
        path = "/api/v1/namespaces/default/pods"
        page = json.loads(await client.get(path, fieldSelector="spec.nodeName=", limit="1"))
        return str(page["items"][0]["metadata"]["name"])


@contextlib.asynccontextmanager
async def _counted(plane: ControlPlane) -> AsyncIterator[tuple[Path, list[int]]]:
    """A kubeconfig whose server is reached through a connection that counts: and how many bytes came, as one number."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    read = [0]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                read[0] += len(part) if counts else 0
                writer.write(part)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(server.hostname, server.port)
        await asyncio.gather(carry(reader, to_server, counts=False), carry(from_server, writer, counts=True))

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    path = plane.kubeconfig.with_name("counted.yaml")
    path.write_text(yaml.safe_dump(config))
    async with proxy:
        yield path, read
