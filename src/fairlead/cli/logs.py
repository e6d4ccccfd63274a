"""`fairlead logs`: what the members of a job print."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.api import names
from fairlead.cli.connection import KubeconfigOption, run
from fairlead.cli.control import NamespaceOption
from fairlead.cli.log_parts import LogParts
from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client

Pod = dict[str, Any]

_POLL_INTERVAL = 0.5  # seconds between two reads while following
_ENDED = ("Succeeded", "Failed")


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of an AIJob or a pod.")],
    namespace: NamespaceOption = "",
    role: Annotated[str, typer.Option(help="Members of this role.", show_default="the first")] = "",
    index: Annotated[int, typer.Option("--index", "-i", min=0, help="Index of the member within its role.")] = 0,
    element: Annotated[int | None, typer.Option("--element", "-e", min=0, help="Index of the array element.")] = None,
    attempt: Annotated[int | None, typer.Option(min=0, help="Which attempt.", show_default="the latest")] = None,
    all_members: Annotated[
        bool, typer.Option("--all", "-a", help="All members; each line is prefixed with the member's name.")
    ] = False,
    container: Annotated[str, typer.Option("--container", "-c", help="Which container.", show_default="the first")] = "",
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the end of the job.")] = False,
    kubeconfig: KubeconfigOption = "",
) -> None:
    """Output of the first member of a job, of another member, or of all."""
    from fairlead.cluster.kubernetes.config import ConfigError, load

    try:
        where = namespace or load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)

    async def main(client: Client) -> None:
        found = await _members(client, where, name)
        chosen = _chosen(found, name, role, index, element, attempt, all_members=all_members)
        width = max(len(each["metadata"]["name"]) for each in chosen)
        prints = [
            print_log(
                client, each, container, tail, f"{each['metadata']['name']:<{width}} | " if all_members else "", follow=follow
            )
            for each in chosen
        ]
        if follow:
            await asyncio.gather(*prints)
        else:
            for each in prints:
                await each

    run(kubeconfig, main)


async def _members(client: Client, namespace: str, name: str) -> list[Pod]:
    from fairlead.cluster.kubernetes.client import ApiError

    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[Pod] = msgspec.json.decode(await client.get(path, labelSelector=f"{names.JOB_LABEL}={name}"))["items"]
    if found:
        return found
    try:
        found = [msgspec.json.decode(await client.get(f"{path}/{name}"))]
    except ApiError as error:
        if error.code == 404:
            if await _is_job(client, namespace, name):
                why = f"`fairlead explain aijob/{name} -n {namespace}` shows why, `fairlead history {name}` its end"
                fail(f"{name} has no pods: {why}", Exit.NOT_FOUND)
            fail(f"{name}: no pods of such a job and no such pod in namespace {namespace}", Exit.NOT_FOUND)
        raise
    return found


async def _is_job(client: Client, namespace: str, name: str) -> bool:
    """Whether there is an AIJob of this name; one that may not be read counts as none."""
    from fairlead.cluster.kubernetes.client import ApiError

    try:
        await client.get(f"/apis/{names.API_VERSION}/namespaces/{namespace}/aijobs/{name}")
    except ApiError as error:
        if error.code in (403, 404):
            return False
        raise
    return True


def _chosen(
    found: list[Pod], name: str, role: str, index: int, element: int | None, attempt: int | None, *, all_members: bool
) -> list[Pod]:
    if len(found) == 1 and found[0]["metadata"]["name"] == name:
        return found  # a pod was named
    if element is not None:
        found = [pod for pod in found if _label(pod, names.ELEMENT_LABEL) == str(element)]
    latest: dict[str, int] = {}
    for pod in found:
        place = _label(pod, names.ELEMENT_LABEL)
        latest[place] = max(latest.get(place, 0), int(_label(pod, names.ATTEMPT_LABEL) or 0))
    found = [
        pod
        for pod in found
        if int(_label(pod, names.ATTEMPT_LABEL) or 0)
        == (latest[_label(pod, names.ELEMENT_LABEL)] if attempt is None else attempt)
        and role in ("", _label(pod, names.ROLE_LABEL))
    ]
    if not all_members and found:
        first = role or min(found, key=_made)["metadata"]["labels"][names.ROLE_LABEL]
        found = [pod for pod in found if (_label(pod, names.ROLE_LABEL), _label(pod, names.INDEX_LABEL)) == (first, str(index))][
            :1
        ]
    if not found:
        fail(f"{name} has no such member: list them with `kubectl get pods -l {names.JOB_LABEL}={name}`", Exit.NOT_FOUND)
    return sorted(found, key=_made)


def _label(pod: Pod, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def _made(pod: Pod) -> tuple[int, str, str, int]:
    """By element, in the order in which they were made, by index."""
    return (
        int(_label(pod, names.ELEMENT_LABEL) or -1),
        pod["metadata"].get("creationTimestamp", ""),
        _label(pod, names.ROLE_LABEL),
        int(_label(pod, names.INDEX_LABEL) or 0),
    )


async def print_log(client: Client, pod: Pod, container: str, tail: int | None, before: str, *, follow: bool) -> None:
    """Print a log; while following, what was added since, until the pod has ended or is gone."""
    from fairlead.cluster.kubernetes.client import ApiError

    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    query = {"container": container or pod["spec"]["containers"][0]["name"]}
    if not follow:
        text = await _read(client, path, query | ({"tailLines": str(tail)} if tail is not None else {}))
        for line in text.splitlines():
            typer.echo(f"{before}{line}")
        if not text and tail != 0:
            _note_unstarted(pod)
        return
    parts, ended = LogParts(tail), False
    while not ended:
        try:
            ended = msgspec.json.decode(await client.get(path))["status"].get("phase") in _ENDED
            text = await _read(client, path, query | parts.query())
        except ApiError as error:
            if error.code == 404 and parts.read:
                return
            raise
        for line in parts.new(text, ended=ended):
            typer.echo(f"{before}{line}")
        if not ended:
            await asyncio.sleep(_POLL_INTERVAL)


def exit_codes(pod: Pod) -> list[int]:
    """Of the containers that failed."""
    ended = ((each.get("state") or {}).get("terminated") or {} for each in pod["status"].get("containerStatuses") or ())
    return [code for each in ended if (code := each.get("exitCode", 0))]


def _note_unstarted(pod: Pod) -> None:
    """Report on stderr that a pod has no output since it has not started."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
        typer.echo(f"{name} has not started: `fairlead explain pod/{name} -n {namespace}` shows why", err=True)


async def _read(client: Client, path: str, query: dict[str, str]) -> str:
    from fairlead.cluster.kubernetes.client import ApiError

    try:
        return (await client.get(f"{path}/log", **query)).decode(errors="replace")
    except ApiError as error:
        if error.code == 400:
            return ""  # it has not begun
        raise
