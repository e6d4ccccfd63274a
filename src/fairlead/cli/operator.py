"""`fairlead operator`: does to users' objects what the scheduler means."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Exit, fail


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
    """Suspend and resume workloads as pod groups' targets say, until SIGTERM. Logs are JSON lines on stderr."""
    import uvloop

    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.observability.logs import configure
    from fairlead.operator.app import Options, run_process

    if address and not address.rpartition(":")[2].isdigit():
        fail(f"--address {address!r} is not host:port", Exit.USAGE)
    try:
        configure(log_level)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    try:
        failed = uvloop.run(run_process(load(kubeconfig or None), Options(leader_elect=leader_elect, address=address)))
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except OSError as error:
        fail(f"cannot serve on {address}: {error}")
    if failed:
        raise typer.Exit(int(Exit.FAILED))
