"""`fairlead demo`: a simulated cluster with the scheduler in it, live in the terminal and open to kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Output, OutputOption, emit, fail, print_table, progress
from fairlead.observability.ending import watch_stdout

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fairlead.simulation.lab import Lab, LabSummary

_DAY, _QUARTERS = 86_400.0, 96  # seconds, quarters of an hour
_OF_MIG = 16  # one of so many nodes is of the MIG pool
_FRAMES = 8.0  # a second
_ONCE = 12.0  # seconds that `--once` takes on a terminal
_COLOURS = {"vision": "cyan", "language": "magenta", "robotics": "yellow", "default": "green"}
_HOME = Path("~/.cache/fairlead/demo.kubeconfig")


def demo(
    once: Annotated[bool, typer.Option("--once", help="Run one day, print a summary, and exit.")] = False,
    speed: Annotated[float, typer.Option(min=1, max=1e5, help="Simulated seconds per second.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="Nodes of the cluster.")] = 64,
    jobs: Annotated[int, typer.Option(min=1, max=20_000, help="Jobs per day.")] = 3000,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the API server on loopback; 0: any.")] = 0,
    kubeconfig_out: Annotated[Path, typer.Option(help="Where to write the kubeconfig for kubectl and fairlead.")] = _HOME,
    output: OutputOption = Output.TABLE,
) -> None:
    """A cluster in one process, with three teams, GPU pools and gangs. kubectl and fairlead work on it. Ends with Ctrl-C."""
    from rich.console import Console

    console = Console()
    quiet = not console.is_terminal or output is not Output.TABLE
    if once and quiet:
        summary = _day(nodes, jobs, seed)
    else:
        path = kubeconfig_out.expanduser()
        watch_stdout(pipes=True)
        try:
            summary = asyncio.run(
                _live(console, nodes, jobs, seed, _DAY / _ONCE if once else speed, port, path, until=_DAY if once else None)
            )
        except (KeyboardInterrupt, BrokenPipeError):
            return
        except OSError as error:
            fail(f"the API server cannot listen: {error}")

    def table() -> None:
        import msgspec

        print_table(f"a day of {summary.jobs} jobs on {summary.nodes} nodes", msgspec.to_builtins(summary))

    emit(summary, output, table)


def _day(nodes: int, jobs: int, seed: int) -> LabSummary:
    """One day as fast as it goes, on virtual time."""
    from fairlead.cluster.simulated.clock import VirtualLoop
    from fairlead.simulation.lab import Lab, quiet

    async def main() -> LabSummary:
        lab = Lab(nodes=nodes, jobs=jobs, seed=seed, mig=_mig(nodes))
        lab.start()
        with progress("minutes of the day") as report:
            for quarter in range(1, _QUARTERS + 1):
                await asyncio.sleep(_DAY / _QUARTERS)
                report(quarter * 15, _QUARTERS * 15)
                if quarter % 16 == 0 and not sys.stderr.isatty():
                    typer.echo(_head(lab), err=True)
        summary = lab.summary()
        await lab.process.kill()
        return summary

    quiet()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def _live(
    console: Console, nodes: int, jobs: int, seed: int, speed: float, port: int, path: Path, until: float | None
) -> LabSummary:
    """The lab at its speed, its API server beside it, and a live screen of both."""
    from rich.live import Live

    from fairlead.cluster.simulated.http import Server
    from fairlead.simulation.lab import Lab, quiet
    from fairlead.simulation.world import OperatorProcess

    quiet()
    lab = Lab(nodes=nodes, jobs=jobs, seed=seed, speed=speed, start=time.time(), mig=_mig(nodes))
    async with Server(lab.world.wire, port=port) as server:
        server.write_kubeconfig(path)
        if not console.is_terminal or until is None:
            typer.echo(f"export KUBECONFIG={path}    # kubectl get pods -A; fairlead queue; fairlead nodes")
        lab.start(endless=until is None)
        operator = OperatorProcess(lab.world)
        operator.start()
        try:
            if console.is_terminal:
                with Live(_screen(lab, path), console=console, screen=True, auto_refresh=False) as live:
                    while until is None or lab.now < until:
                        await asyncio.sleep(1 / _FRAMES)
                        live.update(_screen(lab, path), refresh=True)
            else:
                while until is None or lab.now < until:
                    await asyncio.sleep(10)
                    typer.echo(_head(lab))
            return lab.summary()
        finally:
            await operator.kill()
            await lab.process.kill()
            with contextlib.suppress(OSError):
                path.unlink()  # it leads nowhere from now on


def _mig(nodes: int) -> int:
    """How many nodes of the demo are of the MIG pool."""
    return max(1, nodes // _OF_MIG)


def _head(lab: Lab) -> str:
    hours, minutes = divmod(int(lab.now) // 60, 60)
    busy = sum(lab.held().values()) / 1000 / max(1, lab.world.gpus)
    return f"Fairlead  day {hours // 24 + 1}  {hours % 24:02d}:{minutes:02d}   GPUs in use {busy:6.1%} of {lab.world.gpus}"


def _screen(lab: Lab, path: Path) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    head = Text(_head(lab), style="bold")
    head.append(f"\nin another terminal: export KUBECONFIG={path}; fairlead queue; kubectl get pods -A", style="dim")
    if not lab.process.deciding:
        return Panel(head)
    return Group(
        Panel(head),
        _pools(lab),
        _queues(lab),
        Panel(Text("\n".join(lab.log), overflow="ellipsis", no_wrap=True), title="latest events", title_align="left"),
    )


def _pools(lab: Lab) -> RenderableType:
    """Every GPU as one character, coloured by the queue that holds it."""
    from rich.panel import Panel
    from rich.text import Text

    from fairlead.scheduler.overview.nodes import gpus_of

    nodes = lab.state.nodes
    text = Text()
    for pool, names in lab.world.pools.items():
        text.append(f"{pool:5s} ")
        for name in names:
            row = nodes.rows.get(name)
            if row is None:
                continue
            free, owners = gpus_of(lab.state, row)
            owner = ["dim" if each is None else _COLOURS.get(each, "white") for each in owners]
            for left, colour in zip(free, owner, strict=True):
                text.append("·" if left == 1000 else "█" if left == 0 else "▄", style=colour)
            text.append(" ")
        text.append("\n")
    text.rstrip()
    return Panel(text, title="GPUs (· free, ▄ shared, █ allocated)", title_align="left")


def _queues(lab: Lab) -> RenderableType:
    from rich.table import Table

    table = Table(expand=True)
    for column in ("queue", "running", "waiting", "GPUs", "quota", "share of quota"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    counts = lab.counts()
    for name, queue in sorted(lab.state.queues.queues.items()):
        running, waiting = counts.get(name, (0, 0))
        quota = queue.quota.get("nvidia.com/gpu", 0) / 1000
        if not quota and not running and not waiting:
            continue
        held = queue.used.get("nvidia.com/gpu", 0) / 1000
        share = held / quota if quota else 0.0
        bar = "█" * min(20, round(share * 10))
        colour = _COLOURS.get(name, "white")
        table.add_row(f"[{colour}]{name}", str(running), str(waiting), f"{held:g}", f"{quota:g}", f"{bar} {share:5.0%}")
    return table
