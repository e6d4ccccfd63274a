"""`fairlead scheduler`: the real thing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli import process
from fairlead.cli.choices import Strategy
from fairlead.cli.configured import VARIABLE
from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.core.model.policy import Policy
    from fairlead.scheduler.decision_log import LogWriter
    from fairlead.scheduler.options import Options


_PLAYER = "fairlead.simulation.answering"
"""Plays what-if questions: of a layer above the scheduler's, which therefore only knows how to start it."""


def scheduler(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(envvar=VARIABLE, help="Configuration file, shared by all processes. Flags take precedence."),
    ] = None,
    config_schema: Annotated[
        bool, typer.Option("--config-schema", help="Print the JSON Schema of the configuration file and exit.")
    ] = False,
    strategy: Annotated[Strategy | None, typer.Option(help="Placement strategy of profile ai.", show_default="ai")] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Lead only while holding the lease kube-system/NAME-scheduler; NAME: of the release, by default fairlead.",
            show_default="leader-elect",
        ),
    ] = None,
    events: Annotated[
        bool | None, typer.Option("--events/--no-events", help="Write Kubernetes events.", show_default="events")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="host:port of /metrics, /healthz, /readyz, /standbyz; empty: none.", show_default="127.0.0.1:10259"),
    ] = None,
    visibility_address: Annotated[
        str | None,
        typer.Option(
            help="host:port of the aggregated API visibility.fairlead.dev (charts/visibility.yaml).", show_default="none"
        ),
    ] = None,
    external_metrics_address: Annotated[
        str | None,
        typer.Option(
            help="host:port of the aggregated API external.metrics.k8s.io (charts/external-metrics.yaml).",
            show_default="none",
        ),
    ] = None,
    service_namespace: Annotated[
        str, typer.Option(help="Namespace of the Services through which the API server reaches aggregated APIs.")
    ] = "kube-system",
    pod_address: Annotated[
        str,
        typer.Option(
            envvar="FAIRLEAD_POD_ADDRESS",
            help="Address of this pod: while it leads, the only endpoint of the Services of its aggregated APIs. Default: none, "
            "and the Services have selectors.",
            show_default=False,
        ),
    ] = "",
    writers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Maximum number of API writes in flight.", show_default="256")
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option(
            help="Write nothing; report on stdout the starts and evictions that would have happened, and those that did."
        ),
    ] = False,
    shadow_of: Annotated[str, typer.Option(help="With --shadow: only pods of this scheduler. Default: all pods.")] = "*",
    record: Annotated[Path | None, typer.Option(help="Write a decision log, for `fairlead replay`.")] = None,
    record_limit: Annotated[int, typer.Option(min=1, help="Maximum size of the decision log in MiB.")] = 1024,
    log_level: process.LogLevelOption = "info",
) -> None:
    """Schedule pods whose schedulerName is fairlead, fairlead-kubernetes or configured, until SIGTERM. Logs are JSON lines."""
    from fairlead.scheduler.app import run_process

    if config_schema:
        _print_schema()
        return
    flags = {
        "leader_elect": leader_elect,
        "events": events,
        "address": address,
        "visibility": visibility_address,
        "external_metrics": external_metrics_address,
        "service_namespace": service_namespace,
        "pod_address": pod_address,
        "writers": writers,
    }
    options = _options(config, flags, strategy)
    process.prepare(log_level, _served(options))
    if shadow:
        options = _shadowing(options, shadow_of)
    elif shadow_of != "*":
        fail("--shadow-of needs --shadow", Exit.USAGE)
    with _recording(record, record_limit, options.policy) as recorder, _reporting(shadow) as report:
        start = partial(run_process, options=options, recorder=recorder, report=report)
        process.run(start, kubeconfig)


def _print_schema() -> None:
    """The JSON Schema of the configuration file, on stdout."""
    from fairlead.scheduler import configuration

    typer.echo(msgspec.json.format(msgspec.json.encode(configuration.schema()), indent=2).decode())


def _options(config: Path | None, flags: Mapping[str, object], strategy: Strategy | None) -> Options:
    """The options of the configuration file, or the defaults; flags that are given, not None, take precedence."""
    from fairlead.scheduler import configuration

    try:
        configured = configuration.read(config) if config is not None else configuration.default()
    except configuration.ConfigurationError as error:
        fail(str(error), Exit.USAGE)
    configuration.adopt(configured)
    options = msgspec.structs.replace(configured.options(), player=(sys.executable, "-m", _PLAYER))
    if strategy is not None:
        options = msgspec.structs.replace(options, policy=msgspec.structs.replace(options.policy, strategy=strategy))
    return msgspec.structs.replace(options, **{name: value for name, value in flags.items() if value is not None})


def _served(options: Options) -> dict[str, str]:
    """Where the process serves, by flag."""
    return {
        "--address": options.address,
        "--visibility-address": options.visibility,
        "--external-metrics-address": options.external_metrics,
    }


def _shadowing(options: Options, shadow_of: str) -> Options:
    """The options of a shadow, which writes nothing and considers the pods of one scheduler; `*`: of all."""
    return msgspec.structs.replace(options, shadow=True, schedulers=_watched(shadow_of, options.schedulers))


def _watched(shadow_of: str, ours: Mapping[str, str]) -> dict[str, str]:
    """The schedulers whose pods a shadow considers, each with its profile: our own names with theirs, others with profile ai."""
    from fairlead.api.names import AI_PROFILE, ANY_SCHEDULER

    if shadow_of == ANY_SCHEDULER:
        return {**ours, ANY_SCHEDULER: AI_PROFILE}
    return {shadow_of: ours.get(shadow_of, AI_PROFILE)}


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
            file, policy, limit=limit << 20, on_full=lambda: typer.echo(f"{path} is full: recording has stopped", err=True)
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
