"""Limits: whether a queue, and those above it, may hold so much more, and the reason where one may not.

There are limits of a queue, of a pool in it, of users and jobs (`meters`), and for work that is never preempted what others are
guaranteed (`guarantees`). Nothing here changes anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fairlead.api.names import SHARED_PREFIX
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.api.shared_resources import show
from fairlead.core.model.arrays import Mask
from fairlead.core.model.charges import Charge, key_of, split, sum_of
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.guarantees import Guarantees
from fairlead.core.queues.meters import by_others
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.tree import QueueTree

OVER_LIMIT = "OverLimit"
"""The reason of the condition Accepted of a queue that holds more than one of its limits."""


class Limits:
    """Asks the accounts of the tree what their limits leave."""

    def __init__(self, tree: QueueTree, guarantees: Guarantees) -> None:
        self.tree = tree
        self.guarantees = guarantees
        self._scales = dict.fromkeys(tree.nodes.gpu_resources, WHOLE)

    def over_limit(self, task: Task, count: int = 1, row: int = -1, charge: Charge | None = None) -> Reason | None:
        """Why `count` more pods like this one would break a limit on the path, or None. 0: why what is charged breaks it.

        row: where they would be placed; limits for its pools count, too. -1: anywhere, these do not count, and what is charged is
        the least that it may be. charge: what is charged for one, where that is known.
        """
        tree = self.tree
        if charge is None:
            charge = task.shape.charge
            if tree.by_row:
                charge = tree.base(task.ranking) if row < 0 else tree.charge_at(task.shape, row)
        for node in tree.node_of(task.queue).path:
            if node.meter is not None:
                refused = node.meter.refused(task, charge, count, self._scales)
                if refused is not None:
                    return refused
            if not node.limits:
                continue
            for resource, amount in charge:
                limit = node.limits.get(resource)
                if limit is not None and node.used.get(resource, 0) + amount * count > limit:
                    return self._beyond(node, resource, limit, amount * count)
        return self._breaks_guarantee(task, charge, count) if self.guarantees.classes else None

    def over_limits(self, unit: Unit) -> Reason | None:
        """The limit on its queue's path that keeps a unit out wherever it is placed; those of users not counted."""
        core = unit.tasks[: unit.need]
        for node in self.tree.node_of(core[0].queue).path:
            for resource, amount in self.tree.asked_together(core) if node.limits else ():
                limit = node.limits.get(resource)
                if limit is not None and node.used.get(resource, 0) + amount > limit:
                    return self._beyond(node, resource, limit, amount)
        return self._breaks_guarantee(core[0], self.tree.asked_together(core), 1)

    def may_start(self, unit: Unit, without: Sequence[Task]) -> bool:
        """Whether limits let a unit start, were some tasks gone. Those of its user do not count if one of these is the user's."""
        core, first = unit.tasks[: unit.need], unit.tasks[0]
        if self._breaks_guarantee(first, self.tree.asked_together(core), 1) is not None:
            return False
        if not any(node.limits or node.meter is not None for node in self.tree.node_of(first.queue).path):
            return True
        demand = self.tree.asked_together(core)
        for node in self.tree.node_of(first.queue).path:
            gone = [each for each in without if node in self.tree.node_of(each.queue).path]
            freed = dict(sum_of([self.tree.charge_at(each.shape, each.row) for each in gone]))
            for resource, amount in demand if node.limits else ():
                if node.used.get(resource, 0) - freed.get(resource, 0) + amount > node.limits.get(resource, math.inf):
                    return False
            if node.meter is not None and not any(each.user == first.user for each in gone):
                charge = self.tree.base(first.ranking)
                if node.meter.refused(first, charge, unit.need, self._scales) is not None:
                    return False
        return True

    def within_limits(self, queue: str, demand: Charge) -> bool:
        """Whether the limits on a queue's path let it hold so much more, wherever it is placed; those of users not counted."""
        return all(
            node.used.get(resource, 0) + amount <= node.limits.get(resource, math.inf)
            for node in self.tree.node_of(queue).path
            if node.limits
            for resource, amount in demand
        )

    def full_rows(self, task: Task) -> list[tuple[Mask, Reason]]:
        """Rows on which this task's queue, or one above it, may hold no more, not even this task, though elsewhere it may:
        in pools of which it may hold no more, and where what the task asks for is a larger part of a GPU than elsewhere.
        """
        found: list[tuple[Mask, Reason]] = []
        path, fixed = self.tree.node_of(task.queue).path, self.guarantees.non_preemptible(task)
        if not fixed and not any(node.limits or node.meter is not None for node in path):
            return found
        pools, choices = self.tree.pools, self.tree.parts.choices(task.shape)
        for node in path if pools.named else ():
            for resource, pool, limit in node.pool_limits:
                key = key_of(resource, pool)
                for rows, charge in choices:
                    amount = next((amount for name, amount in charge if name == resource), 0)
                    if amount and node.used.get(key, 0) + amount > limit:
                        found.append((_both(pools.mask(pool), rows), self._beyond(node, key, limit, amount)))
        if fixed:
            for pool in sorted(pools.named):
                for rows, charge in choices:
                    refused = self._breaks_guarantee(task, pools.of(charge, pool), 1)
                    if refused is not None:
                        found.append((_both(pools.mask(pool), rows), refused))
        for rows, charge in choices if len(choices) > 1 else ():
            refused = self.over_limit(task, charge=charge)
            if refused is not None and rows is not None:
                found.append((rows, refused))
        return found

    def closed(self, task: Task) -> Mask | None:
        """For each row whether limits that depend on the row keep a task out; None if none does."""
        closed: Mask | None = None
        for mask, _ in self.full_rows(task):
            closed = mask if closed is None else closed | mask
        return closed

    def limited_by_row(self, queue: str) -> bool:
        """Whether a queue, or one above it, has a limit that depends on the row: for a pool, or any where GPUs are parts."""
        path = self.tree.node_of(queue).path
        if self.tree.parts.varies and any(node.limits or node.meter is not None for node in path):
            return True
        return any(node.pool_limits for node in path)

    def doubt(self, name: str) -> tuple[bool, str, str] | None:
        """What an administrator should know of a queue's policy: (whether it is in force as it is, reason, message)."""
        node = self.tree.node_of(name)
        parent = node.parent
        if parent is not None and not parent.exists:
            message = f"parent queue {parent.name!r} does not exist; until it is created, it guarantees and limits nothing"
            return False, "ParentNotFound", message
        for pool in sorted({each.pool for each in node.policy.resources if each.pool}):
            if self.tree.pools.empty(pool):
                return (
                    False,
                    "PoolNotFound",
                    f"pool {pool!r} has no node: there is no such NodePool, and no device model of that name",
                )
        for resource, quota in sorted(node.quota.items()):
            scale = self.tree.scale(resource)
            limit = node.limits.get(resource)
            if limit is not None and quota > limit:
                return (
                    True,
                    "QuotaAboveLimit",
                    f"its quota of {quota / scale:g} {resource} is above its limit of {limit / scale:g}",
                )
            above = parent.quota.get(resource) if parent is not None else None
            if parent is not None and above is not None:
                together = sum(each.quota.get(resource, 0) for each in self.tree.queues.values() if each.parent is parent)
                if together > above:
                    message = (
                        f"the children of {parent.name!r} have quotas of {together / scale:g} {resource} in total, "
                        f"{parent.name!r} has {above / scale:g}: the excess is not guaranteed"
                    )
                    return True, "QuotaAboveParent", message
        for resource, limit in sorted(node.limits.items()):
            used, scale = node.used.get(resource, 0), self.tree.scale(resource)
            if used > limit:
                others = by_others(node.foreign.get(resource, 0), scale)
                message = (
                    f"it holds {used / scale:g} of at most {limit / scale:g} {resource}{others}: no more pods start, "
                    "and none is evicted"
                )
                return True, OVER_LIMIT, message
        return None

    def _beyond(self, node: QueueNode, key: str, limit: int, more: int) -> Reason:
        used, scale, (resource, pool) = node.used.get(key, 0), self.tree.scale(key), split(key)
        where, others = f" of pool {pool!r}" if pool else "", node.foreign.get(key, 0)
        held, most, wanted = (_shown(resource, amount, scale) for amount in (used, limit, more))
        message = (
            f"queue {node.name!r} holds {held} of at most {most} {resource}{where}"
            f"{by_others(others, scale)}; {wanted} more would exceed its limit"
        )
        numbers = {"used": used, "limit": limit, "requested": more} | ({"foreign": others} if others else {})
        return Reason(ReasonCode.LIMIT_EXCEEDED, message, numbers)

    def _breaks_guarantee(self, task: Task, charge: Charge, count: int) -> Reason | None:
        """Why `count` times so much more of non-preemptible work would break what others are guaranteed, or None."""
        if not self.guarantees.non_preemptible(task):
            return None
        broken = self.guarantees.broken(self.tree.node_of(task.queue).path, charge, count)
        if broken is None:
            return None
        scale, (resource, pool) = self.tree.scale(broken.resource), split(broken.resource)
        where = f" of pool {pool!r}" if pool else ""
        under = "in total" if broken.under is None else f"under queue {broken.under.name!r}"
        quota, more = self.tree.node_of(task.queue).quota.get(broken.resource, 0) / scale, broken.requested / scale
        message = (
            f"ServiceClass {task.service_class!r} is non-preemptible and may not borrow guaranteed capacity: {more:g} more would "
            f"raise the guarantees {under} to {broken.claimed / scale:g} of {broken.bound / scale:g} {resource}{where} (own "
            f"quota: {quota:g})"
        )
        numbers = {"used": broken.claimed - broken.requested, "limit": broken.bound, "requested": broken.requested}
        return Reason(ReasonCode.QUOTA_EXCEEDED, message, numbers)


def _shown(resource: str, amount: int, scale: int) -> str:
    """An amount as a message has it: of what pools share with a suffix, since those are large."""
    return show(amount) if resource.startswith(SHARED_PREFIX) else f"{amount / scale:g}"


def _both(mask: Mask, rows: Mask | None) -> Mask:
    return mask if rows is None else mask & rows
