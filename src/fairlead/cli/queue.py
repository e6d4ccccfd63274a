"""`fairlead queue`: the jobs, as squeue shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.api import names
from fairlead.api.reasons import ReasonCode
from fairlead.cli.connection import IntervalOption, KubeconfigOption, NamespaceOption, WatchOption, show, span
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, fail
from fairlead.cli.without_pods import AIJOB, WithoutPods
from fairlead.cluster import views
from fairlead.cluster.times import seconds
from fairlead.core.model.groups import Target
from fairlead.core.model.pods import Pod
from fairlead.core.model.units import WHOLE
from fairlead.scheduler.overview.rows import Job, Others, State, Why, suspended, waits

if TYPE_CHECKING:
    from rich.console import Group

    from fairlead.cli.snapshot import Snapshot


class Jobs(msgspec.Struct, frozen=True):
    """The result of the command. jobs: the fields of a `Job`, and `seconds`: how long it has run or waited.

    others: the jobs of other namespaces, counted by queue, where the user may see one namespace alone.
    """

    jobs: list[dict[str, Any]]
    others: list[dict[str, Any]] = []


Shown = tuple[Callable[[], Jobs], Callable[[], "Group"]]
"""What makes the data, and what makes the drawing: of fifty thousand jobs each takes a good part of a second."""


def queue(
    kubeconfig: KubeconfigOption = "",
    namespace: NamespaceOption = "",
    name: Annotated[str, typer.Option("--queue", "-q", help="Only jobs of this queue.")] = "",
    start: Annotated[bool, typer.Option("--start", help="Only pending jobs, sorted by expected start.")] = False,
    state: Annotated[State | None, typer.Option("--state", "-t", case_sensitive=False, help="Only jobs in this state.")] = None,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Running and pending jobs, gangs and single pods: where they run, or why they wait. AIJobs without pods, too."""
    podless = WithoutPods(namespace)

    def chosen(known: list[Job], now: float, others: list[Others]) -> Shown:
        found = [
            job for job in known if namespace in ("", job.namespace) and name in ("", job.queue) and state in (None, job.state)
        ]
        if start:
            waiting = [job for job in found if waits(job)]
            found = sorted(waiting, key=lambda job: (job.expected_start is None, job.expected_start or 0.0))
        counted = [each for each in others if name in ("", each.queue)]
        return partial(_data, found, counted, now), lambda: with_others(_table(found, now, starts=start), counted)

    async def by_leader(leader: Leader, now: float) -> Shown | None:
        await podless.read(leader)
        rows = await leader.jobs(namespace, name)
        if rows is None:
            return None
        known = in_order(rows + podless.beside(rows, now, leader.seen_from))
        if not _any_in(name, known) and (shares := await leader.queues()) is not None:
            _check_queue(name, (each.name for each in shares.queues))
        return chosen(known, now, leader.others)

    def view_of(snapshot: Snapshot) -> Shown:
        known = jobs(snapshot)
        known = in_order(known + podless.beside(known, snapshot.now))
        if not _any_in(name, known):
            _check_queue(name, snapshot.state.queues.queues)
        return chosen(known, snapshot.now, [])

    show(kubeconfig, output, view_of, watch=watch, interval=interval, by_leader=by_leader)


def _any_in(queue: str, known: list[Job]) -> bool:
    """Whether any job is of a queue; also where none was asked for."""
    return not queue or any(job.queue == queue for job in known)


def _check_queue(name: str, known: Iterable[str]) -> None:
    """End the command where there is no such queue."""
    if name not in known:
        fail(f"queue {name!r} does not exist (`fairlead share` lists them)", Exit.NOT_FOUND)


def _data(found: list[Job], others: list[Others], now: float) -> Jobs:
    return Jobs([with_age(job, now) for job in found], [msgspec.structs.asdict(each) for each in others])


def with_others(listing: Listing, others: list[Others]) -> Group:
    """A list of jobs, and how many of other namespaces there are."""
    from rich.console import Group
    from rich.text import Text

    running, pending = sum(each.running for each in others), sum(each.pending for each in others)
    if not others:
        return Group(listing)
    held, wanted = sum(each.gpus for each in others), sum(each.gpus_wanted for each in others)
    line = f"Other namespaces: {running} running with {held:g} GPUs, {pending} pending for {wanted:g} GPUs"
    return Group(listing, Text(line, "dim"))


def age(job: Job, now: float) -> float:
    """How long a job has run, or waited, in seconds. now: seconds since the epoch."""
    return max(0.0, now - (job.started_at if job.started_at is not None else job.submitted_at))


