"""Jobs that have not ended, a row each: where they run, or why they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.foretold import Expected
from fairlead.scheduler.explanations import why_it_waits
from fairlead.scheduler.overview.rows import POD, POD_GROUP, Job, Others, State, Why, suspended


class Key(NamedTuple):
    """A job. kind: `PodGroup`, or `Pod` for a pod of its own; id: of the gang in the core, or the pod's UID."""

    namespace: str
    name: str
    kind: str
    id: str


def others(state: ClusterState, seen_from: str) -> list[Others]:
    """The jobs of all namespaces but one, counted by queue: for users who may not know whose they are."""
    counted: dict[str, _Counted] = {}
    for task in state.tasks.values():
        pod = task.pod
        if not pod.ours or pod.finished or pod.namespace == seen_from or (task.gang is None and pod.placeholder) or pod.spare:
            continue
        job = counted.setdefault(task.gang.key if task.gang is not None else pod.uid, _Counted(task.queue))
        job.runs = job.runs or bool(pod.node)
        job.milli += state.queues.tree.parts.of(task)
    for group, target in state.suspended.targets.items():
        gang = state.gangs.get(group)
        if group.partition("/")[0] == seen_from or group in counted or gang is None:
            continue
        found = suspended("", "", target, gang.group.queue if gang.group is not None else "")
        counted[group] = _Counted(found.queue, milli=round(found.gpus * WHOLE))
    queues: dict[str, list[_Counted]] = {}
    for job in counted.values():
        queues.setdefault(job.queue, []).append(job)
    return [
        Others(
            queue=name,
            running=sum(job.runs for job in known),
            pending=sum(not job.runs for job in known),
            gpus=sum(job.milli for job in known if job.runs) / WHOLE,
            gpus_wanted=sum(job.milli for job in known if not job.runs) / WHOLE,
        )
        for name, known in sorted(queues.items())
    ]


class _Counted(msgspec.Struct):
    """A job that is not named. milli: thousandths of GPUs that its pods ask for."""

    queue: str
    runs: bool = False
    milli: int = 0


def keys(state: ClusterState, namespace: str = "", queue: str = "") -> list[Key]:
    """The jobs that have not ended, by namespace and name. namespace, queue: only those of one; empty: of all."""
    found: set[Key] = set()
    for task in state.tasks.values():
        pod = task.pod
        if not pod.ours or pod.finished or (namespace and pod.namespace != namespace) or (queue and task.queue != queue):
            continue
        if task.gang is not None:
            found.add(_of_gang(task.gang.key))
        elif not pod.placeholder:
            found.add(Key(pod.namespace, pod.name, POD, pod.uid))
    for group in state.suspended.targets:
        key = _of_gang(group)
        if not namespace or key.namespace == namespace:
            found.add(key)
    return sorted(found)


def _of_gang(gang: str) -> Key:
    namespace, _, name = gang.partition("/")
    return Key(namespace, name, POD_GROUP, gang)


class Rows:
    """Rows of jobs. start: when a job, by its key in the core, is expected to start."""

    def __init__(self, state: ClusterState, start: Callable[[str], Expected | None]) -> None:
        self._state = state
        self._start = start

    def of(self, wanted: Iterable[Key]) -> list[Job]:
        """The rows of jobs; those that ended meanwhile are left out."""
        return [row for key in wanted if (row := self._row(key)) is not None]

    def _row(self, key: Key) -> Job | None:
        if key.kind == POD:
            task = self._state.tasks.get(key.id)
            return self._of_pod(key, task) if task is not None else None
        gang = self._state.gangs.get(key.id)
        if gang is None:
            return None
        tasks = [
            task
            for task in gang.tasks.values()
            if not task.pod.finished and task.state is not TaskState.PLACEHOLDER and not task.pod.spare
        ]
        return self._of(key, tasks, gang) if tasks else self._without_pods(key, gang)

    def _of_pod(self, key: Key, task: Task) -> Job:
        """The row of a pod by itself. Most are of such that run."""
        pod = task.pod
        if pod.placeholder or pod.terminating or pod.started is None or not pod.node:
            return self._of(key, [task], None)
        return Job(
            namespace=key.namespace,
            name=key.name,
            kind=POD,
            queue=pod.queue,
            state=State.RUNNING,
            pods=1,
            running=1,
            gpus=self._state.queues.tree.parts.of(task) / WHOLE,
            priority=pod.priority,
            submitted_at=pod.created,
            started_at=pod.started,
            nodes=[pod.node],
            reason=None,
            user=pod.user,
        )

    def _of(self, key: Key, tasks: list[Task], gang: Gang | None) -> Job:
        first, group = tasks[0], gang.group if gang is not None else None
        running = [task for task in tasks if task.pod.started is not None and task.pod.node]
        where = _where(tasks, running)
        waits = where in (State.PENDING, State.STARTING, State.SUSPENDED)
        reason = why_it_waits(self._state, [task for task in tasks if not task.pod.node], gang) if waits else None
        return Job(
            namespace=key.namespace,
            name=key.name,
            kind=key.kind,
            queue=(group.queue if group is not None else "") or first.pod.queue,
            state=where,
            pods=len(tasks),
            running=len(running),
            gpus=sum(map(self._state.queues.tree.parts.of, tasks)) / WHOLE,
            priority=max(task.pod.priority for task in tasks),
            submitted_at=min(task.pod.created for task in tasks),
            started_at=min((task.pod.started for task in running if task.pod.started is not None), default=None),
            nodes=sorted({task.pod.node for task in tasks if task.pod.node}),
            spares=list(self._state.spares.nodes(gang)) if gang is not None else [],
            reason=_why(reason),
            user=first.pod.user,
            **(self._expected(first.job) if where in (State.PENDING, State.SUSPENDED) else {}),
        )

    def _without_pods(self, key: Key, gang: Gang) -> Job | None:
        """A suspended job whose placeholders are not there yet: what it will have again is in its PodGroup."""
        target, group = self._state.suspended.targets.get(key.id), gang.group
        if target is None or not target.members:
            return None
        found = suspended(key.namespace, key.name, target, group.queue if group is not None else "")
        return msgspec.structs.replace(found, reason=_why(gang.reason), **self._expected(key.id))

    def _expected(self, job: str) -> dict[str, Any]:
        start = self._start(job)
        if start is None:
            return {}
        return {"expected_start": start.start, "earliest_start": start.earliest, "latest_start": start.latest}


def _why(reason: Reason | None) -> Why | None:
    return Why(str(reason.code), reason.message) if reason is not None else None


def _where(tasks: list[Task], running: list[Task]) -> State:
    if tasks[0].pod.placeholder:
        return State.SUSPENDED
    if any(task.pod.terminating for task in tasks):
        return State.ENDING
    if running and len(running) == len(tasks):
        return State.RUNNING
    return State.STARTING if any(task.pod.node for task in tasks) else State.PENDING
