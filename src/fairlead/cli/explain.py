"""`fairlead explain pod/NAME|podgroup/NAME|job/NAME|aijob/NAME`: where a job stands, who is ahead, and what stands in its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.api import names
from fairlead.api.reasons import ReasonCode
from fairlead.cli.connection import KubeconfigOption, default_namespace, run, span
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail, progress
from fairlead.cluster import views
from fairlead.cluster.kinds import NODE
from fairlead.operator.jobs.phases import BY_USER

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairlead.cli.snapshot import Snapshot
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.core.pods.tasks import Gang, Task
    from fairlead.scheduler.explanations import Explanation

_KINDS = {"pod": "pod", "pods": "pod", "po": "pod", "podgroup": "podgroup", "podgroups": "podgroup", "pg": "podgroup"}
_KINDS |= {"job": "job", "jobs": "job", "aijob": "aijob", "aijobs": "aijob"}


_FORBIDDEN, _NOT_FOUND = 403, 404


def _complete(incomplete: str) -> list[str]:
    """Objects for the shell's completion; silence where the cluster does not answer."""
    from fairlead.cli.snapshot import read

    try:
        snapshot = run("", read)
    except (Exception, SystemExit):  # noqa: BLE001 - a shell that completes shows no errors
        return []
    found = [f"podgroup/{each.metadata.name}" for each in snapshot.groups]
    found += [f"aijob/{name}" for name in {(each.metadata.labels or {}).get(names.JOB_LABEL) for each in snapshot.pods} if name]
    found += [f"pod/{each.metadata.name}" for each in snapshot.pods if not each.spec.node_name]
    return sorted(each for each in found if each.startswith(incomplete))


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", help="pod/NAME, podgroup/NAME, job/NAME or aijob/NAME.", autocompletion=_complete),
    ],
    kubeconfig: KubeconfigOption = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace; default: the kubeconfig's.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Why a job is pending, its position, the jobs ahead of it, and what would make it start."""
    kind, slash, plain = name.partition("/")
    if not slash or kind.lower() not in _KINDS or not plain:
        fail(f"{name!r} is not pod/NAME, podgroup/NAME, job/NAME or aijob/NAME", Exit.USAGE)
    if not namespace:
        namespace = default_namespace(kubeconfig)
    kind = _KINDS[kind.lower()]

    explanation = run(kubeconfig, lambda client: _explanation(client, kind, namespace, plain))
    ran = explanation.state in ("Running", "Succeeded")
    note, at = _latest_preemption(kubeconfig, namespace, plain) if not ran else (None, None)
    explanation = msgspec.structs.replace(explanation, preempted=note, preempted_at=at)

    def table() -> None:
        console().print(_drawing(explanation, namespace))

    emit(explanation, output, table)


async def _explanation(client: Client, kind: str, namespace: str, name: str) -> Explanation:
    """What can be known of an object. Raises `ApiError`, `Unreachable`."""
    from fairlead.cli import aijobs
    from fairlead.cli.explanations import by_leader, by_status
    from fairlead.cli.snapshot import read
    from fairlead.cluster.kubernetes.client import ApiError

    job = None
    if kind == "aijob":
        try:
            job = await aijobs.fetch(client, namespace, name)
        except aijobs.Unknown as error:
            fail(str(error), Exit.NOT_FOUND)
        if job is not None and aijobs.over(job):
            return await aijobs.of_its_own(client, job, client.server_time or time.time())
    answered = await by_leader(client, kind, namespace, name)
    if answered is not None:
        return await _completed(client, answered, f"{kind}/{name}", namespace)
    try:
        with progress("listing the cluster") as report:
            snapshot = await read(client, report)
    except ApiError as error:
        if error.code != _FORBIDDEN:
            raise
        try:
            found = await by_status(client, kind, namespace, name)
        except ApiError as refused:
            if job is None or refused.code not in (_FORBIDDEN, _NOT_FOUND):
                raise
            return await aijobs.of_its_own(client, job, client.server_time or time.time())
        if kind == "aijob":
            found = msgspec.structs.replace(found, object=f"aijob/{name}")
        return found
    tasks, gang = _find(snapshot, kind, namespace, name)
    if job is not None and not tasks:
        return await aijobs.of_its_own(client, job, snapshot.now)
    return full_explanation(snapshot, f"{kind}/{name}", tasks, gang)


