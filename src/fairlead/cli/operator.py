"""`fairlead operator`: brings workloads to the target states that the scheduler sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from fairlead.api import spans
from fairlead.cli import process
from fairlead.cli.history import history_failed
from fairlead.cli.output import Exit, fail

_CONDITION = re.compile(r"[A-Za-z0-9./_-]+=(True|False|Unknown)", re.ASCII)

HistoryOption = Annotated[
    str,
    typer.Option(
        envvar="FAIRLEAD_DATABASE",
        help="Database for job accounting: a URL such as sqlite:////var/lib/fairlead/history.db or "
        "postgresql://user:password@host/fairlead; see docs/history.md.",
        show_default="none",
    ),
]


def operator(
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
    ] = "",
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Lead only while holding the lease kube-system/NAME-operator; NAME: of the release, by default fairlead.",
            show_default="leader-elect",
        ),
    ] = True,
    address: Annotated[
        str, typer.Option(help="host:port of /metrics, /healthz, /readyz, /standbyz; empty: none.")
    ] = "127.0.0.1:10260",
    history: HistoryOption = "",
    history_keep: Annotated[str, typer.Option(help="Retention of finished jobs in the history, such as 90d.")] = "400d",
    history_address: Annotated[
        str, typer.Option(help="host:port of the aggregated API history.fairlead.dev (charts/history.yaml).", show_default="none")
    ] = "",
    service_namespace: Annotated[
        str, typer.Option(help="Namespace of the Service through which the API server reaches aggregated APIs.")
    ] = "kube-system",
    pod_address: Annotated[
        str,
        typer.Option(
            envvar="FAIRLEAD_POD_ADDRESS",
            help="Address of this pod: while it leads, the only endpoint of the Service of its aggregated API. Default: none, "
            "and the Service has a selector.",
            show_default=False,
        ),
    ] = "",
    prometheus: Annotated[
        str, typer.Option(help="URL of a Prometheus with GPU utilization and GPU errors (DCGM).", show_default="none")
    ] = "",
    node_condition: Annotated[
        list[str] | None,
        typer.Option(
            help="Node condition TYPE=STATUS that quarantines a node for gangs; may be repeated. "
            "Default: conditions of node-problem-detector and of providers' agents, see docs/kubernetes.md."
        ),
    ] = None,
    max_members: Annotated[
        int, typer.Option(min=1, help="Maximum number of members of an AIJob or of an array element.")
    ] = 10_000,
    max_waiting_pods: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of AIJob members in the cluster without a node; further ones are created later."
        ),
    ] = 20_000,
    max_waiting_pods_per_namespace: Annotated[int, typer.Option(min=1, help="The same per namespace.")] = 5_000,
    provisioning_class: Annotated[
        list[str] | None,
        typer.Option(
            help="A provisioning class with which tenants may request nodes; may be repeated, as in `fairlead crds --policies`. "
            "Default: none."
        ),
    ] = None,
    log_level: process.LogLevelOption = "info",
) -> None:
    """Run AIJobs, and carry out suspensions and resumptions of the scheduler, until SIGTERM. Logs are JSON lines on stderr."""
    from fairlead.observability.history import HistoryError
    from fairlead.operator.app import Options, run_process

    process.prepare(log_level, {"--address": address, "--history-address": history_address})
    if history_address and not history:
        fail("--history-address needs --history", Exit.USAGE)
    options = Options(
        leader_elect=leader_elect,
        address=address,
        history=history,
        history_keep=_retention(history_keep),
        history_address=history_address,
        service_namespace=service_namespace,
        pod_address=pod_address,
        prometheus=prometheus,
        node_conditions=_conditions(node_condition or ()),
        max_members=max_members,
        max_waiting_pods=max_waiting_pods,
        max_waiting_pods_per_namespace=max_waiting_pods_per_namespace,
        provisioning_classes=tuple(provisioning_class or ()),
    )
    try:
        process.run(lambda config: run_process(config, options), kubeconfig)
    except HistoryError as error:
        history_failed(error, "--history")


def _retention(text: str) -> float:
    """Seconds for which the history keeps finished jobs; ends the command where the text is no duration."""
    try:
        return spans.seconds(text)
    except ValueError as error:
        fail(f"--history-keep: {error}", Exit.USAGE)


def _conditions(given: Sequence[str]) -> tuple[str, ...]:
    """Node conditions as TYPE=STATUS, those given or the defaults; ends the command where one is not of that form."""
    from fairlead.operator.jobs.hardware import CONDITIONS

    for each in given:
        if not _CONDITION.fullmatch(each):
            fail(f"--node-condition {each!r} is not TYPE=STATUS with status True, False or Unknown", Exit.USAGE)
    return tuple(given or CONDITIONS)
