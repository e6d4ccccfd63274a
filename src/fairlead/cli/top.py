"""`fairlead top`: who uses the GPUs right now, refreshed until Ctrl-C."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.connection import IntervalOption, KubeconfigOption, NamespaceOption, show, span
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing
from fairlead.cli.nodes import lines
from fairlead.cli.output import Output, OutputOption, fail
from fairlead.cli.queue import STYLES, age, in_order, jobs, members_of, nodes_shown, with_others
from fairlead.cli.without_pods import WithoutPods
from fairlead.scheduler.overview.rows import Job, NodeLine, Others, State, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Group

    from fairlead.cli.snapshot import Snapshot

_BAR = 40
_QUESTION = "max by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL)"


class Sort(StrEnum):
    """What comes first."""

    GPUS = "gpus"
    TIME = "time"
    USE = "use"


class Running(msgspec.Struct, frozen=True):
    """One job. seconds: since it began; use: percent, the mean over its pods of the busiest GPU of each; null: not measured."""

    namespace: str
    name: str
    kind: str
    queue: str
    user: str
    state: State
    pods: int
    gpus: float
    seconds: float
    use: float | None
    nodes: list[str]


class Top(msgspec.Struct, frozen=True):
    """The result of the command. gpus_wanted: by jobs that wait; use: percent, the mean over all pods that are measured.

    others: the jobs of other namespaces, counted by queue, where the user may see one namespace alone; they are in the sums, too.
    """

    gpus: int | float
    gpus_used: float
    gpus_wanted: float
    nodes: int
    nodes_down: int
    running: int
    pending: int
    use: float | None
    jobs: list[Running]
    others: list[dict[str, Any]] = []


def top(
    kubeconfig: KubeconfigOption = "",
    namespace: NamespaceOption = "",
    sort: Annotated[Sort, typer.Option("--sort", "-s", case_sensitive=False, help="Sort by gpus, time or use.")] = Sort.GPUS,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of jobs.")] = 40,
    once: Annotated[bool, typer.Option("--once", help="Show once and exit.")] = False,
    interval: IntervalOption = 2.0,
    prometheus: Annotated[
        str,
        typer.Option(envvar="FAIRLEAD_PROMETHEUS", help="URL of a Prometheus with DCGM_FI_DEV_GPU_UTIL.", show_default="none"),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Jobs that hold GPUs, their GPU utilization, and free capacity. Refreshes until Ctrl-C."""

    def shown(found: Top, others: list[Others]) -> tuple[Top, Group]:
        first = msgspec.structs.replace(found, jobs=found.jobs[:limit])
        return first, _drawn(first, others)

    podless = WithoutPods()

    def view_of(snapshot: Snapshot) -> tuple[Top, Group]:
        return shown(summary(snapshot, _measured(prometheus) if prometheus else {}, namespace, sort, podless), [])

    async def by_leader(leader: Leader, now: float) -> tuple[Top, Group] | None:
        await podless.read(leader)
        if prometheus:
            return None  # utilization is measured by pod, and the leader lists jobs
        nodes, rows = await leader.nodes(), await leader.jobs()
        if nodes is None or rows is None:
            return None
        known = in_order(rows + podless.beside(rows, now, leader.seen_from))
        found = _summary(nodes, known, now, lambda _: None, {}, namespace, sort)
        return shown(_with_others(found, leader.others), leader.others)

    watch = not once and output is Output.TABLE
    show(kubeconfig, output, view_of, watch=watch, interval=interval, by_leader=by_leader, namespace=namespace)


def summary(
    snapshot: Snapshot,
    measured: Mapping[tuple[str, ...], float],
    namespace: str = "",
    sort: Sort = Sort.GPUS,
    podless: WithoutPods | None = None,
) -> Top:
    """What is used and wanted. measured: (namespace, pod) -> percent; podless: AIJobs that may have no pods."""
    pods, known = members_of(snapshot), jobs(snapshot)
    if podless is not None:
        known += podless.beside(known, snapshot.now)

    def use(job: Job) -> float | None:
        members = pods.get((job.kind, job.namespace, job.name), [])
        found = [measured[key] for view, _ in members if (key := (job.namespace, view.metadata.name)) in measured]
        return round(sum(found) / len(found), 1) if found else None

    return _summary(lines(snapshot), known, snapshot.now, use, measured, namespace, sort)


