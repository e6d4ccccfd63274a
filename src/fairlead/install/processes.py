"""Scheduler and operator: their Deployments, what these mount, and who reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.api.names import CONFIG_VARIABLE
from fairlead.install import apis
from fairlead.install.accounts import PROCESSES, account
from fairlead.install.values import Values

PORTS = {"scheduler": 10259, "operator": 10260}
"""Process -> where its /metrics is."""
_CONFIGURED, _FOLDER = "/etc/fairlead", "/var/lib/fairlead"
_USER = 65532
_DNS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]


class _Mounted(msgspec.Struct):
    """Environment, mounts and volumes of a pod. By its address a leader is the endpoint of the APIs that it serves, whose
    certificates are loaded from files below /tmp.
    """

    env: list[dict[str, Any]] = msgspec.field(
        default_factory=lambda: [
            {"name": "FAIRLEAD_POD_ADDRESS", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
        ]
    )
    mounts: list[dict[str, Any]] = msgspec.field(default_factory=lambda: [{"name": "tmp", "mountPath": "/tmp"}])  # noqa: S108
    volumes: list[dict[str, Any]] = msgspec.field(
        default_factory=lambda: [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]
    )


def files(values: Values) -> Iterator[dict[str, Any]]:
    """What the Deployments mount."""
    if values.configuration:
        yield {
            **_object("v1", "ConfigMap", f"{values.name}-configuration", values),
            "data": {"configuration.yaml": values.text()},
        }
    if values.history is not None and values.history.storage is not None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": values.history.storage}}}
        yield {**_object("v1", "PersistentVolumeClaim", f"{values.name}-history", values), "spec": spec}


def network(values: Values) -> Iterator[dict[str, Any]]:
    """What reaches the processes and is reached by them; the rest is denied.

    No source is named: the API server and the kubelet, which ask them, are no pods.
    """
    if not values.network_policies:
        return
    for process in PROCESSES:
        into = [PORTS[process], *(api.port for api in apis.served(values, process))]
        yield {
            **_object("networking.k8s.io/v1", "NetworkPolicy", account(process, values.name), values),
            "spec": {
                "podSelector": {"matchLabels": {"app": account(process, values.name)}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"ports": [_tcp(port) for port in into]}],
                "egress": [{"ports": [*_DNS, *(_tcp(port) for port in values.reached(process))]}],
            },
        }


def deployments(values: Values) -> Iterator[dict[str, Any]]:
    """Both processes."""
    for process in PROCESSES:
        name = account(process, values.name)
        mounted = _mounted(process, values)
        sole = any("persistentVolumeClaim" in volume for volume in mounted.volumes)  # a volume that one pod may mount
        # A pod leaves once its successor waits for the lease, or leads.
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        yield {
            **_object("apps/v1", "Deployment", name, values),
            "spec": {
                "replicas": 1 if sole else values.replicas,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "Recreate"} if sole else rolling,
                "template": {"metadata": {"labels": {"app": name}}, "spec": _pod(process, values, mounted)},
            },
        }


def budgets(values: Values) -> Iterator[dict[str, Any]]:
    """A drain takes one pod of a process at a time, and the next once another is ready to lead."""
    for each in deployments(values):
        if each["spec"]["replicas"] > 1:
            yield {
                **_object("policy/v1", "PodDisruptionBudget", each["metadata"]["name"], values),
                "spec": {
                    "maxUnavailable": 1,
                    "selector": each["spec"]["selector"],
                    "unhealthyPodEvictionPolicy": "AlwaysAllow",
                },
            }


def _pod(process: str, values: Values, mounted: _Mounted) -> dict[str, Any]:
    """A pod as the Pod Security Standard `restricted` has it. Replicas prefer nodes of their own."""
    name, port = account(process, values.name), PORTS[process]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    container = {
        "name": process,
        "image": values.image,
        "args": [process, "--address", f"0.0.0.0:{port}", *_flags(process, values)],
        "env": mounted.env,
        "volumeMounts": mounted.mounts,
        "ports": [{"name": "metrics", "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": dict(values.requests)},
        "livenessProbe": {"httpGet": {"port": port, "path": "/healthz"}, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {"port": port, "path": "/standbyz"}, "periodSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "serviceAccountName": name,
        **({"imagePullSecrets": [{"name": each} for each in values.image_pull_secrets]} if values.image_pull_secrets else {}),
        "priorityClassName": "system-cluster-critical",
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
        },
        "containers": [container],
        "volumes": mounted.volumes,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _flags(process: str, values: Values) -> list[str]:
    served = apis.served(values, process)
    flags = [word for api in served for word in (f"--{api.name}-address", f"0.0.0.0:{api.port}")]
    flags += ["--service-namespace", values.namespace] if served else []
    if process == "operator":
        flags += ["--prometheus", values.prometheus] if values.prometheus else []
        flags += [f"--provisioning-class={each}" for each in values.provisioning_classes]
    return flags


def _mounted(process: str, values: Values) -> _Mounted:
    mounted = _Mounted()
    if values.configuration:
        mounted.env.append({"name": CONFIG_VARIABLE, "value": f"{_CONFIGURED}/configuration.yaml"})
        mounted.mounts.append({"name": "configuration", "mountPath": _CONFIGURED, "readOnly": True})
        mounted.volumes.append({"name": "configuration", "configMap": {"name": f"{values.name}-configuration"}})
    history = values.history
    if process == "operator" and history is not None:
        if history.storage is None:
            key = {"secretKeyRef": {"name": history.secret_name, "key": history.key}}
            mounted.env.append({"name": "FAIRLEAD_DATABASE", "valueFrom": key})
        else:
            mounted.env.append({"name": "FAIRLEAD_DATABASE", "value": f"sqlite:///{_FOLDER}/history.db"})
            mounted.mounts.append({"name": "history", "mountPath": _FOLDER})
            mounted.volumes.append({"name": "history", "persistentVolumeClaim": {"claimName": f"{values.name}-history"}})
    return mounted


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def _object(version: str, kind: str, name: str, values: Values) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": values.namespace}}
