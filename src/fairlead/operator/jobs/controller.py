"""The AIJob controller: observes jobs, their pods and the scheduler's target states, and carries out `plan`.

The status is written before anything is done that follows from it, and only over the version that was read: an operator that
starts after a crash between the two finds an attempt that is over and pods that belong to no attempt any more, and goes on from
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AlternativeStatus
from fairlead.api.kinds.node_pool import NodePool
from fairlead.api.kinds.rules import strict
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from fairlead.observability.prometheus import Prometheus
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs.accepted import as_admitted, as_recorded, held, over, taken
from fairlead.operator.jobs.alternatives import in_form, offer, to_take
from fairlead.operator.jobs.array_runs import ArrayRuns
from fairlead.operator.jobs.attempt import Given
from fairlead.operator.jobs.cache import Cache
from fairlead.operator.jobs.counters import Counters
from fairlead.operator.jobs.creation import Creation
from fairlead.operator.jobs.defaults import filled
from fairlead.operator.jobs.dependencies import READY, Gate, Verdict, judge
from fairlead.operator.jobs.expectations import Expectations
from fairlead.operator.jobs.hardware import CONDITIONS, Hardware
from fairlead.operator.jobs.idleness import Idleness, windows
from fairlead.operator.jobs.idleness import judge as judge_idle
from fairlead.operator.jobs.limits import Bounds, Waiting
from fairlead.operator.jobs.making import Maker
from fairlead.operator.jobs.members import asks_gpus, owned
from fairlead.operator.jobs.observed import GPUS, kind_of, run_of, user_of
from fairlead.operator.jobs.plan import Plan, plan
from fairlead.operator.jobs.pods import NODE_LOST, NUMBER, PodSeen, PodView, seen
from fairlead.operator.jobs.record import Record, begins_again, counts_only, same
from fairlead.operator.jobs.templates import problem
from fairlead.operator.jobs.writer import Writer
from fairlead.operator.releases import Serves, everything
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("jobs")

_JOBS = f"/apis/{names.API_VERSION}/aijobs"
_ABOUT = About(names.API_VERSION, "AIJob")


class Jobs:
    """Reconciles AIJobs.

    speed: of the client's clock against the loop's; prometheus: where the use and the errors of GPUs are measured, if they are;
    conditions: of nodes that report a broken node; serves: whether this release runs the jobs of a queue, others are only known.
    """

    def __init__(
        self,
        client: Client,
        *,
        speed: float = 1.0,
        prometheus: Prometheus | None = None,
        faults: Faults | None = None,
        bounds: Bounds | None = None,
        conditions: Sequence[str] = CONDITIONS,
        serves: Serves = everything,
    ) -> None:
        self.client = client
        self._serves = serves
        self.speed = speed
        self.counters = Counters()
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._reconcile, site="jobs", report=self._fault)
        take_jobs = self.faults.each("jobs.observed", self._job_changed, _ABOUT)
        self.jobs_informer = Informer(client, _JOBS, strict(AIJob), take_jobs, lambda: self._listed("jobs"))
        take_pods = self.faults.each("jobs.pods", self._pod_changed, About("v1", "Pod"))
        self.pods_informer = Informer(
            client, "/api/v1/pods", PodView, take_pods, lambda: self._listed("pods"), selector=names.JOB_LABEL
        )
        self.cache = Cache()
        self.arrays = ArrayRuns()
        self.waiting = Waiting(bounds or Bounds())
        self._expectations = Expectations(self.waiting)
        self._writer = Writer(client, self.counters)
        self.maker = Maker(
            client,
            self._writer,
            self.counters,
            self._again,
            cache=self.cache,
            waiting=self.waiting,
            expectations=self._expectations,
        )
        self.creation = Creation(
            client,
            self.faults,
            self._writer,
            self.maker,
            self._again,
            cache=self.cache,
            waiting=self.waiting,
            expectations=self._expectations,
            arrays=self.arrays,
            speed=speed,
        )
        self._records: dict[str, Record] = {}
        self._idle_windows: dict[str, tuple[float, ...]] = {}  # of jobs that end where they leave their GPUs unused
        self._missing = {"jobs", "pods", "groups", "nodes", "classes", "pools"} | (
            {"releases"} if serves is not everything else set()
        )
        self.hardware = Hardware(
            client,
            self._node_lost,
            lambda: self._listed("nodes"),
            speed=speed,
            faults=self.faults,
            prometheus=prometheus,
            conditions=conditions,
        )
        self.classes_informer = Informer(
            client,
            f"/apis/{names.API_VERSION}/serviceclasses",
            strict(ServiceClass),
            self.faults.each("jobs.classes", self._class_changed, About(names.API_VERSION, "ServiceClass")),
            lambda: self._listed("classes"),
            key=lambda metadata: metadata.name,
        )
        self.pools_informer = Informer(
            client,
            f"/apis/{names.API_VERSION}/nodepools",
            strict(NodePool),
            self.faults.each("jobs.pools", self._pool_changed, About(names.API_VERSION, "NodePool")),
            lambda: self._listed("pools"),
            key=lambda metadata: metadata.name,
        )
        self.idleness = Idleness(prometheus, client.clock, self._windows, self._measured, speed=speed)

    @property
    def synced(self) -> bool:
        """Whether everything that exists has been listed."""
        return not self._missing

    def _listed(self, what: str) -> None:
        self._missing.discard(what)
        if self.synced:
            log.info("synced", jobs=len(self.cache.jobs))
            for key, pods in self.cache.pods_by_job():
                if key not in self.cache.groups and self.cache.jobs[key].spec.array is None:
                    self._record(key).ungrouped.add(-1)
                try:
                    for pod in pods.values():
                        self._observe(key, pod)
                except Exception as error:  # noqa: BLE001 - one job stops no other job
                    self._fault("jobs.nodes", key, error)
            self._find_windows()
            for key in self.cache.jobs:
                self.queue.add(key)

    def serves(self, job: AIJob) -> bool:
        """Whether this release runs a job: it is of the queue that it was admitted to."""
        admitted = job.status.queue if job.status is not None else ""
        return self._serves(job.metadata.namespace, admitted or job.spec.queue)

    def hands_changed(self) -> None:
        """It is known which jobs are served, or others are."""
        if not self.synced:
            self._listed("releases")
            return
        for key in self.cache.jobs:
            self.queue.add(key)

    def groups_listed(self) -> None:
        """All PodGroups are listed."""
        self._listed("groups")

    def group_changed(self, key: str, group: views.PodGroup | None) -> None:
        """A PodGroup as it is, with the target state of its job; None: it is gone."""
        if group is not None:
            self.cache.groups[key] = group
        elif (lost := self.cache.remove_group(key)) is not None:
            self._record(lost[0]).ungrouped.add(lost[1])
            self._again(lost[0])
        self._again(key)

    def _again(self, key: str) -> None:
        if self.synced and key in self.cache.jobs:
            self.queue.add(key)

    def _again_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._again(key)

    def _record(self, key: str) -> Record:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record()
        return record

    # -- what is observed ----------------------------------------------------------------------

    def _fault(self, site: str, key: str, error: Exception) -> None:
        job = self.cache.jobs.get(key)
        self.faults.note(site, key, error, _ABOUT, job.metadata.uid if job is not None else "")

    def _job_changed(self, change: Change[AIJob]) -> None:
        if change.view is None:
            self._again_all(self.cache.remove_job(change.key))
            self._forget(change.key)
        elif change.error:
            log.error("AIJob cannot be read", job=change.key, error=change.error)
            if self._serves(change.view.metadata.namespace, None):  # its queue cannot be read, either
                self.faults.write_event(
                    change.key, "InvalidSpec", f"it cannot be read: {change.error}", _ABOUT, change.view.metadata.uid
                )
        elif not self.cache.is_older(change.key, change.view):
            old = self.cache.jobs.get(change.key)
            if old is not None and old.metadata.uid != change.view.metadata.uid:
                self._forget(change.key)  # another job of its name came
            concerned = self.cache.put_job(change.key, change.view)
            if self.synced and (old is None or old.spec != change.view.spec):
                self._find_window(change.key, change.view)
            self._again(change.key)
            self._again_all(concerned)

    def _forget(self, key: str) -> None:
        """A job is gone: the next one of its name begins with nothing."""
        self._idle_windows.pop(key, None)
        self.arrays.forget(key)
        self._expectations.forget(key)
        self.creation.forget(key)
        if (record := self._records.pop(key, None)) is not None:
            record.stop_timer()
        self.hardware.over(key)

    def _class_changed(self, change: Change[ServiceClass]) -> None:
        if change.error:
            log.error("ServiceClass cannot be read", name=change.key, error=change.error)
        elif change.view is None:
            self.cache.classes.pop(change.key, None)
            self._find_windows()
        else:
            self.cache.classes[change.key] = change.view
            self._find_windows()

    def _pool_changed(self, change: Change[NodePool]) -> None:
        if change.error:
            log.error("NodePool cannot be read", name=change.key, error=change.error)
            return
        if change.view is None:
            self.cache.pools.pop(change.key, None)
        else:
            self.cache.pools[change.key] = change.view
        self._again_all(key for key, job in self.cache.jobs.items() if job.spec.alternatives and not over(job))

    def _find_windows(self) -> None:
        """A class of service may set them for each of its jobs."""
        if self.synced:
            for key, job in self.cache.jobs.items():
                self._find_window(key, job)

    def _find_window(self, key: str, job: AIJob) -> None:
        self._idle_windows.pop(key, None)
        try:
            found = tuple(windows(filled(job, self.cache.classes)))
        except Exception as error:  # noqa: BLE001 - as above
            self._fault("jobs.idleness", key, error)
            return
        if found:
            self._idle_windows[key] = found

    def _windows(self) -> Iterable[float]:
        return {each for found in self._idle_windows.values() for each in found}

    def _measured(self) -> None:
        for key in self._idle_windows:
            self._again(key)

    def _pod_changed(self, change: Change[PodView]) -> None:
        view = change.view
        labels = (view.metadata.labels or {}) if view is not None else {}
        attempt, element = labels.get(names.ATTEMPT_LABEL, ""), labels.get(names.ELEMENT_LABEL, "-1")
        if change.error:
            log.error("pod cannot be read", pod=change.key, error=change.error)
            return  # its last readable version still counts
        if view is None or not NUMBER.match(attempt) or not (element == "-1" or NUMBER.match(element)):
            self._pod_gone(change.key)
            return
        key = f"{view.metadata.namespace}/{labels.get(names.JOB_LABEL, '')}"
        if self.cache.named_by(change.key) not in (None, key):
            self._pod_gone(change.key)  # its label names another job now
        known = self.cache.pod(change.key)
        pod = seen(view, int(attempt), int(element), self.client.clock(), known)
        if known is not None and known.job != pod.job:
            self._pod_gone(change.key)  # and another pod came under its name
            pod = seen(view, int(attempt), int(element), self.client.clock())
        self.waiting.seen(change.key, placed=bool(pod.node) or pod.phase != "Pending")
        self.cache.put_pod(key, change.key, pod)
        self._expectations.observed(key, pod.name)
        if self.cache.owns(key, pod):
            self._observe(key, pod)
            if key in self.arrays:
                self.arrays.observed(key, self._as_is(pod))
        self._again(key)

    def _observe(self, key: str, pod: PodSeen) -> None:
        """A member that runs or has ended is evidence for or against its node."""
        job = self.cache.jobs.get(key)
        if not self.synced or job is None or over(job) or not self.serves(job):
            return
        version, record = f"{job.metadata.uid} {job.metadata.generation}", self._record(key)
        if record.kinds[0] != version:
            record.kinds = version, {role.name: kind_of(role) for role in job.spec.roles}
        kind = record.kinds[1].get(pod.role, "")
        run = run_of(key, job, pod, kind, self.client.clock()) if kind else None
        if run is not None:
            self.hardware.observed(run, gpus=kind.startswith(GPUS))

    def _pod_gone(self, key: str) -> None:
        self.waiting.seen(key, placed=True)
        job, pod = self.cache.remove_pod(key)
        if job is None or pod is None:
            return
        if self.cache.owns(job, pod):
            self.hardware.gone(job, pod)
            if job in self.arrays:
                self.arrays.gone(job, pod)
            elif pod.done:
                self._record(job).ended.add(pod.name)
        self._again(job)  # also where it was another's: its name is free now

    def _as_is(self, pod: PodSeen) -> PodSeen:
        """A pod on a node that is lost has failed, whatever its kubelet reported last."""
        if pod.phase not in ("Pending", "Running") or not self.hardware.is_lost(pod.node, pod.made):
            return pod
        return msgspec.structs.replace(pod, phase="Failed", reason=NODE_LOST, disrupted=True)

    def _node_lost(self, node: str) -> None:
        for key, pods in self.cache.pods_on(node).items():
            for pod in pods:
                self.hardware.gone(key, pod)
            try:
                for pod in pods if key in self.arrays else ():
                    self.arrays.observed(key, self._as_is(pod))
            except Exception as error:  # noqa: BLE001 - as above
                self.arrays.forget(key)
                self._fault("jobs.nodes", key, error)
            self._again(key)

    # -- what is done --------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        found = self.cache.jobs.get(key)
        if found is None or not self.synced or not self.serves(found):
            return
        if found.metadata.deletion_timestamp is not None:
            return  # a finalizer keeps it until its pods are gone, as at a deletion in the foreground: it begins nothing any more
        notes = self._record(key).notes
        job = filled(found, self.cache.classes)
        notes.job = problem(job, self.waiting.bounds.members)
        group = self.cache.groups.get(key)
        if group is not None and job.spec.array is None:
            if owned(group.metadata.owner_references, job):
                job, notes.change = as_admitted(job, group, found)
            elif not self.cache.pods(key):
                notes.job = notes.job if notes.job[0] else taken("PodGroup", found.metadata.name, found)
        elif self._record(key).ungrouped:
            job = as_recorded(job)
        offered = self._record(key).offered = offer(job, self.cache.pools, self.cache.classes)
        notes.alternatives, job = offered.problem, in_form(job, offered)
        now = self.client.clock()
        first = judge(job, self.cache.beside(key)) if job.spec.depends_on else READY
        try:
            await self._take_step(key, job, now, first)
        except Exception:
            self.arrays.forget(key)  # it counts as done what was not: the next reconciliation starts from the pods
            raise

    async def _take_step(self, key: str, job: AIJob, now: float, first: Verdict) -> None:
        record = self._record(key)
        record.stop_timer()
        if any(until <= now for until in self._expectations.due(key)):
            self._expectations.forget(key)
            self.arrays.forget(key)  # it counts them as there
        write_at, ended = record.write_at, frozenset(record.ended)
        decided = self._decide(key, job, record, now, first)
        if decided is None:
            self._again_in(key, record, record.rests(now))
            return
        if not decided.unwritten and not same(decided.status, job.status):
            record.written_at = now
            if begins_again(job.status, decided.status):
                record.attempted_at = now
            job = msgspec.structs.replace(await self._write_status(key, job, decided), spec=job.spec)
            record.ended -= ended  # they are in its status now
        await self._carry_out(key, job, decided, record)
        if decided.delete_job:
            return
        waits = [each for each in (decided.recheck_after, write_at - now if decided.unwritten else None) if each is not None]
        waits += [until - now for until in self._expectations.due(key)]
        if waits:
            self._again_in(key, record, min(waits))

    def _decide(self, key: str, job: AIJob, record: Record, now: float, first: Verdict) -> Plan | None:
        """What is to be done; None: it began again just now and rests."""
        rests, write_counts = record.rests(now) > 0, now >= record.write_at
        if record.notes.job[0] and not over(job):
            decided = held(job, record.notes.job, now)
        elif job.spec.array is not None and rests:
            return None  # an array remembers what it has decided, so it is not even asked
        elif job.spec.array is not None:
            decided = self._plan_array(key, job, now, first, write_counts=write_counts)
        else:
            decided = self._plan_job(key, job, record, now, first)
        if rests and begins_again(job.status, decided.status):
            return None
        if not over(job) and not decided.unwritten:
            decided = msgspec.structs.replace(decided, status=record.notes.on(decided.status, job, now))
        if (
            job.spec.array is None
            and not write_counts
            and not same(decided.status, job.status)
            and counts_only(job.status, decided.status)
        ):
            decided = msgspec.structs.replace(decided, status=job.status, unwritten=True)
        return decided

    def _plan_job(self, key: str, job: AIJob, record: Record, now: float, first: Verdict) -> Plan:
        pods = [self._as_is(pod) for pod in self.cache.pods(key).values()]
        idle, due = judge_idle(job, pods, self.idleness.measured, now)
        suspended, ended = self.cache.is_suspended(key, job), frozenset(record.ended)
        decided = plan(
            job, pods, Given(now=now, suspended=suspended, first=first, idle=idle, ended=ended, form=self._form(key, job, record))
        )
        decided = self._expectations.without(key, job, decided)
        if due is not None and (decided.recheck_after is None or due < decided.recheck_after):
            decided = msgspec.structs.replace(decided, recheck_after=due)
        return decided

    def _form(self, key: str, job: AIJob, record: Record) -> AlternativeStatus | None:
        """The form that the scheduler chose for a job's next attempt."""
        group = self.cache.groups.get(key)
        if not job.spec.alternatives or group is None or not owned(group.metadata.owner_references, job):
            return None
        return to_take(job, record.offered, group.status.alternative if group.status is not None else None)

    def _plan_array(self, key: str, job: AIJob, now: float, first: Verdict, *, write_counts: bool) -> Plan:
        pods = (self._as_is(pod) for pod in self.cache.pods(key).values())
        opens = Gate(job, self.cache.beside(key)) if job.spec.depends_on else None
        idle = (lambda element, pods: judge_idle(element, pods, self.idleness.measured, now)) if any(windows(job)) else None
        return self.arrays.plan(key, job, pods, now, first, opens, idle=idle, write_counts=write_counts)

    async def _carry_out(self, key: str, job: AIJob, decided: Plan, record: Record) -> None:
        writer, group = self._writer, self.cache.groups.get
        await writer.write_pause(job, group(key))
        await writer.write_ends(job, group)
        for element, attempt in decided.failed:
            self.hardware.runs.failed(key, element, attempt)
        await writer.resize_group(job, group(key), record)
        if record.ungrouped and not over(job):
            await self.maker.group_again(key, job, record)
        for reason, message, warning in decided.events:
            await writer.event(job, reason, message, warning=warning)
        if decided.create:
            await self.creation.create(key, job, decided, record)
        await asyncio.gather(*(writer.delete_pod(job, name) for name in decided.delete))
        for name in decided.excused:
            await writer.excuse(job, name)
        for each in decided.blamed:
            gpus = any(role.name == each.role and asks_gpus(role) for role in job.spec.roles)
            await self.hardware.blame(each.node, key, lost=each.lost, user=user_of(job), gpus=gpus)
        if over(job):
            self.hardware.over(key)
        if decided.delete_job:
            await writer.delete_job(job)

    def _again_in(self, key: str, record: Record, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        record.timer = loop.call_later(max(0.0, seconds) / self.speed, self._again, key)

    async def _write_status(self, key: str, job: AIJob, decided: Plan) -> AIJob:
        written = await self._writer.status(job, decided)
        before = job.status.phase if job.status is not None else "Pending"
        if decided.status.phase != before:
            self.counters.finished += decided.status.phase in ("Succeeded", "Failed")
            self.counters.restarted += decided.status.phase == "Restarting"
            log.info("phase", job=key, before=before, after=decided.status.phase, message=decided.status.message)
        if not self.cache.is_older(key, written):  # the watch may have delivered a later version already
            self._again_all(self.cache.put_job(key, written))
        return written
