"""Quotas, a row for each queue: what it and its users may still have."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.core.model.charges import units_of
from fairlead.core.model.queues import UserLimits
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.overview.rows import Quota, QuotaAmount, User


class _Held:
    """What one user has in a queue: job -> whether it runs, and resource -> amount as charged."""

    def __init__(self) -> None:
        self.jobs: dict[str, bool] = {}
        self.amounts: dict[str, int] = {}

    def add(self, other: _Held) -> None:
        """Take in what the user has in a queue below."""
        for job, runs in other.jobs.items():
            self.jobs[job] = self.jobs.get(job, False) or runs
        for resource, amount in other.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0) + amount


def quotas(state: ClusterState, shows: Callable[[str], bool] = lambda _: True) -> list[Quota]:
    """Every queue, by name. shows: which users are listed; the others are counted."""
    held = _held(state)
    nodes = sorted(state.queues.queues.items())
    return [_quota(node, held.get(name, {}), shows) for name, node in nodes if node.exists]


def _held(state: ClusterState) -> dict[str, dict[str, _Held]]:
    """Queue -> user -> what the user has in it and below it."""
    own: dict[str, dict[str, _Held]] = {}
    for task in state.tasks.values():
        if not task.charged:
            continue
        mine = own.setdefault(task.queue, {}).setdefault(task.user, _Held())
        if task.pod.ours:  # pods of others hold amounts, and are no jobs
            mine.jobs[task.job] = mine.jobs.get(task.job, False) or task.row >= 0
        for resource, amount in state.queues.tree.parts.at(task.shape, task.row) if task.row >= 0 else ():
            mine.amounts[resource] = mine.amounts.get(resource, 0) + amount
    found: dict[str, dict[str, _Held]] = {}
    for name, users in own.items():
        queue = state.queues.queues.get(name)
        for node in queue.path if queue is not None else ():
            together = found.setdefault(node.name, {})
            for user, each in users.items():
                together.setdefault(user, _Held()).add(each)
    return found


def _quota(node: QueueNode, held: dict[str, _Held], shows: Callable[[str], bool]) -> Quota:
    policy = node.policy
    resources = sorted({*node.quota, *node.limits, *(name for name, used in node.used.items() if used), *_limited_above(node)})
    each_may, together = policy.per_user or UserLimits(), policy.jobs or UserLimits()
    shown = [name for name in sorted(held) if shows(name)]
    return Quota(
        queue=node.name,
        parent=policy.parent,
        resources=[_amount(node, resource) for resource in resources],
        running=sum(sum(each.jobs.values()) for each in held.values()),
        running_limit=together.running,
        submitted=sum(len(each.jobs) for each in held.values()),
        submitted_limit=together.submitted,
        users=[_user(name, held[name], each_may) for name in shown],
        other_users=len(held) - len(shown),
    )


def _user(name: str, held: _Held, may: UserLimits) -> User:
    return User(
        user=name,
        used={resource: amount / units_of(resource) for resource, amount in held.amounts.items()},
        limits={resource: amount / units_of(resource) for resource, amount in may.resources},
        running=sum(held.jobs.values()),
        running_limit=may.running,
        submitted=len(held.jobs),
        submitted_limit=may.submitted,
    )


def _limited_above(node: QueueNode) -> set[str]:
    return {resource for each in node.path for resource in each.limits}


def _amount(node: QueueNode, resource: str) -> QuotaAmount:
    unit = units_of(resource)
    used, quota, limit = node.used.get(resource, 0), node.quota.get(resource), node.limits.get(resource)
    left = [each.limits[resource] - each.used.get(resource, 0) for each in node.path if resource in each.limits]
    return QuotaAmount(
        resource=resource,
        used=used / unit,
        quota=None if quota is None else quota / unit,
        guaranteed_left=None if quota is None else max(0, quota - used) / unit,
        limit=None if limit is None else limit / unit,
        left=max(0, min(left)) / unit if left else None,
    )
