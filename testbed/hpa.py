"""How soon a real HorizontalPodAutoscaler follows: the numbers behind `fairlead bench hpa`.

The Deployment and the autoscaler that a Pulumi component registers, on a real API server with the real controllers, KWOK's
nodes and our scheduler. `cpu`: pods that nobody runs use as much as we say. `queue`: jobs come to wait in a queue, and go. The
controllers run with a sync of 2 s and a window of 4 s; up is to come within two syncs, down within the window and two syncs.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fairlead.pulumi import AutoscaledDeployment, QueueLength, manifests
from testbed import aggregated, objects
from testbed.controlplane import ControlPlane, scheduler_command
from testbed.pod_metrics import PodMetrics

METRICS = ("cpu", "queue")
CONTROLLERS = (
    "deployment-controller,replicaset-controller,resourcequota-controller,namespace-controller,serviceaccount-controller,"
    "horizontal-pod-autoscaler-controller,garbage-collector-controller"
)
SYNC, WINDOW = 2, 4  # seconds
TIMES = (
    f"--horizontal-pod-autoscaler-sync-period={SYNC}s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={WINDOW}s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
)
_USER = "fairlead"
_DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/ai-model-training"
CONFIG = (
    "apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration\n"
    "profiles:\n- {schedulerName: default-scheduler, profile: kubernetes}\n- {schedulerName: fairlead, profile: ai}\n"
)
_LIMIT = 60.0
_PHASES = (1.2, 1.5, 1.8)  # of a sync: causes come at any time, and not always just after the one that told the last size


class HpaBench(msgspec.Struct):
    """Seconds from a cause until the Deployment was told its new size, each time. within: all of them within their limits."""

    metric: str
    sync_seconds: float
    window_seconds: float
    replicas: list[int]
    up_seconds: list[float]
    up_limit: float
    down_seconds: list[float]
    down_limit: float
    within: bool


class HpaError(RuntimeError):
    """A run that does not count, and why."""


def run(metric: str, repeats: int, progress: Callable[[str], None]) -> HpaBench:
    """2 -> 5 -> 2, several times. Raises `HpaError`."""
    up: list[float] = []
    down: list[float] = []
    sizes = [2]
    with _cluster(metric) as (plane, much, little):
        _until(plane, 2)
        time.sleep(2 * SYNC + WINDOW)  # it has settled
        for number in range(repeats):
            up.append(_timed(plane, much, 5))
            time.sleep(SYNC * _PHASES[number % len(_PHASES)])
            down.append(_timed(plane, little, 2))
            time.sleep(SYNC * _PHASES[number % len(_PHASES)])
            sizes += [5, 2]
            progress(f"{number + 1} of {repeats}: up {up[-1]:.1f} s, down {down[-1]:.1f} s")
    limits = 2.0 * SYNC, WINDOW + 2.0 * SYNC
    within = max(up) <= limits[0] and max(down) <= limits[1]
    return HpaBench(metric, SYNC, WINDOW, sizes, up, limits[0], down, limits[1], within)


@contextmanager
def _cluster(metric: str) -> Iterator[tuple[ControlPlane, Callable[[], object], Callable[[], object]]]:
    """A control plane with everything, what makes much work, and what makes little."""
    use = {"cores": 0.25}
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(controllers=CONTROLLERS, kwok=True, controller_flags=TIMES))
        plane.install(_USER)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "scheduler.yaml").write_text(CONFIG)
        flags = ["--config", str(folder / "scheduler.yaml")]
        for number in range(3):
            plane.request("POST", "/api/v1/nodes", objects.node(f"n-{number}"))
            patch = {"spec": {"taints": None}}
            plane.request("PATCH", f"/api/v1/nodes/n-{number}", patch, "application/merge-patch+json")
        plane.await_served("/api/v1/namespaces/default/serviceaccounts/default")
        if metric == "cpu":
            stack.enter_context(PodMetrics(plane, lambda _: use["cores"]))
        else:
            flags += ["--external-metrics-address", f"127.0.0.1:{aggregated.installed(plane, 'external-metrics', _USER, _USER)}"]
        command = scheduler_command(plane.user(_USER, _USER), *flags)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        if metric == "queue":
            plane.await_served("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/fairlead_queue_pending_jobs")
        followed = {"metrics": [QueueLength("default", jobs=2)]} if metric == "queue" else {}

        def program() -> None:
            AutoscaledDeployment("training", **followed)  # type: ignore[arg-type]

        for manifest in manifests(program):
            plane.request("POST", objects.path(manifest), manifest)
        if metric == "cpu":
            yield plane, lambda: use.update(cores=0.9), lambda: use.update(cores=0.05)
        else:
            yield plane, lambda: _come(plane), lambda: _go(plane)


def _come(plane: ControlPlane) -> None:
    for number in range(10):  # each asks for more than any node has
        manifest = objects.pod(f"waits-{number}", gpus=8, cpu="1000")
        plane.request("POST", "/api/v1/namespaces/default/pods", manifest)


def _go(plane: ControlPlane) -> None:
    for number in range(10):
        body = {"gracePeriodSeconds": 0}
        plane.request("DELETE", f"/api/v1/namespaces/default/pods/waits-{number}", body)


def _timed(plane: ControlPlane, cause: Callable[[], object], replicas: int) -> float:
    begun = time.monotonic()
    cause()
    _until(plane, replicas)
    return round(time.monotonic() - begun, 2)


def _until(plane: ControlPlane, replicas: int) -> None:
    deadline = time.monotonic() + _LIMIT
    found: Any = None
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.HTTPError):
            found = plane.request("GET", _DEPLOYMENT)
            ready = found.get("status", {}).get("readyReplicas", 0)
            if found["spec"]["replicas"] == replicas and (replicas == 5 or ready >= replicas):
                return
        time.sleep(0.05)
    raise HpaError(
        f"the Deployment did not come to {replicas} replicas within {_LIMIT:g} s: {found and found['spec']['replicas']}"
    )
