"""`fairlead cancel`, `suspend`, `resume`, `hold`, `release`: what users do to their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from fairlead.cli.connection import KubeconfigOption, run
from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client

_PATHS = {"aijob": "/apis/fairlead.dev/v1alpha1/namespaces/{}/aijobs/{}", "job": "/apis/batch/v1/namespaces/{}/jobs/{}"}
_KINDS = {"aijob": "aijob", "aijobs": "aijob", "aj": "aijob", "job": "job", "jobs": "job"}
_BEGUN = ("Starting", "Running", "Resizing", "Restarting")
_OVER = ("Succeeded", "Failed")
_MERGE = "application/merge-patch+json"
_FINAL = {"Complete": "Succeeded", "Failed": "Failed"}
"""Conditions of Jobs that have ended -> how."""

NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", help="An AIJob, or KIND/NAME with aijob or job.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Default: the kubeconfig's.")]


def cancel(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Delete jobs with all objects that they own."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        uid = manifest["metadata"]["uid"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": uid}}
        await client.delete(path, msgspec.json.encode(body))
        return "cancelled"

    _each(names, namespace, kubeconfig, work)


def suspend(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Stop jobs after their checkpoint and release their nodes. `fairlead resume` starts them again."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        return "suspended" if await _set(client, path, manifest, suspended=True) else "already suspended"

    _each(names, namespace, kubeconfig, work)


def resume(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Return suspended or held jobs to their queue."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        return "resumed" if await _set(client, path, manifest, suspended=False) else "not suspended by its user"

    _each(names, namespace, kubeconfig, work)


def hold(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Keep pending jobs from starting. Running jobs are not affected."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        if await _has_begun(client, manifest):
            raise _Refused("is already running: use `fairlead suspend` instead")
        return "held" if await _set(client, path, manifest, suspended=True) else "already held"

    _each(names, namespace, kubeconfig, work)


def release(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Return held jobs to their queue."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        return "released" if await _set(client, path, manifest, suspended=False) else "not held"

    _each(names, namespace, kubeconfig, work)


class _Refused(Exception):
    """What was asked for is not possible with this job: why, as the end of a sentence that begins with its name."""


async def _set(client: Client, path: str, manifest: dict[str, Any], *, suspended: bool) -> bool:
    """Set `spec.suspend`; whether that changed anything. Raises `_Refused` for a job that has ended."""
    from fairlead.api import names
    from fairlead.cluster.kubernetes.client import encode

    if ended := _ended(manifest.get("status") or {}):
        raise _Refused(f"has ended: {ended}")
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    by_policy = names.SUSPENDED_BY_ANNOTATION in annotations
    if bool((manifest.get("spec") or {}).get("suspend")) == suspended and not (suspended and by_policy):
        return False
    patch: dict[str, Any] = {"spec": {"suspend": suspended}}
    group = annotations.get(names.SUSPENDED_FOR_ANNOTATION)
    if group and suspended:  # the scheduler suspended it: from now on its user does, and the operator does not resume it
        marks = {names.SUSPENDED_BY_ANNOTATION: None, names.TARGET_EPOCH_ANNOTATION: None}
        patch["metadata"] = {"annotations": marks, "labels": {names.SUSPENDED_BY_LABEL: None}}
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    elif group and not by_policy:
        patch["metadata"] = {"annotations": {names.SUSPENDED_FOR_ANNOTATION: None}}
    await client.patch(path, encode(patch), _MERGE)
    if group and "metadata" in patch:
        await _pause(client, metadata["namespace"], group, paused=suspended)
    return True


async def _pause(client: Client, namespace: str, group: str, *, paused: bool) -> None:
    """Report to the scheduler whether a job that it suspended waits for places; its PodGroup may be gone."""
    from fairlead.api import names
    from fairlead.cluster.kubernetes.client import ApiError, encode

    body = {"metadata": {"annotations": {names.PAUSED_ANNOTATION: "true" if paused else None}}}
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{quote(group)}"
    try:
        await client.patch(path, encode(body), _MERGE)
    except ApiError as error:
        if error.code not in (403, 404):
            raise


async def _has_begun(client: Client, manifest: dict[str, Any]) -> bool:
    """Whether a job runs, or is about to. The status of a Job counts pods that wait as those that have nodes."""
    status, metadata = manifest.get("status") or {}, manifest["metadata"]
    if manifest["kind"] != "Job" or not status.get("active"):
        return status.get("phase") in _BEGUN
    selector = f"batch.kubernetes.io/controller-uid={metadata['uid']}"
    answer = await client.get(f"/api/v1/namespaces/{metadata['namespace']}/pods", labelSelector=selector)
    pods = msgspec.json.decode(answer)["items"]
    return any(pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") not in _OVER for pod in pods)


def _ended(status: dict[str, Any]) -> str:
    """How an AIJob or a Job ended; empty: it has not."""
    if status.get("phase") in _OVER:
        return str(status["phase"])
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    return next((how for kind, how in _FINAL.items() if conditions.get(kind) == "True"), "")


def _each(names: list[str], namespace: str, kubeconfig: str, work: Any) -> None:
    """Do the same to each job; what one of them is refused does not keep the others from it."""
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.config import ConfigError, load

    try:
        namespace = namespace or load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    paths = [(text, _path(text, namespace)) for text in names]

    async def main(client: Client) -> tuple[list[str], bool]:
        missing, refused = [], False
        for text, path in paths:
            try:
                manifest = msgspec.json.decode(await client.get(path))
                typer.echo(f"{text} {await work(client, path, manifest)}")
            except _Refused as error:
                refused = True
                typer.echo(f"fairlead: {text} {error}", err=True)
            except ApiError as error:
                if error.code != 404:
                    raise
                missing.append(text)
        return missing, refused

    missing, refused = run(kubeconfig, main, writes=True)
    if missing:
        fail(f"{', '.join(missing)}: no such job in namespace {namespace}", Exit.REFUSED if refused else Exit.NOT_FOUND)
    if refused:
        raise typer.Exit(int(Exit.REFUSED))


def _path(text: str, namespace: str) -> str:
    kind, slash, name = text.rpartition("/")
    if not name or (slash and kind.lower() not in _KINDS):
        fail(f"{text!r} is not NAME, aijob/NAME or job/NAME", Exit.USAGE)
    return _PATHS[_KINDS[kind.lower()] if slash else "aijob"].format(namespace, quote(name))
