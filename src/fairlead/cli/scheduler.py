"""`fairlead scheduler`: the real thing."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Exit, fail


def scheduler(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    strategy: Annotated[str, typer.Option(help="Placement strategy: ai, binpack, fgd or spread.")] = "ai",
    leader_elect: Annotated[bool, typer.Option(help="Lead only while holding the lease kube-system/fairlead-scheduler.")] = True,
    events: Annotated[bool, typer.Option(help="Write Kubernetes events.")] = True,
    address: Annotated[str, typer.Option(help="host:port of /metrics, /healthz, /readyz; empty: none.")] = "127.0.0.1:10259",
    writers: Annotated[int, typer.Option(min=1, max=1024, help="Writes in flight at most.")] = 256,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Schedule the pods whose schedulerName is fairlead, until SIGTERM. Logs are JSON lines on stderr."""
    import uvloop

    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.core.model import Policy
    from fairlead.core.scores import STRATEGIES
    from fairlead.observability.logs import configure
    from fairlead.scheduler.app import Options, Scheduler

    if strategy not in STRATEGIES:
        fail(f"--strategy {strategy!r} is unknown: choose one of {', '.join(sorted(STRATEGIES))}", Exit.USAGE)
    if address and not address.rpartition(":")[2].isdigit():
        fail(f"--address {address!r} is not host:port", Exit.USAGE)
    try:
        configure(log_level)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    options = Options(
        policy=Policy(strategy=strategy), leader_elect=leader_elect, events=events, address=address, writers=writers
    )

    async def main() -> bool:
        running = Scheduler(load(kubeconfig or None), options)
        await running.run()
        return running.failed

    try:
        failed = uvloop.run(main())
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except OSError as error:
        fail(f"cannot serve on {address}: {error}")
    if failed:
        raise typer.Exit(int(Exit.FAILED))
