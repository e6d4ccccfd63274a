"""Small controllers that kubectl's users expect: disruption budgets and Jobs, and those of devices.

Each reconciles its object when it or one of its pods changed, as the real ones do.
"""

from __future__ import annotations

from typing import Any

from fairlead.cluster.simulated import selectors
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.claims import ClaimController
from fairlead.cluster.simulated.device_evictions import DeviceEvictions
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import BUDGETS, PODS
from fairlead.cluster.simulated.store import Change, Key, Object

JOBS = "batch/jobs"
EVENTS = "events"
_EVENT_LIFE, _SWEEP = 3600.0, 600.0
_MOST_PODS = 500  # of one Job at a time


class Controllers:
    """Runs beside an API server, on its clock's loop."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.claims = ClaimController(api)
        self.device_evictions = DeviceEvictions(api)
        self._dirty: set[tuple[str, Key]] = set()
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
                _JobSync(self.api, key, record.object).run()

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

    def run(self) -> None:
        """Make, remove and count pods; write the status."""
        spec, status = self.job["spec"], dict(self.job.get("status") or {})
        if any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in status.get("conditions") or ()):
            return
        active = [pod for pod in self.pods if _phase(pod) not in ("Succeeded", "Failed")]
        succeeded = self._done(spec, [pod for pod in self.pods if _phase(pod) == "Succeeded"])
        failed = sum(_phase(pod) == "Failed" for pod in self.pods)
        now = self.api.clock.text()
        wanted = spec.get("completions") or spec.get("parallelism", 1)
        conditions = [each for each in status.get("conditions") or () if each["type"] != "Suspended"]
        if spec.get("suspend"):
            self._remove(active)
            active = []
            status.pop("startTime", None)
            conditions.append({"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": now})
        elif failed > spec.get("backoffLimit", 6):
            self._remove(active)
            active = []
            conditions.append({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now})
        elif len(succeeded) >= wanted:
            status["completionTime"] = now
            conditions.append({"type": "Complete", "status": "True", "reason": "CompletionsReached", "lastTransitionTime": now})
        else:
            status.setdefault("startTime", now)
            self._make(spec, active, succeeded, wanted)
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

    def _done(self, spec: Object, pods: list[Object]) -> list[Object]:
        if spec.get("completionMode") != "Indexed":
            return pods
        return list({_index(pod): pod for pod in pods}.values())

    def _remove(self, pods: list[Object]) -> None:
        resource = self.api.served("v1", "pods")
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self.api.delete(resource, self.key[0], pod["metadata"]["name"])

    def _make(self, spec: Object, active: list[Object], succeeded: list[Object], wanted: int) -> None:
        missing = min(spec.get("parallelism", 1), wanted - len(succeeded), _MOST_PODS) - len(active)
        taken = {_index(pod) for pod in [*active, *succeeded]}
        free = (str(index) for index in range(wanted) if str(index) not in taken)
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
        if index:
            metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = index
            metadata["labels"]["batch.kubernetes.io/job-completion-index"] = index
        self.api.create(self.api.served("v1", "pods"), self.key[0], {"metadata": metadata, "spec": dict(template["spec"])})


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _index(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", ""))
