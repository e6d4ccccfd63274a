"""The users of a simulated cluster: jobs that are submitted, run, are restarted as one, and end.

A tenant is a small job controller on the API server: it creates a job's PodGroup and pods, replaces them
as a whole when a member fails or disappears, and cleans up when all have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import CLAIMS, PODS
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.simulation.device_work import spec_of
from fairlead.simulation.users import SHARED_CLAIM, Users, template
from fairlead.simulation.workload import RULE_LABEL, Job
from fairlead.simulation.world import POOL_LABEL, PRIORITIES, World

JOB_LABEL = "fairlead.dev/simulated-job"
_CLASSES = {value: name for name, value in PRIORITIES.items()}
_RESTART = 5.0
_TRIES, _TOO_LONG = 3, 3600.0
"""How often a user starts a job with a fault of its own, and how long one that does not start is left waiting."""
_GROUPS = "fairlead.dev/podgroups"


class _Run:
    """One job's present attempt."""

    __slots__ = ("attempt", "cleaned", "finished", "job", "members", "pending_restart", "started", "succeeded")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.attempt = 0
        self.members: set[str] = set()  # names of this attempt's pods
        self.succeeded: set[str] = set()
        self.started: float | None = None
        self.finished = False
        self.cleaned = False
        self.pending_restart = False