def _summary(
    nodes: list[NodeLine],
    known: list[Job],
    now: float,
    use: Callable[[Job], float | None],
    measured: Mapping[tuple[str, ...], float],
    namespace: str,
    sort: Sort,
) -> Top:
    held = [
        Running(
            job.namespace,
            job.name,
            job.kind,
            job.queue,
            job.user,
            job.state,
            job.pods,
            job.gpus,
            age(job, now),
            use(job),
            job.nodes,
        )
        for job in known
        if job.nodes and namespace in ("", job.namespace)
    ]
    orders: dict[Sort, Callable[[Running], tuple[float, ...]]] = {
        Sort.GPUS: lambda job: (-job.gpus, -job.seconds),
        Sort.TIME: lambda job: (-job.seconds,),
        Sort.USE: lambda job: (job.use is None, job.use if job.use is not None else 0.0, -job.gpus),
    }
    waiting = [job for job in known if waits(job)]
    uses = list(measured.values())
    return Top(
        gpus=sum(node.gpus for node in nodes),
        gpus_used=sum(node.gpus_used for node in nodes),
        gpus_wanted=sum(job.gpus for job in waiting),
        nodes=len(nodes),
        nodes_down=sum(node.state == "down" for node in nodes),
        running=sum(bool(job.nodes) for job in known),
        pending=len(waiting),
        use=round(sum(uses) / len(uses), 1) if uses else None,
        jobs=sorted(held, key=lambda job: (*orders[sort](job), job.namespace, job.name)),
    )


def _with_others(found: Top, others: list[Others]) -> Top:
    """The sums with what other namespaces have, too."""
    return msgspec.structs.replace(
        found,
        gpus_wanted=found.gpus_wanted + sum(each.gpus_wanted for each in others),
        running=found.running + sum(each.running for each in others),
        pending=found.pending + sum(each.pending for each in others),
        others=[msgspec.structs.asdict(each) for each in others],
    )


def _measured(url: str) -> Mapping[tuple[str, ...], float]:
    from fairlead.observability.prometheus import Prometheus, PrometheusError

    try:
        with ThreadPoolExecutor(1) as beside:  # this thread's loop is busy
            answer = beside.submit(asyncio.run, Prometheus(url).query(_QUESTION, ("namespace", "pod"))).result()
    except PrometheusError as error:
        fail(f"--prometheus: {error}")
    return {key: value for key, value in answer.items() if not math.isnan(value)}


def _drawn(found: Top, others: list[Others]) -> Group:
    from rich.console import Group
    from rich.text import Text

    part = found.gpus_used / found.gpus if found.gpus else 0.0
    full = round(part * _BAR)
    bar = Text.assemble(("█" * full, "green"), ("·" * (_BAR - full), "dim"))
    used = "" if found.use is None else f", utilization {found.use:g} %"
    down = f", {found.nodes_down} down" if found.nodes_down else ""
    head = Text.assemble("GPUs  ", bar, f"  {found.gpus_used:g} of {found.gpus:g} allocated ({part:.0%}{used})")
    rest = Text(
        f"Jobs  {found.running} running, {found.pending} pending for {found.gpus_wanted:g} GPUs    Nodes  {found.nodes}{down}"
    )
    columns = [
        Column("JOB", flexible=True, least=18),
        Column("USER", flexible=True),
        Column("QUEUE", flexible=True),
        Column("STATE"),
        Column("PODS", right=True),
        Column("GPUS", right=True),
        Column("USE", right=True),
        Column("TIME", right=True),
        Column("NODES", flexible=True),
    ]
    rows = [
        [
            Text(f"{job.namespace}/{job.name}"),
            Text(job.user),
            Text(job.queue),
            Text(job.state.value, STYLES[job.state]),
            str(job.pods),
            f"{job.gpus:g}",
            "" if job.use is None else f"{job.use:g} %",
            span(job.seconds),
            Text(nodes_shown(job.nodes)),
        ]
        for job in found.jobs
    ]
    return Group(head, rest, Text(""), with_others(Listing(columns, rows), others))
