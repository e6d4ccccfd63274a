"""Admission: who may use which queue and which class of service, and how many jobs may be there at all.

All of it is judged when a pod comes to wait, and again when a policy, a class, or the labels of a namespace change. What
runs goes on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.api.names import DEFAULT_QUEUE, DEFAULT_QUEUE_LABEL, QUEUE_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.queues import Queue
from fairlead.core.model.selectors import matches
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.meters import submitted_limits
from fairlead.core.queues.queues import Queues
from fairlead.core.queues.services import Services


class Admission:
    """Judges tasks. namespaces: name -> labels."""

    def __init__(self, queues: Queues, services: Services, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.queues = queues
        self.services = services
        self.namespaces = namespaces

    def unknown_queue(self, task: Task) -> Reason:
        """The reason for a task whose queue does not exist, or is served by another release of Fairlead."""
        if elsewhere := self.queues.tree.elsewhere.get(task.queue):
            message = (
                f"queue {task.queue!r} is served by {elsewhere}, and this pod is not: name a queue of its own scheduler in label "
                f"{QUEUE_LABEL}, or another scheduler in spec.schedulerName"
            )
            return Reason(ReasonCode.OTHER_SCHEDULER, message)
        message = f"queue {task.queue!r} does not exist; create it or name another in label fairlead.dev/queue"
        if task.queue == DEFAULT_QUEUE:
            message = (
                f"queue {DEFAULT_QUEUE!r} does not exist: with Queue objects an administrator must create it; or name another "
                f"queue in label {QUEUE_LABEL}, or in label {DEFAULT_QUEUE_LABEL} of the namespace"
            )
        return Reason(ReasonCode.UNKNOWN_QUEUE, message)

    def not_allowed(self, task: Task) -> Reason | None:
        """Why a task may not use its queue or its class, or None."""
        name = task.service_class
        if name and not self.services.knows(name):
            message = f"ServiceClass {name!r} does not exist; create it or name another in label fairlead.dev/service-class"
            return Reason(ReasonCode.UNKNOWN_CLASS, message)
        message = self.refuses_queue(task) or self.refuses_class(task) or self._too_long(task)
        if not message and name:
            message = self._shares_gpu(task)
        return Reason(ReasonCode.NOT_ALLOWED, message) if message else None

    def refuses_queue(self, task: Task) -> str:
        """Why a task may not use its queue, or empty: the queue and all those above it must admit it."""
        for node in self.queues.queues[task.queue].path:
            refused = self._barred(task, node.policy)
            if refused:
                return refused if node.name == task.queue else f"{refused} (a parent of queue {task.queue!r})"
        return ""

    def _barred(self, task: Task, policy: Queue) -> str:
        queue, name, user = policy.name, task.service_class, task.user
        if policy.namespaces != () and not matches(policy.namespaces, dict(self.namespaces.get(task.pod.namespace, {}))):
            return f"namespace {task.pod.namespace!r} may not use queue {queue!r}: its labels do not match the queue's selector"
        if policy.users is not None and user not in policy.users:
            return f"user {user!r} may not use queue {queue!r}: it is not in the spec.users of the queue"
        if policy.classes is not None and name not in policy.classes:
            allowed = ", ".join(policy.classes) or "none"
            what = f"ServiceClass {name!r}" if name else "pods without a ServiceClass"
            return f"queue {queue!r} does not accept {what}; accepted: {allowed}"
        return ""

    def may_use(self, queue: str, task: Task) -> bool:
        """Whether there is such a queue, and it would admit a pod of a task's namespace, user and class."""
        found = self.queues.queues.get(queue) if self.queues.tree.knows(queue) else None
        return found is not None and not any(self._barred(task, each.policy) for each in found.path)

    def refuses_class(self, task: Task) -> str:
        """Why a task may not use its class of service, or empty."""
        name, service = task.service_class, self.services.of(task)
        if service.namespaces != () and not matches(service.namespaces, dict(self.namespaces.get(task.pod.namespace, {}))):
            return f"namespace {task.pod.namespace!r} may not use ServiceClass {name!r}: its labels do not match"
        if service.users is not None and task.user not in service.users:
            return f"user {task.user!r} may not use ServiceClass {name!r}: it is not in the spec.users of the class"
        return ""

    def _too_long(self, task: Task) -> str:
        service = self.services.of(task)
        limit = min(self.services.limits.asked(task), task.pod.deadline or math.inf)
        if service.longest and math.isfinite(limit) and limit > service.longest:
            return f"its time limit is {limit:g} s; ServiceClass {task.service_class!r} allows at most {service.longest:g} s"
        return ""

    def _shares_gpu(self, task: Task) -> str:
        shape, service = task.shape, self.services.of(task)
        if service.isolation != "GPU" or not shape.gpus or shape.gpu_milli >= WHOLE:
            return ""
        return (
            f"it asks for {shape.gpu_milli / WHOLE:g} of a GPU, and ServiceClass {task.service_class!r} has isolation GPU: "
            "request whole GPUs, or use another class"
        )

    def counts(self, queue: str) -> bool:
        """Whether jobs are counted on the path of a queue, whether they run or not."""
        return any(any(submitted_limits(node.policy)) for node in self.queues.queues[queue].path if node.meter is not None)

    def beyond(self, tasks: Iterable[Task]) -> dict[str, Reason]:
        """Which of all tasks there are, by UID, belong to jobs beyond a limit of jobs, waiting or running.

        Jobs that run come first, then the oldest; the deepest queue judges first, and who fails there counts nowhere above.
        """
        jobs: dict[str, list[Task]] = {}
        for task in tasks:
            jobs.setdefault(task.job, []).append(task)
        order = sorted(jobs.values(), key=_precedence)
        counting = [node for node in self.queues.queues.values() if any(submitted_limits(node.policy))]
        found: dict[str, Reason] = {}
        for node in sorted(counting, key=lambda each: (-len(each.path), each.name)):
            per_user, together = submitted_limits(node.policy)
            counted: Counter[str] = Counter()
            for members in order:
                first = members[0]
                if first.pod.uid in found or node not in self.queues.queues[first.queue].path:
                    continue
                reason = None
                if per_user is not None and per_user.submitted is not None and counted[first.user] >= per_user.submitted:
                    most = per_user.submitted
                    message = f"user {first.user!r} already has {most} of at most {most} submitted jobs in queue {node.name!r}"
                    reason = Reason(ReasonCode.USER_LIMIT, message, {"limit": per_user.submitted})
                elif together is not None and together.submitted is not None and counted.total() >= together.submitted:
                    message = (
                        f"queue {node.name!r} already has {together.submitted} of at most {together.submitted} submitted jobs"
                    )
                    reason = Reason(ReasonCode.LIMIT_EXCEEDED, message, {"limit": together.submitted})
                if reason is None:
                    counted[first.user] += 1
                else:
                    found |= {task.pod.uid: reason for task in members}
        return found


def _precedence(members: list[Task]) -> tuple[bool, float, str]:
    return (
        not any(task.row >= 0 or task.pod.node for task in members),
        min(task.pod.created for task in members),
        min(task.pod.key for task in members),
    )
