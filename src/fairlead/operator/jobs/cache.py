"""AIJobs, their pods, their PodGroups and classes of service as the controller observed them last.

A pod is of the job that controls it, by UID: pods of a deleted job outlive it for a while, and a job of the same name is
another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.node_pool import NodePool
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster import views
from fairlead.operator.jobs.accepted import over
from fairlead.operator.jobs.attempt import STARTED
from fairlead.operator.jobs.members import owned
from fairlead.operator.jobs.neighbours import Neighbours
from fairlead.operator.jobs.pods import PodSeen


class Cache:
    """Jobs and PodGroups are named `namespace/name`. jobs: changed by `put_job` and `remove_job` only."""

    def __init__(self) -> None:
        self.jobs: dict[str, AIJob] = {}
        self.groups: dict[str, views.PodGroup] = {}
        self.classes: dict[str, ServiceClass] = {}
        self.pools: dict[str, NodePool] = {}
        self._beside: dict[str, Neighbours] = {}  # by namespace
        self._phases: Counter[str] = Counter()
        self._not_starting: set[str] = set()
        self._pods: dict[tuple[str, str], dict[str, PodSeen]] = {}  # job and its UID -> pod's name -> pod
        self._job_of: dict[str, tuple[str, str]] = {}  # pod -> job and its UID
        self._on: dict[str, dict[str, None]] = {}  # node -> its pods

    # -- jobs ----------------------------------------------------------------------------------

    def is_older(self, key: str, job: AIJob) -> bool:
        """Whether a later version is known already, from the answer to a write."""
        known = self.jobs.get(key)
        if known is None or known.metadata.uid != job.metadata.uid:
            return False
        one, two = known.metadata.resource_version, job.metadata.resource_version
        return one.isdigit() and two.isdigit() and int(two) < int(one)

    def put_job(self, key: str, job: AIJob) -> list[str]:
        """A job as it is now; those whose dependencies may be judged differently."""
        namespace = job.metadata.namespace
        self._count(self.jobs.get(key), -1)
        self.jobs[key] = job
        self._count(job, 1)
        (self._not_starting.add if _does_not_start(job) else self._not_starting.discard)(key)
        return [f"{namespace}/{name}" for name in self._beside.setdefault(namespace, Neighbours()).put(job)]

    def remove_job(self, key: str) -> list[str]:
        """A job is gone; those whose dependencies may be judged differently."""
        job = self.jobs.pop(key, None)
        if job is None:
            return []
        self._count(job, -1)
        self._not_starting.discard(key)
        namespace, name = job.metadata.namespace, job.metadata.name
        concerned = self._beside[namespace].remove(name)
        if not self._beside[namespace]:
            del self._beside[namespace]
        return [f"{namespace}/{each}" for each in concerned]

    def beside(self, key: str) -> Neighbours:
        """The jobs of a job's namespace."""
        return self._beside[key.partition("/")[0]]

    def phases(self, of: Callable[[AIJob], bool] | None = None) -> Counter[str]:
        """How many jobs are in each phase. of: which jobs count; default: all."""
        return +self._phases if of is None else Counter(_phase(job) for job in self.jobs.values() if of(job))

    def not_starting(self, of: Callable[[AIJob], bool] | None = None) -> int:
        """How many jobs that go on did not start the last time that they had their places."""
        return len(self._not_starting) if of is None else sum(of(self.jobs[key]) for key in self._not_starting)

    def _count(self, job: AIJob | None, more: int) -> None:
        if job is not None:
            self._phases[_phase(job)] += more

    # -- their PodGroups -----------------------------------------------------------------------

    def remove_group(self, key: str) -> tuple[str, int] | None:
        """A PodGroup is gone: the job that owned it, if that exists, and of which of its elements it was; -1: of the job."""
        group = self.groups.pop(key, None)
        if group is None:
            return None
        of = f"{group.metadata.namespace}/{(group.metadata.labels or {}).get(names.JOB_LABEL, '')}"
        job, element = self.jobs.get(of), key.removeprefix(f"{of}-")
        if job is None or not owned(group.metadata.owner_references, job):
            return None
        return of, int(element) if element.isdecimal() else -1

    def target(self, key: str) -> views.GroupTarget | None:
        """What the scheduler wants a PodGroup's workload to be."""
        group = self.groups.get(key)
        return group.status.target if group is not None and group.status is not None else None

    def is_suspended(self, key: str, job: AIJob) -> bool:
        """Whether the scheduler has a job suspended; what it wants of another's PodGroup of that name is not the job's."""
        group, target = self.groups.get(key), self.target(key)
        if group is None or target is None or target.state != "Suspended":
            return False
        return owned(group.metadata.owner_references, job)

    # -- their pods ----------------------------------------------------------------------------

    def pods(self, key: str) -> Mapping[str, PodSeen]:
        """A job's pods by their names."""
        job = self.jobs.get(key)
        return self._pods.get((key, job.metadata.uid), {}) if job is not None else {}

    def pods_by_job(self) -> Iterator[tuple[str, Mapping[str, PodSeen]]]:
        """All pods of jobs that exist."""
        return ((key, pods) for (key, uid), pods in self._pods.items() if self._exists(key, uid))

    def pods_on(self, node: str) -> dict[str, list[PodSeen]]:
        """The pods on a node of jobs that exist, by these."""
        found: dict[str, list[PodSeen]] = {}
        for pod in self._on.get(node, ()):
            key, uid = self._job_of[pod]
            if self._exists(key, uid):
                found.setdefault(key, []).append(self._pods[key, uid][_name(pod)])
        return found

    def named_by(self, pod: str) -> str | None:
        """The job that a pod `namespace/name` names, whether it is that one's or not."""
        return self._job_of.get(pod, (None,))[0]

    def pod(self, pod: str) -> PodSeen | None:
        """A pod as it was seen last, also one of another job."""
        of = self._job_of.get(pod)
        return self._pods[of][_name(pod)] if of is not None else None

    def owns(self, key: str, pod: PodSeen) -> bool:
        """Whether a pod that names a job is that one's."""
        return self._exists(key, pod.job)

    def _exists(self, key: str, uid: str) -> bool:
        job = self.jobs.get(key)
        return job is not None and job.metadata.uid == uid

    def put_pod(self, key: str, pod: str, seen: PodSeen) -> None:
        """A pod that names a job as it is now."""
        if self._job_of.get(pod, (key, seen.job)) != (key, seen.job):
            self.remove_pod(pod)
        pods = self._pods.setdefault((key, seen.job), {})
        known = pods.get(seen.name)
        if known is None or known.node != seen.node:
            self._leave(pod, known)
            if seen.node:
                self._on.setdefault(seen.node, {})[pod] = None
        self._job_of[pod] = key, seen.job
        pods[seen.name] = seen

    def remove_pod(self, pod: str) -> tuple[str | None, PodSeen | None]:
        """A pod is gone: the job that it named, and how it was seen last."""
        of = self._job_of.pop(pod, None)
        if of is None:
            return None, None
        pods = self._pods[of]
        seen = pods.pop(_name(pod))
        if not pods:
            del self._pods[of]
        self._leave(pod, seen)
        return of[0], seen

    def _leave(self, pod: str, seen: PodSeen | None) -> None:
        """A pod is no longer on the node on which it was seen."""
        if seen is not None and seen.node:
            here = self._on[seen.node]
            del here[pod]
            if not here:
                del self._on[seen.node]


def _name(pod: str) -> str:
    return pod.partition("/")[2]


def _phase(job: AIJob) -> str:
    return job.status.phase if job.status is not None else "Pending"


def _does_not_start(job: AIJob) -> bool:
    status = job.status
    if status is None or over(job):
        return False
    return any(each.type == STARTED and each.status == "False" for each in status.conditions)
