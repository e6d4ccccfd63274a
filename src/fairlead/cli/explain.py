"""`fairlead explain pod/NAME|podgroup/NAME`: where a job stands, who is ahead, and what stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.api.reasons import Reason
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail
from fairlead.cli.picture import KubeconfigOption, Picture, read, run, span
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.translate import timestamp
from fairlead.core.forecast import forecast
from fairlead.core.gangs import Gang
from fairlead.core.model import WHOLE
from fairlead.core.standing import Ahead, Term, ahead_of, line, terms
from fairlead.core.tasks import Task, TaskState

if TYPE_CHECKING:
    from rich.console import RenderableType

_KINDS = {"pod": "pod", "pods": "pod", "po": "pod", "podgroup": "podgroup", "podgroups": "podgroup", "pg": "podgroup"}
_SHOWN = 5
_ADVICE = {
    "Resources": "It starts when enough is free at once; jobs with a lower priority in its queue may be evicted for it.",
    "TooLarge": "No cluster state would help: ask for less, or add nodes.",
    "NodeAffinity": "No node has the labels it asks for: check nodeSelector and affinity.",
    "Taints": "The nodes it could use are tainted: add a toleration, or wait until they are ready.",
    "LimitExceeded": "It starts when its queue holds less, or when the queue's limit is raised (see `fairlead share`).",
    "UserLimit": "It starts when its user's other jobs in the queue end, or when the queue's perUser limits are raised.",
    "NotAllowed": "Ask an administrator: the queue or the class of service does not admit its namespace, user or class.",
    "UnknownServiceClass": "Create the ServiceClass, or name another in the label fairlead.dev/service-class.",
    "Reservation": "Say how long it runs (expectedDuration, timeLimit): what ends in time may start before.",
    "GangIncomplete": "Create the missing pods, or lower minMember.",
    "UnknownQueue": "Create the queue, or name another in the label fairlead.dev/queue.",
    "InvalidSpec": "Correct the object: nothing can be done with it as it is.",
    "Gated": "Whoever set its scheduling gates must remove them.",
    "Devices": "Fractions of a GPU need nodes on which a sharing plugin gives them out.",
    "Backoff": "A binding was refused a moment ago; it is tried again soon.",
}


class Explanation(msgspec.Struct, frozen=True):
    """One job. position: 1 is next in its queue; ahead: the first of those before it, and why; null once it is placed.

    rank: the terms that decide who is next, the first that differs counts. expected_start: if all runs as long as it is thought
    to, RFC 3339. message: what the scheduler says of it now, numbers: those behind it; told: what the object's conditions say;
    would_start_on: where a pass that began now would put it; would_evict: whom it would take the place of.
    """

    object: str
    queue: str
    state: str
    pods: int
    placed: int
    gpus: float
    priority: int
    waiting_seconds: float | None
    nodes: list[str]
    position: int | None
    queued: int
    ahead: list[Ahead]
    rank: list[Term]
    user: str
    service_class: str
    expected_start: str | None
    expected_wait_seconds: float | None
    code: str | None
    message: str | None
    numbers: dict[str, int]
    told: str | None
    advice: str | None
    would_start_on: list[str]
    would_evict: list[str]
    preempted: str | None = None
    preempted_at: str | None = None


def _complete(incomplete: str) -> list[str]:
    """Objects for the shell's completion; silence where the cluster does not answer."""
    try:
        picture = run("", read)
    except (Exception, SystemExit):
        return []
    found = [f"podgroup/{each.metadata.name}" for each in picture.groups]
    found += [f"pod/{each.metadata.name}" for each in picture.pods if not each.spec.node_name]
    return sorted(each for each in found if each.startswith(incomplete))


