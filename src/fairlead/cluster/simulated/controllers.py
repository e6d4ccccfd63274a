"""Small controllers that kubectl's users expect: disruption budgets and Jobs, and those of devices.

Each reconciles its object when it or one of its pods changed, as the real ones do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from fairlead.cluster.simulated import selectors
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.claims import ClaimController
from fairlead.cluster.simulated.device_evictions import DeviceEvictions
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import BUDGETS, PODS
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.cluster.times import seconds

JOBS = "batch/jobs"
EVENTS = "events"
_EVENT_LIFE, _SWEEP = 3600.0, 600.0
_MOST_PODS = 500  # of one Job at a time
_ENDS = ("Complete", "Failed")
_INDEX = "batch.kubernetes.io/job-completion-index"
_CONTAINERS = ("containers", "initContainers")


class Controllers:
    """Runs beside an API server, on its clock's loop."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.claims = ClaimController(api)
        self.device_evictions = DeviceEvictions(api)
        self._dirty: set[tuple[str, Key]] = set()
        self._due: dict[Key, int] = {}  # Jobs that are reconciled at a time
        self._planned = False
        self._pods = api.served("v1", "pods")
        self._jobs = api.served("batch/v1", "jobs")
        api.store.listen(PODS, self._pod_changed)
        api.store.listen(BUDGETS, lambda change: self._mark(BUDGETS, change))
        api.store.listen(JOBS, lambda change: self._mark(JOBS, change))
        api.clock.call_later(_SWEEP, self._expire)

    def _expire(self) -> None:
        """Events live for an hour."""
        oldest = self.api.clock.text(self.api.clock.now() - _EVENT_LIFE)
        for key, record in list(self.api.store.records(EVENTS)):
            if record.object["metadata"].get("creationTimestamp", "") < oldest:
                self.api.store.remove(EVENTS, key)
        self.api.clock.call_later(_SWEEP, self._expire)

    def _mark(self, table: str, change: Change) -> None:
        if change.kind != "DELETED":
            self._plan(table, change.key)

    def _plan(self, table: str, key: Key) -> None:
        self._dirty.add((table, key))
        if not self._planned:
            self._planned = True
            self.api.clock.call_later(0.0, self._work)

    def _pod_changed(self, change: Change) -> None:
        pod = change.record.object
        if self.api.store.count(BUDGETS):
            for key, record in list(self.api.store.records(BUDGETS)):
                if key[0] == change.key[0] and _selects(record.object, pod):
                    self._plan(BUDGETS, key)
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Job" and owner.get("controller"):
                self._plan(JOBS, (change.key[0], owner["name"]))

    def _work(self) -> None:
        self._planned = False
        dirty, self._dirty = sorted(self._dirty), set()
        for table, key in dirty:
            record = self.api.store.get(table, key)
            if record is None:
                continue
            if table == BUDGETS:
                self._count_budget(key, record.object)
            else:
                again = _JobSync(self.api, key, record.object).run()
                if again is not None:
                    self._plan_at(key, again)

    def _plan_at(self, key: Key, later: float) -> None:
        """Reconcile a Job in so many seconds, once for however many reconciliations until then."""
        at = round(self.api.clock.now() + later)
        if self._due.get(key) != at:
            self._due[key] = at
            self.api.clock.call_later(later, partial(self._reach, key))

    def _reach(self, key: Key) -> None:
        self._due.pop(key, None)
        self._plan(JOBS, key)

    # -- disruption budgets --------------------------------------------------------------------

    def _count_budget(self, key: Key, budget: Object) -> None:
        pods = [
            record.object
            for each, record in self.api.store.records(PODS)
            if each[0] == key[0] and _selects(budget, record.object)
        ]
        pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        healthy = sum(_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in pods)
        spec = budget.get("spec") or {}
        if "maxUnavailable" in spec:
            desired = max(0, len(pods) - _portion(spec["maxUnavailable"], len(pods)))
        else:
            desired = _portion(spec.get("minAvailable", 1), len(pods))
        status = {
            **(budget.get("status") or {}),
            "expectedPods": len(pods),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired) if pods else 0,
            "observedGeneration": budget["metadata"].get("generation", 1),
        }
        if status != budget.get("status"):
            self.api.store.put(BUDGETS, key, {**budget, "metadata": dict(budget["metadata"]), "status": status})


def _selects(budget: Object, pod: Object) -> bool:
    return selectors.in_object((budget.get("spec") or {}).get("selector"))(pod["metadata"].get("labels") or {})


def _ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in (pod.get("status") or {}).get("conditions") or ())


