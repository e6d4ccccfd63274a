"""The `fairlead` command."""

from __future__ import annotations

import sys
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
    explain,
    feasibility,
    history,
    import_,
    local,
    logs,
    monitoring,
    nodes,
    operator,
    queue,
    quota,
    replay,
    run_,
    scheduler,
    share,
    simulate,
    submit,
    top,
    whatif,
)
from fairlead.cli.configured import configured
from fairlead.cli.output import Exit, fail
from fairlead.observability import ending

app = typer.Typer(
    name="fairlead",
    help="A scheduler and workload manager for AI jobs on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(simulate.app, name="simulate")
app.add_typer(bench.app, name="bench")
app.command("crds")(configured(crds.crds))
app.command("cost")(cost.cost)
app.command("monitoring")(monitoring.monitoring)
app.command("demo")(configured(demo.demo))
app.command("explain")(configured(explain.explain))
app.command("feasibility")(configured(feasibility.feasibility))
app.command("import")(import_.import_)
app.command("history")(history.history)
app.command("nodes")(configured(nodes.nodes))
app.command("queue")(configured(queue.queue))
app.command("quota")(configured(quota.quota))
app.command("replay")(replay.replay)
app.command("submit")(configured(submit.submit))
app.command("run")(run_.run_)
app.command("logs")(logs.logs)
app.command("cancel")(control.cancel)
app.command("suspend")(control.suspend)
app.command("resume")(control.resume)
app.command("hold")(control.hold)
app.command("release")(control.release)
app.command("scheduler")(scheduler.scheduler)
app.command("operator")(configured(operator.operator))
app.command("local")(configured(local.local))
app.command("agent")(local.agent)
app.command("share")(configured(share.share))
app.command("top")(configured(top.top))
app.command("whatif")(whatif.whatif)


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
            help="Rules for further kinds of workloads: a file, or a folder of such (examples/workloads).",
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