class Tenants(Users):
    """Submits jobs at their times. notice: called with what happens, for a person to read."""

    def __init__(self, world: World, jobs: list[Job], notice: Callable[[str], None] = lambda _: None) -> None:
        self.world = world
        self.notice = notice
        self.runs = {job.name: _Run(job) for job in jobs}
        self.submitted: set[str] = set()
        self.finished: set[str] = set()
        self.first_start: dict[str, float] = {}
        self.most_waiting = 0  # jobs; while so many wait, further ones are not submitted; 0: they always are
        self._waiting: set[str] = set()
        self.restarts = 0
        self._api = world.api
        self._pods = self._api.served("v1", "pods")
        self._claims = self._api.served("resource.k8s.io/v1", "resourceclaims")
        self._groups = self._api.served(names.API_VERSION, "podgroups")
        self._begun = world.clock.now()
        self._api.store.listen(PODS, self._changed)
        self._api.store.listen(CLAIMS, self._claim_changed)
        self._plan(jobs)

    def add(self, jobs: list[Job]) -> None:
        """More jobs, whose times count from now."""
        offset = self.now
        later = [msgspec.structs.replace(job, submitted=job.submitted + offset) for job in jobs]
        self.runs |= {job.name: _Run(job) for job in later}
        self._plan(later)

    def forget(self) -> None:
        """Jobs that are over are history: nothing of theirs is kept, so that a lab may run for ever."""
        for name in [name for name, run in self.runs.items() if run.cleaned]:
            del self.runs[name]
            self.submitted.discard(name)
            self.finished.discard(name)
            self.first_start.pop(name, None)

    def _plan(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.world.clock.call_later(job.submitted - self.now, lambda job=job: self._submit(job))  # type: ignore[misc]

    @property
    def now(self) -> float:
        """Seconds since the first day began."""
        return self.world.clock.now() - self._begun

    # -- life of a job -------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        if self.most_waiting and len(self._waiting) >= self.most_waiting:
            del self.runs[job.name]  # its user sees the queue, and stays away
            return
        self.submitted.add(job.name)
        self._waiting.add(job.name)
        self._attempt(self.runs[job.name])

    def _attempt(self, run: _Run) -> None:
        job = run.job
        run.pending_restart = False
        if run.finished:
            return
        run.attempt += 1
        run.succeeded.clear()
        run.started = None
        run.members = {f"{job.name}-{run.attempt}-{member}" for member in range(job.pods)}
        self._make_claim(run)
        if job.pods > 1 and self._api.store.get(_GROUPS, (job.team, job.name)) is None:
            self._api.create(self._groups, job.team, {"metadata": {"name": job.name}, "spec": {"minMember": job.pods}})
        for member, name in enumerate(sorted(run.members)):
            length = job.duration * (member + 1) / job.pods if job.staggered else job.duration
            self._api.create(self._pods, job.team, self._pod(msgspec.structs.replace(job, duration=length), name))
        if job.fault and run.attempt == 1:
            self.world.clock.call_later(_TOO_LONG + job.duration, lambda: self._give_up(run))

    def _make_claim(self, run: _Run) -> None:
        """The claim that all pods of a job share, where it has one."""
        job = run.job
        if job.claim == SHARED_CLAIM and not run.finished and self._api.store.get(CLAIMS, (job.team, job.name)) is None:
            self._api.create(self._claims, job.team, {"metadata": {"name": job.name}, "spec": spec_of(job.claim)})

    def _claim_changed(self, change: Change) -> None:
        """A claim that was deleted is made again."""
        run = self.runs.get(change.key[1])
        if change.kind == "DELETED" and run is not None and run.attempt:
            self.world.clock.call_later(_RESTART, lambda: self._make_claim(run))

    @staticmethod
    def _pod(job: Job, name: str) -> Object:
        made = template(job)
        labels = {JOB_LABEL: job.name}
        if job.pods > 1:
            labels[names.POD_GROUP_LABEL] = job.name
        if job.service:
            labels[names.SERVICE_CLASS_LABEL] = job.service
        owner = {"apiVersion": "simulated/v1", "kind": "Job", "name": job.name, "uid": f"job-{job.name}", "controller": True}
        spec: Object = {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "priorityClassName": _CLASSES[job.priority],
            **made["spec"],
        }
        if job.rule:
            labels[RULE_LABEL] = job.rule
            _add_rule(spec, job.rule)
        metadata = {"name": name, "labels": labels, **made["metadata"], "ownerReferences": [owner]}
        return {"metadata": metadata, "spec": spec}

    def _changed(self, change: Change) -> None:
        pod = change.record.object
        run = self.runs.get((pod["metadata"].get("labels") or {}).get(JOB_LABEL, ""))
        name = change.key[1]
        if run is None or name not in run.members:
            return
        phase = pod["status"].get("phase")
        if change.kind == "DELETED" or pod["metadata"].get("deletionTimestamp") or phase == "Failed":
            if name not in run.succeeded:
                self._restart(run, pod)
        elif phase == "Running" and run.started is None:
            run.started = self.now
            self._waiting.discard(run.job.name)
            if run.job.name not in self.first_start:
                self.first_start[run.job.name] = run.started
            self.notice(f"{run.job.team}/{run.job.name} starts on {pod['spec'].get('nodeName')}")
        elif phase == "Succeeded" and name not in run.succeeded:
            run.succeeded.add(name)
            if len(run.succeeded) == run.job.pods:
                self._finish(run)

    def _restart(self, run: _Run, pod: Object) -> None:
        """Members start together and restart together."""
        if run.pending_restart or run.finished:
            return
        if run.job.fault and run.attempt >= _TRIES:
            self._give_up(run)
            return
        run.pending_restart = True
        self.restarts += 1
        self.notice(f"{run.job.team}/{run.job.name} starts over: {pod['metadata']['name']} {_why(pod)}")
        self.world.clock.call_later(0.0, lambda: self._clear(run))
        self.world.clock.call_later(_RESTART, lambda: self._attempt(run))

    def _clear(self, run: _Run) -> None:
        for name in sorted(run.members):
            self._delete((run.job.team, name))

    def _give_up(self, run: _Run) -> None:
        """Its user sees that it never comes to its end."""
        if not run.finished:
            run.finished = True
            self._waiting.discard(run.job.name)
            self.notice(f"{run.job.team}/{run.job.name} is given up")
            self.world.clock.call_later(0.0, lambda: self._clean(run))

    def _finish(self, run: _Run) -> None:
        run.finished = True
        self.finished.add(run.job.name)
        self.notice(f"{run.job.team}/{run.job.name} is done")
        self.world.clock.call_later(60.0, lambda: self._clean(run))

    def _clean(self, run: _Run) -> None:
        self._clear(run)
        run.cleaned = True
        if run.job.claim == SHARED_CLAIM:
            self._quietly(lambda: self._api.delete(self._claims, run.job.team, run.job.name))
        if run.job.pods > 1:
            self._quietly(lambda: self._api.delete(self._groups, run.job.team, run.job.name))

    def _delete(self, key: Key) -> None:
        self._quietly(lambda: self._api.delete(self._pods, *key))

    @staticmethod
    def _quietly(call: Callable[[], Any]) -> None:
        try:
            call()
        except StatusError:
            return


def _add_rule(spec: Object, rule: str) -> None:
    """What the pods of a job ask of each other, and of those of other jobs with the same rule."""
    selector = {"matchLabels": {RULE_LABEL: rule}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match rule:
        case "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            spec["affinity"] = {"podAntiAffinity": {required: [term]}}
        case "near":
            term = {"topologyKey": POOL_LABEL, "labelSelector": selector}
            spec["affinity"] = {"podAffinity": {required: [term]}}
        case "even":
            even = {"topologyKey": POOL_LABEL, "maxSkew": 3, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            spec["topologySpreadConstraints"] = [even]
        case "port":
            [container] = spec["containers"]
            spec["containers"] = [{**container, "ports": [{"containerPort": 80, "hostPort": 8080}]}]
        case "upstream":
            spec["schedulerName"] = names.KUBERNETES_SCHEDULER_NAME


def _why(pod: Object) -> str:
    status = pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        return "was evicted"
    return str(status.get("reason") or "failed")
