"""The `fairlead` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fairlead import __version__
from fairlead.cli import (
    bench,
    control,
    cost,
    crds,
    demo,
    devices,
    explain,
    feasibility,
    history,
    imports,
    install,
    local,
    logs,
    monitoring,
    nodes,
    operator,
    queue,
    quota,
    replay,
    scheduler,
    share,
    simulate,
    submit,
    top,
    whatif,
)
from fairlead.cli import run as run_command
from fairlead.cli.configured import configured
from fairlead.cli.output import Exit, fail
from fairlead.observability import ending

app = typer.Typer(
    name="fairlead",
    help="A scheduler and workload manager for AI jobs on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
JOBS, INSPECT, POLICY, RUN, MEASURE = "Jobs", "Inspect", "Policy", "Run", "Measure"
_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    JOBS: {
        "submit": configured(submit.submit),
        "run": run_command.run,
        "queue": configured(queue.queue),
        "logs": logs.logs,
        "cancel": control.cancel,
        "hold": control.hold,
        "release": control.release,
        "suspend": control.suspend,
        "resume": control.resume,
    },
    INSPECT: {
        "explain": configured(explain.explain),
        "whatif": whatif.whatif,
        "feasibility": configured(feasibility.feasibility),
        "nodes": configured(nodes.nodes),
        "devices": devices.devices,
        "top": configured(top.top),
        "history": history.history,
        "cost": cost.cost,
    },
    POLICY: {
        "share": configured(share.share),
        "quota": configured(quota.quota),
        "import": imports.import_queues,
    },
    RUN: {
        "demo": configured(demo.demo),
        "local": configured(local.local),
        "scheduler": scheduler.scheduler,
        "operator": configured(operator.operator),
        "agent": local.agent,
        "crds": configured(crds.crds),
        "install": install.install,
        "uninstall": install.uninstall,
        "monitoring": monitoring.monitoring,
    },
    MEASURE: {"replay": replay.replay},
}
"""The commands, by the panel of `--help` that shows them."""

for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(simulate.app, name="simulate", rich_help_panel=MEASURE)
app.add_typer(bench.app, name="bench", rich_help_panel=MEASURE)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairlead {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - its callback ends the program
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    workloads: Annotated[
        Path | None,
        typer.Option(
            envvar="FAIRLEAD_WORKLOADS",
            help="Rules for further kinds of workloads: a file or a directory (examples/workloads).",
            show_default="none",
        ),
    ] = None,
) -> None:
    """A scheduler and workload manager for AI jobs on Kubernetes."""
    if workloads is not None:
        from fairlead.cluster import grouping, rules

        try:
            grouping.use(rules.load(workloads))
        except rules.RulesError as error:
            fail(f"--workloads: {error}", Exit.USAGE)


def run() -> None:
    """Entry point."""
    ending.as_interrupts()
    ending.watch_stdout()
    try:
        app()
    except SystemExit as end:
        if isinstance(end.code, int):
            sys.exit(ending.exit_code(end.code))
        raise
