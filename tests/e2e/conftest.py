"""A real control plane per test worker, a clean cluster per test, and schedulers as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from testbed import objects, tenants
from testbed.controlplane import ControlPlane
from tests.e2e.planes import OPERATOR, USER, Plane

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 40.0


_OWN = ("PLANE", "plane", "built")
"""A module that has one of these starts a control plane, or builds an image, for itself."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Such a module stays with one worker: with several each would start the same control plane."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == HERE and any(hasattr(item.module, name) for name in _OWN):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


_EMPTIED = (
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs",
    "/api/v1/namespaces/default/pods",
    "/api/v1/nodes",
    "/apis/fairlead.dev/v1alpha1/queues",
    "/apis/fairlead.dev/v1alpha1/serviceclasses",
    "/apis/fairlead.dev/v1alpha1/reservations",
    "/apis/fairlead.dev/v1alpha1/nodepools",
    "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
)
"""What is deleted whole after every test; of other kinds what the test created by `Cluster.create`."""


class Cluster:
    """What a test does to the cluster, as its administrator."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.schedulers: list[Scheduler] = []
        self.created: list[str] = []

    def create(self, *manifests, namespace="default"):
        for manifest in manifests:
            path = objects.path(manifest, namespace)
            made = self.plane.request("POST", path, manifest)
            if path not in _EMPTIED:
                self.created.append(f"{path}/{made['metadata']['name']}")
            if manifest["kind"] == "Node":
                self.ready(made["metadata"]["name"], manifest["spec"].get("taints"))

    def ready(self, name, taints=None):
        """Admission taints a new node as not ready; play the node lifecycle controller."""
        self.plane.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}, "application/merge-patch+json")

    def get(self, path):
        try:
            return self.plane.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def delete(self, path):
        with contextlib.suppress(urllib.error.HTTPError):
            self.plane.request("DELETE", path, {"gracePeriodSeconds": 0})

    def pods(self, namespace="default"):
        return {item["metadata"]["name"]: item for item in self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]}

    def placed(self):
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if pod["spec"].get("nodeName")}

    def condition(self, name):
        """(reason, message) of PodScheduled=False, or None."""
        pod = self.pods().get(name) or {}
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition["reason"], condition.get("message", "")
        return None

    def events(self, name):
        return [
            (item["reason"], item.get("note", ""))
            for item in self.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
            if item["regarding"].get("name") == name  # events of control plane components may be about no object
        ]

    def until(self, what, limit=LIMIT):
        """Ask until the answer is true; returns it."""
        deadline = time.monotonic() + limit
        while True:
            answer = what()
            if answer:
                return answer
            if time.monotonic() > deadline:
                logs = "\n".join(each.text()[-3000:] for each in self.schedulers)
                raise AssertionError(f"not so within {limit:g} s; placed: {self.placed()}\n{logs}")
            time.sleep(0.05)

    def all_placed(self, count, limit=LIMIT):
        return self.until(lambda: (placed := self.placed()) if len(self.placed()) >= count else None, limit)

    def scheduler(self, *arguments, kubeconfig=None):
        started = Scheduler(self, kubeconfig or self.plane.user(USER, USER), arguments)
        self.schedulers.append(started)
        return started

    def operator(self, *arguments):
        started = Scheduler(self, self.plane.user(OPERATOR, OPERATOR), arguments, "operator")
        self.schedulers.append(started)
        return started

    def agent(self, name, *arguments):
        """As the node that it stands for; the control plane authorizes nodes (see tests/e2e/test_agent.py)."""
        kubeconfig = self.plane.user(f"node-{name}", f"system:node:{name}", ("system:nodes",))
        started = Scheduler(self, kubeconfig, ("--name", name, *arguments), "agent")
        self.schedulers.append(started)
        return started

    def kubectl(self, *arguments, text=None):
        command = ["kubectl", "--kubeconfig", str(self.plane.kubeconfig), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout

    def over_allocated(self):
        """Nodes on which pods ask for more GPUs than there are."""
        used = {}
        for pod in self.pods().values():
            if pod["spec"].get("nodeName"):
                for container in pod["spec"]["containers"]:
                    gpus = int(container["resources"].get("requests", {}).get(objects.GPU, 0))
                    used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + gpus
        nodes = {item["metadata"]["name"]: item["status"]["allocatable"] for item in self.get("/api/v1/nodes")["items"]}
        return [name for name, count in used.items() if name in nodes and count > int(nodes[name].get(objects.GPU, 0))]

    def clean(self):
        for each in self.schedulers:
            each.kill()
        jobs, *others = _EMPTIED
        services = "/api/v1/namespaces/default/services?labelSelector=fairlead.dev/job"  # a collector may come minutes later
        for path in (f"{jobs}?propagationPolicy=Background", *others, services, *reversed(self.created)):
            self.delete(path)
        self.plane.request(
            "PATCH",
            "/api/v1/namespaces/default",
            {"metadata": {"labels": {"fairlead.dev/default-queue": None}}},
            "application/merge-patch+json",
        )


class Scheduler:
    """One `fairlead scheduler`, or another process of ours, and its log."""

    def __init__(self, cluster, kubeconfig, arguments, command="scheduler"):
        self.log = cluster.folder / f"{command}-{len(cluster.schedulers)}.log"
        serves = () if command == "agent" else ("--address", "")
        command = [sys.executable, "-m", "fairlead", command, "--kubeconfig", str(kubeconfig), *serves, *arguments]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env={**os.environ, "COVERAGE_RUN": ""})
        self.cluster = cluster

    def text(self):
        return self.log.read_text(errors="replace")

    def logged(self, event):
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def synced(self):
        self.cluster.until(lambda: self.logged("synced"))
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def shared_plane():
    with Plane().started() as running:
        yield running


@pytest.fixture(scope="module")
def plane(request):
    """The one that the module asks for by `PLANE`, or the shared one."""
    asked = getattr(request.module, "PLANE", None)
    if asked is None:
        yield request.getfixturevalue("shared_plane")
    else:
        with asked.started() as running:
            yield running


@pytest.fixture
def cluster(plane, tmp_path):
    made = Cluster(plane, tmp_path)
    made.until(lambda: made.get("/api/v1/namespaces/default"))
    yield made
    made.clean()


@pytest.fixture(scope="module")
def mallory(plane):
    """An ordinary tenant of namespace `mal`; the policies are in force, and user `trainer` makes pods for others."""
    tenants.namespace(plane, "mal")
    with tenants.in_force(plane, ["trainer"]):
        yield tenants.tenant(plane, "mallory", "mal")
        tenants.clear(plane, "mal")
