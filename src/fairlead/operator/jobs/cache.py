"""AIJobs, their pods, their PodGroups and classes of service as the controller observed them last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster import views
from fairlead.operator.jobs.accepted import over
from fairlead.operator.jobs.attempt import STARTED
from fairlead.operator.jobs.members import owned
from fairlead.operator.jobs.pods import PodSeen


class Cache:
    """Jobs and PodGroups are named `namespace/name`."""

    def __init__(self) -> None:
        self.jobs: dict[str, AIJob] = {}
        self.groups: dict[str, views.PodGroup] = {}
        self.classes: dict[str, ServiceClass] = {}
        self._pods: dict[str, dict[str, PodSeen]] = {}  # job -> pod's name -> pod
        self._job_of: dict[str, str] = {}  # pod -> job

    # -- jobs ----------------------------------------------------------------------------------

    def is_older(self, key: str, job: AIJob) -> bool:
        """Whether a later version is known already, from the answer to a write."""
        known = self.jobs.get(key)
        if known is None or known.metadata.uid != job.metadata.uid:
            return False
        one, two = known.metadata.resource_version, job.metadata.resource_version
        return one.isdigit() and two.isdigit() and int(two) < int(one)

    def beside(self, key: str) -> dict[str, AIJob]:
        """The jobs of a job's namespace, by name."""
        namespace = key.partition("/")[0]
        return {job.metadata.name: job for job in self.jobs.values() if job.metadata.namespace == namespace}

    def phases(self) -> Counter[str]:
        """How many jobs are in each phase."""
        return Counter(job.status.phase if job.status is not None else "Pending" for job in list(self.jobs.values()))

    def not_starting(self) -> int:
        """How many jobs that go on did not start the last time that they had their places."""
        going = [job.status for job in list(self.jobs.values()) if job.status is not None and not over(job)]
        return sum(any(each.type == STARTED and each.status == "False" for each in status.conditions) for status in going)

    # -- their PodGroups -----------------------------------------------------------------------

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
        return self._pods.get(key, {})

    def pods_by_job(self) -> Iterator[tuple[str, Mapping[str, PodSeen]]]:
        """All pods."""
        return iter(self._pods.items())

    def job_of(self, pod: str) -> str | None:
        """Of which job a pod `namespace/name` is."""
        return self._job_of.get(pod)

    def put_pod(self, key: str, pod: str, seen: PodSeen) -> None:
        """A job's pod as it is now."""
        self._job_of[pod] = key
        self._pods.setdefault(key, {})[seen.name] = seen

    def remove_pod(self, pod: str) -> tuple[str | None, PodSeen | None]:
        """A pod is gone: its job, and how it was seen last."""
        key = self._job_of.pop(pod, None)
        return key, self._pods.get(key, {}).pop(pod.partition("/")[2], None) if key is not None else None
