"""AIJobs from what was asked for, and a namespace's submit profile: what its jobs have in common.

The profile is the ConfigMap `fairlead-submit`: `image`, `workingDir`, `env` (lines NAME=VALUE), `volumes` and `volumeMounts`
(YAML as in a pod). A script travels in a ConfigMap of its own and is run by its first line.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from fairlead.api import names
from fairlead.submission.directives import Asked, DirectiveError

Manifest = dict[str, Any]

PROFILE = "fairlead-submit"
MOST_BYTES = 1 << 20
_FOLDER, _FILE = "/fairlead", "script"
_MOST_ENV = 1 << 20


class Profile:
    """What the jobs of a namespace have in common. Raises `DirectiveError` for one that cannot be read."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        given = data or {}
        self.image = given.get("image", "").strip()
        self.directory = given.get("workingDir", "").strip()
        self.env: dict[str, str] = {}
        for line in given.get("env", "").splitlines():
            name, equals, value = line.strip().partition("=")
            if equals:
                self.env[name] = value
        self.volumes = _listed(given, "volumes")
        self.mounts = _listed(given, "volumeMounts")


def _listed(data: dict[str, str], field: str) -> list[Any]:
    try:
        found = yaml.safe_load(data.get(field, "") or "[]")
    except yaml.YAMLError as error:
        raise DirectiveError(f"{field} in ConfigMap {PROFILE} is not YAML: {error}") from error
    if not isinstance(found, list):
        raise DirectiveError(f"{field} in ConfigMap {PROFILE} is not a list")
    return found


def check_script(script: bytes, name: str) -> str:
    """A script's text. Raises `DirectiveError` with what to do."""
    if len(script) > MOST_BYTES:
        raise DirectiveError(
            f"{name} has {len(script)} bytes, more than 1 MiB: put data and programs on a volume or into the image"
        )
    try:
        text = script.decode()
    except UnicodeDecodeError as error:
        raise DirectiveError(f"{name} is not text: give a script, or a program of the image after `--`") from error
    if "\r\n" in text:  # as sbatch; its interpreter would not be found, whose name ends with \r
        raise DirectiveError(f"{name} has DOS line breaks (\\r\\n): convert it, for instance with dos2unix")
    if not text.startswith("#!"):
        raise DirectiveError(f"{name} names no interpreter: its first line must be such as #!/bin/bash")
    return text


def script_map(name: str, namespace: str, script: str, owner: Manifest | None = None) -> Manifest:
    """The ConfigMap in which a script travels; it goes with its job."""
    metadata: Manifest = {"name": f"{name}-script", "namespace": namespace, "labels": {names.JOB_LABEL: name}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_FILE: script}}


def ai_job(name: str, namespace: str, asked: Asked, profile: Profile, command: list[str], *, scripted: bool) -> Manifest:
    """The AIJob. command: what runs, with arguments; scripted: they are the script's. Raises `DirectiveError`."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > 40:
        raise DirectiveError(f"{name!r} is not a job name: give --name with at most 40 lower-case letters, digits and '-'")
    image = asked.image or profile.image
    if not image:
        raise DirectiveError(
            f"no image: use --image, a line `#FAIRLEAD --image=...`, or `image` in the namespace's ConfigMap {PROFILE}"
        )
    env = {**profile.env, **asked.env}
    if sum(len(key) + len(value) for key, value in env.items()) > _MOST_ENV:
        raise DirectiveError("the environment is larger than 1 MiB: put it into a file on a volume")
    container: Manifest = {
        "name": "main",
        "image": image,
        "command": [f"{_FOLDER}/{_FILE}", *command] if scripted else command,
        "resources": _resources(asked),
    }
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    if asked.directory or profile.directory:
        container["workingDir"] = asked.directory or profile.directory
    pod = _pod(name, asked, profile, container, scripted=scripted)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _spec(name, asked, pod),
    }


def _resources(asked: Asked) -> Manifest:
    """What a container asks for; of CPUs it may have more where they are free."""
    amounts = {"nvidia.com/gpu": asked.gpus, "cpu": asked.cpus, "memory": asked.memory}
    requests: dict[str, Any] = {resource: amount for resource, amount in amounts.items() if amount}
    limits = {resource: amount for resource, amount in requests.items() if resource != "cpu"}
    return {"requests": requests, "limits": limits} if requests else {}


def _pod(name: str, asked: Asked, profile: Profile, container: Manifest, *, scripted: bool) -> Manifest:
    """The pod around a container: its volumes, and the nodes that it may run on."""
    mounts, volumes = list(profile.mounts), list(profile.volumes)
    if scripted:
        mounts.append({"name": "fairlead-script", "mountPath": _FOLDER, "readOnly": True})
        volumes.append({"name": "fairlead-script", "configMap": {"name": f"{name}-script", "defaultMode": 0o755}})
    if mounts:
        container = {**container, "volumeMounts": mounts}
    pod: Manifest = {"containers": [container]}
    if volumes:
        pod["volumes"] = volumes
    if asked.gpu_model:
        pod["nodeSelector"] = {names.POOL_LABELS[0]: asked.gpu_model}
    if asked.on or asked.not_on:
        pod["affinity"] = _affinity(name, asked)
    return pod


def _affinity(name: str, asked: Asked) -> Manifest:
    """Members on the nodes that are named, one on each as in Slurm, and on none of the others."""
    wanted = [
        {"key": names.HOSTNAME_LABEL, "operator": operator, "values": values}
        for operator, values in (("In", asked.on), ("NotIn", asked.not_on))
        if values
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    affinity: Manifest = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if len(asked.on) > 1:
        apart: Manifest = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {names.JOB_LABEL: name}}}
        if asked.array:
            apart["matchLabelKeys"] = [names.ELEMENT_LABEL]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return affinity


def _spec(name: str, asked: Asked, pod: Manifest) -> Manifest:
    spec: Manifest = {"roles": [{"name": "worker", "replicas": asked.nodes, "template": {"spec": pod}}]}
    for field, value in (
        ("queue", asked.queue),
        ("serviceClass", asked.service_class),
        ("timeLimit", asked.time),
        ("ttlAfterFinished", asked.ttl),
    ):
        if value:
            spec[field] = value
    if asked.shared:
        spec["roles"][0]["sharedResources"] = asked.shared
    if asked.held:
        spec["suspend"] = True
    if asked.restarts is not None:
        spec["restart"] = {"limit": asked.restarts}
    if asked.checkpoint:
        spec["checkpoint"] = {"path": asked.checkpoint}
    if asked.dependencies:
        spec["dependsOn"] = [{"job": job or name, "when": when} for job, when in asked.dependencies]
    if asked.array:
        spec["array"] = {"indexes": asked.array, **({"parallelism": asked.parallelism} if asked.parallelism else {})}
    return spec
