"""Replicas of scheduler and operator, as an installation runs them: processes that elect a leader, killed or replaced in turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from testbed.controlplane import ControlPlane, free_port

_ROOT = Path(__file__).parent.parent
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_LIMIT = 90.0
PROCESSES = ("scheduler", "operator")


class ReplicasError(RuntimeError):
    """A process does not do what a run is about, and why."""


class Replica:
    """One process with its probes."""

    def __init__(self, plane: ControlPlane, process: str, logs: Path, number: int) -> None:
        self.process = process
        self.log = logs / f"{process}-{number}.log"
        self._address = f"127.0.0.1:{free_port()}"
        account = f"fairlead-{process}"
        command = [sys.executable, "-m", "fairlead", process, "--kubeconfig", str(plane.user(account, account))]
        with self.log.open("wb") as file:
            self.popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command, "--address", self._address],
                stdout=file,
                stderr=file,
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": str(_ROOT / "src")},
            )

    def ready(self) -> bool:
        """Whether it leads or is ready to take over."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/standbyz", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """As kill -9."""
        self.popen.kill()
        self.popen.wait()

    def terminate(self) -> None:
        """As a kubelet ends a container: SIGTERM, and time to end."""
        self.popen.terminate()
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ReplicasError(f"{self.log.name}: it did not end within 30 s of SIGTERM") from error

    def spent(self) -> tuple[float, float]:
        """Seconds of CPU time so far, and MiB of memory."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.popen.pid)
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss / 2**20
        return 0.0, 0.0


class Replicas:
    """Two replicas of each process."""

    def __init__(self, plane: ControlPlane, logs: Path) -> None:
        self.plane = plane
        self._logs = logs
        self._made = 0
        self.running: dict[str, list[Replica]] = {process: [] for process in PROCESSES}

    def start(self, process: str) -> Replica:
        """One more."""
        self._made += 1
        made = Replica(self.plane, process, self._logs, self._made)
        self.running[process].append(made)
        return made

    async def until_ready(self, replica: Replica) -> None:
        """Wait until it leads or is ready to take over. Raises `ReplicasError`."""
        deadline = time.monotonic() + _LIMIT
        while not await asyncio.to_thread(replica.ready):
            if replica.popen.poll() is not None or time.monotonic() > deadline:
                tail = replica.log.read_text(errors="replace")[-2000:]
                raise ReplicasError(f"{replica.log.name}: not ready, exit code {replica.popen.poll()}\n{tail}")
            await asyncio.sleep(0.2)

    async def leader(self, process: str) -> tuple[Replica, int]:
        """The one that leads, and its epoch. Raises `ReplicasError`."""
        spec = (await asyncio.to_thread(self.plane.request, "GET", f"{_LEASES}/fairlead-{process}"))["spec"]
        pid = (spec.get("holderIdentity") or "__").split("_")[-2]
        found = next((each for each in self.running[process] if str(each.popen.pid) == pid), None)
        if found is None:
            raise ReplicasError(f"nobody of {[each.popen.pid for each in self.running[process]]} holds the lease: {spec}")
        return found, spec["leaseTransitions"]

    async def kill_leader(self, process: str) -> int:
        """Kill -9; returns the epoch of the one that was killed."""
        leader, epoch = await self.leader(process)
        self.running[process].remove(leader)
        leader.kill()
        return epoch

    async def replace(self, old: Replica) -> None:
        """As a Deployment with maxSurge 1 and maxUnavailable 0: the new one is ready before the old one ends."""
        await self.until_ready(self.start(old.process))
        self.running[old.process].remove(old)
        await asyncio.to_thread(old.terminate)

    def end(self) -> None:
        """End all."""
        for replica in [each for some in self.running.values() for each in some]:
            replica.kill()

    def errors(self) -> list[str]:
        """Lines of the logs about errors that no kill explains."""
        found = []
        for path in sorted(self._logs.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    if "exception" in json.loads(line):
                        found.append(f"{path.name}: {line[:300]}")
        return found


@asynccontextmanager
async def running(plane: ControlPlane, logs: Path) -> AsyncIterator[Replicas]:
    """Two ready replicas of each process."""
    made = Replicas(plane, logs)
    try:
        for _ in range(2):
            for process in PROCESSES:
                await made.until_ready(made.start(process))
        yield made
    finally:
        await asyncio.to_thread(made.end)
