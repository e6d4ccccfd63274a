"""An aggregated API of ours on the real API server, as its chart says, but for the Service: here it is this machine."""

from __future__ import annotations

from typing import Any

from testbed import objects
from testbed.controlplane import ControlPlane, free_port

_GROUP = "rbac.authorization.k8s.io"
RBAC = f"{_GROUP}/v1"


def binding(kind: str, name: str, role: str, user: str, namespace: str | None = None) -> dict[str, Any]:
    """A binding of a role to a user."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    subjects = [{"kind": "User", "name": user, "apiGroup": _GROUP}]
    role_kind = "Role" if kind == "RoleBinding" and role.endswith("-server") else "ClusterRole"
    reference = {"kind": role_kind, "name": role, "apiGroup": _GROUP}
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "subjects": subjects, "roleRef": reference}


def installed(plane: ControlPlane, name: str, server: str, viewer: str) -> int:
    """The port on which `server` is to serve the API of a name; `viewer` may ask it about namespace `default`."""
    port = free_port()
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
