"""Jobs and their pods as they are observed, recorded in the history.

A job is an AIJob, or what owns a PodGroup or a pod, or the pod by itself. The state of an AIJob is in its status; of other kinds
it is derived from their pods. There is no clock here; `recorder` observes the cluster and has it recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJobStatus
from fairlead.cluster import convert, views
from fairlead.cluster.times import seconds
from fairlead.core.model.pods import Pod
from fairlead.observability.history import HistoryError, Job, Run, State
from fairlead.observability.store import History
from fairlead.operator.accounting.causes import Causes, Failure
from fairlead.operator.accounting.device_charges import DeviceCharges, is_of_claim
from fairlead.operator.accounting.observations import (
    ClaimObserved,
    JobObserved,
    NodeObserved,
    Observation,
    PodObserved,
    PoolObserved,
    ScalerObserved,
    SliceObserved,
    subject,
)
from fairlead.operator.accounting.owners import Owners
from fairlead.operator.accounting.pods import bound_at, devices_of, end_of, failure_of, is_evicted
from fairlead.operator.accounting.rows import Rows
from fairlead.operator.accounting.scaler_intervals import ScalerIntervals
from fairlead.operator.faults import Report, reraised
from fairlead.operator.use import Used

_STATES = {
    "Pending": State.PENDING,
    "Suspended": State.SUSPENDED,
    "Succeeded": State.SUCCEEDED,
    "Failed": State.FAILED,
}


class _Member(msgspec.Struct):
    """What a pod that exists does for its job's state."""

    job: str
    placed: bool
    ended: str = ""  # its phase at the end
    evicted: bool = False


