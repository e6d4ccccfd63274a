"""Who used what: jobs and their pods as they are heard of, put down in the history.

A job is an AIJob, or what owns a PodGroup or a pod, or the pod by itself. AIJobs say themselves where they stand; of other kinds
that is read off their pods. There is no clock here; `recorder` hears the cluster and brings the books up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.api.kinds.node_pool import NodePoolSpec
from fairlead.cluster import convert, grouping, views
from fairlead.cluster.times import seconds
from fairlead.core.model.objects import WHOLE
from fairlead.core.model.objects import Pod as CorePod
from fairlead.core.state.suspended import made_before, made_for
from fairlead.observability.history import HistoryError, Job, Run, Scaler, State, Stay
from fairlead.observability.store import History
from fairlead.operator.causes import Causes, Failure
from fairlead.operator.faults import Report, reraised
from fairlead.operator.scalers import Scalers, ScalerView
from fairlead.operator.stays import NodeView, Stays
from fairlead.operator.use import Used

log = structlog.get_logger("history")

_STATES = {
    "Pending": State.PENDING,
    "Suspended": State.SUSPENDED,
    "Succeeded": State.SUCCEEDED,
    "Failed": State.FAILED,
}


class _Condition(views.Condition):
    last_transition_time: str | None = None


class _Terminated(views.View):
    exit_code: int = 0
    finished_at: str | None = None


class _ContainerState(views.View):
    terminated: _Terminated | None = None


class _ContainerStatus(views.ContainerStatus):
    state: _ContainerState | None = None  # type: ignore[assignment]


class _Status(views.PodStatus):
    conditions: list[_Condition] | None = None  # type: ignore[assignment]
    container_statuses: list[_ContainerStatus] | None = None  # type: ignore[assignment]
    init_container_statuses: list[_ContainerStatus] | None = None  # type: ignore[assignment]


class PodView(views.Pod):
    """A pod, with when it was bound and how its containers ended."""

    status: _Status | None = None


class PodHeard(msgspec.Struct, frozen=True):
    """A pod as it is; view: None where it is gone. at: when it was heard, seconds since 1970; 0: as it is put down."""

    key: str
    view: PodView | None
    at: float = 0.0


class JobHeard(msgspec.Struct, frozen=True):
    """An AIJob as it is; job: None where it is gone."""

    key: str
    job: AIJob | None
    at: float = 0.0


class NodeHeard(msgspec.Struct, frozen=True):
    """A node as it is; view: None where it is gone."""

    name: str
    view: NodeView | None
    at: float = 0.0


class PoolHeard(msgspec.Struct, frozen=True):
    """A NodePool as it is; spec: None where it is gone."""

    name: str
    spec: NodePoolSpec | None
    at: float = 0.0


class ScalerHeard(msgspec.Struct, frozen=True):
    """A HorizontalPodAutoscaler as it is; view: None where it is gone."""

    key: str
    view: ScalerView | None
    at: float = 0.0


Heard = PodHeard | JobHeard | NodeHeard | PoolHeard | ScalerHeard | Used


class _Member(msgspec.Struct):
    """What a pod that exists does for its job's state."""

    job: str
    placed: bool
    ended: str = ""  # its phase at the end
    evicted: bool = False


