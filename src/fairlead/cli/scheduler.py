"""`fairlead scheduler`: the real thing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.core.model import Policy
    from fairlead.scheduler.decision_log import LogWriter


def scheduler(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    strategy: Annotated[str, typer.Option(help="Placement strategy: ai, binpack, fgd or spread.")] = "ai",
    leader_elect: Annotated[bool, typer.Option(help="Lead only while holding the lease kube-system/fairlead-scheduler.")] = True,
    events: Annotated[bool, typer.Option(help="Write Kubernetes events.")] = True,
    address: Annotated[str, typer.Option(help="host:port of /metrics, /healthz, /readyz; empty: none.")] = "127.0.0.1:10259",
    writers: Annotated[int, typer.Option(min=1, max=1024, help="Writes in flight at most.")] = 256,
    shadow: Annotated[
        bool, typer.Option(help="Write nothing: report on stdout what would have been started and evicted, and what really was.")
    ] = False,
    shadow_of: Annotated[
        str, typer.Option(help="With --shadow: look at the pods of this scheduler only. Default: everybody's.")
    ] = "*",
    record: Annotated[Path | None, typer.Option(help="Write a decision log, for `fairlead replay`.")] = None,
    record_limit: Annotated[int, typer.Option(min=1, help="MiB after which the decision log ends.")] = 1024,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Schedule the pods whose schedulerName is fairlead, until SIGTERM. Logs are JSON lines on stderr."""
    import uvloop

    from fairlead.api.names import AI_PROFILE, SCHEDULERS
    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.core.model import Policy
    from fairlead.core.scores import STRATEGIES
    from fairlead.observability.logs import configure
    from fairlead.scheduler.app import Options, run_process

    if strategy not in STRATEGIES:
        fail(f"--strategy {strategy!r} is unknown: choose one of {', '.join(sorted(STRATEGIES))}", Exit.USAGE)
    if address and not address.rpartition(":")[2].isdigit():
        fail(f"--address {address!r} is not host:port", Exit.USAGE)
    try:
        configure(log_level)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    if shadow_of != "*" and not shadow:
        fail("--shadow-of says whose pods --shadow looks at: give --shadow, too", Exit.USAGE)
    options = Options(
        policy=Policy(strategy=strategy),
        leader_elect=leader_elect,
        events=events,
        address=address,
        writers=writers,
        shadow=shadow,
        schedulers={shadow_of: AI_PROFILE} if shadow else SCHEDULERS,
    )
    try:
        with _recording(record, record_limit, options.policy) as recorder, _reporting(shadow) as report:
            failed = uvloop.run(run_process(load(kubeconfig or None), options, recorder=recorder, report=report))
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except OSError as error:
        fail(f"cannot serve on {address}: {error}")
    if failed:
        raise typer.Exit(int(Exit.FAILED))


@contextmanager
def _recording(path: Path | None, limit: int, policy: Policy) -> Iterator[LogWriter | None]:
    """The decision log, if one is wanted."""
    from fairlead.scheduler.decision_log import LogWriter

    if path is None:
        yield None
        return
    try:
        file = path.open("wb")
    except OSError as error:
        fail(f"--record {path} cannot be written: {error}", Exit.USAGE)
    with file:
        yield LogWriter(
            file, policy, limit=limit << 20, on_full=lambda: typer.echo(f"{path} is full: recording has ended", err=True)
        )


@contextmanager
def _reporting(shadow: bool) -> Iterator[Callable[[Any], None] | None]:
    """JSON lines on stdout for what a shadow sees; a summary at the end."""
    if not shadow:
        yield None
        return
    from fairlead.scheduler.shadow import Tally

    tally = Tally()

    def report(line: Any) -> None:
        tally.count(line)
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    yield report
    sys.stdout.write(msgspec.json.encode(tally.summary()).decode() + "\n")
    sys.stdout.flush()
