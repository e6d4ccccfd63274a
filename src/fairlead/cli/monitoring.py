"""`fairlead monitoring`: what Prometheus and Grafana need to watch Fairlead."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from fairlead.cli.output import Exit, Output, fail
from fairlead.observability.rules import RUNBOOK


class What(StrEnum):
    """What to print."""

    RULES = "rules"
    DASHBOARD = "dashboard"


def monitoring(
    what: Annotated[What, typer.Argument(help="rules, for Prometheus; or dashboard, for Grafana.")],
    name: Annotated[str, typer.Argument(help="Which dashboard: fairlead-queues or fairlead-cluster.")] = "fairlead-cluster",
    runbook: Annotated[str, typer.Option(help="URL of the runbook; each alert links to its section.")] = RUNBOOK,
    resource: Annotated[
        bool, typer.Option("--resource", help="The rules as a PrometheusRule, for the Prometheus operator.")
    ] = False,
    output: Annotated[
        Output | None,
        typer.Option("--output", "-o", help="json or yaml; default: the format that Prometheus or Grafana imports."),
    ] = None,
) -> None:
    """Print recording and alerting rules, or a dashboard."""
    import msgspec
    import yaml

    from fairlead.observability import dashboards, rules

    printed: dict[str, Any]
    if what is What.RULES:
        printed = rules.resource(runbook) if resource else rules.groups(runbook)
    elif name in dashboards.DASHBOARDS:
        printed = dashboards.dashboard(name)
    else:
        fail(f"unknown dashboard {name!r}: choose one of {', '.join(dashboards.DASHBOARDS)}", Exit.USAGE)
    form = output or (Output.YAML if what is What.RULES else Output.JSON)
    if form is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(printed), indent=2).decode())
    else:
        typer.echo(yaml.safe_dump(printed, sort_keys=False, width=130), nl=False)
