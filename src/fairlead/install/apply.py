"""Applying an installation, waiting until it runs, and removing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.api.names import FIRST_RELEASE
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.install import kinds
from fairlead.install.kinds import DEFINITION, Kind
from fairlead.install.objects import MANAGED_BY, MANAGER, release_of
from fairlead.install.values import INSTANCE

Manifest = dict[str, Any]
_POLL = 0.5  # seconds between two questions
_OURS = f"{MANAGED_BY}={MANAGER}"
_OCCUPY = ("pods", "persistentvolumeclaims", "secrets", "services", "configmaps")
"""Plurals of what keeps a namespace from being removed."""
_OF_EVERY_NAMESPACE = "kube-root-ca.crt"
_SERVED_WITHIN = 60.0  # seconds until custom resources are served, or the API server will not do so


class InstallError(Exception):
    """What could not be applied, and why."""


class Removal(msgspec.Struct):
    """What was removed, and the namespaces that contain something else."""

    removed: list[str]
    kept: list[str]


async def apply(client: Client, manifests: Sequence[Manifest], report: Callable[[int, int], None]) -> list[str]:
    """Server-side apply of all objects, then removal of earlier ones that are no longer among them: these are returned.

    report: (done, total). Raises `InstallError`, `Unreachable`.
    """
    defined = False
    for done, manifest in enumerate(manifests):
        report(done, len(manifests))
        if not defined and manifest["kind"] != DEFINITION:
            await _served([each for each in manifests if each["kind"] == DEFINITION], client)
            defined = True
        try:
            await client.apply(kinds.path(manifest), encode(manifest), MANAGER)
        except ApiError as error:
            raise InstallError(f"{name(manifest)}: {error.message or error}") from error
    report(len(manifests), len(manifests))
    wanted = {kinds.path(each) for each in manifests}
    release = release_of(manifests)
    return [removed async for removed in _removed(client, lambda each: not each.stays, wanted, release)]


async def running(client: Client, manifests: Sequence[Manifest], limit: float) -> list[str]:
    """Wait for the Deployments among them; why some do not run after `limit` seconds, else nothing."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    waiting = [each for each in manifests if each["kind"] == "Deployment"]
    while True:
        found = [msgspec.json.decode(await client.get(kinds.path(each))) for each in waiting]
        waiting = [each for each, now in zip(waiting, found, strict=True) if not rolled_out(now)]
        if not waiting:
            return []
        if loop.time() >= deadline:
            return [line for now in found if not rolled_out(now) for line in obstacles(now, await _pods(client, now))]
        await asyncio.sleep(_POLL)


async def remove(client: Client, *, definitions: bool, limit: float, release: str = FIRST_RELEASE) -> Removal:
    """Remove what was installed of a release. definitions: those of the custom resources, too, and with them the resources.

    The processes end first, within `limit` seconds: their accounts lose their rights only then. Raises `InstallError`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    deployments = await _installed(client, kinds.DEPLOYMENT, release)
    removed = [each async for each in _removed(client, lambda kind: kind is kinds.DEPLOYMENT, set(), release)]
    for each in deployments:
        while await _pods(client, each):
            if loop.time() >= deadline:
                app, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
                raise InstallError(f"the pods of {app} have not ended: `kubectl get pods -n {namespace} -l app={app}` shows them")
            await asyncio.sleep(_POLL)
    removed += [each async for each in _removed(client, lambda kind: not kind.stays, set(), release)]
    kept = await _gone(client, kinds.NAMESPACE, loop.time() + limit, release)
    if definitions:
        removed += [each async for each in _removed(client, lambda kind: kind.kind == DEFINITION, set(), release)]
        await _gone(client, kinds.ORDER[0], loop.time() + limit, release)
    return Removal(removed, kept)


def rolled_out(deployment: Manifest) -> bool:
    """Whether all its pods are those of its present template, and are ready: one to lead, the others to take over."""
    status = deployment.get("status") or {}
    present = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    updated = status.get("updatedReplicas", 0) >= deployment["spec"]["replicas"]
    no_older = status.get("replicas", 0) <= status.get("updatedReplicas", 0)
    ready = status.get("readyReplicas", 0) >= deployment["spec"]["replicas"]
    return bool(present and updated and no_older and ready)


def obstacles(deployment: Manifest, pods: Sequence[Manifest]) -> Iterator[str]:
    """Why a Deployment does not run, in sentences."""
    app, wanted = deployment["metadata"]["name"], deployment["spec"]["replicas"]
    status = deployment.get("status") or {}
    yield f"{app}: {status.get('readyReplicas', 0)} of its {wanted} pods are ready"
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in (("ReplicaFailure", "True"), ("Progressing", "False")):
            yield f"{app}: {condition.get('reason')}: {condition.get('message')}"
    if not pods:
        yield f"{app}: no pod exists: kube-controller-manager makes them"
    for pod in pods:
        why = _waits(pod)
        if why:
            yield f"pod {pod['metadata']['name']}: {why}"


def name(manifest: Manifest) -> str:
    """An object in messages."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _waits(pod: Manifest) -> str:
    """Why a pod is not ready."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            found = (container.get("state") or {}).get(state)
            if found:
                return f"{found.get('reason')}: {found.get('message', '')}".removesuffix(": ")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason')}: {condition.get('message', '')}".removesuffix(": ")
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    return "" if ready else f"{status.get('phase', 'Pending')}, not ready: its log shows why"


async def _served(definitions: Sequence[Manifest], client: Client) -> None:
    """Return once the API server answers requests for the custom resources of all definitions."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SERVED_WITHIN
    for each in definitions:
        while why := await _not_served(each, client):
            if loop.time() >= deadline:
                raise InstallError(f"{name(each)} is not served after {_SERVED_WITHIN:g} s: {why}")
            await asyncio.sleep(_POLL)