def with_age(job: Job, now: float) -> dict[str, Any]:
    """The fields of a job, and its age in `seconds`."""
    return {**msgspec.structs.asdict(job), "seconds": age(job, now)}


def jobs(snapshot: Snapshot) -> list[Job]:
    """All jobs that have not ended: those that run first, then those that wait in the order of their ranks."""
    from fairlead.cluster import convert
    from fairlead.cluster.targets import SUSPENDED

    members = members_of(snapshot)
    groups = {(each.metadata.namespace, each.metadata.name): each for each in snapshot.groups}
    found = [
        _job(kind, namespace, name, pods, groups.get((namespace, name)) if kind == "PodGroup" else None, snapshot)
        for (kind, namespace, name), pods in members.items()
    ]
    found += [
        _suspended(group, target)
        for group in snapshot.groups
        if (target := convert.group(group).target) is not None
        and target.state == SUSPENDED
        and ("PodGroup", group.metadata.namespace, group.metadata.name) not in members
        and not any(pod.owner in target.owners for pods in members.values() for _, pod in pods)
    ]
    return in_order(found)


def in_order(found: list[Job]) -> list[Job]:
    """Jobs as they are shown: those that run first."""
    order = {State.RUNNING: 0, State.STARTING: 1, State.ENDING: 2}  # else: they wait
    return sorted(
        found,
        key=lambda job: (order.get(job.state, 3), -job.priority, job.started_at or job.submitted_at, job.namespace, job.name),
    )


def members_of(snapshot: Snapshot) -> dict[tuple[str, str, str], list[tuple[views.Pod, Pod]]]:
    """(kind, namespace, name) of each job -> its pods that have not ended."""
    from fairlead.cluster import convert

    members: dict[tuple[str, str, str], list[tuple[views.Pod, Pod]]] = defaultdict(list)
    for view in snapshot.pods:
        if view.spec.scheduler_name not in names.SCHEDULERS or (view.status and view.status.phase in ("Succeeded", "Failed")):
            continue
        pod = convert.pod(view, snapshot.default_queue(view.metadata.namespace))
        if (counted := snapshot.counted.get(pod.uid)) is not None:
            pod = msgspec.structs.replace(pod, priority=counted.priority, group=counted.group)
        key = ("PodGroup", pod.namespace, pod.group) if pod.group else ("Pod", pod.namespace, pod.name)
        members[key].append((view, pod))
    return members


def _job(
    kind: str, namespace: str, name: str, pods: list[tuple[views.Pod, Pod]], group: views.PodGroup | None, snapshot: Snapshot
) -> Job:
    from fairlead.cluster.gpu_parts import held_milli

    running = [view for view, _ in pods if view.status and view.status.phase == "Running"]
    nodes = sorted({pod.node for _, pod in pods if pod.node})
    if any(pod.terminating for _, pod in pods):
        state = State.ENDING
    elif running and len(running) == len(pods):
        state = State.RUNNING
    else:
        state = State.STARTING if nodes else State.PENDING
    starts = [seconds(view.status.start_time) for view in running if view.status and view.status.start_time]
    queue_name = _charged(snapshot, pods, (group.spec.queue if group is not None else None) or pods[0][1].queue)
    return Job(
        namespace=namespace,
        name=name,
        kind=kind,
        queue=queue_name,
        state=state,
        pods=len(pods),
        running=len(running),
        gpus=sum(held_milli(pod.spec, snapshot.labels_of(pod.node)) for _, pod in pods) / WHOLE,
        priority=max(pod.priority for _, pod in pods),
        submitted_at=min(pod.created for _, pod in pods),
        started_at=min(starts, default=None),
        nodes=nodes,
        spares=_spares(group),
        reason=_why(pods, snapshot) if state in (State.PENDING, State.STARTING) else None,
        **(_expected(group) if state is State.PENDING else {}),
        user=pods[0][1].user,
    )


def _charged(snapshot: Snapshot, pods: list[tuple[views.Pod, Pod]], named: str) -> str:
    """The queue that is charged for a job: of one that runs another one where its own is gone, or does not take it."""
    if named in snapshot.open_queues:
        return named
    task = next((task for _, pod in pods if (task := snapshot.state.tasks.get(pod.uid)) is not None), None)
    return task.queue if task is not None else named


def _suspended(group: views.PodGroup, target: Target) -> Job:
    """A job that has no pods now: what it will have again is remembered in its group."""
    metadata = group.metadata
    created, reason = seconds(metadata.creation_timestamp), group.status.reason if group.status is not None else None
    job = suspended(metadata.namespace, metadata.name, target, group.spec.queue or "", created)
    why = Why(reason.code, reason.message) if reason is not None else None
    return msgspec.structs.replace(job, reason=why, **_expected(group))


