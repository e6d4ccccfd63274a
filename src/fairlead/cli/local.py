"""`fairlead local` and `fairlead agent`: jobs as real processes of this host, with a cluster of its own or as a node of one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli import process
from fairlead.cli.history import DEFAULT_FILE, history_failed
from fairlead.cli.output import Exit, fail
from fairlead.observability.ending import on_signals, watch_stdout

if TYPE_CHECKING:
    from fairlead.agent.node import Options
    from fairlead.core.links.matrix import Links

GpusOption = Annotated[
    int | None,
    typer.Option(min=0, max=1024, help="GPUs of this host; simulated if it has none.", show_default="those found"),
]
CpusOption = Annotated[int, typer.Option(min=0, max=4096, help="CPUs to offer.", show_default="all")]
FolderOption = Annotated[
    Path | None,
    typer.Option(help="Directory for logs, volumes and working directories.", show_default="a temporary one, removed at the end"),
]
TopologyOption = Annotated[
    Path | None,
    typer.Option(
        help="File with what `nvidia-smi topo -m` prints: pods get the best connected GPUs.",
        show_default="that of GPUs that are found",
    ),
]


def local(
    gpus: GpusOption = None,
    gpu_topology: TopologyOption = None,
    cpus: CpusOption = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server on loopback; 0: any free port.")] = 0,
    kubeconfig: Annotated[str, typer.Option(help="Where to write the kubeconfig.")] = "~/.fairlead/local.kubeconfig",
    folder: FolderOption = None,
    history: Annotated[
        str, typer.Option(envvar="FAIRLEAD_DATABASE", help="Database for job accounting.", show_default=DEFAULT_FILE)
    ] = "",
    log_level: process.LogLevelOption = "warning",
) -> None:
    """Scheduler, operator, API server and a node of real processes in one, until Ctrl-C or SIGHUP. Only the history is kept."""
    from fairlead.agent.node import Options

    process.prepare(log_level, {})
    with tempfile.TemporaryDirectory(prefix="fairlead-local-") as scratch:
        options = Options(gpus=gpus, links=_links(gpus, gpu_topology), cpus=cpus, folder=folder or Path(scratch))
        asyncio.run(_local(options, port, Path(kubeconfig).expanduser(), history or _own_history()))


def _links(gpus: int | None, file: Path | None) -> Links | None:
    """How the GPUs of this host are connected; ends the command where the file cannot be used."""
    from fairlead.agent.devices import found, links_here, links_in
    from fairlead.core.links.matrix import LinksError

    if file is None:
        return links_here() if gpus is None else None
    try:
        return links_in(file.read_text(), found() if gpus is None else gpus)
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--gpu-topology {file}: {error}", Exit.USAGE)
    except LinksError as error:
        fail(f"--gpu-topology {file}: {error.kind}: {error}; expected the text of `nvidia-smi topo -m`", Exit.USAGE)


def _own_history() -> str:
    path = Path(DEFAULT_FILE).expanduser()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{path}"


async def _local(options: Options, port: int, kubeconfig: Path, history: str) -> None:
    from fairlead.observability.history import HistoryError
    from fairlead.simulation.local import Local

    stop = asyncio.Event()
    on_signals(stop.set)
    watch_stdout(pipes=True)
    try:
        async with Local(options, port=port, directory=Path.cwd(), history=history) as running:
            running.server.write_kubeconfig(kubeconfig, context="fairlead-local")
            typer.echo(f"export KUBECONFIG={kubeconfig}    # fairlead submit script.sh; fairlead queue; kubectl logs POD")
            waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(running.failed())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
    except HistoryError as error:
        history_failed(error, "--history")
    except OSError as error:
        fail(f"the API server cannot listen on port {port} ({error.strerror}): choose another --port")
    finally:
        kubeconfig.unlink(missing_ok=True)  # it leads nowhere from now on


def agent(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the node.", show_default="this host's")] = "",
    gpus: GpusOption = None,
    gpu_topology: TopologyOption = None,
    cpus: CpusOption = 0,
    folder: FolderOption = None,
    log_level: process.LogLevelOption = "info",
) -> None:
    """Run a node that starts the commands of pods as processes of this user, until SIGTERM. No images, no isolation."""
    from fairlead.agent.node import Options
    from fairlead.cluster.kubernetes.config import Config

    if os.geteuid() == 0:
        typer.echo("the agent runs as root, and so will all jobs submitted to it", err=True)
    process.prepare(log_level, {})

    async def run(config: Config) -> bool:
        from fairlead.agent.node import Agent
        from fairlead.cluster.kubernetes.client import ApiError, Client

        async with Client(config) as client:
            running = asyncio.ensure_future(Agent(client, options).run())
            on_signals(running.cancel)
            try:
                await running
            except asyncio.CancelledError:
                return False
            except ApiError as error:
                fail(f"the node is refused: {error}; it needs the identity system:node:NAME (docs/security.md)", Exit.REFUSED)
        return True

    with tempfile.TemporaryDirectory(prefix="fairlead-agent-") as scratch:
        links = _links(gpus, gpu_topology)
        options = Options(name=name, gpus=gpus, links=links, cpus=cpus, folder=folder or Path(scratch))
        process.run(run, kubeconfig)