def _portion(value: Any, of: int) -> int:
    """A number, or a percentage rounded up."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return -(-int(value[:-1]) * of // 100)
    return int(value) if str(value).isdigit() else 0


class _JobSync:
    """One reconciliation of one Job."""

    def __init__(self, api: ApiServer, key: Key, job: Object) -> None:
        self.api = api
        self.key = key
        self.job = job
        self.uid = job["metadata"]["uid"]
        self.pods = [
            record.object
            for each, record in api.store.sorted(PODS, key[0])
            if any(owner.get("uid") == self.uid for owner in record.object["metadata"].get("ownerReferences") or ())
        ]

    def run(self) -> float | None:
        """Make, remove and count pods; write the status. In how many seconds there is something to do again, None: never."""
        spec, status = self.job["spec"], dict(self.job.get("status") or {})
        ends = [each for each in status.get("conditions") or () if each["type"] in _ENDS and each["status"] == "True"]
        if ends:
            return self._clean_up(seconds(ends[0]["lastTransitionTime"]))
        active = [pod for pod in self.pods if _phase(pod) not in ("Succeeded", "Failed")]
        succeeded = self._done(spec, [pod for pod in self.pods if _phase(pod) == "Succeeded"])
        failed = sum(_phase(pod) == "Failed" for pod in self.pods)
        now = self.api.clock.text()
        left = self._time_left(status)
        conditions = [each for each in status.get("conditions") or () if each["type"] != "Suspended"]
        conditions += _resumed(status.get("conditions") or (), now) if not spec.get("suspend") else []
        if spec.get("suspend"):
            self._remove(active)
            active = []
            status.pop("startTime", None)
            conditions.append({"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": now})
        elif failed > spec.get("backoffLimit", 6) or (left is not None and left <= 0):
            self._remove(active)
            active = []
            reason = "DeadlineExceeded" if left is not None and left <= 0 else "BackoffLimitExceeded"
            conditions.append({"type": "Failed", "status": "True", "reason": reason, "lastTransitionTime": now})
        elif self._enough(succeeded, active):
            status["completionTime"] = now
            conditions.append({"type": "Complete", "status": "True", "reason": "CompletionsReached", "lastTransitionTime": now})
        else:
            status.setdefault("startTime", now)
            left = self._time_left(status)
            self._make(spec, active, succeeded)
            active = active or [{}]
        alive = [pod for pod in active if pod and not pod["metadata"].get("deletionTimestamp")]
        status |= {
            "active": len(alive),
            "succeeded": len(succeeded),
            "failed": failed,
            "ready": sum(_ready(pod) for pod in alive),
        }
        status = {name: value for name, value in status.items() if value or name == "ready"}
        if conditions:
            status["conditions"] = conditions
        record = self.api.store.get(JOBS, self.key)
        if record is not None and record.object.get("status") != status:
            self.api.store.put(JOBS, self.key, {**record.object, "metadata": dict(record.object["metadata"]), "status": status})
        return left if left is not None and left > 0 else None

    def _time_left(self, status: Object) -> float | None:
        """Seconds until it has run for its `activeDeadlineSeconds`; None: without end, or it has not begun."""
        limit, began = self.job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
        return seconds(began) + limit - self.api.clock.now() if limit is not None and began else None

    def _clean_up(self, ended: float) -> float | None:
        """Delete it with its pods `ttlSecondsAfterFinished` after its end; seconds until then."""
        lasts = self.job["spec"].get("ttlSecondsAfterFinished")
        left = ended + lasts - self.api.clock.now() if lasts is not None else None
        if left is None or left > 0:
            return left
        with contextlib.suppress(StatusError):
            self.api.delete(self.api.served("batch/v1", "jobs"), *self.key, {"propagationPolicy": "Background"})
        return None

    def _enough(self, succeeded: list[Object], active: list[Object]) -> bool:
        """Whether it is complete. Without `completions` it is once one pod has succeeded and the others have ended."""
        wanted = self.job["spec"].get("completions")
        return len(succeeded) >= wanted if wanted is not None else bool(succeeded) and not active

    def _done(self, spec: Object, pods: list[Object]) -> list[Object]:
        if spec.get("completionMode") != "Indexed":
            return pods
        return list({_index(pod): pod for pod in pods}.values())

    def _remove(self, pods: list[Object]) -> None:
        resource = self.api.served("v1", "pods")
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self.api.delete(resource, self.key[0], pod["metadata"]["name"])

    def _make(self, spec: Object, active: list[Object], succeeded: list[Object]) -> None:
        at_once, wanted = spec.get("parallelism", 1), spec.get("completions")
        left = wanted - len(succeeded) if wanted is not None else 0 if succeeded else at_once
        missing = min(at_once, left, _MOST_PODS) - len(active)
        taken = {_index(pod) for pod in [*active, *succeeded]}
        free = (str(index) for index in range(wanted or 0) if str(index) not in taken)
        for _ in range(max(0, missing)):
            try:
                self._create(spec, next(free) if spec.get("completionMode") == "Indexed" else "")
            except (StatusError, StopIteration):
                return

    def _create(self, spec: Object, index: str) -> None:
        template = spec["template"]
        name = self.job["metadata"]["name"]
        metadata: Object = {
            "generateName": f"{name}-{index}-" if index else f"{name}-",
            "labels": dict((template.get("metadata") or {}).get("labels") or {}),
            "annotations": dict((template.get("metadata") or {}).get("annotations") or {}),
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
        spec = dict(template["spec"])
        if index:
            metadata["annotations"][_INDEX] = metadata["labels"][_INDEX] = index
            spec.setdefault("hostname", f"{name}-{index}")
            spec |= {kind: [_with_its_index(each) for each in spec[kind]] for kind in _CONTAINERS if spec.get(kind)}
        self.api.create(self.api.served("v1", "pods"), self.key[0], {"metadata": metadata, "spec": spec})


def _with_its_index(container: Object) -> Object:
    """A container with JOB_COMPLETION_INDEX."""
    env = container.get("env") or []
    if any(each.get("name") == "JOB_COMPLETION_INDEX" for each in env):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{_INDEX}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}


def _resumed(conditions: Iterable[Object], now: str) -> list[Object]:
    """The condition of a Job that was suspended and is not any more; none where it never was."""
    was = next((each for each in conditions if each["type"] == "Suspended"), None)
    if was is None or was["status"] == "False":
        return [was] if was is not None else []
    return [{"type": "Suspended", "status": "False", "reason": "JobResumed", "lastTransitionTime": now}]


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _index(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(_INDEX, ""))
