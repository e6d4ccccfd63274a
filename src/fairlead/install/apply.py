"""Applying an installation, waiting until it runs, and removing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.install import kinds
from fairlead.install.kinds import DEFINITION, Kind
from fairlead.install.objects import MANAGED_BY, MANAGER
from fairlead.install.rights import NAMESPACE

Manifest = dict[str, Any]
_POLL = 0.5  # seconds between two questions
_SERVED_WITHIN = 60.0  # seconds until custom resources are served, or the API server will not do so


class InstallError(Exception):
    """What could not be applied, and why."""


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
    return [removed async for removed in _removed(client, lambda each: not each.stays, wanted)]


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


async def remove(client: Client, *, definitions: bool, limit: float) -> list[str]:
    """Remove what was installed; what that was. definitions: those of the custom resources, too, and with them the resources.

    The processes end first, within `limit` seconds: their accounts lose their rights only then. Raises `InstallError`.
    """
    removed = [each async for each in _removed(client, lambda kind: kind.kind == "Deployment", set())]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    for process in removed:
        app = process.rpartition("/")[2]
        while await _of_app(client, app):
            if loop.time() >= deadline:
                raise InstallError(f"the pods of {app} have not ended: `kubectl get pods -n {NAMESPACE} -l app={app}` shows them")
            await asyncio.sleep(_POLL)
    removed += [each async for each in _removed(client, lambda kind: not kind.stays, set())]
    if definitions:
        removed += [each async for each in _removed(client, lambda kind: kind.kind == DEFINITION, set())]
        await _gone(client, loop.time() + limit)
    return removed


def rolled_out(deployment: Manifest) -> bool:
    """Whether its pods are those of its present template and one of them is ready. Only the leader ever is."""
    status = deployment.get("status") or {}
    present = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    updated = status.get("updatedReplicas", 0) >= deployment["spec"]["replicas"]
    no_older = status.get("replicas", 0) <= status.get("updatedReplicas", 0)
    return bool(present and updated and no_older) and bool(status.get("readyReplicas"))


def obstacles(deployment: Manifest, pods: Sequence[Manifest]) -> Iterator[str]:
    """Why a Deployment does not run, in sentences."""
    app, wanted = deployment["metadata"]["name"], deployment["spec"]["replicas"]
    status = deployment.get("status") or {}
    yield f"{app}: {status.get('readyReplicas', 0)} of its {wanted} pods are ready; one has to be"
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
    return (
        ""
        if ready
        else f"{status.get('phase', 'Pending')}, not ready: `kubectl logs -n {NAMESPACE}` shows why, or it is a standby"
    )


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


async def _gone(client: Client, deadline: float) -> None:
    """Return once the definitions are gone: all custom resources go before them."""
    selector = f"{MANAGED_BY}={MANAGER}"
    while left := await _listed(client, kinds.ORDER[0].collection(), selector):
        if asyncio.get_running_loop().time() >= deadline:
            raise InstallError(
                f"custom resources are still being deleted: {', '.join(each['metadata']['name'] for each in left)}"
            )
        await asyncio.sleep(_POLL)


async def _removed(client: Client, chosen: Callable[[Kind], bool], but: set[str]) -> Any:
    """Delete what `fairlead install` made of some kinds, but for some paths; yields what was deleted."""
    body = encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
    for kind in reversed(kinds.ORDER):
        if not chosen(kind):
            continue
        for each in await _listed(client, kind.collection(NAMESPACE), f"{MANAGED_BY}={MANAGER}"):
            path = f"{kind.collection(NAMESPACE)}/{each['metadata']['name']}"
            if path in but or each["metadata"].get("deletionTimestamp"):
                continue
            try:
                await client.delete(path, body)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise InstallError(f"{kind.kind}/{each['metadata']['name']}: {error.message or error}") from error
            yield f"{kind.kind}/{each['metadata']['name']}"


async def _pods(client: Client, deployment: Manifest) -> list[Manifest]:
    return await _of_app(client, deployment["metadata"]["name"])


async def _of_app(client: Client, app: str) -> list[Manifest]:
    return await _listed(client, f"/api/v1/namespaces/{NAMESPACE}/pods", f"app={app}")


async def _listed(client: Client, path: str, selector: str) -> list[Manifest]:
    """The objects with labels; none of a kind that is not served."""
    try:
        found: list[Manifest] = msgspec.json.decode(await client.get(path, labelSelector=selector))["items"]
    except ApiError as error:
        if error.code == 404:
            return []
        raise
    return found