async def _completed(client: Client, answered: Explanation, name: str, namespace: str) -> Explanation:
    """The leader's explanation with what it does not know: until when nodes are quarantined, why, and which are reconfigured."""
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.listing import list_all

    quarantined: list[str] = []
    if answered.numbers.get("quarantined"):
        with suppress(ApiError):  # a user who may not list nodes still gets the rest
            quarantined = _quarantined(await list_all(client, NODE.path, views.Node, selector=names.QUARANTINED_LABEL))
    reconfigured: list[str] = []
    if names.MIG_TAINT in (answered.message or ""):
        with suppress(ApiError):
            found = await list_all(client, NODE.path, views.Node, selector=names.MIG_PHASE_LABEL)
            reconfigured = reconfigured_for(found, _named_like(name, namespace))
    return msgspec.structs.replace(answered, object=name, quarantined=quarantined, reconfigured=reconfigured)


class _Event(msgspec.Struct):
    reason: str = ""
    note: str = ""
    eventTime: str | None = None  # noqa: N815 - as in Kubernetes


def _latest_preemption(kubeconfig: str, namespace: str, name: str) -> tuple[str | None, str | None]:
    """The note and the time of the latest event about a preemption, a move or a suspension."""
    from fairlead.cluster.kubernetes.client import ApiError

    async def events_of(client: Client) -> list[_Event]:
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        try:
            page = msgspec.json.decode(await client.get(path, fieldSelector=f"regarding.name={name}"), type=views.RawList)
        except ApiError:
            return []  # a user who may not read events still gets the rest
        return [msgspec.json.decode(raw, type=_Event) for raw in page.items]

    events = [each for each in run(kubeconfig, events_of) if each.reason in ("Preempted", "Rescheduled", "Suspended")]
    events = [each for each in events if each.note != BY_USER]
    latest = max(events, key=lambda each: each.eventTime or "", default=None)
    return (latest.note, latest.eventTime) if latest is not None else (None, None)


def _find(snapshot: Snapshot, kind: str, namespace: str, name: str) -> tuple[list[Task], Gang | None]:
    from fairlead.scheduler.explanations import find

    state = snapshot.state
    if kind == "podgroup":
        gang = state.gangs.get(f"{namespace}/{name}")
        if gang is None:
            fail(f"podgroup {namespace}/{name} does not exist (another namespace? give --namespace)", Exit.NOT_FOUND)
        return list(gang.tasks.values()), gang
    if kind == "job":
        tasks, gang = find(state, kind, namespace, name)
        if not tasks:
            fail(f"job {namespace}/{name} has no pending or running pods and is not suspended by Fairlead", Exit.NOT_FOUND)
        return tasks, gang
    if kind == "aijob":
        return find(state, kind, namespace, name)
    for task in state.tasks.values():
        if (task.pod.namespace, task.pod.name) == (namespace, name):
            if not task.pod.ours:
                fail(f"pod {namespace}/{name} belongs to another scheduler", Exit.FAILED)
            return [task], task.gang
    view = next((each for each in snapshot.pods if (each.metadata.namespace, each.metadata.name) == (namespace, name)), None)
    if view is None:
        fail(f"pod {namespace}/{name} does not exist (another namespace? give --namespace)", Exit.NOT_FOUND)
    if view.status and view.status.phase in ("Succeeded", "Failed"):
        fail(f"pod {namespace}/{name} has ended: {view.status.phase} {view.status.reason}".rstrip(), Exit.FAILED)
    ours = ", ".join(names.SCHEDULERS)
    return fail(f"pod {namespace}/{name} belongs to another scheduler: its schedulerName is none of {ours}", Exit.FAILED)