class Accounting:
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
        self._owners = Owners(group)
        self._default_queue = default_queue
        self._report = report
        self.scalers = ScalerIntervals()
        self._causes = Causes()
        self.pool_used: dict[tuple[str, ...], float] = {}  # (pool,) -> GPU-seconds used, since we began
        self.pool_measured: dict[tuple[str, ...], float] = {}  # of the GPU-seconds held and measured
        self._alive_at: float | None = None  # up to when the previous writer had observed everything; 0: there was none
        self._live = False  # everything that exists was observed, and since then every change
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, Run] = {}  # those that have not ended
        self._changed_runs: dict[str, Run] = {}
        self.devices = DeviceCharges(self._runs, self._changed_runs, report)
        self.nodes = self.devices.nodes
        self._pods: dict[str, str] = {}  # a pod's key -> its uid
        self._members: dict[str, _Member] = {}  # a pod's uid -> what it does
        self._of: dict[str, set[str]] = {}  # a job's uid -> its pods' uids
        self._own: dict[str, str] = {}  # an AIJob's key -> its uid
        self._changed_jobs: set[str] = set()

    def apply(self, observed: Iterable[Observation], now: float) -> None:
        """Apply observations, in their order. Raises `HistoryError`, having applied none.

        An observation that cannot be applied is reported and left out.
        """
        batch = list(observed)
        if not self._live:
            batch.sort(key=_first_known)
        if self._alive_at is None:
            self.nodes.intervals.load(self.history.open_stays())
            self.scalers.intervals.load(self.history.open_scalers())
            _, runs, alive_at = self.history.open_ends()
            self.devices.load(runs)
            self._alive_at = alive_at or 0.0
        self._load(batch)
        for each in batch:
            try:
                self._take(each, each.at or now)
            except Exception as error:  # noqa: BLE001 - one object costs its own record only
                self._report("history.records", subject(each), error)

    def _take(self, each: Observation, at: float) -> None:
        if isinstance(each, JobObserved):
            self._job(each, at)
        elif isinstance(each, Used):
            self._used(each)
        elif isinstance(each, NodeObserved):
            if each.view is None:
                self.devices.claims.node_gone(each.name)
            self.nodes.node(each.name, each.view, at)
        elif isinstance(each, SliceObserved):
            self.devices.slice(each, at)
        elif isinstance(each, ClaimObserved):
            self.devices.claim(each, at)
        elif isinstance(each, ScalerObserved):
            self.scalers.observed(each.key, each.view, at)
        elif isinstance(each, PoolObserved):
            self.nodes.pool(each.name, each.spec, at)
        else:
            self._pod(each, at)

    def write(self, now: float) -> int:
        """Write what changed; how many rows. Raises `HistoryError`: then all of it is still to be written."""
        jobs = [self._jobs[uid] for uid in self._changed_jobs]
        of_claims = self.devices.claims.rows.take_changed()
        runs = [*self._changed_runs.values(), *of_claims]
        rows = Rows(jobs, runs, self.nodes.intervals.take_changed(), self.scalers.intervals.take_changed())
        try:
            rows.write(self.history, now, self._report)
        except HistoryError:
            self.devices.claims.rows.give_back(of_claims)
            self.nodes.intervals.give_back(rows.nodes)
            self.scalers.intervals.give_back(rows.scalers)
            raise
        self._changed_jobs.clear()
        self._changed_runs.clear()
        for job in jobs:
            exists = bool(self._of.get(job.uid)) or self._own.get(f"{job.namespace}/{job.name}") == job.uid
            if job.ended_at is not None and not exists:
                del self._jobs[job.uid]
                self._causes.forget(job.uid)
        return len(rows)

    def close_scalers(self) -> None:
        """All autoscalers are listed: others went while no recorder ran."""
        self.scalers.close_others(self._alive_at)

    def close_others(self) -> None:
        """Everything is listed: other open rows ended while no recorder ran, no later than the last observation."""
        jobs, runs, alive_at = self.history.open_ends()
        self._live = True
        self.nodes.close_others(alive_at)
        for run in runs:
            if run.uid not in self._runs and run.uid not in self._changed_runs and not is_of_claim(run):
                run.ended_at, run.outcome = max(run.started_at, alive_at or run.started_at), str(State.LOST)
                self._changed_runs[run.uid] = run
        for job in jobs:
            if job.uid not in self._jobs:
                job.ended_at, job.state = max(job.submitted_at, alive_at or job.submitted_at), State.LOST
                self._jobs[job.uid] = job
                self._changed_jobs.add(job.uid)

        self.devices.all_listed(alive_at)

    def _load(self, batch: list[Observation]) -> None:
        """Load what is written already of those observed for the first time."""
        jobs: dict[str, None] = {}
        ended: dict[str, views.Pod] = {}
        for each in batch:
            if isinstance(each, JobObserved):
                if each.job is not None:
                    jobs[each.job.metadata.uid] = None
            elif isinstance(each, PodObserved) and each.view is not None and each.view.spec.scheduler_name in names.SCHEDULERS:
                member = self._members.get(each.view.metadata.uid)
                try:
                    jobs[self._owners.job_of(self._read(each.view), each.view).uid if member is None else member.job] = None
                except Exception as error:  # noqa: BLE001 - as above
                    self._report("history.records", each.key, error)
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
                if (failure := failure_of(view)) is not None:
                    self._causes.failed(run.job, self._read(view).attempt, failure)

    # -- AIJobs --------------------------------------------------------------------------------

    def _job(self, observed: JobObserved, now: float) -> None:
        if observed.job is None:
            uid = self._own.pop(observed.key, "")
            job = self._jobs.get(uid)
            if job is not None and job.ended_at is None:
                self._keep(msgspec.structs.replace(job, state=State.CANCELLED, ended_at=now, message="deleted"))
            elif job is not None:
                self._changed_jobs.add(uid)  # so that it is let go of
            return
        metadata, spec, status = observed.job.metadata, observed.job.spec, observed.job.status or AIJobStatus()
        before = self._own.get(observed.key)
        if before is not None and before != metadata.uid:
            self._job(JobObserved(observed.key, None), now)
        self._own[observed.key] = metadata.uid
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

    def _read(self, view: views.Pod) -> Pod:
        return convert.pod(view, self._default_queue(view.metadata.namespace))

    def _first(self, pod: Pod, view: views.Pod) -> Job:
        """The job that a pod counts for: its first one, whatever its labels and its PodGroup have become since."""
        member, run = self._members.get(pod.uid), self._runs.get(pod.uid)
        known = self._jobs.get(member.job if member is not None else run.job if run is not None else "")
        return known if known is not None else self._owners.job_of(pod, view)

    def _leave(self, job: str, uid: str) -> None:
        """A pod counts for a job no more."""
        others = self._of.get(job, set())
        others.discard(uid)
        if not others:
            self._of.pop(job, None)

    def _pod(self, observed: PodObserved, now: float) -> None:
        view = observed.view
        uid = self._pods.get(observed.key, "")
        if uid and (view is None or view.metadata.uid != uid):
            self._gone(observed.key, uid, now)
        if view is None or view.spec.scheduler_name not in names.SCHEDULERS:
            return
        pod, status = self._read(view), view.status or views.PodStatus()
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
        member.placed, member.evicted = bool(pod.node), is_evicted(status)
        self._pods[observed.key] = pod.uid
        self._of.setdefault(job.uid, set()).add(pod.uid)
        if pod.node and run is None and not member.ended:
            run = self._begin(pod, job, queue, self._start(status, now))
        elif run is not None:
            self._measure(run, pod)
        if pod.finished and not member.ended:
            member.ended = status.phase
            if run is not None:
                self._end_as(run, status, now)
            if (failure := failure_of(view)) is not None:
                self._failed(job.uid, pod.attempt, failure)
        self._judge(job.uid, now)

    def _begin(self, pod: Pod, job: Job, queue: str, at: float) -> Run:
        """A pod got its place."""
        run = self._runs[pod.uid] = self._changed_runs[pod.uid] = Run(
            uid=pod.uid,
            job=job.uid,
            namespace=pod.namespace,
            name=pod.name,
            queue=queue,
            service_class=pod.service_class,
            user=pod.user,
            node=pod.node,
            gpus=devices_of(pod, self.nodes.labels_of(pod.node)),
            cpus=dict(pod.spec.requests).get("cpu", 0) / 1000,
            started_at=at,
        )
        if self._causes.began(job.uid, pod.attempt, counted=self._jobs[job.uid].kind == "AIJob"):
            self._keep(msgspec.structs.replace(self._jobs[job.uid], exit_code=None))
        self.devices.begun(run)
        return run

    def _measure(self, run: Run, pod: Pod) -> None:
        """What a run holds, where that was not known when it began: its node's labels came later."""
        labels = self.nodes.labels_of(pod.node)
        self.devices.measured(run, devices_of(pod, labels), certain=labels is not None, uses_claims=bool(pod.claims))

    def _end_as(self, run: Run, status: views.PodStatus, now: float) -> None:
        """A pod ended: when and how, by its containers' statuses."""
        at, exit_code = end_of(status)
        outcome = f"{status.phase}: {status.reason}" if status.reason else status.phase
        self._end(run, at or now, outcome, exit_code)

    def _failed(self, uid: str, attempt: int, failure: Failure) -> None:
        """A pod of a job failed: the job's exit code is that of the first cause."""
        known = self._jobs[uid]
        if failure.evicted and known.exit_code and not self._causes.knows(uid):
            return  # written by the previous writer: the pod was deleted because of that failure
        code = self._causes.failed(uid, attempt, failure)
        if code is not None and known.state != State.SUCCEEDED:
            self._keep(msgspec.structs.replace(known, exit_code=code))

    def _start(self, status: views.PodStatus, now: float) -> float:
        """When a run began.

        The time of its observation: the previous holder of its place was observed to go before. Of a pod that existed before
        this process, the time of its binding, but no earlier than the previous writer's last observation.
        """
        return now if self._live else min(now, max(bound_at(status) or now, self._alive_at or 0.0))

    def _used(self, measured: Used) -> None:
        """Record what runs under way used since the last measurement."""
        for (namespace, name), share in measured.share.items():
            run = self._runs.get(self._pods.get(f"{namespace}/{name}", ""))
            lasted = min(measured.seconds, measured.at - run.started_at) if run is not None else 0.0
            if run is not None and run.gpus and lasted > 0:
                held, used = run.gpus * lasted, run.gpus * lasted * share
                run.measured += held
                run.used += used
                pool = (self.nodes.pool_of(run.node) or "",)
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
        self.devices.ended(run, run.ended_at)

    def _judge(self, uid: str, now: float, gone: _Member | None = None) -> None:
        """Derive the state of a job without a status of its own. gone: the pod of it that just went."""
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
            suspended = self._owners.is_suspended(job)
            state, ended = (State.SUSPENDED, None) if suspended else (State.CANCELLED, now)
        else:
            return  # cleaned up after its end
        exit_code = 0 if state is State.SUCCEEDED else job.exit_code
        self._keep(msgspec.structs.replace(job, state=state, started_at=started, ended_at=ended, exit_code=exit_code))


def _first_known(each: Observation) -> int:
    """Pools before nodes, so that a node that went on is not one without a price; nodes before what runs on them.

    Slices before nodes, and claims before pods, so that what goes on has its devices from the first.
    """
    order = (PoolObserved, SliceObserved, NodeObserved, ClaimObserved)
    return next((number for number, kind in enumerate(order) if isinstance(each, kind)), len(order))