def explain(
    name: Annotated[str, typer.Argument(metavar="KIND/NAME", help="pod/NAME or podgroup/NAME.", autocompletion=_complete)],
    kubeconfig: KubeconfigOption = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace; default: the kubeconfig's.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Why a job waits, in which position, behind whom, and what would make it start."""
    kind, slash, plain = name.partition("/")
    if not slash or kind.lower() not in _KINDS or not plain:
        fail(f"{name!r} is not pod/NAME or podgroup/NAME", Exit.USAGE)
    if not namespace:
        namespace = _namespace(kubeconfig)
    picture = run(kubeconfig, read)
    tasks, gang = _find(picture, _KINDS[kind.lower()], namespace, plain)
    explanation = explained(picture, f"{_KINDS[kind.lower()]}/{plain}", tasks, gang)
    told, at = _fallen(kubeconfig, namespace, plain) if explanation.state != "Running" else (None, None)
    explanation = msgspec.structs.replace(explanation, preempted=told, preempted_at=at)

    def table() -> None:
        console().print(_drawing(explanation, namespace))

    emit(explanation, output, table)


def _namespace(kubeconfig: str) -> str:
    from fairlead.cluster.kubernetes.config import ConfigError, load

    try:
        return load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)


class _Event(msgspec.Struct):
    reason: str = ""
    note: str = ""
    eventTime: str | None = None  # noqa: N815 - as in Kubernetes


def _fallen(kubeconfig: str, namespace: str, name: str) -> tuple[str | None, str | None]:
    """What the latest event says of who took its place, and when."""

    async def look(client: Client) -> list[_Event]:
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        try:
            page = msgspec.json.decode(await client.get(path, fieldSelector=f"regarding.name={name}"), type=views.RawList)
        except ApiError:
            return []  # who may not read events still wants to know the rest
        return [msgspec.json.decode(raw, type=_Event) for raw in page.items]

    events = [each for each in run(kubeconfig, look) if each.reason in ("Preempted", "Moved", "Suspended")]
    latest = max(events, key=lambda each: each.eventTime or "", default=None)
    return (latest.note, latest.eventTime) if latest is not None else (None, None)


def _find(picture: Picture, kind: str, namespace: str, name: str) -> tuple[list[Task], Gang | None]:
    state = picture.state
    if kind == "podgroup":
        gang = state.gangs.get(f"{namespace}/{name}")
        if gang is None:
            fail(f"podgroup {namespace}/{name} does not exist (another namespace? give --namespace)", Exit.NOT_FOUND)
        return list(gang.tasks.values()), gang
    for task in state.tasks.values():
        if (task.pod.namespace, task.pod.name) == (namespace, name):
            if not task.pod.ours:
                fail(f"pod {namespace}/{name} belongs to another scheduler", Exit.FAILED)
            return [task], task.gang
    view = next((each for each in picture.pods if (each.metadata.namespace, each.metadata.name) == (namespace, name)), None)
    if view is None:
        fail(f"pod {namespace}/{name} does not exist (another namespace? give --namespace)", Exit.NOT_FOUND)
    if view.status and view.status.phase in ("Succeeded", "Failed"):
        fail(f"pod {namespace}/{name} has ended: {view.status.phase} {view.status.reason}".rstrip(), Exit.FAILED)
    return fail(f"pod {namespace}/{name} belongs to another scheduler: its schedulerName is not fairlead", Exit.FAILED)