class Books:
    """Jobs and runs under way, and what of them is to be written.

    group: the PodGroup of a key, if there is one; default_queue: that of a namespace; report: takes faults of single objects.
    Not for several threads at once.
    """

    def __init__(
        self,
        history: History,
        group: Callable[[str], views.PodGroup | None] = lambda _: None,
        default_queue: Callable[[str], str] = lambda _: names.DEFAULT_QUEUE,
        report: Report = reraised,
    ) -> None:
        self.history = history
        self._group = group
        self._default_queue = default_queue
        self._report = report
        self.stays = Stays(report)
        self.scalers = Scalers()
        self._causes = Causes()
        self.pool_used: dict[tuple[str, ...], float] = {}  # (pool,) -> GPU-seconds used, since we began
        self.pool_measured: dict[tuple[str, ...], float] = {}  # of so many that were held and looked at
        self._alive_at: float | None = None  # up to when the writer before had heard all; 0: there was none
        self._live = False  # all that exists was heard, and since then all that happens
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, Run] = {}  # those that have not ended
        self._pods: dict[str, str] = {}  # a pod's key -> its uid
        self._members: dict[str, _Member] = {}  # a pod's uid -> what it does
        self._of: dict[str, set[str]] = {}  # a job's uid -> its pods' uids
        self._own: dict[str, str] = {}  # an AIJob's key -> its uid
        self._changed_jobs: set[str] = set()
        self._changed_runs: dict[str, Run] = {}

    def apply(self, heard: Iterable[Heard], now: float) -> None:
        """Take in what was heard, in its order. Raises `HistoryError`, having taken in nothing.

        What cannot be taken in, one by one, is reported and left out.
        """
        batch = list(heard)
        if not self._live:
            batch.sort(key=lambda each: not isinstance(each, PoolHeard))  # a node that went on is not one without a price
        if self._alive_at is None:
            self.stays.periods.load(self.history.open_stays())
            self.scalers.periods.load(self.history.open_scalers())
            self._alive_at = self.history.open_ends()[2] or 0.0
        self._load(batch)
        for each in batch:
            try:
                self._take(each, each.at or now)
            except Exception as error:
                self._report("history.books", subject(each), error)

    def _take(self, each: Heard, at: float) -> None:
        if isinstance(each, JobHeard):
            self._job(each, at)
        elif isinstance(each, Used):
            self._used(each)
        elif isinstance(each, NodeHeard):
            self.stays.node(each.name, each.view, at)
        elif isinstance(each, ScalerHeard):
            self.scalers.heard(each.key, each.view, at)
        elif isinstance(each, PoolHeard):
            self.stays.pool(each.name, each.spec, at)
        else:
            self._pod(each, at)

    def write(self, now: float) -> int:
        """Write what changed; how many rows. Raises `HistoryError`: then all of it is still to be written."""
        jobs, runs = [self._jobs[uid] for uid in self._changed_jobs], list(self._changed_runs.values())
        stays, scalers = self.stays.periods.take_changed(), self.scalers.periods.take_changed()
        try:
            self._put(jobs, runs, stays, scalers, now)
        except HistoryError:
            self.stays.periods.give_back(stays)
            self.scalers.periods.give_back(scalers)
            raise
        self._changed_jobs.clear()
        self._changed_runs.clear()
        for job in jobs:
            exists = bool(self._of.get(job.uid)) or self._own.get(f"{job.namespace}/{job.name}") == job.uid
            if job.ended_at is not None and not exists:
                del self._jobs[job.uid]
                self._causes.forget(job.uid)
        return len(jobs) + len(runs) + len(stays) + len(scalers)

    def _put(self, jobs: list[Job], runs: list[Run], stays: list[Stay], scalers: list[Scaler], now: float) -> None:
        """All in one transaction, or, where a row cannot be written at all, the others without it. Raises `HistoryError`."""
        try:
            self.history.write(jobs, runs, alive_at=now, stays=stays, scalers=scalers)
        except HistoryError as error:
            self.history.write((), (), alive_at=now)  # raises where the database itself is away: then all of it is kept
            log.warning("the history takes the rows one by one", error=str(error)[:300])
            whole: HistoryError | None = error
        except Exception as error:
            log.warning("the history takes the rows one by one", error=str(error)[:300])
            whole = None
        else:
            return
        history = self.history
        parts: list[tuple[str, Callable[[], None]]] = [
            (f"{job.namespace}/{job.name}", partial(history.write, (job,), ())) for job in jobs
        ]
        parts += [(f"{run.namespace}/{run.name}", partial(history.write, (), (run,))) for run in runs]
        parts += [(stay.node, partial(history.write, (), (), stays=(stay,))) for stay in stays]
        parts += [(f"{each.namespace}/{each.name}", partial(history.write, (), (), scalers=(each,))) for each in scalers]
        refused = 0
        for key, put in parts:
            try:
                put()
            except Exception as error:
                refused += 1
                self._report("history.rows", key, error)
        if whole is not None and refused == len(parts) > 1:
            raise whole  # nothing of it can be written: it is not one row's fault

    def close_scalers(self) -> None:
        """All autoscalers were heard of: others went while nobody looked."""
        self.scalers.close_others(self._alive_at)

    def close_others(self) -> None:
        """All that exists was heard: what is open otherwise ended while nobody looked, no later than anything was heard."""
        jobs, runs, alive_at = self.history.open_ends()
        self._live = True
        self.stays.close_others(alive_at)
        for run in runs:
            if run.uid not in self._runs and run.uid not in self._changed_runs:
                run.ended_at, run.outcome = max(run.started_at, alive_at or run.started_at), str(State.LOST)
                self._changed_runs[run.uid] = run
        for job in jobs:
            if job.uid not in self._jobs:
                job.ended_at, job.state = max(job.submitted_at, alive_at or job.submitted_at), State.LOST
                self._jobs[job.uid] = job
                self._changed_jobs.add(job.uid)

    def _load(self, batch: list[Heard]) -> None:
        """What is written already of those heard of for the first time."""
        jobs: dict[str, None] = {}
        ended: dict[str, PodView] = {}
        for each in batch:
            if isinstance(each, JobHeard):
                if each.job is not None:
                    jobs[each.job.metadata.uid] = None
            elif isinstance(each, PodHeard) and each.view is not None and each.view.spec.scheduler_name in names.SCHEDULERS:
                member = self._members.get(each.view.metadata.uid)
                try:
                    jobs[self._whose(self._read(each.view), each.view).uid if member is None else member.job] = None
                except Exception as error:
                    self._report("history.books", each.key, error)
                    continue
                if member is None:
                    ended[each.view.metadata.uid] = each.view
        known, runs = self.history.written([uid for uid in jobs if uid not in self._jobs], list(ended))
        self._jobs |= {job.uid: job for job in known}
        # A pod stays with its first job, which may be another than its labels name by now.
        first = {run.job: None for run in runs if run.job not in self._jobs}
        if first:
            self._jobs |= {job.uid: job for job in self.history.written(list(first), ())[0]}
        for run in runs:
            if run.ended_at is None:
                self._runs[run.uid] = run
            else:
                self._members[run.uid] = _Member(run.job, placed=True, ended=run.outcome)
                view = ended[run.uid]
                if (failure := _failure(view)) is not None:
                    self._causes.failed(run.job, self._read(view).attempt, failure)

    # -- AIJobs --------------------------------------------------------------------------------

    def _job(self, heard: JobHeard, now: float) -> None:
        if heard.job is None:
            uid = self._own.pop(heard.key, "")
            job = self._jobs.get(uid)
            if job is not None and job.ended_at is None:
                self._keep(msgspec.structs.replace(job, state=State.CANCELLED, ended_at=now, message="deleted"))
            elif job is not None:
                self._changed_jobs.add(uid)  # so that it is let go of
            return
        metadata, spec, status = heard.job.metadata, heard.job.spec, heard.job.status or AIJobStatus()
        before = self._own.get(heard.key)
        if before is not None and before != metadata.uid:
            self._job(JobHeard(heard.key, None), now)
        self._own[heard.key] = metadata.uid
        known = self._jobs.get(metadata.uid)
        ended = status.phase in ("Succeeded", "Failed")
        exit_code = 0 if status.phase == "Succeeded" else known.exit_code if known is not None else None
        self._keep(
            Job(
                uid=metadata.uid,
                namespace=metadata.namespace,
                kind="AIJob",
                name=metadata.name,
                queue=status.queue or spec.queue or self._default_queue(metadata.namespace),
                service_class=status.service_class or spec.service_class or "",
                user=(metadata.annotations or {}).get(names.USER_ANNOTATION) or metadata.namespace,
                state=_STATES.get(status.phase, State.RUNNING),
                submitted_at=seconds(metadata.creation_timestamp) or now,
                started_at=seconds(status.started_at) or None,
                ended_at=(seconds(status.finished_at) or now) if ended else None,
                restarts=status.restarts,
                interruptions=status.interruptions,
                exit_code=exit_code,
                message=status.message,
            )
        )

    def _keep(self, job: Job) -> None:
        if self._jobs.get(job.uid) != job:
            self._jobs[job.uid] = job
            self._changed_jobs.add(job.uid)

    # -- pods ----------------------------------------------------------------------------------

    def _read(self, view: PodView) -> CorePod:
        return convert.pod(view, self._default_queue(view.metadata.namespace))

    def _group_of(self, pod: CorePod) -> views.PodGroup | None:
        """The PodGroup of a pod. Parts of an object may have others, which have the same owner."""
        if not pod.group:
            return None
        found, before = self._group(f"{pod.namespace}/{pod.group}"), grouping.name_before(pod.group)
        if found is None and before:
            earlier = self._group(f"{pod.namespace}/{before}")
            found = earlier if earlier is not None and pod.group in grouping.serves(earlier.metadata) else None
        return found

    def _whose(self, pod: CorePod, view: PodView) -> Job:
        """The job of a pod, as it begins."""
        group = self._group_of(pod)
        owner = _controller(group.metadata if group is not None else view.metadata) or _controller(view.metadata)
        uid, kind, name = pod.uid, "Pod", pod.name
        if owner is not None:
            uid, kind, name = owner.uid, owner.kind, owner.name
        elif group is not None:
            uid, kind, name = group.metadata.uid, "PodGroup", group.metadata.name
        elif pod.group:
            uid, kind, name = f"{pod.namespace}/{pod.group}", "PodGroup", pod.group
        return Job(
            uid=uid,
            namespace=pod.namespace,
            kind=kind,
            name=name,
            queue=(group.spec.queue if group is not None else "") or pod.queue,
            service_class=pod.service_class,
            user=pod.user,
            submitted_at=pod.created,
        )

    def _first(self, pod: CorePod, view: PodView) -> Job:
        """The job that a pod counts for: its first one, whatever its labels and its PodGroup have become since."""
        member, run = self._members.get(pod.uid), self._runs.get(pod.uid)
        known = self._jobs.get(member.job if member is not None else run.job if run is not None else "")
        return known if known is not None else self._whose(pod, view)

    def _leave(self, job: str, uid: str) -> None:
        """A pod counts for a job no more."""
        others = self._of.get(job, set())
        others.discard(uid)
        if not others:
            self._of.pop(job, None)

    def _pod(self, heard: PodHeard, now: float) -> None:
        view = heard.view
        uid = self._pods.get(heard.key, "")
        if uid and (view is None or view.metadata.uid != uid):
            self._gone(heard.key, uid, now)
        if view is None or view.spec.scheduler_name not in names.SCHEDULERS:
            return
        pod, status = self._read(view), view.status or _Status()
        run, job = self._runs.get(pod.uid), self._first(pod, view)
        if job.uid not in self._jobs:
            if not pod.node:
                return  # a job's history begins with its first place; AIJobs begin theirs themselves
            self._keep(job)
        queue = self._jobs[job.uid].queue or job.queue
        member = self._members.setdefault(pod.uid, _Member(job.uid, placed=bool(pod.node)))
        if member.job != job.uid:  # the row of its first job is no more
            self._leave(member.job, pod.uid)
            member.job = job.uid
        member.placed, member.evicted = bool(pod.node), _evicted(status)
        self._pods[heard.key] = pod.uid
        self._of.setdefault(job.uid, set()).add(pod.uid)
        if pod.node and run is None and not member.ended:
            requests = dict(pod.spec.requests)
            run = self._runs[pod.uid] = self._changed_runs[pod.uid] = Run(
                uid=pod.uid,
                job=job.uid,
                namespace=pod.namespace,
                name=pod.name,
                queue=queue,
                service_class=pod.service_class,
                user=pod.user,
                node=pod.node,
                gpus=_held(pod),
                cpus=requests.get("cpu", 0) / 1000,
                started_at=self._start(status, now),
            )
            if self._causes.began(job.uid, pod.attempt, counted=self._jobs[job.uid].kind == "AIJob"):
                self._keep(msgspec.structs.replace(self._jobs[job.uid], exit_code=None))
        if pod.finished and not member.ended:
            member.ended = status.phase
            ended = [each for each in _terminated(status) if each.exit_code] or _terminated(status)
            exit_code = ended[0].exit_code if ended else None
            if run is not None:
                outcome = f"{status.phase}: {status.reason}" if status.reason else status.phase
                self._end(run, max((seconds(each.finished_at) for each in ended), default=0.0) or now, outcome, exit_code)
            if (failure := _failure(view)) is not None:
                self._failed(job.uid, pod.attempt, failure)
        self._judge(job.uid, now)

    def _failed(self, uid: str, attempt: int, failure: Failure) -> None:
        """A pod of a job failed: the job's exit code is that of the first cause."""
        known = self._jobs[uid]
        if failure.told and known.exit_code and not self._causes.knows(uid):
            return  # written by the writer before us: what is told to go is told so for that
        code = self._causes.failed(uid, attempt, failure)
        if code is not None and known.state != State.SUCCEEDED:
            self._keep(msgspec.structs.replace(known, exit_code=code))

    def _start(self, status: _Status, now: float) -> float:
        """When a run began.

        When it was heard: what had its place before was heard to go before. Of what was there before us, when it was
        bound, but what the writer before us would have heard it has put down.
        """
        return now if self._live else min(now, max(_bound(status) or now, self._alive_at or 0.0))

    def _used(self, measured: Used) -> None:
        """Put down what runs that go on used of late."""
        for (namespace, name), share in measured.share.items():
            run = self._runs.get(self._pods.get(f"{namespace}/{name}", ""))
            lasted = min(measured.seconds, measured.at - run.started_at) if run is not None else 0.0
            if run is not None and run.gpus and lasted > 0:
                held, used = run.gpus * lasted, run.gpus * lasted * share
                run.measured += held
                run.used += used
                pool = (self.stays.pool_of(run.node) or "",)
                self.pool_measured[pool] = self.pool_measured.get(pool, 0.0) + held
                self.pool_used[pool] = self.pool_used.get(pool, 0.0) + used
                self._changed_runs[run.uid] = run

    def _gone(self, key: str, uid: str, now: float) -> None:
        self._pods.pop(key, None)
        member, run = self._members.pop(uid, None), self._runs.get(uid)
        if run is not None:
            self._end(run, now, "Evicted" if member is not None and member.evicted else "Deleted", None)
        if member is not None:
            self._leave(member.job, uid)
            self._judge(member.job, now, member)

    def _end(self, run: Run, at: float, outcome: str, exit_code: int | None) -> None:
        run.ended_at, run.outcome, run.exit_code = max(at, run.started_at), outcome, exit_code
        self._changed_runs[run.uid] = run
        self._runs.pop(run.uid, None)

    def _judge(self, uid: str, now: float, gone: _Member | None = None) -> None:
        """Where a job stands that does not say so itself. gone: the pod of it that just went."""
        job = self._jobs.get(uid)
        if job is None or job.kind == "AIJob":
            return
        members = [self._members[each] for each in self._of.get(uid, ())]
        alive = [each for each in members if not each.ended]
        started = job.started_at
        if alive:
            running = any(each.placed for each in alive)
            state, ended = State.RUNNING if running else State.PENDING, None
            started = now if running and started is None else started
            starts = [self._runs[each].started_at for each in self._of[uid] if each in self._runs]
            started = min([*starts, *([started] if started is not None else [])], default=None)
        elif members:
            failed = any(each.ended.startswith("Failed") for each in members)
            state, ended = State.FAILED if failed else State.SUCCEEDED, job.ended_at or now
        elif gone is not None and not gone.ended and job.ended_at is None:
            suspended = self._suspended(job)
            state, ended = (State.SUSPENDED, None) if suspended else (State.CANCELLED, now)
        else:
            return  # cleaned up after its end
        exit_code = 0 if state is State.SUCCEEDED else job.exit_code
        self._keep(msgspec.structs.replace(job, state=state, started_at=started, ended_at=ended, exit_code=exit_code))

    def _suspended(self, job: Job) -> bool:
        """Whether the scheduler has it suspended: then it comes back."""
        made = made_for(job.namespace, f"batch/v1/{job.kind}/{job.name}"), made_before(job.namespace, job.kind, job.name)
        for key in (f"{job.namespace}/{job.name}", *made):
            group = self._group(key)
            target = group.status.target if group is not None and group.status is not None else None
            if target is not None and target.state == "Suspended" and _means(target, job):
                return True
        return False