def _expected(group: views.PodGroup | None) -> dict[str, Any]:
    """When the scheduler thinks that a gang begins, as fields of a `Job`."""
    status = group.status if group is not None else None
    return {
        name: seconds(getattr(status, name)) or None if status is not None else None
        for name in ("expected_start", "earliest_start", "latest_start")
    }


def _spares(group: views.PodGroup | None) -> list[str]:
    """The node of each place that the scheduler keeps for a gang."""
    status = group.status if group is not None else None
    return list(status.spares.nodes or ()) if status is not None and status.spares is not None else []


_OF_ITS_OWN = frozenset(
    {
        ReasonCode.WAITING_FOR_VICTIMS,
        ReasonCode.RESERVATION,
        ReasonCode.BACKOFF,
        ReasonCode.DISRUPTION_BUDGET,
        ReasonCode.INTERNAL_ERROR,
    }
)
"""Reasons that rest on the scheduler's memory: what it wrote counts, whatever a snapshot of the cluster suggests."""


def _why(pods: list[tuple[views.Pod, Pod]], snapshot: Snapshot) -> Why | None:
    """Why a job waits now. A pod's condition stays as it was written while its code does, so it may be long out of date."""
    waiting = [(view, pod) for view, pod in pods if not pod.node]
    reported = next((why for view, _ in waiting if (why := _reported(view)) is not None), None)
    if not waiting or (reported is not None and reported.code in _OF_ITS_OWN):
        return reported
    outlook = snapshot.outlook()
    known = [outlook[pod.uid] for _, pod in waiting if pod.uid in outlook]
    if not known:
        return reported
    if None in known and len(waiting) == len(pods):
        return None  # the job would start, though perhaps not with all that it could use
    reason = next((each for each in known if each is not None), None)
    return Why(str(reason.code), reason.message) if reason is not None else None


def _reported(view: views.Pod) -> Why | None:
    """What the scheduler wrote into a pod's condition."""
    for condition in (view.status.conditions if view.status else None) or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return Why(condition.reason, condition.message)
    return None


def _in(at: float | None, now: float) -> str:
    return "?" if at is None else f"{'~' if at > now else ''}{span(max(0.0, at - now))}"


def _when(job: Job, now: float) -> str:
    """In which time a job is expected to start, and the interval behind it."""
    expected = _in(job.expected_start, now)
    if job.expected_start is None or job.earliest_start is None or job.latest_start is None:
        return expected
    return f"{expected} ({span(max(0.0, job.earliest_start - now))} to {span(max(0.0, job.latest_start - now))})"


STYLES = {
    State.RUNNING: "green",
    State.STARTING: "cyan",
    State.ENDING: "magenta",
    State.PENDING: "yellow",
    State.SUSPENDED: "blue",
    State.RESTARTING: "yellow",
}


_COLUMNS = [
    Column("JOB", flexible=True, least=18),
    Column("QUEUE", flexible=True),
    Column("STATE"),
    Column("PODS", right=True),
    Column("GPUS", right=True),
    Column("PRIO", right=True),
    Column("TIME", right=True),
    Column("NODES / REASON", flexible=True),
]


def _table(found: list[Job], now: float, *, starts: bool) -> Listing:
    """starts: also in which time each is expected to start."""
    from rich.text import Text

    columns = _COLUMNS if not starts else [*_COLUMNS[:-1], Column("STARTS IN", right=True), _COLUMNS[-1]]
    rows, states = [], {state: Text(state.value, style) for state, style in STYLES.items()}
    for job in found:
        where = nodes_shown(job.nodes) + (f", kept: {nodes_shown(job.spares)}" if job.spares else "")
        if job.reason is not None:
            where = f"({job.reason.code}) {job.reason.message}" if job.reason.code else job.reason.message
        rows.append(
            [
                f"{job.namespace}/{job.name}",
                job.queue,
                states[job.state],
                f"{job.running}/{job.pods}" if not waits(job) else str(job.pods),
                f"{job.gpus:g}",
                str(job.priority) if job.kind != AIJOB else "-",
                span(age(job, now)),
                *((_when(job, now),) if starts else ()),
                where,
            ]
        )
    return Listing(columns, rows)


def nodes_shown(nodes: list[str]) -> str:
    """`a-001,a-002` or, where there are many, the first few and how many more."""
    return ",".join(nodes) if len(nodes) <= 4 else f"{','.join(nodes[:3])} and {len(nodes) - 3} more"
