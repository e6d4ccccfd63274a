"""Users of a simulated cluster who submit AIJobs and Jobs of classes of service, and the operator that sees to them.

Classes suspend, requeue, slice time or keep what they have; jobs are single pods, gangs, elastic or arrays. Their users pause
and delete some of them. Once the cluster is left alone every job must come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from collections import Counter
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.core.state.suspended import made_for
from fairlead.simulation.users import Strike, Users, template
from fairlead.simulation.workload import FAILS, Job
from fairlead.simulation.world import GPU, OperatorProcess, World

_AI_JOBS, _PLAIN_JOBS, _GROUPS = "fairlead.dev/aijobs", "batch/jobs", "fairlead.dev/podgroups"
_ENDED = ("Succeeded", "Failed")
_RESTARTS = 1000  # no job ends for the cluster's faults: what was submitted must succeed, unless it is wrong itself
_OWN = {"limit": 1, "backoff": "5s"}  # of jobs that are wrong themselves
_MOST_STARTS = 100  # of one job; more is a preemption cycle

_CLASSES: dict[str, dict[str, Any]] = {
    "sliced": {
        "priorityClassName": "batch",
        "preemption": {"mode": "Suspend"},
        "checkpointInterval": "30m",
        "timeSlicing": {"levels": [1, 4, 16], "express": 1, "maxLoss": "5m"},
    },
    "patient": {
        "priorityClassName": "batch",
        "preemption": {"mode": "Suspend", "minRuntime": "5m", "gracePeriod": "45s"},
        "checkpointInterval": "10m",
        "maxWait": "6h",
    },
    "loose": {"priorityClassName": "batch", "preemption": {"mode": "Requeue"}},
    "urgent": {"priorityClassName": "urgent", "preemption": {"mode": "Suspend", "scope": "Cluster"}},
    "steady": {"priorityClassName": "interactive", "preemption": {"mode": "Never", "scope": "Parent"}},
    "serving": {"priorityClassName": "serving", "preemption": {"mode": "Requeue", "scope": "Cluster"}},
}
_OF_PRIORITY = {
    100: ("sliced", "sliced", "patient", "patient", "loose"),
    1000: ("urgent",),
    5000: ("steady",),
    10_000: ("serving",),
}


class Researchers(Users):
    """Submit jobs at their times, and have an operator beside the schedulers. seed: of what they are and what befalls them."""

    def __init__(self, world: World, jobs: list[Job], seed: int) -> None:
        self.world = world
        self.submitted: set[str] = set()
        self.finished: set[str] = set()
        self.restarts = 0
        self._random = random.Random(f"researchers {seed}")
        self._kinds: dict[Key, str] = {}  # those that their users still want, and the table that each is in
        self._buggy = {(job.team, job.name) for job in jobs if job.fault}
        self._operator = OperatorProcess(world)
        for table in (_AI_JOBS, _PLAIN_JOBS):
            world.api.store.listen(table, self._changed)
        for name, spec in _CLASSES.items():
            world.create({"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": name}, "spec": spec})
        for job in jobs:
            manifest = self._manifest(self._possible(job))
            world.clock.call_later(job.submitted, lambda job=job, manifest=manifest: self._submit(job, manifest))  # type: ignore[misc]

    # -- what they submit ----------------------------------------------------------------------

    def _submit(self, job: Job, manifest: Object) -> None:
        self.world.create(manifest, job.team)
        self.submitted.add(job.name)
        self._kinds[job.team, job.name] = _AI_JOBS if manifest["kind"] == "AIJob" else _PLAIN_JOBS

    def _possible(self, job: Job) -> Job:
        """The job, no larger than half of what the nodes that it may run on would hold: it must come to its end."""
        nodes = self.world.pools[job.pool] if job.pool else list(self.world.manifests)
        capacity = sum(int(self.world.allocatable(node)[GPU]) // job.gpus for node in nodes)
        return msgspec.structs.replace(job, pods=max(1, min(job.pods, capacity // 2)))

    def _manifest(self, job: Job) -> Object:
        draw = self._random
        drawn = draw.choice(_OF_PRIORITY[job.priority])
        service = job.service or drawn
        kind = draw.choices(("plain", "elastic", "array", "Job"), (0.55, 0.2, 0.1, 0.15))[0]
        if job.fault not in ("", FAILS) and kind == "Job":
            kind = "plain"  # pods of a Job without a PodGroup wait for an image without end, as on any cluster
        made = template(job)
        metadata = {"name": job.name, "namespace": job.team}
        if kind == "Job":
            made["metadata"]["labels"] = {names.SERVICE_CLASS_LABEL: service}
            made["spec"] |= {"schedulerName": names.own_scheduler(), "restartPolicy": "Never"}
            plain = {
                "parallelism": job.pods,
                "completions": job.pods,
                "backoffLimit": 2 if job.fault else _RESTARTS,
                "template": made,
            }
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": plain}
        role: dict[str, Any] = {"name": "worker", "replicas": job.pods, "template": made}
        if taken := made["metadata"]["annotations"].pop(names.SHARED_RESOURCES_ANNOTATION, ""):
            role["sharedResources"] = dict([taken.split("=")])
        spec: dict[str, Any] = {"serviceClass": service, "restart": {"limit": _RESTARTS, "backoff": "5s"}}
        spec["roles"] = [role]
        if job.fault:
            spec |= {"restart": _OWN, "startTimeout": "5m"}
        if kind == "elastic":
            role |= {"minReplicas": max(1, job.pods // 2), "maxReplicas": 2 * job.pods}
        elif job.staggered and job.pods > 1:
            ends = (("launcher", 1, 0.1), ("worker", max(1, job.pods - 2), 1.0), ("evaluator", 1, 1.3))
            spec["roles"] = [_lasting(role, name, count, part * job.duration) for name, count, part in ends]
        elif kind == "array" and job.pods == 1:
            made["metadata"]["annotations"][names.SIMULATED_DURATION_ANNOTATION] = f"{job.duration / 4:.3f}s"
            spec["array"] = {"indexes": f"0-{draw.randint(2, 12)}", "parallelism": draw.randint(1, 4)}
        return {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": metadata, "spec": spec}

    # -- what befalls them ---------------------------------------------------------------------

    def strikes(self) -> list[tuple[str, Strike]]:
        """What may go wrong for them."""
        return [
            ("operator_killed", self._kill_operator),
            ("operator_cut_off", self._cut_off_operator),
            ("job_paused", self._pause),
            ("job_deleted", self._give_up),
        ]

    async def _kill_operator(self) -> None:
        await self._operator.kill()
        await asyncio.sleep(self._random.uniform(0.5, 60.0))
        self._operator = OperatorProcess(self.world)
        self._operator.start()

    async def _cut_off_operator(self) -> None:
        partition = self._operator.partition
        partition.cut = True
        self.world.clock.call_later(self._random.uniform(5.0, 150.0), partition.heal)

    async def _pause(self) -> None:
        """A user pauses one of their jobs, and resumes it some time later."""
        key = self._some_job()
        if key is not None and self._set_suspend(key, suspend=True):
            self.world.clock.call_later(self._random.uniform(20.0, 3600.0), lambda: self._resume(key))

    def _resume(self, key: Key) -> None:
        self._set_suspend(key, suspend=False)

    def _set_suspend(self, key: Key, *, suspend: bool) -> bool:
        table = self._kinds.get(key)
        if table is None:
            return False
        api = self.world.api
        resource = self._served(table)
        with contextlib.suppress(StatusError):  # it is gone, or over
            api.patch(resource, *key, "application/merge-patch+json", {"spec": {"suspend": suspend}})
            return True
        return False

    async def _give_up(self) -> None:
        key = self._some_job()
        if key is not None:
            with contextlib.suppress(StatusError):
                self.world.api.delete(self._served(self._kinds.pop(key)), *key, {"propagationPolicy": "Background"})

    def _some_job(self) -> Key | None:
        going = sorted(key for key in self._kinds if not self._over(key))
        return self._random.choice(going) if going else None

    def _served(self, table: str) -> Any:
        return (
            self.world.api.served(names.API_VERSION, "aijobs") if table == _AI_JOBS else self.world.api.served("batch/v1", "jobs")
        )

    # -- what must hold ------------------------------------------------------------------------

    def start(self) -> None:
        """The operator begins."""
        self._operator.start()

    async def stop(self) -> None:
        """It ends."""
        await self._operator.kill()

    def _changed(self, change: Change) -> None:
        status = change.record.object.get("status") or {}
        before = (change.before.object.get("status") or {}) if change.before is not None else {}
        self.restarts += max(0, _times(status) - _times(before))
        if change.key in self._kinds and self._over(change.key):
            self.finished.add(change.key[1])

    @property
    def done(self) -> bool:
        """Whether every job that was not deleted has come to its end."""
        return all(self._over(key) for key in self._kinds)

    def wrong(self) -> list[str]:
        """What must not be when all is quiet: a job whose status differs from its pods, or that has none."""
        running: Counter[Key] = Counter()
        for (namespace, _), record in self.world.api.store.records(PODS):
            pod = record.object
            job = (pod["metadata"].get("labels") or {}).get(names.JOB_LABEL)
            if job and pod["status"].get("phase") not in _ENDED:
                running[namespace, job] += 1
        wrong = []
        for key, table in sorted(self._kinds.items()):
            if (times := _times(self._status(key))) > _MOST_STARTS:
                wrong.append(f"job {key} was started again {times} times")
            if table != _AI_JOBS or self.world.api.store.get(table, key) is None:
                continue
            phase = self._status(key).get("phase", "none")
            if phase in _ENDED and (phase == "Failed") is not (key in self._buggy):
                wrong.append(f"AIJob {key} is {phase}: {self._status(key).get('message')}")
            if phase in ("Suspended", *_ENDED) and running[key]:
                wrong.append(f"AIJob {key} is {phase} and has {running[key]} pods")
            elif phase not in ("Suspended", "Restarting", *_ENDED) and not running[key]:
                wrong.append(f"AIJob {key} is {phase} and has no pods")
        return wrong

    def unfinished(self) -> list[str]:
        """Those that did not come to their end, and where they stand."""
        found = []
        for key in sorted(self._kinds):
            if not self._over(key):
                named = "/".join(key) if self._kinds[key] == _AI_JOBS else made_for(key[0], f"batch/v1/Job/{key[1]}")
                namespace, _, name = named.partition("/")
                group = self.world.api.store.get(_GROUPS, (namespace, name))
                target = (group.object.get("status") or {}).get("target") if group is not None else None
                found.append(f"job {key} did not end: {self._status(key)}, target {target}")
        return found

    def _status(self, key: Key) -> Object:
        record = self.world.api.store.get(self._kinds[key], key)
        found: Object = (record.object.get("status") or {}) if record is not None else {}
        return found

    def _over(self, key: Key) -> bool:
        status = self._status(key)
        if self._kinds[key] == _AI_JOBS:
            return status.get("phase") in _ENDED
        return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in status.get("conditions") or ())


def _lasting(role: dict[str, Any], name: str, members: int, seconds: float) -> dict[str, Any]:
    """Members of a role that run so long."""
    made = copy.deepcopy(role)
    made["template"]["metadata"]["annotations"][names.SIMULATED_DURATION_ANNOTATION] = f"{seconds:.3f}s"
    return {**made, "name": name, "replicas": members}


def _times(status: Object) -> int:
    """How often a job was started again, for whatever reason."""
    return int(status.get("restarts", 0) + status.get("interruptions", 0) + status.get("failed", 0))
