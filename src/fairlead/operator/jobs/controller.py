"""The AIJob controller: hears of jobs, their pods and the scheduler's intents, and carries out what `plan` says.

The status is written before anything is done that follows from it, and only over the version that was looked at: whoever comes up
after a crash between the two finds an attempt that is over and pods that belong to no attempt any more, and goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from fairlead.api import names, spans
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster import convert, views
from fairlead.cluster.kubernetes import events
from fairlead.cluster.kubernetes.client import ApiError, Client, create, delete, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.resource_quotas import Refusal
from fairlead.cluster.starting import bound_at, trouble_of
from fairlead.cluster.times import seconds
from fairlead.cluster.translate import Change
from fairlead.observability.prometheus import Prometheus
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs import members as made
from fairlead.operator.jobs.accepted import NOTHING, Notes, Taken, as_admitted, held, over, taken, trust
from fairlead.operator.jobs.arrays import ArrayRun
from fairlead.operator.jobs.defaults import filled
from fairlead.operator.jobs.dependencies import READY, Verdict, dependents, gate, judge
from fairlead.operator.jobs.hardware import CONDITIONS, Hardware
from fairlead.operator.jobs.idleness import Idleness, windows
from fairlead.operator.jobs.idleness import judge as judge_idle
from fairlead.operator.jobs.indexes import WrongIndexes
from fairlead.operator.jobs.limits import Bounds, Waiting
from fairlead.operator.jobs.observed import GPUS, kind_of, run_of, times, user_of
from fairlead.operator.jobs.plan import CHECKPOINTED, NODE_LOST, STARTED, Given, Plan, PodSeen, plan
from fairlead.operator.jobs.quotas import Quotas, batches
from fairlead.operator.jobs.starting import Starting
from fairlead.operator.jobs.templates import problem
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("jobs")

_JOBS = f"/apis/{names.API_VERSION}/aijobs"
_ABOUT = About(names.API_VERSION, "AIJob")
_NUMBER = re.compile("^[0-9]{1,9}$", re.ASCII)
_AT_ONCE = 64
_REFUSED = (400, 403, 422)  # what the API server answers to pods that it does not take, by a policy or by their form
_NEXT = 0.2  # seconds until it is tried again where another job of the namespace makes its pods
_SHORT, _QUOTA_REST = 30.0, 1.0  # seconds until a job looks again that a quota keeps: in any case, and after one changed
_LOOK_AGAIN = 5.0  # seconds until it is tried again what others stand in the way of
_TELL = 0.5  # seconds between two statuses that differ in counts only
_BETWEEN = 1.0  # seconds at least between two attempts of a job, or two looks at an array of which elements began again
_HEARD = 30.0  # seconds within which the watch tells of a pod that was made; one that came and went unheard must be made again


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    start_time: str | None = None
    conditions: list[views.Condition] = []
    container_statuses: list[views.ContainerStatus] = []
    init_container_statuses: list[views.ContainerStatus] = []


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: views.Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class Counters(msgspec.Struct):
    """What was done, read by the metrics."""

    created: int = 0
    deleted: int = 0
    statuses: int = 0
    finished: int = 0
    restarted: int = 0


class Jobs:
    """Reconciles AIJobs.

    speed: of the client's clock against the loop's; prometheus: where the use and the errors of GPUs are measured, if they are;
    conditions: of nodes that say that one is broken.
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
    ) -> None:
        self.client = client
        self.speed = speed
        self.counters = Counters()
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._look, site="jobs", report=self._fault)
        jobs_heard = self.faults.each("jobs.heard", self._job_changed, _ABOUT)
        self.jobs_informer = Informer(client, _JOBS, AIJob, jobs_heard, lambda: self._listed("jobs"))
        pods_heard = self.faults.each("jobs.pods", self._pod_changed, About("v1", "Pod"))
        self.pods_informer = Informer(
            client, "/api/v1/pods", _Pod, pods_heard, lambda: self._listed("pods"), selector=names.JOB_LABEL
        )
        self._jobs: dict[str, AIJob] = {}
        self._pods: dict[str, dict[str, PodSeen]] = {}  # job -> pod's name -> pod
        self._job_of: dict[str, str] = {}  # pod -> job
        self._arrays: dict[str, tuple[str, ArrayRun]] = {}  # job -> what it was made from, and the run
        self._bounds: dict[str, tuple[int, int, str]] = {}  # job -> how many members its PodGroup was told, and of which roles
        self._timers: dict[str, asyncio.TimerHandle] = {}  # job -> when it is looked at again by itself
        self._told: dict[str, float] = {}  # job -> when its status was written last
        self._attempted: dict[str, float] = {}  # job -> when it, or an element of it, last began again
        self._ended: dict[str, set[str]] = {}  # job -> pods that succeeded and are gone, until its status says so
        self._unheard: dict[str, dict[str, float]] = {}  # job -> pods that were made, and until when they should be heard of
        self._groups: dict[str, views.PodGroup] = {}
        self._notes: dict[str, Notes] = {}  # job -> what its condition Accepted says beside what `plan` does
        self.waiting = Waiting(bounds or Bounds())
        self.quotas = Quotas(client, self.faults, self._quota_changed)
        self._short: dict[str, set[str]] = {}  # namespace -> jobs that wait for a quota
        self._looking: set[str] = set()  # namespaces whose jobs are about to look for room
        self._served: dict[str, str] = {}  # job -> its uid, once its Service is there
        self.untrusted_as = ""  # the user that the API server takes us for, where it does not believe whose pods are
        self._classes: dict[str, ServiceClass] = {}
        self._missing = {"jobs", "pods", "groups", "nodes", "classes"}
        self._kinds: dict[str, tuple[str, dict[str, str]]] = {}  # job -> version, and role -> how its members ask for nodes
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
            ServiceClass,
            self.faults.each("jobs.classes", self._class_changed, About(names.API_VERSION, "ServiceClass")),
            lambda: self._listed("classes"),
            key=lambda metadata: metadata.name,
        )
        self.idleness = Idleness(prometheus, client.clock, self._windows, self._measured, speed=speed)

    @property
    def synced(self) -> bool:
        """Whether everything that exists has been heard."""
        return not self._missing

    def _listed(self, what: str) -> None:
        self._missing.discard(what)
        if self.synced:
            log.info("synced", jobs=len(self._jobs))
            for key, pods in self._pods.items():
                try:
                    for pod in pods.values():
                        self._observe(key, pod)
                except Exception as error:
                    self._fault("jobs.nodes", key, error)
            for key in self._jobs:
                self.queue.add(key)

    def groups_listed(self) -> None:
        """All PodGroups have been heard of."""
        self._listed("groups")

    def intent(self, key: str, group: views.PodGroup | None) -> None:
        """A PodGroup as it is, and with it what the scheduler means its job to be; None: it is gone."""
        if group is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = group
        self._again(key)

    def _suspended(self, key: str, job: AIJob) -> bool:
        """Whether the scheduler has a job suspended; what it means of another's PodGroup of that name is not the job's."""
        group = self._groups.get(key)
        target = group.status.target if group is not None and group.status is not None else None
        if group is None or target is None or target.state != "Suspended":
            return False
        return made.owned(group.metadata.owner_references, job)

    def _again(self, key: str) -> None:
        if self.synced and key in self._jobs:
            self.queue.add(key)

    # -- what is heard -------------------------------------------------------------------------

    def _fault(self, site: str, key: str, error: Exception) -> None:
        job = self._jobs.get(key)
        self.faults.note(site, key, error, _ABOUT, job.metadata.uid if job is not None else "")

    def _job_changed(self, change: Change[AIJob]) -> None:
        if change.view is None:
            self._jobs.pop(change.key, None)
            self._arrays.pop(change.key, None)
            self._told.pop(change.key, None)
            self._attempted.pop(change.key, None)
            self._ended.pop(change.key, None)
            self._bounds.pop(change.key, None)
            self._forget_unheard(change.key)
            self._notes.pop(change.key, None)
            self._served.pop(change.key, None)
            self._short.get(change.key.partition("/")[0], set()).discard(change.key)
            if (timer := self._timers.pop(change.key, None)) is not None:
                timer.cancel()
            self._kinds.pop(change.key, None)
            self.hardware.over(change.key)
        elif change.error:
            log.error("AIJob cannot be read", job=change.key, error=change.error)
            self.faults.tell(change.key, "InvalidSpec", f"it cannot be read: {change.error}", _ABOUT, change.view.metadata.uid)
        elif not self._older(change.key, change.view):
            old = self._jobs.get(change.key)
            if old is not None and old.metadata.uid != change.view.metadata.uid:
                self._notes.pop(change.key, None)
                self._served.pop(change.key, None)
            self._jobs[change.key] = change.view
            self._again(change.key)
            if old is None or _progress(old) != _progress(change.view):
                self._tell_dependents(change.key)

    def _class_changed(self, change: Change[ServiceClass]) -> None:
        if change.error:
            log.error("ServiceClass cannot be read", name=change.key, error=change.error)
        elif change.view is None:
            self._classes.pop(change.key, None)
        else:
            self._classes[change.key] = change.view

    def phases(self) -> Counter[str]:
        """How many jobs are in each phase."""
        return Counter(job.status.phase if job.status is not None else "Pending" for job in list(self._jobs.values()))

    def not_starting(self) -> int:
        """How many jobs that go on did not start the last time that they had their places."""
        going = [job.status for job in list(self._jobs.values()) if job.status is not None and not over(job)]
        return sum(any(each.type == STARTED and each.status == "False" for each in status.conditions) for status in going)

    def _windows(self) -> Iterable[float]:
        for key, job in self._jobs.items():
            try:
                yield from list(windows(filled(job, self._classes)))
            except Exception as error:
                self._fault("jobs.idleness", key, error)

    def _measured(self) -> None:
        for key, job in self._jobs.items():
            try:
                if any(windows(filled(job, self._classes))):
                    self._again(key)
            except Exception as error:
                self._fault("jobs.idleness", key, error)

    def _older(self, key: str, job: AIJob) -> bool:
        """Whether we know a later version already, from the answer to a write."""
        known = self._jobs.get(key)
        if known is None or known.metadata.uid != job.metadata.uid:
            return False
        one, two = known.metadata.resource_version, job.metadata.resource_version
        return one.isdigit() and two.isdigit() and int(two) < int(one)

    def _pod_changed(self, change: Change[_Pod]) -> None:
        view = change.view
        labels = (view.metadata.labels or {}) if view is not None else {}
        attempt, element = labels.get(names.ATTEMPT_LABEL, ""), labels.get(names.ELEMENT_LABEL, "-1")
        if change.error:
            log.error("pod cannot be read", pod=change.key, error=change.error)
            return  # what was known of it last still holds, for all that we can say
        if view is None or not _NUMBER.match(attempt) or not (element == "-1" or _NUMBER.match(element)):
            self._pod_gone(change.key)
            return
        key = f"{view.metadata.namespace}/{labels.get(names.JOB_LABEL, '')}"
        if self._job_of.get(change.key, key) != key:
            self._pod_gone(change.key)  # somebody gave it to another job
        known = self._pods.get(key, {}).get(view.metadata.name)
        seen = _seen(view, int(attempt), int(element), self.client.clock(), known)
        self._job_of[change.key] = key
        self.waiting.seen(change.key, placed=bool(seen.node) or seen.phase != "Pending")
        self._pods.setdefault(key, {})[seen.name] = seen
        self._unheard.get(key, {}).pop(seen.name, None)
        self._observe(key, seen)
        if key in self._arrays:
            self._arrays[key][1].heard(self._as_is(seen))
        self._again(key)

    def _observe(self, key: str, pod: PodSeen) -> None:
        """A member that runs or has ended: what it may tell of its node."""
        job = self._jobs.get(key)
        if not self.synced or job is None or over(job):
            return
        version = f"{job.metadata.uid} {job.metadata.generation}"
        known, kinds = self._kinds.get(key, ("", {}))
        if known != version:
            kinds = {role.name: kind_of(role) for role in job.spec.roles}
            self._kinds[key] = version, kinds
        kind = kinds.get(pod.role, "")
        run = run_of(key, job, pod, kind, self.client.clock()) if kind else None
        if run is not None:
            self.hardware.heard(run, gpus=kind.startswith(GPUS))

    def _forget_unheard(self, key: str) -> None:
        for name in self._unheard.pop(key, {}):
            self.waiting.seen(f"{key.partition('/')[0]}/{name}", placed=True)

    def _pod_gone(self, key: str) -> None:
        self.waiting.seen(key, placed=True)
        job = self._job_of.pop(key, None)
        if job is not None:
            seen = self._pods.get(job, {}).pop(key.partition("/")[2], None)
            if seen is not None:
                self.hardware.gone(job, seen)
            if seen is not None and job in self._arrays:
                self._arrays[job][1].gone(seen)
            elif seen is not None and seen.done:
                self._ended.setdefault(job, set()).add(seen.name)
            self._again(job)

    def _as_is(self, pod: PodSeen) -> PodSeen:
        """A pod on a node that is lost has failed, whatever its kubelet said last."""
        if pod.phase not in ("Pending", "Running") or not self.hardware.is_lost(pod.node, pod.made):
            return pod
        return msgspec.structs.replace(pod, phase="Failed", reason=NODE_LOST, disrupted=True)

    def _node_lost(self, node: str) -> None:
        for key, pods in self._pods.items():
            theirs = [pod for pod in pods.values() if pod.node == node]
            for pod in theirs:
                self.hardware.gone(key, pod)
            try:
                for pod in theirs if key in self._arrays else ():
                    self._arrays[key][1].heard(self._as_is(pod))
            except Exception as error:
                self._arrays.pop(key, None)
                self._fault("jobs.nodes", key, error)
            if theirs:
                self._again(key)

    def _beside(self, key: str) -> dict[str, AIJob]:
        """The jobs of a job's namespace, by name."""
        namespace = key.partition("/")[0]
        return {job.metadata.name: job for job in self._jobs.values() if job.metadata.namespace == namespace}

    def _tell_dependents(self, key: str) -> None:
        """Who waits for a job looks again."""
        namespace, _, name = key.partition("/")
        if any(job.spec.depends_on for job in self._jobs.values()):
            for other in dependents(name, self._beside(key)):
                self._again(f"{namespace}/{other}")

    # -- what is done --------------------------------------------------------------------------

    async def _look(self, key: str) -> None:
        found = self._jobs.get(key)
        if found is None or not self.synced:
            return
        notes = self._notes.setdefault(key, Notes())
        job = filled(found, self._classes)
        notes.job = problem(job, self.waiting.bounds.members)
        group = self._groups.get(key)
        if group is not None and job.spec.array is None:
            if made.owned(group.metadata.owner_references, job):
                job, notes.change = as_admitted(job, group, found)
            elif not self._pods.get(key):
                notes.job = notes.job if notes.job[0] else taken("PodGroup", found.metadata.name, found)
        now = self.client.clock()
        first = judge(job, self._beside(key)) if job.spec.depends_on else READY
        try:
            await self._take_step(key, job, now, first)
        except Exception:
            self._arrays.pop(key, None)  # it counts as done what was not: the next look begins with what is there
            raise

    async def _take_step(self, key: str, job: AIJob, now: float, first: Verdict) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()  # this look finds out anew when the next is due
        if any(until <= now for until in self._unheard.get(key, {}).values()):
            self._forget_unheard(key)
            self._arrays.pop(key, None)  # it counts them as there
        tell_at = self._told.get(key, 0.0) + _TELL
        ended = frozenset(self._ended.get(key, ()))
        notes = self._notes.setdefault(key, Notes())
        rests = self._attempted.get(key, -math.inf) + _BETWEEN - now
        rests = rests if rests <= _BETWEEN else 0.0  # the clock may have been set back
        if notes.job[0] and not over(job):
            decided = held(job, notes.job, now)
        elif job.spec.array is not None and rests > 0:
            self._look_in(key, rests)  # an array remembers what it has decided, so it is not even asked
            return
        elif job.spec.array is not None:
            decided = self._plan_array(key, job, now, first, tell=now >= tell_at)
        else:
            pods = [self._as_is(pod) for pod in self._pods.get(key, {}).values()]
            idle, look = judge_idle(job, pods, self.idleness.measured, now)
            given = Given(now=now, suspended=self._suspended(key, job), first=first, idle=idle, ended=ended)
            decided = self._without_unheard(key, job, plan(job, pods, given))
            if look is not None and (decided.look_again is None or look < decided.look_again):
                decided = msgspec.structs.replace(decided, look_again=look)
        began = _begins_again(job.status, decided.status)
        if began and rests > 0:
            self._look_in(key, rests)
            return
        if not over(job) and not decided.untold:
            decided = msgspec.structs.replace(decided, status=notes.on(decided.status, job, now))
        if job.spec.array is None and now < tell_at and decided.status != job.status and _counts_only(job.status, decided.status):
            decided = msgspec.structs.replace(decided, status=job.status, untold=True)
        if not decided.untold and decided.status != job.status:
            self._told[key] = now
            if began:
                self._attempted[key] = now
            job = msgspec.structs.replace(await self._write_status(key, job, decided), spec=job.spec)
            self._ended.get(key, set()).difference_update(ended)  # its status says so now
        await self._tell_pause(key, job)
        for element, attempt in decided.failed:
            self.hardware.runs.failed(key, element, attempt)
        await self._resize_group(key, job)
        for reason, message, warning in decided.events:
            await self._event(job, reason, message, warning=warning)
        if decided.create:
            await self._create(key, job, decided)
        await asyncio.gather(*(self._delete(job, name) for name in decided.delete))
        for name in decided.excused:
            await self._excuse(job, name)
        for each in decided.blamed:
            gpus = any(role.name == each.role and made.asks_gpus(role) for role in job.spec.roles)
            await self.hardware.blame(each.node, key, lost=each.lost, user=user_of(job), gpus=gpus)
        if over(job):
            self.hardware.over(key)
        if decided.delete_job:
            await self._delete_job(job)
            return
        waits = [each for each in (decided.look_again, tell_at - now if decided.untold else None) if each is not None]
        waits += [until - now for until in self._unheard.get(key, {}).values()]
        if waits:
            self._look_in(key, min(waits))

    def _without_unheard(self, key: str, job: AIJob, decided: Plan) -> Plan:
        """The same without members that were made just now: asked for again they would count twice in a quota."""
        unheard = self._unheard.get(key)
        if not unheard:
            return decided
        attempt = decided.status.attempt
        return msgspec.structs.replace(
            decided, create=tuple(each for each in decided.create if made.name_of(job, each, attempt) not in unheard)
        )

    def _look_in(self, key: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(max(0.0, seconds) / self.speed, self._again, key)

    def _plan_array(self, key: str, job: AIJob, now: float, first: Verdict, *, tell: bool) -> Plan:
        made_from = f"{job.metadata.uid} {job.spec.array.indexes if job.spec.array is not None else ''}"
        known, run = self._arrays.get(key, ("", None))
        if run is None or known != made_from:
            try:
                run = ArrayRun(job)
            except WrongIndexes as error:
                wrong = (False, "WrongIndexes", str(error))
                return held(job, (wrong[1], wrong[2]), now)
            for seen in self._pods.get(key, {}).values():
                run.heard(self._as_is(seen))
            self._arrays[key] = made_from, run
        opens = gate(job, self._beside(key)) if job.spec.depends_on else None
        idle = (lambda element, pods: judge_idle(element, pods, self.idleness.measured, now)) if any(windows(job)) else None
        return run.plan(job, now, first, opens, idle=idle, tell=tell)

    async def _write_status(self, key: str, job: AIJob, decided: Plan) -> AIJob:
        """Over the version that was looked at and no other; a 409 is another look."""
        path = f"{_path(job)}/status"
        status = msgspec.to_builtins(decided.status)
        patch = {name: status.get(name) for name in _STATUS_FIELDS} | {"phase": decided.status.phase}
        body = {"metadata": {"resourceVersion": job.metadata.resource_version}, "status": patch}
        reply = await self.client.patch(path, encode(body), "application/merge-patch+json")
        self.counters.statuses += 1
        before = job.status.phase if job.status is not None else "Pending"
        if decided.status.phase != before:
            self.counters.finished += decided.status.phase in ("Succeeded", "Failed")
            self.counters.restarted += decided.status.phase == "Restarting"
            log.info("phase", job=key, before=before, after=decided.status.phase, message=decided.status.message)
        written = msgspec.json.decode(reply, type=AIJob)
        if not self._older(key, written):  # the answer may come after the watch has told what somebody wrote on top of it
            self._jobs[key] = written
        if _progress(job) != _progress(written):
            self._tell_dependents(key)
        return written

    async def _excuse(self, job: AIJob, name: str) -> None:
        """Have a failed pod count as one that succeeded, for the scheduler as for us."""
        path = f"/api/v1/namespaces/{job.metadata.namespace}/pods/{name}"
        body = {"metadata": {"annotations": {names.COUNTS_ANNOTATION: "Succeeded"}}}
        try:
            await self.client.patch(path, encode(body), "application/merge-patch+json")
        except ApiError as error:
            if error.code != 404:
                raise

    async def _create(self, key: str, job: AIJob, decided: Plan) -> None:
        notes = self._notes.setdefault(key, Notes())
        rests = notes.rests(self.client.clock(), job.metadata.generation)
        if rests > 0:
            self._create_later(key, rests)
            return
        members, why = self._within_bounds(key, job, decided)
        namespace = job.metadata.namespace
        if not members or not self.quotas.concerns(namespace):
            self._short.get(namespace, set()).discard(key)
            await self._create_within(key, job, decided, members, why)
        elif not self.quotas.enter(namespace):
            self._create_later(key, _NEXT)
        else:
            try:
                fitting, short = await self._within_quotas(key, job, decided, members)
                await self._create_within(key, job, decided, fitting, why, short)
            finally:
                self.quotas.leave(namespace)

    def _create_later(self, key: str, seconds: float) -> None:
        self._arrays.pop(key, None)  # it counts all of them as made
        asyncio.get_running_loop().call_later(seconds / self.speed, self._again, key)

    async def _within_quotas(
        self, key: str, job: AIJob, decided: Plan, members: tuple[made.Member, ...]
    ) -> tuple[tuple[made.Member, ...], Refusal | None]:
        """Those members that the quotas of their namespace admit, and why not all; what is there of a gang goes, too, then."""
        namespace = job.metadata.namespace
        wanted = batches(job, members)
        fitting, short = await self.quotas.admitted(namespace, wanted)
        left = [batch for batch in wanted if batch not in fitting]
        needed = {each.element for batch in left for each in batch.members if not each.surplus}
        if needed:
            await self._take_back(key, job, decided, needed)
        if job.spec.array is None and needed:
            fitting = []  # without those that it needs the others are of no use
        if left:
            self._short.setdefault(namespace, set()).add(key)
            self._create_later(key, _SHORT)
        else:
            self._short.get(namespace, set()).discard(key)
        kept = {each for batch in fitting for each in batch.members}
        return tuple(each for each in members if each in kept), short if needed else None

    async def _take_back(self, key: str, job: AIJob, decided: Plan, elements: set[int]) -> None:
        """The pods of gangs that cannot be made whole go: they would keep their quota, and never start."""
        gone: list[str] = []
        for element in elements:
            attempt = decided.attempts.get(element, decided.status.attempt)
            named = {made.name_of(job, each, attempt) for each in made.members(job, element)}
            there = {name: pod for name, pod in self._pods.get(key, {}).items() if name in named}
            if not any(pod.node for pod in there.values()):
                unheard = {name for name in self._unheard.get(key, {}) if name in named}
                gone += sorted(unheard | {name for name, pod in there.items() if not pod.terminating})
        for name in gone:
            self._unheard.get(key, {}).pop(name, None)
            self.waiting.seen(f"{job.metadata.namespace}/{name}", placed=True)
        await asyncio.gather(*(self._delete(job, name) for name in gone))

    def _quota_changed(self, namespace: str) -> None:
        """There may be more room for those that a quota keeps: they look again, all at once and not too often."""
        if self._short.get(namespace) and namespace not in self._looking:
            self._looking.add(namespace)
            asyncio.get_running_loop().call_later(_QUOTA_REST / self.speed, self._look_for_room, namespace)

    def _look_for_room(self, namespace: str) -> None:
        self._looking.discard(namespace)
        waiting = [self._jobs[key] for key in self._short.get(namespace, ()) if key in self._jobs]
        for job in sorted(waiting, key=lambda job: (job.metadata.creation_timestamp or "", job.metadata.uid)):
            self._again(job.metadata.key)

    async def _create_within(
        self,
        key: str,
        job: AIJob,
        decided: Plan,
        members: tuple[made.Member, ...],
        why: str,
        short: Refusal | None = None,
    ) -> None:
        """Make these members; the others are kept by bounds (why), or by quotas (short)."""
        notes = self._notes.setdefault(key, Notes())
        expected = [self._key_of(job, each, decided) for each in members]
        for each in expected:
            self.waiting.seen(each, placed=False)  # others ask for room while these are being made
        try:
            if members:
                await self._make(key, job, msgspec.structs.replace(decided, create=members), notes)
        except ApiError as error:
            if error.code not in _REFUSED:
                raise
            notes.refused(self.client.clock(), job.metadata.generation)
            await self._probe(key, job, notes)
            by_quota = error.code == 403 and re.search("(exceeded|failed) quota: ", error.message)
            reason = "ResourceQuota" if by_quota else "PodsRefused"
            said = (reason, f"the API server refuses its pods: {error.message or error}")
            await self._told_of(key, job, notes, said)
            raise
        except Taken as error:
            await self._told_of(key, job, notes, (error.reason, str(error)))
            self._arrays.pop(key, None)
            asyncio.get_running_loop().call_later(_LOOK_AGAIN / self.speed, self._again, key)
            return
        finally:
            for each in expected:
                if self._job_of.get(each) is None and each.partition("/")[2] not in self._unheard.get(key, {}):
                    self.waiting.seen(each, placed=True)
        if members:
            notes.refusals = 0
        if short is not None:
            if not self._leaving(key, decided):  # what goes now may be all that is missing
                await self._told_of(key, job, notes, (short.reason, short.message), warning=short.for_good)
        elif why:
            await self._told_of(key, job, notes, ("TooManyWaitingPods", why), warning=False)
            self._arrays.pop(key, None)  # it counts all of them as made
            asyncio.get_running_loop().call_later(_LOOK_AGAIN / self.speed, self._again, key)
        elif notes.pods[0]:
            notes.pods = NOTHING
            self._again(key)

    def _leaving(self, key: str, decided: Plan) -> bool:
        """Whether pods of a job are on their way out."""
        return bool(decided.delete) or any(pod.terminating for pod in self._pods.get(key, {}).values())

    @staticmethod
    def _key_of(job: AIJob, member: made.Member, decided: Plan) -> str:
        attempt = decided.attempts.get(member.element, decided.status.attempt)
        return f"{job.metadata.namespace}/{made.name_of(job, member, attempt)}"

    async def _told_of(self, key: str, job: AIJob, notes: Notes, said: tuple[str, str], *, warning: bool = True) -> None:
        """What keeps its pods from being made, once: an event, and the condition with the next look."""
        if notes.pods != said:
            notes.pods = said
            await self._event(job, said[0], said[1], warning=warning)
            self._again(key)

    def _within_bounds(self, key: str, job: AIJob, decided: Plan) -> tuple[tuple[made.Member, ...], str]:
        """Those members of a plan for which there is room, and why there is none for the others."""
        namespace = job.metadata.namespace
        gang = job.spec.array is None
        own = sum(not pod.node and pod.phase == "Pending" for pod in self._pods.get(key, {}).values()) if gang else 0
        room, why = self.waiting.room(namespace, len(decided.create), whole=gang, own=own)
        if room >= len(decided.create):
            return decided.create, ""
        if gang or made.is_gang(job):
            needed = tuple(each for each in decided.create if not each.surplus)
            if len(needed) > room:
                return (), why
            surplus = tuple(each for each in decided.create if each.surplus)
            return (*needed, *surplus[: room - len(needed)]), why
        return decided.create[:room], why

    async def _make(self, key: str, job: AIJob, decided: Plan, notes: Notes) -> None:
        metadata = job.metadata
        services = f"/api/v1/namespaces/{metadata.namespace}/services"
        groups = f"/apis/{names.API_VERSION}/namespaces/{metadata.namespace}/podgroups"
        if key not in self._served and not await create(self.client, services, made.service(job)):
            await self._check_owner(f"{services}/{metadata.name}", "Service", metadata.name, job)
        self._served[key] = metadata.uid
        elements = sorted({member.element for member in decided.create})
        turns = asyncio.Semaphore(_AT_ONCE)

        async def gang(element: int) -> None:
            async with turns:
                name = made.gang_of(job, element)
                if not await create(self.client, groups, made.group(job, element)):
                    await self._check_owner(f"{groups}/{name}", "PodGroup", name, job)

        if elements == [-1] or made.is_gang(job):
            await asyncio.gather(*(gang(element) for element in elements))
        roles = {role.name: role for role in job.spec.roles}

        async def one(member: made.Member) -> None:
            async with turns:
                attempt = decided.attempts.get(member.element, decided.status.attempt)
                manifest = made.pod(job, roles[member.role], member, attempt)
                name = manifest["metadata"]["name"]
                reply = await self._post_new(f"/api/v1/namespaces/{metadata.namespace}/pods", manifest)
                if reply is not None:
                    self.counters.created += 1
                    self._check_user(key, job, reply, notes)
                if name not in self._pods.get(key, {}):
                    self._unheard.setdefault(key, {})[name] = self.client.clock() + _HEARD

        for surplus in (False, True):  # a gang that begins with members it could do without would have to swap them for these
            now = [one(member) for member in decided.create if member.surplus is surplus]
            outcomes = await asyncio.gather(*now, return_exceptions=True)
            failed = next((each for each in outcomes if isinstance(each, Exception)), None)
            refused = {
                each.element
                for each, outcome in zip((each for each in decided.create if each.surplus is surplus), outcomes, strict=True)
                if isinstance(outcome, ApiError) and outcome.code in _REFUSED
            }
            if refused and not surplus:
                await self._take_back(key, job, decided, refused)
            if failed is not None:
                if not isinstance(failed, ApiError) or failed.code not in _REFUSED:
                    await self._event(job, "FailedCreate", f"a member cannot be made: {failed}", warning=True)
                raise failed

    async def _post_new(self, path: str, manifest: made.Manifest) -> bytes | None:
        """The object as the API server made it; None: it was there already."""
        try:
            return await self.client.post(path, encode(manifest))
        except ApiError as error:
            if error.code == 409 and error.reason == "AlreadyExists":
                return None
            raise

    async def _probe(self, key: str, job: AIJob, notes: Notes) -> None:
        """Whether the API server believes us whose it is: a refusal may be for the wrong user. Nothing is made."""
        group = made.group(job)
        group["metadata"] |= {"name": f"{job.metadata.name[:200]}-probe", "ownerReferences": []}
        group["spec"] = {"minMember": 1}
        path = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups"
        with contextlib.suppress(ApiError):
            self._check_user(key, job, await self.client.post(path, encode(group), dry_run=True), notes)

    def _check_user(self, key: str, job: AIJob, reply: bytes, notes: Notes) -> None:
        """Whether a pod is its job's user's: the API server stamps it with ours where we are not trusted to say whose it is."""
        given = made.stamp(job.metadata.annotations)
        found = made.stamp(msgspec.json.decode(reply, type=views.OnlyMetadata).metadata.annotations)
        as_whom = "" if not given or found == given else found.get(names.USER_ANNOTATION, "")
        if as_whom != notes.untrusted:
            notes.untrusted = as_whom
            self._again(key)
        if as_whom and as_whom != self.untrusted_as:
            log.error("the policies do not trust this operator", user=as_whom, do=trust(as_whom))
        self.untrusted_as = as_whom if given else self.untrusted_as

    async def _check_owner(self, path: str, kind: str, name: str, job: AIJob) -> None:
        """Something of that name is there: whether it is the job's. Raises `Taken`."""
        try:
            found = msgspec.json.decode(await self.client.get(path), type=views.OnlyMetadata).metadata
        except ApiError as error:
            if error.code == 403:  # a role from before this was asked: it is taken for the job's, as it was then
                log.warning("whose it is cannot be told", kind=kind, job=job.metadata.key, error=str(error)[:300])
                return
            if error.code != 404:
                raise
            raise Taken(*taken(kind, name, job)) from error
        if not made.owned(found.owner_references, job):
            raise Taken(*taken(kind, name, job))

    async def _tell_pause(self, key: str, job: AIJob) -> None:
        """Tell the scheduler of a job that it has suspended, or just resumed, whether its user pauses it as well.

        Paused, it waits for no place: none must be kept for it, and no pod evicted for that.
        """
        group = self._groups.get(key)
        target = group.status.target if group is not None and group.status is not None else None
        if group is None or target is None or job.spec.array is not None or over(job):
            return
        told = (group.metadata.annotations or {}).get(names.PAUSED_ANNOTATION) == "true"
        if told == job.spec.suspend or not made.owned(group.metadata.owner_references, job):
            return
        path = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups/{job.metadata.name}"
        patch = {"metadata": {"annotations": {names.PAUSED_ANNOTATION: "true" if job.spec.suspend else None}}}
        try:
            await self.client.patch(path, encode(patch), "application/merge-patch+json")
        except ApiError as error:
            if error.code != 404:
                raise

    async def _resize_group(self, key: str, job: AIJob) -> None:
        """A job's roles may change while it runs, or is suspended: its gang follows, and its PodGroup says so."""
        if job.spec.array is not None:
            return
        wanted, known = made.group(job), self._bounds.get(key)
        bounds = wanted["spec"]["minMember"], wanted["spec"].get("maxMember", 0), made.digest(job)
        group = self._groups.get(key)
        if bounds == known or job.metadata.generation == 1:
            self._bounds[key] = bounds
            return
        if group is not None and not made.owned(group.metadata.owner_references, job):
            return
        path = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups/{job.metadata.name}"
        annotations = {names.ROLES_LABEL: bounds[2]}
        patch = {"metadata": {"annotations": annotations}, "spec": {"minMember": bounds[0], "maxMember": bounds[1] or None}}
        try:
            await self.client.patch(path, encode(patch), "application/merge-patch+json")
        except ApiError as error:
            if error.code != 404:
                raise
        self._bounds[key] = bounds

    async def _delete(self, job: AIJob, name: str) -> None:
        if await delete(self.client, f"/api/v1/namespaces/{job.metadata.namespace}/pods/{name}"):
            self.counters.deleted += 1

    async def _delete_job(self, job: AIJob) -> None:
        """Its time after the end is over; all that it owns goes with it."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": job.metadata.uid},
        }
        try:
            await self.client.delete(_path(job), encode(body))
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _event(self, job: AIJob, reason: str, note: str, *, warning: bool) -> None:
        metadata = job.metadata
        regarding = {"apiVersion": names.API_VERSION, "kind": "AIJob", "uid": metadata.uid}
        regarding |= {"name": metadata.name, "namespace": metadata.namespace}
        who = {"controller": "fairlead.dev/operator", "instance": "fairlead-operator"}
        await events.write(self.client, regarding, reason, note, action=reason, warning=warning, **who)


_STATUS_FIELDS = (
    "phase",
    "queue",
    "serviceClass",
    "attempt",
    "restarts",
    "interruptions",
    "completeAttempt",
    "members",
    "running",
    "succeeded",
    "succeededMembers",
    "size",
    "resizes",
    "completedIndexes",
    "failedIndexes",
    "elements",
    "resumeAt",
    "lastCheckpoint",
    "runningSince",
    "nodes",
    "preferredNodes",
    "avoidedNodes",
    "starts",
    "startedAt",
    "finishedAt",
    "message",
    "conditions",
)


def _begins_again(before: AIJobStatus | None, after: AIJobStatus) -> bool:
    """Whether a job, or an element of it, starts another attempt."""
    old = before or AIJobStatus()
    return after.attempt != old.attempt or after.elements != old.elements


def _counts_only(old: AIJobStatus | None, new: AIJobStatus) -> bool:
    """Whether two statuses differ in nothing but how many run."""
    if old is None:
        return False
    counts = {name: getattr(new, name) for name in ("running", "succeeded", "succeeded_members")}
    return msgspec.structs.replace(old, **counts) == new


def _progress(job: AIJob) -> tuple[str, str, str]:
    """What those that wait for a job look at."""
    status = job.status or AIJobStatus()
    return status.phase, status.completed_indexes, status.failed_indexes


def _seen(view: _Pod, attempt: int, element: int, now: float = 0.0, known: PodSeen | None = None) -> PodSeen:
    """known: as it was seen before, so that it is known since when it has waited for the same."""
    status = view.status
    codes = [
        container.state.terminated.exit_code
        for container in (*status.init_container_statuses, *status.container_statuses)
        if container.state is not None and container.state.terminated is not None and container.state.terminated.exit_code
    ]
    return PodSeen(
        view.metadata.name,
        attempt,
        status.phase,
        view.spec.node_name,
        view.metadata.deletion_timestamp is not None,
        any(each.type == "DisruptionTarget" and each.status == "True" for each in status.conditions),
        status.reason,
        codes[0] if codes else None,
        element,
        _saved(view),
        (view.metadata.labels or {}).get(names.ROLE_LABEL, ""),
        status.start_time or "",
        seconds(view.metadata.creation_timestamp),
        _limit((view.metadata.annotations or {}).get(names.TIME_LIMIT_ANNOTATION, "")),
        status.phase == "Succeeded" and convert.ended_by_itself(view.metadata, _ended_at(status)),
        (view.metadata.annotations or {}).get(names.COUNTS_ANNOTATION) == "Succeeded",
        _bound(view, now, known),
        _starting(view, now, known.starting if known is not None else None),
        _index((view.metadata.labels or {}).get(names.INDEX_LABEL, "")),
        *times(status.container_statuses, status.init_container_statuses),
    )


def _bound(view: _Pod, now: float, known: PodSeen | None) -> float:
    """When a pod got its node: by our own clock where we saw it, else as the pod tells."""
    if not view.spec.node_name:
        return 0.0
    if known is not None:
        return known.bound if known.node else now
    return bound_at(view.status.conditions, view.status.start_time, view.metadata.creation_timestamp)


def _starting(view: _Pod, now: float, known: Starting | None) -> Starting | None:
    status = view.status
    if not view.spec.node_name:
        return None
    trouble = trouble_of(status.phase, status.conditions, status.container_statuses, status.init_container_statuses)
    if trouble is None:
        return None
    return Starting(trouble, known.since if known is not None and known.trouble.reason == trouble.reason else now)


def _index(text: str) -> int:
    return int(text) if _NUMBER.match(text) else 0


def _ended_at(status: _PodStatus) -> list[str | None]:
    states = [each.state.terminated for each in status.container_statuses if each.state is not None]
    return [each.finished_at for each in states if each is not None]


def _limit(text: str) -> str:
    """A time limit that can be read; empty: there is none."""
    try:
        return text if text and spans.seconds(text) > 0 else ""
    except ValueError:
        return ""


def _saved(view: _Pod) -> str:
    """When all containers of a pod that was told to end had ended in good order; empty if they have not."""
    ended = [each.state.terminated if each.state is not None else None for each in view.status.container_statuses]
    if view.metadata.deletion_timestamp is None or not ended:
        return ""
    found = [each.finished_at or "" for each in ended if each is not None and each.exit_code in (0, CHECKPOINTED)]
    return max(found) if len(found) == len(ended) else ""


def _path(job: AIJob) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/aijobs/{job.metadata.name}"
