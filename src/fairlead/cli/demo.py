"""`fairlead demo`: a research lab's day in the terminal, decided by the production core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Output, OutputOption, emit, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairlead.simulation.lab import Lab

_DAY = 86_400.0
_FRAMES = 10.0  # a second
_ONCE = 12.0  # seconds that `--once` takes on a terminal
_COLOURS = {"vision": "cyan", "language": "magenta", "robotics": "yellow"}


def demo(
    once: Annotated[bool, typer.Option("--once", help="Run one day, print a summary, and end.")] = False,
    speed: Annotated[float, typer.Option(min=1, max=1e6, help="Simulated seconds per second.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="The day's seed.")] = 1,
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="Nodes of the lab.")] = 64,
    jobs: Annotated[int, typer.Option(min=1, max=20_000, help="Jobs of the day.")] = 3000,
    output: OutputOption = Output.TABLE,
) -> None:
    """A simulated lab: three teams, GPU pools, gangs, priorities; no Kubernetes needed. Ctrl-C ends it."""
    from rich.console import Console

    from fairlead.simulation.lab import Lab

    lab = Lab(nodes=nodes, jobs=jobs, seed=seed)
    console = Console()
    if once and (not console.is_terminal or output is not Output.TABLE):
        lab.run_until(_DAY)
    else:
        _show(lab, console, _DAY / _ONCE if once else speed, until=_DAY if once else None)
    summary = lab.summary()

    def table() -> None:
        import msgspec

        print_table(f"a day of {summary.jobs} jobs on {summary.nodes} nodes", msgspec.to_builtins(summary))

    emit(summary, output, table)


def _show(lab: Lab, console: object, speed: float, until: float | None) -> None:
    from rich.console import Console
    from rich.live import Live

    if not isinstance(console, Console):
        raise TypeError("console")
    clock = 0.0
    try:
        with Live(_picture(lab, 0.0), console=console, screen=console.is_terminal, auto_refresh=False) as live:
            start = time.monotonic()
            while until is None or clock < until:
                clock = (time.monotonic() - start) * speed
                clock = min(clock, until) if until is not None else clock
                lab.run_until(clock)
                live.update(_picture(lab, clock), refresh=True)
                if until is None and len(lab.finished) == len(lab.jobs):
                    break
                time.sleep(1 / _FRAMES)
    except KeyboardInterrupt:
        pass


def _picture(lab: Lab, clock: float) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    hours, minutes = divmod(int(clock) // 60, 60)
    busy = lab.used_milli / 1000 / max(1, lab.gpus)
    head = Text(
        f"Fairlead  day {hours // 24 + 1}  {hours % 24:02d}:{minutes:02d}   GPUs in use {busy:6.1%} of {lab.gpus}", style="bold"
    )
    return Group(
        Panel(head),
        _pools(lab),
        _queues(lab),
        Panel(Text("\n".join(lab.log), overflow="ellipsis", no_wrap=True), title="what just happened", title_align="left"),
    )


def _pools(lab: Lab) -> RenderableType:
    """Every GPU as one character, coloured by the team that holds it."""
    from rich.panel import Panel
    from rich.text import Text

    from fairlead.simulation.lab import job_of

    nodes = lab.state.nodes
    text = Text()
    for pool, names in lab.pools.items():
        text.append(f"{pool:5s} ")
        for name in names:
            row = nodes.rows[name]
            free = nodes.devices.states[nodes.device.item(row)]
            owner = ["dim"] * len(free)
            for task in nodes.pods[row].values():
                for device in task.devices:
                    owner[device] = _COLOURS[job_of(lab, task.pod.uid).team]
            for left, colour in zip(free, owner, strict=True):
                text.append("·" if left == 1000 else "█" if left == 0 else "▄", style=colour)
            text.append(" ")
        text.append("\n")
    text.rstrip()
    return Panel(text, title="GPUs (· free, ▄ shared, █ taken)", title_align="left")


def _queues(lab: Lab) -> RenderableType:
    from rich.table import Table

    table = Table(expand=True)
    for column in ("queue", "running", "waiting", "GPUs", "quota", "share of quota"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    waiting = dict.fromkeys(_COLOURS, 0)
    running = dict(waiting)
    for name in lab.submitted - lab.finished:
        (running if name in lab.started else waiting)[lab.jobs[name].team] += 1
    for team, colour in _COLOURS.items():
        queue = lab.state.queues.queues[team]
        held = queue.used.get("nvidia.com/gpu", 0) / 1000
        quota = dict(queue.quotas).get("nvidia.com/gpu", 0) / 1000
        share = held / quota if quota else 0.0
        bar = "█" * min(20, round(share * 10))
        table.add_row(
            f"[{colour}]{team}", str(running[team]), str(waiting[team]), f"{held:g}", f"{quota:g}", f"{bar} {share:5.0%}"
        )
    return table