def full_explanation(snapshot: Snapshot, name: str, tasks: list[Task], gang: Gang | None) -> Explanation:
    """Everything about one job; decides once on the snapshot."""
    from fairlead.core.forecast import forecast
    from fairlead.core.pods.tasks import TaskState
    from fairlead.core.queue_position import blocked_by
    from fairlead.scheduler.explanations import ADVICE, advice_for, explained, foretold, reason_of, unread_of

    explanation = explained(snapshot.state, tasks, gang, name, snapshot.now, None)
    waiting = [task for task in tasks if task.state in (TaskState.WAITING, TaskState.UNUSABLE)]
    reasons = snapshot.decide()
    reason = next((reasons[task.pod.uid] for task in waiting if task.pod.uid in reasons), None) or reason_of(
        snapshot.state, waiting, gang
    )
    reason = reason or unread_of(tasks)
    condition = _reported(snapshot, {task.pod.uid for task in waiting})
    reported = f"{condition.reason}: {condition.message}" if condition is not None else None
    if condition is not None and condition.reason == ReasonCode.WAITING_FOR_VICTIMS:
        # Its place is held already; a snapshot shows its victims only as terminating pods.
        return msgspec.structs.replace(
            explanation,
            code=str(ReasonCode.WAITING_FOR_VICTIMS),
            message=condition.message,
            numbers={},
            reported=reported,
            advice=ADVICE[ReasonCode.WAITING_FOR_VICTIMS],
        )
    starts, evicted = snapshot.would_start(), snapshot.would_evict()
    start = None
    if waiting and not any(task.pod.uid in starts for task in waiting):
        found = snapshot.state.foretold.intervals(snapshot.state, forecast(snapshot.state, snapshot.now), snapshot.now)
        start = found.get(waiting[0].job)
    return msgspec.structs.replace(
        explanation,
        **foretold(start, snapshot.now),
        code=str(reason.code) if reason is not None else None,
        message=reason.message if reason is not None else explanation.message if not tasks else None,
        numbers=reason.numbers if reason is not None else {},
        reported=reported,
        advice=advice_for(snapshot.state, waiting, reason) if reason is not None else None,
        would_start_on=sorted({starts[task.pod.uid] for task in waiting if task.pod.uid in starts}),
        would_evict=sorted({each for task in waiting for each in evicted.get(task.pod.uid, ())}),
        quarantined=_quarantined(snapshot.nodes) if reason is not None and reason.numbers.get("quarantined") else [],
        reconfigured=reconfigured_for(snapshot.nodes, {f"{task.pod.namespace}/{task.pod.name}" for task in waiting}.__contains__),
        blocked_by=next((blocked_by(snapshot.state, task.unit) for task in waiting if task.unit is not None), None),
    )


def _quarantined(nodes: list[views.Node]) -> list[str]:
    """Each quarantined node, until when, and what speaks against it."""
    found = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        if names.QUARANTINED_LABEL in (node.metadata.labels or {}):
            annotations = node.metadata.annotations or {}
            until = annotations.get(names.QUARANTINED_UNTIL_ANNOTATION, "the label is removed")
            why = annotations.get(names.QUARANTINE_REASON_ANNOTATION, "no reason given")
            found.append(f"{node.metadata.name} until {until}: {why}")
    return found


def _named_like(name: str, namespace: str) -> Callable[[str], bool]:
    """Whether a pod's key is that of KIND/NAME: the pod itself, or a member, which is named `NAME-...`."""
    kind, _, plain = name.partition("/")
    key = f"{namespace}/{plain}"
    return lambda pod: pod == key or (kind != "pod" and pod.startswith(f"{key}-"))


def reconfigured_for(nodes: list[views.Node], is_one: Callable[[str], bool]) -> list[str]:
    """Each node that gets another configuration of MIG for one of these pods: from which to which, and how far it is."""
    from fairlead.cluster.times import timestamp
    from fairlead.core.mig.reconfiguration import CORDONED, Record

    found = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        text = (node.metadata.annotations or {}).get(names.MIG_RECORD_ANNOTATION, "")
        with suppress(msgspec.DecodeError):
            record = msgspec.json.decode(text, type=Record)
            if record.phase in CORDONED and any(map(is_one, record.pods)):
                state = (node.metadata.labels or {}).get(names.MIG_STATE_LABEL, "")
                change = f"from {record.before} to {record.to}" if record.before else f"to {record.to}"
                since = timestamp(record.since)
                found.append(f"{node.metadata.name} {change}: {record.phase} since {since}, mig-manager: {state or 'no state'}")
    return found


