"""kill -9 of the scheduler in the middle of a burst, again and again, on a real control plane.

What must come of it: every pod is bound once, no node is over its allocatable, no gang runs in part.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec

from testbed import objects
from testbed.controlplane import ControlPlane, scheduler_command

_NODES, _GPUS = 60, 8
_SINGLES, _GANGS, _GANG = 180, 20, 12
_LIMIT = 90.0
_ROOT = Path(__file__).parent.parent
USER = "fairlead"


class Kills(msgspec.Struct):
    """What came of a run. rebound: pods seen on more than one node; partial: gangs that ran in part once settled."""

    kills: int
    rounds: int
    pods: int
    bound: int
    rebound: list[str]
    over_allocated: list[str]
    partial: list[str]
    unbound: list[str]
    killed_after: list[int]
    wall_seconds: float

    @property
    def clean(self) -> bool:
        """Whether everything held."""
        return not (self.rebound or self.over_allocated or self.partial or self.unbound)


class _Observer(threading.Thread):
    """Watches bindings independently of everybody."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(daemon=True)
        self.nodes: dict[str, set[str]] = defaultdict(set)
        self.ready = threading.Event()
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self.stopped = False

    def run(self) -> None:
        version = self._plane.request("GET", f"{self._path}?limit=1")["metadata"]["resourceVersion"]
        url = f"{self._plane.url}{self._path}?watch=true&timeoutSeconds=600&resourceVersion={version}"
        context = self._plane.context()
        with urllib.request.urlopen(url, context=context, timeout=600) as stream:
            self.ready.set()
            for line in stream:
                if self.stopped:
                    return
                pod = json.loads(line)["object"]
                node = pod.get("spec", {}).get("nodeName")
                if node:
                    self.nodes[pod["metadata"]["name"]].add(node)


def run(plane: ControlPlane, kills: int, seed: int, logs: Path) -> Kills:
    """Bursts on a plane that has the CRDs and the scheduler's rights, until the scheduler was killed `kills` times."""
    source = random.Random(seed)
    begun = time.monotonic()
    _nodes(plane)
    result = Kills(0, 0, 0, 0, [], [], [], [], [], 0.0)
    while result.kills < kills:
        _round(plane, source, min(3, kills - result.kills), logs, result)
        result.rounds += 1
    result.wall_seconds = time.monotonic() - begun
    return result


def _nodes(plane: ControlPlane) -> None:
    for number in range(_NODES):
        manifest = objects.node(f"kill-{number:02d}", gpus=_GPUS)
        plane.request("POST", "/api/v1/nodes", manifest)
        path = f"/api/v1/nodes/kill-{number:02d}"
        plane.request("PATCH", path, {"spec": {"taints": None}}, "application/merge-patch+json")


def _round(plane: ControlPlane, source: random.Random, kills: int, logs: Path, result: Kills) -> None:
    """One burst in a namespace of its own, the scheduler killed several times while it places it."""
    namespace = f"kills-{result.rounds}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    observer = _Observer(plane, namespace)
    observer.start()
    observer.ready.wait(20)
    names = _burst(plane, namespace)
    scheduler = _start(plane, logs)  # all at once lies before it: the burst is its own
    try:
        for _ in range(kills):
            target = len(observer.nodes) + source.randint(1, max(1, (len(names) - len(observer.nodes)) // (kills + 1)))
            deadline = time.monotonic() + _LIMIT
            while len(observer.nodes) < min(target, len(names) - 1) and time.monotonic() < deadline:
                time.sleep(0.0005)
            result.killed_after.append(len(observer.nodes))
            scheduler.kill()
            scheduler.wait()
            result.kills += 1
            scheduler = _start(plane, logs)
        deadline = time.monotonic() + _LIMIT
        while len(observer.nodes) < len(names) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        scheduler.terminate()
        scheduler.wait(30)
        observer.stopped = True
    _judge(plane, namespace, names, observer, result)
    for kind in (f"/api/v1/namespaces/{namespace}/pods", f"/apis/fairlead.dev/v1alpha1/namespaces/{namespace}/podgroups"):
        plane.request("DELETE", kind, {"gracePeriodSeconds": 0})


def _burst(plane: ControlPlane, namespace: str) -> list[str]:
    manifests: list[dict[str, Any]] = [objects.pod(f"single-{number}") for number in range(_SINGLES)]
    for gang in range(_GANGS):
        group = objects.pod_group(f"gang-{gang}", _GANG)
        plane.request("POST", objects.path(group, namespace), group)
        manifests += [objects.pod(f"gang-{gang}-{number}", group=f"gang-{gang}") for number in range(_GANG)]
    for manifest in manifests:
        plane.request("POST", objects.path(manifest, namespace), manifest)
    return [manifest["metadata"]["name"] for manifest in manifests]


def _start(plane: ControlPlane, logs: Path) -> subprocess.Popen[bytes]:
    """A scheduler that need not wait for the lease of the one that was killed."""
    kubeconfig = plane.user(USER, USER)
    command = scheduler_command(kubeconfig)
    with (logs / "kills.log").open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, cwd=_ROOT)


def _judge(plane: ControlPlane, namespace: str, names: list[str], observer: _Observer, result: Kills) -> None:
    pods = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    used: Counter[str] = Counter()
    gangs: Counter[str] = Counter()
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            used[node] += 1  # every pod asks for one GPU
            group = pod["metadata"].get("labels", {}).get("fairlead.dev/pod-group")
            if group:
                gangs[group] += 1
    bound = {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}
    result.pods += len(names)
    result.bound += len(bound)
    result.unbound += [f"{namespace}/{name}" for name in names if name not in bound]
    result.rebound += [f"{namespace}/{name}" for name, nodes in observer.nodes.items() if len(nodes) > 1]
    result.over_allocated += [f"{node}: {count} of {_GPUS}" for node, count in used.items() if count > _GPUS]
    result.partial += [f"{namespace}/{name}: {count} of {_GANG}" for name, count in gangs.items() if count < _GANG]
