"""An aggregated API of ours on the real API server, as its chart says, but for the Service: here it is this machine."""

import os
import socket
import subprocess
import sys

from testbed import objects

RBAC = "rbac.authorization.k8s.io/v1"


def binding(kind, name, role, user, namespace=None):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    role_kind = "Role" if kind == "RoleBinding" and role.endswith("-server") else "ClusterRole"
    reference = {"kind": role_kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "subjects": subjects, "roleRef": reference}


def installed(plane, name, server, viewer):
    """The port on which `server` is to serve the API of a name; `viewer` may ask it about namespace `default`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = objects.chart(f"{name}.yaml")
    made += [
        binding("ClusterRoleBinding", f"serves-{name}", f"fairlead-{name}-server", server),
        binding("RoleBinding", f"serves-{name}", f"fairlead-{name}-server", server, "kube-system"),
        binding("RoleBinding", f"asks-{name}", f"fairlead-{name}", viewer, "default"),
    ]
    for each in made:
        if each["kind"] == "Service":
            each["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        elif each["kind"] == "APIService":
            each["spec"]["service"]["port"] = port
        plane.request("POST", objects.path(each), each)
    return port


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