def _means(target: views.GroupTarget, job: Job) -> bool:
    """Whether a target is a job's: a PodGroup of that name may be another's."""
    owners = target.owners or ()
    return not owners or job.kind == "PodGroup" or any((each.kind, each.name) == (job.kind, job.name) for each in owners)


def subject(heard: Heard) -> str:
    """Of which object something was heard, `namespace/name`."""
    return "" if isinstance(heard, Used) else heard.name if isinstance(heard, NodeHeard | PoolHeard) else heard.key


def _held(pod: CorePod) -> float:
    """Devices, fractions as such. Profile `kubernetes` knows no fractions: what asks for one there gets no device."""
    if pod.profile == names.KUBERNETES_PROFILE and pod.spec.gpu_milli < WHOLE:
        return 0.0
    return pod.spec.gpus * pod.spec.gpu_milli / WHOLE


def _controller(metadata: views.Metadata) -> views.OwnerReference | None:
    return next((each for each in metadata.owner_references or () if each.controller), None)


def _bound(status: _Status) -> float:
    """When a pod got its node, as far as its status says; 0: it does not."""
    scheduled = next((each for each in status.conditions or () if each.type == "PodScheduled" and each.status == "True"), None)
    return seconds(scheduled.last_transition_time if scheduled is not None else None) or seconds(status.start_time)


def _evicted(status: _Status) -> bool:
    return any(each.type == "DisruptionTarget" and each.status == "True" for each in status.conditions or ())


def _failure(view: PodView) -> Failure | None:
    """How a pod failed, as far as its containers say."""
    status = view.status or _Status()
    failed = [each for each in _terminated(status) if each.exit_code]
    if status.phase not in ("Succeeded", "Failed") or not failed:
        return None
    at = min((seconds(each.finished_at) for each in failed if each.finished_at), default=0.0)
    told = view.metadata.deletion_timestamp is not None or _evicted(status)
    return Failure.of(failed[0].exit_code, at, told=told)


def _terminated(status: _Status) -> list[_Terminated]:
    found = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return [each.state.terminated for each in found if each.state is not None and each.state.terminated is not None]
