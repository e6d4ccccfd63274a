"""`fairlead cancel`, `suspend`, `resume`, `hold`, `release`: what users do to their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.connection import KubeconfigOption, run
from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client

_PATHS = {"aijob": "/apis/fairlead.dev/v1alpha1/namespaces/{}/aijobs/{}", "job": "/apis/batch/v1/namespaces/{}/jobs/{}"}
_KINDS = {"aijob": "aijob", "aijobs": "aijob", "aj": "aijob", "job": "job", "jobs": "job"}
_BEGUN = ("Starting", "Running", "Resizing", "Restarting")

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
        return await _set(client, path, manifest, suspended=True)

    _each(names, namespace, kubeconfig, work)


def resume(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Return suspended or held jobs to their queue."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        return await _set(client, path, manifest, suspended=False)

    _each(names, namespace, kubeconfig, work)


def hold(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Keep pending jobs from starting. Running jobs are not affected."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        status = manifest.get("status") or {}
        if status.get("phase") in _BEGUN or status.get("active"):
            fail(f"{manifest['metadata']['name']} is already running: use `fairlead suspend` instead", Exit.REFUSED)
        await _set(client, path, manifest, suspended=True)
        return "held"

    _each(names, namespace, kubeconfig, work)


def release(names: NamesArgument, namespace: NamespaceOption = "", kubeconfig: KubeconfigOption = "") -> None:
    """Return held jobs to their queue."""

    async def work(client: Client, path: str, manifest: dict[str, Any]) -> str:
        await _set(client, path, manifest, suspended=False)
        return "released"

    _each(names, namespace, kubeconfig, work)


async def _set(client: Client, path: str, manifest: dict[str, Any], *, suspended: bool) -> str:
    from fairlead.cluster.kubernetes.client import encode

    if bool((manifest.get("spec") or {}).get("suspend")) == suspended:
        return "already suspended" if suspended else "not suspended by its user"
    await client.patch(path, encode({"spec": {"suspend": suspended}}), "application/merge-patch+json")
    return "suspended" if suspended else "resumed"


def _each(names: list[str], namespace: str, kubeconfig: str, work: Any) -> None:
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.config import ConfigError, load

    try:
        namespace = namespace or load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)

    async def main(client: Client) -> list[str]:
        missing = []
        for text in names:
            kind, slash, plain = text.rpartition("/")
            if slash and kind.lower() not in _KINDS:
                fail(f"{text!r} is not NAME, aijob/NAME or job/NAME", Exit.USAGE)
            path = _PATHS[_KINDS[kind.lower()] if slash else "aijob"].format(namespace, plain)
            try:
                manifest = msgspec.json.decode(await client.get(path))
                typer.echo(f"{text} {await work(client, path, manifest)}")
            except ApiError as error:
                if error.code != 404:
                    raise
                missing.append(text)
        return missing

    missing = run(kubeconfig, main, writes=True)
    if missing:
        fail(f"{', '.join(missing)}: no such job in namespace {namespace}", Exit.NOT_FOUND)
