"""To which job a pod belongs: what controls its PodGroup or itself, else its PodGroup, else the pod."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.cluster import grouping, views
from fairlead.core.model.pods import Pod
from fairlead.core.state.suspended import made_before, made_for
from fairlead.observability.history import Job


class Owners:
    """group: the PodGroup of a key, if there is one."""

    def __init__(self, group: Callable[[str], views.PodGroup | None]) -> None:
        self._group = group

    def _group_of(self, pod: Pod) -> views.PodGroup | None:
        """The PodGroup of a pod. Parts of an object may have others, which have the same owner."""
        if not pod.group:
            return None
        found, before = self._group(f"{pod.namespace}/{pod.group}"), grouping.name_before(pod.group)
        if found is None and before:
            earlier = self._group(f"{pod.namespace}/{before}")
            found = earlier if earlier is not None and pod.group in grouping.serves(earlier.metadata) else None
        return found

    def job_of(self, pod: Pod, view: views.Pod) -> Job:
        """The job that a pod belongs to, as it begins."""
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

    def is_suspended(self, job: Job) -> bool:
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


def _controller(metadata: views.Metadata) -> views.OwnerReference | None:
    return next((each for each in metadata.owner_references or () if each.controller), None)
