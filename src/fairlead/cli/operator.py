"""`fairlead operator`: does to users' objects what the scheduler means."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli import process


def operator(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Lead only while holding the lease kube-system/fairlead-operator.",
            show_default="leader-elect",
        ),
    ] = True,
    address: Annotated[str, typer.Option(help="host:port of /metrics, /healthz, /readyz; empty: none.")] = "127.0.0.1:10260",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run AIJobs, and suspend and resume workloads as the scheduler means, until SIGTERM. Logs are JSON lines on stderr."""
    from fairlead.operator.app import Options, run_process

    process.prepare(log_level, {"--address": address})
    options = Options(leader_elect=leader_elect, address=address)
    process.run(lambda config: run_process(config, options), kubeconfig, address)
