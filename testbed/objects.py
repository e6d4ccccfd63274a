"""Objects that tests and benchmarks put on the real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fairlead.api import crds, names

GPU = "nvidia.com/gpu"
_CHARTS = Path(__file__).parent.parent / "charts"


def node(
    name: str, *, gpus: int = 8, cpu: str = "128", memory: str = "2Ti", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A node that reports what it has and is Ready."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **({GPU: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(  # noqa: PLR0913 - each is given by name
    name: str,
    *,
    gpus: int | str = 1,
    cpu: str = "1",
    memory: str = "1Gi",
    scheduler: str = names.SCHEDULER_NAME,
    queue: str = "",
    group: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod that asks for devices."""
    requests: dict[str, str] = {"cpu": cpu, "memory": memory}
    if gpus:
        requests[GPU] = str(gpus)
    marked = dict(labels or {})
    if queue:
        marked[names.QUEUE_LABEL] = queue
    if group:
        marked[names.POD_GROUP_LABEL] = group
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": requests, "limits": {GPU: str(gpus)} if gpus else {}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": marked, "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def job(name: str, *, pods: int = 1) -> dict[str, Any]:
    """A Job whose pods ask for one device each."""
    template = {"metadata": {}, "spec": {**pod("template")["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def ai_job(name: str, *, workers: int = 2, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """An AIJob of one role."""
    template = {"spec": pod("template", gpus=gpus)["spec"]}
    roles = [{"name": "worker", "replicas": workers, "template": template}]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AIJob",
        "metadata": {"name": name},
        "spec": {"roles": roles, **spec},
    }


def pod_group(name: str, min_member: int, queue: str = "") -> dict[str, Any]:
    """A PodGroup."""
    spec: dict[str, Any] = {"minMember": min_member}
    if queue:
        spec["queue"] = queue
    return {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def queue(name: str, *, quota: str | int | None = None, limit: str | int | None = None, priority: int = 0) -> dict[str, Any]:
    """A Queue with quota and limit of GPUs."""
    resource: dict[str, Any] = {"name": GPU}
    if quota is not None:
        resource["quota"] = quota
    if limit is not None:
        resource["limit"] = limit
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"priority": priority, "resources": [resource]},
    }


def service_class(name: str, **spec: Any) -> dict[str, Any]:
    """A ServiceClass."""
    return {"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": name}, "spec": spec}


def reservation(name: str, start: str, end: str, *, purpose: str = "Maintenance", **spec: Any) -> dict[str, Any]:
    """A Reservation; times as RFC 3339."""
    given = {"purpose": purpose, "start": start, "end": end, **spec}
    return {"apiVersion": names.API_VERSION, "kind": "Reservation", "metadata": {"name": name}, "spec": given}


def priority_class(name: str, value: int) -> dict[str, Any]:
    """A PriorityClass."""
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def definitions() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions."""
    return crds.definitions()


def rights(user: str, of: str = "fairlead-scheduler") -> list[dict[str, Any]]:
    """The roles of a process, bound to a user."""
    roles = [each for each in chart("rbac.yaml") if each["metadata"]["name"] == of]
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    bindings = [
        {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": {**role["metadata"], "name": f"{role['metadata']['name']}-{user.replace(':', '-')}"},
            "subjects": [subject],
            "roleRef": {"kind": role["kind"], "name": role["metadata"]["name"], "apiGroup": "rbac.authorization.k8s.io"},
        }
        for role in roles
    ]
    return roles + bindings


def chart(file: str) -> list[dict[str, Any]]:
    """The manifests of one file of `charts/`."""
    return [each for each in yaml.safe_load_all((_CHARTS / file).read_text()) if each]


def path(manifest: dict[str, Any], namespace: str = "default") -> str:
    """Where such an object is created."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    prefix = "/api/v1" if version == "v1" else f"/apis/{version}"
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    if kind.endswith("cy"):
        plural = f"{kind.lower()[:-1]}ies"
    if kind in _CLUSTER_SCOPED:
        return f"{prefix}/{plural}"
    namespace = manifest["metadata"].get("namespace", namespace)
    return f"{prefix}/namespaces/{namespace}/{plural}"


_CLUSTER_SCOPED = {
    "Node",
    "DeviceClass",
    "ResourceSlice",
    "Namespace",
    "Queue",
    "ServiceClass",
    "Reservation",
    "NodePool",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "APIService",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
}
