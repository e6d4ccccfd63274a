"""What an administrator stands up, held against what it is to be: the numbers behind `fairlead bench platform`.

`defaults`: the example programs, applied to a real API server and read back. `quota`: what the quota of high priority refuses and
gives back there. `alerts`: every alert judged by promtool, and those whose causes a real scheduler can be given, in a real
Prometheus that scrapes it. Each is a list of checks: what was wanted, what was found.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fairlead.pulumi import manifests_of
from testbed import alerts, objects
from testbed.controlplane import ControlPlane, free_port, scheduler_command
from testbed.hpa import CONTROLLERS

SCENARIOS = ("defaults", "quota", "alerts")
EXAMPLES = Path(__file__).parents[1] / "examples" / "pulumi"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_AI = "/api/v1/namespaces/ai-workloads"
_QUOTA = f"{_AI}/resourcequotas/high-priority-quota"
_MERGE = "application/merge-patch+json"
_USER = "fairlead"
_LIMIT = 60.0


class Check(msgspec.Struct):
    """One thing that is to be so."""

    what: str
    wanted: Any
    found: Any
    holds: bool = False

    def __post_init__(self) -> None:
        self.holds = self.wanted == self.found


class PlatformBench(msgspec.Struct):
    """All checks of a scenario. holds: every one of them does."""

    scenario: str
    checks: list[Check]
    holds: bool


class PlatformError(RuntimeError):
    """A run that does not count, and why."""


def run(scenario: str, progress: Callable[[str], None]) -> PlatformBench:
    """One scenario on a control plane of its own. Raises `PlatformError`."""
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        found = _alerts(Path(folder)) if scenario == "alerts" else _applied(scenario)
        for check in found:
            progress(f"{'ok ' if check.holds else 'NOT'} {check.what}")
            checks.append(check)
    return PlatformBench(scenario, checks, all(check.holds for check in checks))


# -- defaults and quotas -------------------------------------------------------------------------


def _applied(scenario: str) -> Iterator[Check]:
    with ControlPlane(controllers=CONTROLLERS) as plane:
        apply(plane, [*manifests_of(EXAMPLES / "priority_quota"), *manifests_of(EXAMPLES / "autoscaled_training")])
        yield from (defaults if scenario == "defaults" else quota)(plane)


def apply(plane: ControlPlane, found: list[dict[str, Any]]) -> None:
    """Server-side, and nothing that the API server does not know is let pass."""
    # kubectl looks all kinds up before it applies the first: definitions go before what they define.
    definitions = [each for each in found if each["kind"] == "CustomResourceDefinition"]
    command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), "apply", "--server-side", "--force-conflicts"]
    for some in (definitions, [each for each in found if each not in definitions]):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": some})
        if some:
            done = subprocess.run(
                [*command, "--validate=strict", "-f", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode:
                raise PlatformError(f"kubectl apply: {done.stderr.strip()}")


def defaults(plane: ControlPlane) -> Iterator[Check]:
    """The defaults of the two example programs, on the objects read back."""
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    values = {"high-priority": 1_000_000, "medium-priority": 100_000, "low-priority": 10_000}
    for name, value in values.items():
        found = plane.request("GET", f"{_CLASSES}/{name}")
        yield Check(f"value of {name}", value, found["value"])
        yield Check(f"{name} is the global default", False, found.get("globalDefault", False))
    named = plane.request("GET", _QUOTA)["spec"]
    yield Check("quota of high-priority in ai-workloads", {"cpu": "20", "memory": "100Gi"}, named["hard"])
    scope = [{"scopeName": "PriorityClass", "operator": "In", "values": ["high-priority"]}]
    yield Check("whose pods it is of", scope, named["scopeSelector"]["matchExpressions"])
    deployment = plane.request("GET", f"{deployments}/ai-model-training")["spec"]
    resources = deployment["template"]["spec"]["containers"][0]["resources"]
    yield Check("replicas of ai-model-training", 2, deployment["replicas"])
    yield Check("its requests", {"cpu": "500m", "memory": "512Mi"}, resources["requests"])
    # 1000m and 1024Mi, as the API server writes them.
    yield Check("its limits", {"cpu": "1", "memory": "1Gi"}, resources["limits"])
    scaler = plane.request("GET", f"{scalers}/ai-model-training")["spec"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ai-model-training"}
    yield Check("what its HPA scales", target, scaler["scaleTargetRef"])
    yield Check("from, to", [2, 5], [scaler["minReplicas"], scaler["maxReplicas"]])
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    yield Check("by", [cpu], scaler["metrics"])


def quota(plane: ControlPlane) -> Iterator[Check]:
    """What the quota of high priority refuses, and gives back."""
    _until("the namespace has its account", lambda: plane.find(f"{_AI}/serviceaccounts/default"))
    _until("the quota is counted", lambda: (plane.find(_QUOTA) or {}).get("status", {}).get("hard"))
    first = _create(plane, _asks("first", "15", "high-priority"))
    yield Check("15 CPUs of high priority: priority", 1_000_000, first.get("spec", {}).get("priority"))
    refused = _create(plane, _asks("second", "6", "high-priority"))
    yield Check("6 more: status code", 403, refused.get("code"))
    told = "exceeded quota: high-priority-quota"
    yield Check("6 more: why", told, told if told in refused.get("message", "") else refused.get("message"))
    low = _create(plane, _asks("second", "6", "low-priority"))
    yield Check("the same pod at low priority: priority", 10_000, low.get("spec", {}).get("priority"))
    memory = _create(plane, _asks("memory", "1", "high-priority", "100Gi"))
    yield Check("over 100Gi: status code", 403, memory.get("code"))
    plane.request("PATCH", f"{_AI}/pods/first/status", {"status": {"phase": "Succeeded"}}, _MERGE)
    _until("what ended is given back", lambda: plane.find(_QUOTA)["status"]["used"]["cpu"] == "0")
    third = _create(plane, _asks("third", "20", "high-priority"))
    yield Check("20 CPUs once the first has ended: priority", 1_000_000, third.get("spec", {}).get("priority"))


def _asks(name: str, cpu: str, tier: str, memory: str = "1Gi") -> dict[str, Any]:
    made = objects.pod(name, gpus=0, cpu=cpu)
    made["spec"]["priorityClassName"] = tier
    made["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": cpu, "memory": memory}
    return made


def _create(plane: ControlPlane, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, or the Status that refused it."""
    try:
        made: dict[str, Any] = plane.request("POST", f"{_AI}/pods", pod)
    except urllib.error.HTTPError as error:
        made = json.loads(error.read())
    return made