async def _not_served(definition: Manifest, client: Client) -> str:
    """Why the custom resources of a definition are not served; nothing where they are."""
    found = msgspec.json.decode(await client.get(kinds.path(definition)))
    conditions = (found.get("status") or {}).get("conditions") or ()
    if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        return "; ".join(one.get("message", "") for one in conditions if one["status"] == "False") or "no condition"
    spec = definition["spec"]
    try:
        await client.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}", limit="1")
    except ApiError as error:
        if error.code in (404, 503):  # established, and not known to all handlers yet
            return str(error)
        if error.code != 403:
            raise
    return ""


async def _gone(client: Client, kind: Kind, deadline: float, release: str) -> list[str]:
    """Return once those of ours that are being deleted are gone, with all that they contain; the names of the others."""
    while True:
        there = await _installed(client, kind, release)
        ending = [each["metadata"]["name"] for each in there if each["metadata"].get("deletionTimestamp")]
        if not ending:
            return [each["metadata"]["name"] for each in there]
        if asyncio.get_running_loop().time() >= deadline:
            raise InstallError(f"{kind.kind}: still being deleted: {', '.join(ending)}")
        await asyncio.sleep(_POLL)


async def _occupied(client: Client, namespace: str) -> bool:
    """Whether a namespace contains what others made, or what stays."""
    for plural in _OCCUPY:
        found = await _listed(client, f"/api/v1/namespaces/{namespace}/{plural}")
        if any(each["metadata"]["name"] != _OF_EVERY_NAMESPACE for each in found):
            return True
    return False


async def _removed(client: Client, chosen: Callable[[Kind], bool], but: set[str], release: str) -> Any:
    """Delete what `fairlead install` made of some kinds for a release, but for some paths; yields what was deleted."""
    body = encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
    for kind in reversed(kinds.ORDER):
        if not chosen(kind):
            continue
        for each in await _installed(client, kind, release):
            path = kind.path(each["metadata"])
            if path in but or each["metadata"].get("deletionTimestamp"):
                continue
            if kind is kinds.NAMESPACE and await _occupied(client, each["metadata"]["name"]):
                continue
            try:
                await client.delete(path, body)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise InstallError(f"{kind.kind}/{each['metadata']['name']}: {error.message or error}") from error
            yield f"{kind.kind}/{each['metadata']['name']}"


async def _pods(client: Client, deployment: Manifest) -> list[Manifest]:
    metadata = deployment["metadata"]
    return await _listed(client, f"/api/v1/namespaces/{metadata['namespace']}/pods", f"app={metadata['name']}")


async def _installed(client: Client, kind: Kind, release: str) -> list[Manifest]:
    """What `fairlead install` made of a kind for a release; the first one's have no name of it by earlier versions."""
    found = await _listed(client, kind.collection(), _OURS)
    return [each for each in found if each["metadata"]["labels"].get(INSTANCE, FIRST_RELEASE) == release]


async def _listed(client: Client, path: str, selector: str = "") -> list[Manifest]:
    """The objects with labels; none of a kind that is not served."""
    try:
        found: list[Manifest] = msgspec.json.decode(await client.get(path, labelSelector=selector))["items"]
    except ApiError as error:
        if error.code == 404:
            return []
        raise
    return found
