"""Meters: what each user holds of a queue and its descendants, and which jobs run there.

A queue has one only where its policy limits users or jobs. A job is a gang, or a pod of its own; it runs from the first pod that
has a node on. A gang whose pods have several users runs for each of them, and once for the queue. Like all accounts, meters are
taken back by the undo log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.charges import Charge
from fairlead.core.model.queues import Queue, UserLimits
from fairlead.core.model.undo import UndoLog

if TYPE_CHECKING:
    from fairlead.core.pods.tasks import Task

_ALL = ""
"""Stands for all users together."""


class Meter:
    """The account of one queue. scale: charged units per unit of a resource, for messages."""

    def __init__(self, log: UndoLog, policy: Queue) -> None:
        self.log = log
        self.policy = policy
        self.held: dict[tuple[str, str], int] = {}  # (user, resource) -> base units
        self.foreign: dict[tuple[str, str], int] = {}  # the part of it that pods of other schedulers hold
        self.pods: dict[tuple[str, str], int] = {}  # (user, job) -> pods of it that have a node
        self.running: dict[str, int] = {}  # user -> jobs
        self.less: set[str] = set()  # users who hold less, or did in a trial, since it was cleared

    def charge(self, task: Task, charge: Charge, sign: int) -> None:
        """A task got a node (1) or left it (-1)."""
        log, user, job = self.log, task.user, task.job
        if sign < 0:
            self.less.add(user)
        for resource, amount in charge:
            log.add(self.held, (user, resource), sign * amount)
        if not task.pod.ours:  # it holds amounts, and is no job: it is not admitted, so no limit of jobs could keep it waiting
            for resource, amount in charge:
                log.add(self.foreign, (user, resource), sign * amount)
            return
        for each in (user, _ALL):
            pods = self.pods.get((each, job), 0) + sign
            if pods:
                log.insert(self.pods, (each, job), pods)
            else:
                log.remove(self.pods, (each, job))
            if pods == (1 if sign > 0 else 0):
                log.add(self.running, each, sign)

    def refused(self, task: Task, charge: Charge, count: int, scales: dict[str, int]) -> Reason | None:
        """Why `count` more pods like this one would break a limit, or None. 0: why what is charged breaks one."""
        limits, jobs = self.policy.per_user, self.policy.jobs
        where = f"queue {self.policy.name!r}"
        if limits is not None:
            for resource, limit in limits.resources:
                amount = next((each for name, each in charge if name == resource), 0)
                held = self.held.get((task.user, resource), 0)
                if amount and held + amount * count > limit:
                    scale, others = scales.get(resource, 1), self.foreign.get((task.user, resource), 0)
                    message = (
                        f"user {task.user!r} holds {held / scale:g} of at most {limit / scale:g} {resource} in {where}"
                        f"{by_others(others, scale)}; {amount * count / scale:g} more would exceed this limit"
                    )
                    numbers = {"used": held, "limit": limit, "requested": amount * count}
                    return Reason(ReasonCode.USER_LIMIT, message, numbers | ({"foreign": others} if others else {}))
        if limits is not None and limits.running is not None:
            running, more = self.running.get(task.user, 0), self._more(task.user, task, count)
            if running + more > limits.running:
                message = f"user {task.user!r} runs {running} of at most {limits.running} jobs in {where}"
                return Reason(ReasonCode.USER_LIMIT, message, {"used": running, "limit": limits.running, "requested": more})
        if jobs is not None and jobs.running is not None:
            running, more = self.running.get(_ALL, 0), self._more(_ALL, task, count)
            if running + more > jobs.running:
                message = f"{where} runs {running} of at most {jobs.running} jobs"
                return Reason(ReasonCode.LIMIT_EXCEEDED, message, {"used": running, "limit": jobs.running, "requested": more})
        return None

    def _more(self, user: str, task: Task, count: int) -> int:
        """How many more jobs a user would run with `count` more pods like this one."""
        return int(count > 0 and (user, task.job) not in self.pods)


def by_others(amount: int, scale: int) -> str:
    """The part of a message about a limit that names what cannot be reclaimed. amount: in base units."""
    return f" ({amount / scale:g} of them held by pods of other schedulers)" if amount else ""


def wanted(policy: Queue) -> bool:
    """Whether a queue's policy needs a meter."""
    return policy.per_user is not None or policy.jobs is not None


def submitted_limits(policy: Queue) -> tuple[UserLimits | None, UserLimits | None]:
    """What limits how many jobs may be there at all, waiting or running: each user's, and all together."""
    per_user = policy.per_user if policy.per_user is not None and policy.per_user.submitted is not None else None
    jobs = policy.jobs if policy.jobs is not None and policy.jobs.submitted is not None else None
    return per_user, jobs
