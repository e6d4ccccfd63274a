"""A command's connection to a cluster: options, errors as exit codes, views that are shown once or until Ctrl-C.

What is heavy to load, the client and the core, is imported where it is used: a command starts in a few tenths of a second.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.leader import Leader
from fairlead.cli.output import Exit, Output, fail, progress

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot
    from fairlead.cluster.kubernetes.client import Client


ByLeader = Callable[[Leader, float], Awaitable[tuple[Any, Any] | None]]
"""Makes a view from the leader's answers; takes the time by the server's clock, too."""

KubeconfigOption = Annotated[str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Only this namespace. Default: all.")]
SeenFromOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Where you may not see the whole cluster: as of this namespace.",
        show_default="of the kubeconfig",
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")]
IntervalOption = Annotated[float, typer.Option(min=0.2, max=3600, help="With --watch: seconds between two refreshes.")]


def run(kubeconfig: str, work: Callable[[Client], Any], *, writes: bool = False) -> Any:
    """Run a coroutine function with an open client; an error ends the command with its exit code."""
    from fairlead.cluster.kubernetes.client import ApiError, Client, ReadOnly, Unreachable
    from fairlead.cluster.kubernetes.config import ConfigError, load

    async def main() -> Any:
        async with Client(load(kubeconfig or None), connections=8, read_only=not writes) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except Unreachable as error:
        fail(f"the cluster does not answer: {error}", Exit.UNREACHABLE)
    except ApiError as error:
        if error.code in (401, 403):
            fail(f"the cluster refuses: {error.message}", Exit.REFUSED)
        if writes and error.code in (400, 409, 422):
            fail(error.message, Exit.REFUSED)
        if error.code == 404:
            fail(error.message, Exit.NOT_FOUND)
        fail(f"the cluster answers {error}")
    except ReadOnly as error:
        fail(str(error))


def default_namespace(kubeconfig: str) -> str:
    """The namespace of the kubeconfig's context."""
    from fairlead.cluster.kubernetes.config import ConfigError, load

    try:
        return load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)


def show(
    kubeconfig: str,
    output: Output,
    view_of: Callable[[Snapshot], tuple[Any, Any]],
    *,
    watch: bool = False,
    interval: float = 2.0,
    by_leader: ByLeader | None = None,
    namespace: str = "",
) -> None:
    """Print a view of the cluster, (data for JSON and YAML, something rich to draw): once, or until Ctrl-C.

    Either may be a function that makes it, called only for the output that was asked for.
    view_of: makes it from a snapshot; by_leader: from the leader's answers, None where it gives none. With `watch` the leader
    sends what changed. namespace: as of which the leader answers a user who may not see the whole cluster; empty: that of the
    kubeconfig.
    """
    from fairlead.cli.output import console as make_console
    from fairlead.cli.output import emit

    console = make_console()

    async def view(client: Client, leader: Leader) -> tuple[Any, Any, Snapshot | None]:
        answered = await by_leader(leader, client.server_time or time.time()) if by_leader is not None else None
        if answered is not None:
            return *answered, None
        snapshot = await _listed(client)
        return *view_of(snapshot), snapshot

    async def once(client: Client) -> tuple[Any, Any, Snapshot | None]:
        return await view(client, Leader(client, namespace or client.config.namespace))

    if not watch:
        with _nothing_collected():
            data, drawing, snapshot = run(kubeconfig, once)
            result = _made(data) if output is not Output.TABLE else None
            emit(result, output, lambda: console.print(_made(drawing), crop=console.is_terminal))
        if snapshot is not None:
            _warn(snapshot)
        return

    async def refresh(client: Client) -> None:
        from rich.live import Live

        leader = Leader(client, namespace or client.config.namespace)
        if output is not Output.TABLE:
            while True:  # one document a line
                data = _made((await view(client, leader))[0])
                typer.echo(msgspec.json.encode(data).decode())
                await asyncio.sleep(interval)
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                live.update(_made((await view(client, leader))[1]), refresh=True)
                await asyncio.sleep(interval)

    try:
        run(kubeconfig, refresh)
    except KeyboardInterrupt:
        return


def _made(shown: Any) -> Any:
    return shown() if callable(shown) else shown


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Garbage is not collected: the command ends soon, and what it makes is shown. A third of the time of a long list."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def _listed(client: Client) -> Snapshot:
    """The cluster, for a view that the leader did not give."""
    from fairlead.cli.snapshot import read
    from fairlead.cluster.kubernetes.client import ApiError

    try:
        with progress("listing the cluster") as report:
            return await read(client, report)
    except ApiError as error:
        if error.code != 403:
            raise
        hint = f"{error.message}; the leader answers as of a namespace in which you may `view`: --namespace NAME"
        raise ApiError(error.code, error.reason, hint) from error


def _warn(snapshot: Snapshot) -> None:
    if snapshot.missing:
        listed = " and ".join(snapshot.missing)
        typer.echo(
            f"{listed} are not installed in this cluster: install them with `fairlead crds | kubectl apply -f -`", err=True
        )


def span(seconds: float) -> str:
    """A length of time as squeue writes it: `3:07`, `1:04:09`, `2-03:00:00`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}"
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