def _until(what: str, ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not ask():
        if time.monotonic() > deadline:
            raise PlatformError(f"not so within {_LIMIT:g} s: {what}")
        time.sleep(0.05)


# -- alerts --------------------------------------------------------------------------------------


def _alerts(folder: Path) -> Iterator[Check]:
    for name in alerts.STORIES:
        yield Check(f"{name}: promtool", "", alerts.judge(name, folder))
    with ControlPlane() as plane:
        plane.install(_USER)
        yield from _watched(plane, folder)


def _watched(plane: ControlPlane, folder: Path) -> Iterator[Check]:
    """Causes come and go on a real cluster; a real Prometheus tells."""
    address = f"127.0.0.1:{free_port()}"
    pods = "/api/v1/namespaces/default/pods"
    with alerts.watching(address, folder) as watch:
        _until("the scheduler is missed", lambda: "FairleadSchedulerDown" in watch.firing())
        for made in (
            objects.node("n", gpus=8),
            objects.queue("small", limit=2),
            objects.service_class("soon", maxWait="10m"),
        ):
            plane.request("POST", objects.path(made), made)
        plane.request("PATCH", "/api/v1/nodes/n", {"spec": {"taints": None}}, _MERGE)
        with _scheduler(plane, address):
            _until("the scheduler is there", lambda: watch.ask("alerts") is not None and not watch.firing())
            plane.request("POST", pods, objects.pod("runs", gpus=2, queue="small"))
            _until("a pod is placed", lambda: plane.request("GET", f"{pods}/runs")["spec"].get("nodeName"))
            for made in (objects.pod("beyond", gpus=1, queue="small"), _late()):
                plane.request("POST", pods, made)
            wanted = {"FairleadDeadlineNear", "FairleadQuotaExhausted", "FairleadFragmentation", "FairleadLowAllocation"}
            _until(f"they fire: {wanted}", lambda: wanted <= watch.firing())
            fired = ["FairleadSchedulerDown", *sorted(wanted & watch.firing())]
            for name in ("late", "beyond"):
                plane.request("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})
            _until("their causes are gone", lambda: not watch.firing())
            everyone = ["FairleadSchedulerDown", *sorted(wanted)]
            yield Check("fire in a real Prometheus that scrapes a real scheduler", everyone, fired)
            yield Check("fire still when their causes are gone", [], sorted(watch.firing()))


def _late() -> dict[str, Any]:
    made = objects.pod("late", gpus=8)
    made["metadata"].setdefault("labels", {})["fairlead.dev/service-class"] = "soon"
    return made


@contextmanager
def _scheduler(plane: ControlPlane, address: str) -> Iterator[None]:
    command = scheduler_command(plane.user(_USER, _USER), "--address", address)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)
