"""An aggregated API of ours, asked by users: see `testbed.aggregated` for how it comes to be there."""

import os
import subprocess
import sys

from testbed import objects
from testbed.aggregated import RBAC, binding, installed

__all__ = ["RBAC", "available", "binding", "fairlead_as", "installed", "kubectl_as"]


def available(cluster, name):
    """Wait until the API server passes requests on."""
    [service] = [each for each in objects.chart(f"{name}.yaml") if each["kind"] == "APIService"]
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{service['metadata']['name']}"
    cluster.until(lambda: cluster.get(path)["spec"].get("caBundle"))

    def told():
        conditions = cluster.get(path)["status"].get("conditions", [])
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    cluster.until(told)


def fairlead_as(cluster, user, *arguments, **env):
    """A command as a user gives it."""
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(cluster.plane.user(user, user))]
    known = {**os.environ, "COLUMNS": "160", **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=known)


def kubectl_as(cluster, user, *arguments):
    command = ["kubectl", "--kubeconfig", str(cluster.plane.user(user, user)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
