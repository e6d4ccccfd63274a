"""From an empty cluster to a first AIJob that runs, by the README's commands: the numbers behind `fairlead bench first-job`.

The control plane is real, with one node that has GPUs. What is installed is started as it is written (`testbed/kubelet.py`), KWOK
plays the kubelet of the node. The administrator installs; the job is that of a user who may `edit` one namespace, and no more.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from fairlead.install import NAMESPACE
from testbed import objects
from testbed.controlplane import ControlPlane
from testbed.kubelet import MERGE, Kubelet

CONTROLLERS = (
    "clusterrole-aggregation-controller,namespace-controller,deployment-controller,replicaset-controller,"
    "serviceaccount-controller,root-ca-certificate-publisher-controller,garbage-collector-controller"
)
_README = Path(__file__).parents[1] / "README.md"
_SECTION = re.compile(r"^## On a cluster\n\n((?:    .*\n)+)", re.MULTILINE)
_IMAGES = {"IMAGE": "registry.example/fairlead:1", "IMAGE_OF_THE_JOB": "registry.example/job:1"}
_USERS, _USER = "vision", "ann"  # the namespace that the README names
_LIMIT = 120.0
MOST_COMMANDS, MOST_SECONDS = 4, 60.0


class Step(msgspec.Struct):
    """One command, and how long it took."""

    command: str
    user: str
    seconds: float


class FirstJob(msgspec.Struct):
    """commands: how many were given; seconds: from the first of them until the job ran."""

    commands: int
    seconds: float
    steps: list[Step]

    @property
    def holds(self) -> bool:
        """Whether it takes as little as it is to take."""
        return self.commands <= MOST_COMMANDS and self.seconds <= MOST_SECONDS


class FirstJobError(RuntimeError):
    """A command failed, or the job did not run, and why."""


def commands() -> list[str]:
    """Those that the README gives for a cluster, without their comments."""
    found = _SECTION.search(_README.read_text())
    if found is None:
        raise FirstJobError("the README has no commands for a cluster")
    return [line.partition(" #")[0].strip() for line in found[1].splitlines()]


def run(progress: Callable[[str], None]) -> FirstJob:
    """Follow the README once. Raises `FirstJobError`."""
    plane = ControlPlane(CONTROLLERS, kwok=True)
    with TemporaryDirectory(prefix="fairlead-") as folder:
        try:
            plane.start()
            _prepare(plane)
            with Kubelet(plane, Path(folder), NAMESPACE) as kubelet:
                try:
                    return _followed(plane, progress)
                except FirstJobError as error:
                    raise FirstJobError(f"{error}\n{kubelet.logs()}") from error
        finally:
            plane.stop()


def _prepare(plane: ControlPlane) -> None:
    """A node with GPUs, and a namespace with its user."""
    plane.request("POST", "/api/v1/nodes", objects.node("gpu-0"))
    plane.request("PATCH", "/api/v1/nodes/gpu-0", {"spec": {"taints": None}}, MERGE)
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": _USERS}})
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
    }
    plane.request("POST", f"/apis/{group}/v1/namespaces/{_USERS}/rolebindings", binding)
    plane.await_served(f"/api/v1/namespaces/{_USERS}/serviceaccounts/default")


def _followed(plane: ControlPlane, progress: Callable[[str], None]) -> FirstJob:
    users = {"administrator": plane.kubeconfig, _USER: plane.user(_USER, _USER)}
    begun = time.monotonic()
    steps = []
    for command in commands():
        program, *arguments = [_IMAGES.get(word, word) for word in shlex.split(command)]
        user = "administrator" if arguments[:1] == ["install"] else _USER
        if program != "fairlead":
            raise FirstJobError(f"{command}: another program")
        at = time.monotonic()
        _command(command, arguments, users[user])
        steps.append(Step(command, user, round(time.monotonic() - at, 2)))
        progress(f"{steps[-1].seconds:6.1f} s  {user}: {command}")
    seconds = _running(plane) - begun
    progress(f"{seconds:6.1f} s  the job runs")
    return FirstJob(len(steps), round(seconds, 2), steps)


def _command(command: str, arguments: list[str], kubeconfig: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if done.returncode:
        raise FirstJobError(f"{command}: exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def _running(plane: ControlPlane) -> float:
    """When the job was seen to run."""
    deadline = time.monotonic() + _LIMIT
    while True:
        jobs: list[dict[str, Any]] = plane.request("GET", f"/apis/fairlead.dev/v1alpha1/namespaces/{_USERS}/aijobs")["items"]
        if jobs and (jobs[0].get("status") or {}).get("phase") == "Running":
            return time.monotonic()
        if time.monotonic() > deadline:
            raise FirstJobError(f"the job does not run after {_LIMIT:g} s: {[job.get('status') for job in jobs]}")
        time.sleep(0.05)