def explained(picture: Picture, name: str, tasks: list[Task], gang: Gang | None) -> Explanation:
    """Everything about one job; decides once on the picture."""
    queue = tasks[0].queue if tasks else (gang.group.queue if gang is not None and gang.group is not None else "")
    waiting = [task for task in tasks if task.state in (TaskState.WAITING, TaskState.UNUSABLE)]
    placed = [task for task in tasks if task.state is TaskState.BOUND]
    node = picture.state.queues.queues.get(queue)
    units = line(node) if node is not None else []
    unit = next((task.unit for task in waiting if task.unit is not None), None)
    position = next((index for index, each in enumerate(units) if each is unit), None) if unit is not None else None
    ahead = ahead_of(picture.state, unit, units[: position or 0], picture.now, _SHOWN) if unit is not None else []
    rank = terms(picture.state, unit, picture.now) if unit is not None else []
    nodes = sorted({task.pod.node for task in placed})
    reasons = picture.decide()
    reason = _reason(waiting, gang, reasons)
    starts, evicted = picture.would_start(), picture.would_evict()
    start = None
    if waiting and not any(task.pod.uid in starts for task in waiting):
        start = forecast(picture.state, picture.now).get(waiting[0].job)
    suspended = gang is not None and gang.key in picture.state.suspended.targets
    state_name = "Suspended" if suspended else "Running" if tasks and not waiting else "Waiting" if waiting else "Empty"
    created = min((task.pod.created for task in tasks), default=0.0)
    return Explanation(
        object=name,
        queue=queue,
        state=state_name,
        pods=len(tasks),
        placed=len(placed),
        gpus=sum(task.pod.spec.gpus * task.pod.spec.gpu_milli for task in tasks) / WHOLE,
        priority=max((task.pod.priority for task in tasks), default=0),
        waiting_seconds=max(0.0, picture.now - created) if waiting else None,
        nodes=nodes,
        position=None if position is None else position + 1,
        queued=len(units),
        ahead=ahead,
        rank=rank,
        user=tasks[0].user if tasks else "",
        service_class=tasks[0].service_class if tasks else "",
        expected_start=None if start is None else timestamp(start),
        expected_wait_seconds=None if start is None else max(0.0, start - picture.now),
        code=str(reason.code) if reason is not None else None,
        message=reason.message if reason is not None else None,
        numbers=reason.numbers if reason is not None else {},
        told=_told(picture, {task.pod.uid for task in waiting}),
        advice=_ADVICE.get(str(reason.code)) if reason is not None else None,
        would_start_on=sorted({starts[task.pod.uid] for task in waiting if task.pod.uid in starts}),
        would_evict=sorted({each for task in waiting for each in evicted.get(task.pod.uid, ())}),
    )


def _reason(waiting: list[Task], gang: Gang | None, reasons: dict[str, Reason]) -> Reason | None:
    for task in waiting:
        if task.pod.uid in reasons:
            return reasons[task.pod.uid]
        if task.pod.error is not None:
            return task.pod.error
    return gang.reason if gang is not None and waiting else None


def _told(picture: Picture, uids: set[str]) -> str | None:
    for view in picture.pods:
        if view.metadata.uid in uids:
            for condition in (view.status.conditions if view.status else None) or ():
                if condition.type == "PodScheduled" and condition.status == "False":
                    return f"{condition.reason}: {condition.message}"
    return None


def _drawing(explanation: Explanation, namespace: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def row(label: str, value: object) -> None:
        table.add_row(label, Text(str(value)))

    row(explanation.object, f"in namespace {namespace}, queue {explanation.queue or '-'}")
    row("state", f"{explanation.state}, {explanation.placed} of {explanation.pods} pods have a node")
    row("asks for", f"{explanation.gpus:g} GPUs at priority {explanation.priority}")
    if explanation.nodes:
        row("runs on", ", ".join(explanation.nodes))
    if explanation.waiting_seconds is not None:
        row("waiting for", span(explanation.waiting_seconds))
    if explanation.position is not None:
        row("position", f"{explanation.position} of {explanation.queued} in its queue")
    for number, each in enumerate(explanation.ahead):
        why = f"{each.term} {each.its:g}, not {each.ours:g}" if each.term != "name" else "by name"
        row("ahead of it" if not number else "", f"{each.job} ({each.user}): {why}")
    more = (explanation.position or 1) - 1 - len(explanation.ahead)
    if more > 0:
        row("", f"and {more} more")
    if explanation.rank:
        row("rank", ", ".join(f"{each.name} {each.value:g}" for each in explanation.rank if each.value))
    if explanation.message is not None:
        row("why", f"({explanation.code}) {explanation.message}")
    if explanation.advice is not None:
        row("what helps", explanation.advice)
    if explanation.preempted is not None:
        row("it fell", f"{explanation.preempted} ({explanation.preempted_at})")
    if explanation.expected_start is not None:
        row("expected", f"in about {span(explanation.expected_wait_seconds or 0.0)}, at {explanation.expected_start}")
    if explanation.would_evict:
        row("evicts", ", ".join(explanation.would_evict))
    if explanation.would_start_on:
        row("next", f"it would start now on {', '.join(explanation.would_start_on)}")
    elif explanation.told and explanation.told.partition(": ")[2] != explanation.message:
        row("it was told", explanation.told)
    return table
