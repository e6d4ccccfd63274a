"""Scheduler and operator: their Deployments, what these mount, and who reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml

from fairlead.api.names import CONFIG_VARIABLE
from fairlead.install import charts
from fairlead.install.rights import NAMESPACE, PROCESSES, served
from fairlead.install.values import Values

PORTS = {"scheduler": 10259, "operator": 10260}
"""Process -> where its /metrics is."""
API_PORTS = {"visibility": 6443, "history": 6444, "external-metrics": 6445}
"""Aggregated API -> where its process serves it."""
_CONFIGURATION, _CONFIGURED = "fairlead-configuration", "/etc/fairlead"
_DATABASE, _FOLDER = "fairlead-history", "/var/lib/fairlead"
_USER = 65532
_DNS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]


def files(values: Values) -> Iterator[dict[str, Any]]:
    """What the Deployments mount."""
    if values.configuration:
        text = yaml.safe_dump(values.document(), sort_keys=True)
        yield {**_object("v1", "ConfigMap", _CONFIGURATION), "data": {"configuration.yaml": text}}
    if values.history is not None and values.history.storage is not None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": values.history.storage}}}
        yield {**_object("v1", "PersistentVolumeClaim", _DATABASE), "spec": spec}


def network(values: Values) -> Iterator[dict[str, Any]]:
    """Services of the aggregated APIs, and what else reaches the processes and is reached by them."""
    for api in served(values):
        yield from charts.of_kind(f"{api}.yaml", "Service")
    if not values.network_policies:
        return
    for process in PROCESSES:
        into = [PORTS[process], *(API_PORTS[api] for api, server in served(values).items() if server == process)]
        yield {
            **_object("networking.k8s.io/v1", "NetworkPolicy", f"fairlead-{process}"),
            "spec": {
                "podSelector": {"matchLabels": {"app": f"fairlead-{process}"}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"ports": [_tcp(port) for port in into]}],
                "egress": [{"ports": [*_DNS, *(_tcp(port) for port in _reached(process, values))]}],
            },
        }


def deployments(values: Values) -> Iterator[dict[str, Any]]:
    """Both processes."""
    for process in PROCESSES:
        name = f"fairlead-{process}"
        mounted = _mounted(process, values)
        sole = any("persistentVolumeClaim" in volume for volume in mounted["volumes"])  # a volume that one pod may mount
        # Only the leader is ready. A rollout that waited for standbys would not end: the leader leaves with the others.
        together = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 1}}
        yield {
            **_object("apps/v1", "Deployment", name),
            "spec": {
                "replicas": 1 if sole else values.replicas,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "Recreate"} if sole else together,
                "template": {"metadata": {"labels": {"app": name}}, "spec": _pod(process, values, mounted)},
            },
        }


def _pod(process: str, values: Values, mounted: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A pod as the Pod Security Standard `restricted` has it. Replicas prefer nodes of their own."""
    name, port = f"fairlead-{process}", PORTS[process]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    container = {
        "name": process,
        "image": values.image,
        "args": [process, "--address", f"0.0.0.0:{port}", *_flags(process, values)],
        "env": mounted["env"],
        "volumeMounts": mounted["mounts"],
        "ports": [{"name": "metrics", "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": dict(values.requests)},
        "livenessProbe": {"httpGet": {"port": port, "path": "/healthz"}, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {"port": port, "path": "/readyz"}, "periodSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
        },
        "containers": [container],
        "volumes": mounted["volumes"],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _flags(process: str, values: Values) -> list[str]:
    flags = [
        word
        for api, server in served(values).items()
        if server == process
        for word in (f"--{api}-address", f"0.0.0.0:{API_PORTS[api]}")
    ]
    if process == "operator":
        flags += ["--prometheus", values.prometheus] if values.prometheus else []
        flags += [word for each in values.provisioning_classes for word in ("--provisioning-class", each)]
    return flags


def _mounted(process: str, values: Values) -> dict[str, list[dict[str, Any]]]:
    """Environment, mounts and volumes of a process's pod."""
    env: list[dict[str, Any]] = []
    # Certificates of the aggregated APIs are loaded from files there; the rest of the file system is read-only.
    mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": "/tmp"}]  # noqa: S108 - of the pod alone
    volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}}]
    if values.configuration:
        env.append({"name": CONFIG_VARIABLE, "value": f"{_CONFIGURED}/configuration.yaml"})
        mounts.append({"name": "configuration", "mountPath": _CONFIGURED, "readOnly": True})
        volumes.append({"name": "configuration", "configMap": {"name": _CONFIGURATION}})
    history = values.history
    if process == "operator" and history is not None:
        if history.storage is None:
            key = {"secretKeyRef": {"name": history.secret_name, "key": history.key}}
            env.append({"name": "FAIRLEAD_DATABASE", "valueFrom": key})
        else:
            env.append({"name": "FAIRLEAD_DATABASE", "value": f"sqlite:///{_FOLDER}/history.db"})
            mounts.append({"name": "history", "mountPath": _FOLDER})
            volumes.append({"name": "history", "persistentVolumeClaim": {"claimName": _DATABASE}})
    return {"env": env, "mounts": mounts, "volumes": volumes}


def _reached(process: str, values: Values) -> list[int]:
    """TCP ports that a process connects to, besides name servers."""
    ports = list(values.api_server_ports)
    if process == "operator":
        if values.prometheus:
            url = urlsplit(values.prometheus)
            ports.append(url.port or (443 if url.scheme == "https" else 80))
        if values.history is not None and values.history.secret_name is not None:
            ports.append(values.history.port)
    return list(dict.fromkeys(ports))


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def _object(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