def _reported(snapshot: Snapshot, uids: set[str]) -> views.Condition | None:
    """The condition with the reason why one of these pods is not scheduled."""
    for view in snapshot.pods:
        if view.metadata.uid in uids:
            for condition in (view.status.conditions if view.status else None) or ():
                if condition.type == "PodScheduled" and condition.status == "False":
                    return condition
    return None


def _drawing(explanation: Explanation, namespace: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    for label, value in (*_now(explanation, namespace), *_before(explanation), *_why(explanation), *_later(explanation)):
        table.add_row(label, Text(value))
    return table


def _now(explanation: Explanation, namespace: str) -> Iterator[tuple[str, str]]:
    """(label, value): how it stands."""
    yield explanation.object, f"in namespace {namespace}, queue {explanation.queue or '-'}"
    yield "state", f"{explanation.state}, {explanation.placed} of {explanation.pods} pods have a node"
    parts = ", ".join(f"{each.count} {each.resource} of {each.gpus:g} GPU" for each in explanation.gpu_parts)
    shown = f" ({parts})" if parts else ""
    yield "requests", f"{explanation.gpus:g} GPU{'s' * (explanation.gpus != 1)}{shown} at priority {explanation.priority}"
    if explanation.nodes:
        yield "runs on", ", ".join(explanation.nodes)
    if explanation.spares:
        kept = f" on {', '.join(explanation.spare_nodes)}" if explanation.spare_nodes else ""
        yield "spare places", f"{len(explanation.spare_nodes)} of {explanation.spares} kept{kept}"
    if explanation.waiting_seconds is not None:
        yield "waiting", span(explanation.waiting_seconds)


def _before(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """(label, value): where it is in its queue, and what goes before it."""
    if explanation.position is not None:
        yield "position", f"{explanation.position} of {explanation.queued} in its queue"
    for number, each in enumerate(explanation.ahead):
        why = f"{each.term} {each.its:g}, not {each.ours:g}" if each.term != "name" else "by name"
        yield "ahead" if not number else "", f"{each.job} ({each.user}): {why}"
    more = (explanation.position or 1) - 1 - len(explanation.ahead)
    if more > 0:
        yield "", f"and {more} more"
    if explanation.blocked_by is not None:
        each = explanation.blocked_by
        why = "its queue is within quota" if each.term == "quota" else f"{each.term} {each.its:g}, this job: {each.ours:g}"
        yield "blocked by", f"{each.job} ({each.user}): it would preempt this job at once ({why})"
    if explanation.rank:
        yield "rank", ", ".join(f"{each.name} {each.value:g}" for each in explanation.rank if each.value)


def _why(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """(label, value): why it waits, or was stopped."""
    if explanation.message is not None:
        yield "why", f"({explanation.code}) {explanation.message}" if explanation.code else explanation.message
    for number, line in enumerate(explanation.quarantined):
        yield "quarantined" if not number else "", line
    for number, line in enumerate(explanation.reconfigured):
        yield "reconfigured" if not number else "", line
    if explanation.advice is not None:
        yield "what helps", explanation.advice
    if explanation.preempted is not None:
        yield "preempted", f"{explanation.preempted} ({explanation.preempted_at})"


def _later(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """(label, value): when it is expected to start, and what that takes."""
    if explanation.expected_start is not None:
        yield "expected", f"in about {span(explanation.expected_wait_seconds or 0.0)}, at {explanation.expected_start}"
        if explanation.earliest_start is not None and explanation.latest_start is not None:
            yield "", f"in 8 of 10 cases between {explanation.earliest_start} and {explanation.latest_start}"
    if explanation.would_evict:
        yield "evicts", ", ".join(explanation.would_evict)
    if explanation.would_start_on:
        yield "next", f"would start now on {', '.join(explanation.would_start_on)}"
    elif explanation.reported and explanation.reported.partition(": ")[2] != explanation.message:
        yield "reported", explanation.reported
