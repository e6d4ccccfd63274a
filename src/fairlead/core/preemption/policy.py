"""The preemption policy: who may preempt whom, by priority inside a queue, by attained service, across queues for fair shares.

The rules exclude preemption cycles. A queue reclaims from another only while it stays within its own fair share, and only from
one that is over its share, so what was taken is not taken back. Between users of one queue, where its policy has them reclaim,
the user who takes ends with no more than the user who gives. Where different preemption reasons meet, see `cycles`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

from fairlead.core.model.causes import PreemptionReason
from fairlead.core.model.charges import Charge
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption import relief
from fairlead.core.preemption.cycles import Blocking, Cycle
from fairlead.core.preemption.preemption_classes import preemption_classes
from fairlead.core.preemption.victim import Kind, Victim
from fairlead.core.queues.entitlement import Entitlement, against, beyond_quota, beyond_share, within_share
from fairlead.core.queues.queue_node import QueueNode, pending_class_of

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


class Budgets(IntEnum):
    """What disruption budgets mean for a plan: they bind; they do not bind what is held beyond quotas; they do not bind."""

    KEEP = 0
    OVERRIDE = 1
    IGNORE = 2


_NOTHING: dict[str, int] = {}


class PreemptionPolicy:
    """Whom one unit may preempt, of all that runs now.

    enforce_quota: its queue is guaranteed the place, even where there would be enough for all were it not fragmented.
    waited: it has waited for its queue's share as long as one may (`share_due`): lenders may be left with less than their shares.
    blocking: what blocks the unit is kept there; several policies of one search share it.
    Its methods are questions: they change nothing but that, and what it remembers itself.
    """

    def __init__(
        self,
        state: ClusterState,
        unit: Unit,
        *,
        enforce_quota: bool = False,
        waited: bool = False,
        budgets: Budgets = Budgets.KEEP,
        blocking: Blocking | None = None,
    ) -> None:
        self.blocking = blocking if blocking is not None else Blocking()
        self.waited = waited
        self.budgets = budgets
        self.state = state
        self.unit = unit
        self.enforce_quota = enforce_quota
        self.queue = state.queues.queues[unit.tasks[0].queue]
        self.service = state.services.of(unit.tasks[0])
        core, queues = unit.tasks[: unit.need], state.queues
        self.demand: Charge = queues.tree.asked_together(core)
        self._asked = frozenset(name for name, _ in self.demand)
        self.express = unit.level < self.service.express
        self._wide = preemption_classes(state).cross  # else queues take from each other for shares only
        self._reclaims = self.queue.policy.users_reclaim and state.policy.reclaim
        self._amount = _amounts(core) if self._reclaims else (0, 0)
        self._entitled: bool | None = None
        self._claims: dict[str, Entitlement | None] = {}  # by the other queue
        self._lenders: dict[str, bool] = {}
        self._lend_now: dict[str, bool] = {}
        self._at_once: dict[str, bool] = {}
        self._within: dict[str, bool] = {}
        self._within_quota: dict[str, bool] = {}
        self._wanted: dict[str, list[tuple[str, int]]] = {}
        self._of_kinds: dict[Kind, PreemptionReason | None] = {}

    @cached_property
    def _cycle(self) -> Cycle:
        return Cycle(self.state, self.unit, self.demand, self.blocking)

    # -- which queues --------------------------------------------------------------------------

    @property
    def entitled(self) -> bool:
        """Whether the unit's queue stays within its fair share with it, where something is scarce for it or for one above it."""
        if self._entitled is None:
            fair = self.state.queues.fair
            self._entitled = (
                self.state.policy.reclaim
                and (self.enforce_quota or fair.scarce(self.queue))
                and (fair.within(self.queue, self.demand) or self.within_quota(self.queue))
            )
        return self._entitled

    def reclaims_from(
        self, other: QueueNode, taken: dict[str, dict[str, int]] | None = None, victim: tuple[Task, ...] = ()
    ) -> bool:
        """Whether this unit's queue may reclaim something from another.

        taken: what is taken from queues already. victim: whether these are part of that: without them the queue still has
        its share, or it is above its quota while this unit's stays within its own. No queue pays for a sibling: every queue from
        the other one up to where the two meet is over its share.
        """
        if not self.entitled:
            return False
        claim, fair = self._claim(other), self.state.queues.fair
        if claim is None:
            return False
        mine, theirs = claim.mine, claim.theirs
        taken = taken or {}
        relieved = self.nested and any(node.name in taken for node in claim.claimants)
        guaranteed = self._guaranteed_without(mine, taken) if relieved else self.within_quota(mine)
        if not (
            guaranteed or (within_share(fair, claim.claimants, self.demand, taken) if relieved else self._stays_within(claim))
        ):
            return False  # what is above it has its share already: it can only take from its siblings
        pools = self.state.queues.tree.pools.named
        if pools and not all(fair.keeps_pools(node, self._asked, taken.get(node.name), victim) for node in claim.lenders):
            return False
        if beyond_share(fair, claim.lenders, self._asked, taken) and (
            not victim
            or (self.waited and (not pools or fair.keeps_quota(theirs, self._asked, taken.get(theirs.name), victim)))
            or fair.keeps(theirs, taken.get(theirs.name), victim)
        ):
            return True
        return guaranteed and self._lends_beyond_quota(claim, taken)

    def may_override(self, other: QueueNode, taken: dict[str, dict[str, int]]) -> bool:
        """Whether the unit is within its quota and a queue holds more than its own, so that its pods' budgets do not bind.

        taken: what is preempted already.
        """
        claim = self._claim(other)
        if claim is None or not self.entitled:
            return False
        return self.within_quota(claim.mine) and self._lends_beyond_quota(claim, taken)

    def _claim(self, other: QueueNode) -> Entitlement | None:
        """Its queue's claim against another; None if one is above the other."""
        if other.name not in self._claims:
            self._claims[other.name] = against(self.queue, other)
        return self._claims[other.name]

    @property
    def nested(self) -> bool:
        """Whether its queue has siblings below one that is above it: what is preempted there relieves those above."""
        return len(self.queue.path) > 1

    def _guaranteed_without(self, top: QueueNode, taken: dict[str, dict[str, int]]) -> bool:
        """Whether it is within quota, as in `within_quota`, without what is preempted already below those above it."""
        return self.state.queues.reclaim.guaranteed(
            self.queue,
            top,
            self._scarce(top),
            lambda node, name: node.used.get(name, 0) - taken.get(node.name, _NOTHING).get(name, 0),
        )

    def relieved_by(self, tasks: Sequence[Task]) -> bool:
        """Whether a queue above its own holds less without these tasks of another queue."""
        other = self.state.queues.queues[tasks[0].queue]
        return self.nested and other is not self.queue and other.path[-1] is self.queue.path[-1]

    def _lends_beyond_quota(self, claim: Entitlement, taken: dict[str, dict[str, int]]) -> bool:
        """Whether lenders hold more than their quotas of something that is scarce for the unit's side, without what is taken."""

        def held(node: QueueNode, name: str) -> int:
            return node.stays(name) - taken.get(node.name, _NOTHING).get(name, 0)

        return beyond_quota(claim.lenders, [name for name, _ in self._scarce(claim.mine)], held)

    def _stays_within(self, claim: Entitlement) -> bool:
        """Whether the queues from this unit's up to its side's sibling stay within their fair shares with it."""
        known = self._within.get(claim.mine.name)
        if known is None:
            known = self._within[claim.mine.name] = within_share(self.state.queues.fair, claim.claimants, self.demand)
        return known

    def within_quota(self, node: QueueNode) -> bool:
        """Whether a queue on its path holds no more than it is guaranteed with it, of what is scarce."""
        known = self._within_quota.get(node.name)
        if known is None:
            known = self.state.queues.reclaim.guaranteed(self.queue, node, self._scarce(node), QueueNode.holds_of)
            self._within_quota[node.name] = known
        return known

    def _scarce(self, node: QueueNode) -> list[tuple[str, int]]:
        """What is asked for of what is scarce for a queue, or guaranteed to it where something is scarce above it."""
        wanted = self._wanted.get(node.name)
        if wanted is None:
            scarce = self.state.queues.fair.contested(node, enforce_quota=self.enforce_quota)
            wanted = self._wanted[node.name] = [(name, amount) for name, amount in self.demand if name in scarce]
        return wanted

    # -- which users ---------------------------------------------------------------------------

    @property
    def reclaims_from_users(self) -> bool:
        """Whether there is a user of the unit's queue from whom the unit's user may reclaim."""
        if not self._reclaims:
            return False
        least = self._holds(self.unit.user) + self._amount[self._kind]
        return any(holds[self._kind] > least for user, holds in self.queue.holds.items() if user != self.unit.user)

    @property
    def _kind(self) -> int:
        """By what users are compared: devices (0), or CPU (1) where the unit asks for none."""
        return 0 if self._amount[0] else 1

    def _holds(self, user: str) -> int:
        return self.queue.holds.get(user, (0, 0))[self._kind]

    def user_holds_more(self, tasks: Sequence[Task], taken: dict[str, int] | None = None) -> bool:
        """Whether these tasks' user holds no less without them than the unit's user with the unit.

        So the user who takes ends with no more than the user who gives, and what was taken is not taken back. taken: by user,
        what is preempted already.
        """
        first, kind = tasks[0], self._kind
        amount = _amounts(tasks)[kind]
        if not amount or first.user == self.unit.user or first.queue != self.queue.name:
            return False
        left = self._holds(first.user) - (taken or {}).get(first.user, 0) - amount
        return left >= self._holds(self.unit.user) + self._amount[kind]

    def take_from_user(self, tasks: Sequence[Task], taken: dict[str, int]) -> None:
        """Note what a victim's user would hold less."""
        if tasks[0].queue == self.queue.name:
            user = tasks[0].user
            taken[user] = taken.get(user, 0) + _amounts(tasks)[self._kind]

    def take(self, victim: Task, taken: dict[str, dict[str, int]]) -> None:
        """Note what a victim's queue, and those above it, would hold less."""
        for node in self.state.queues.queues[victim.queue].path:
            less = taken.setdefault(node.name, {})
            for resource, amount in self.state.queues.tree.charge_at(victim.shape, victim.row):
                less[resource] = less.get(resource, 0) + amount

    def _in_scope(self, other: QueueNode) -> bool:
        """Whether the unit's class lets it preempt work of a queue that ranks lower."""
        return self.queue.within_scope(self.service.scope, other)

    def reaches(self, other: QueueNode) -> bool:
        """Whether anything of a queue may be preempted at all."""
        return self._in_scope(other) or self.express or self.may_reclaim_from(other)

    def may_reclaim_from(self, other: QueueNode) -> bool:
        """Whether it may reclaim from a queue, now or once others below the queues above its own were evicted."""
        known = self._lenders.get(other.name)
        if known is None:
            known = self._reclaims_now(other) or (self.nested and self.entitled and self.reclaims_from(other, self._all_beside))
            self._lenders[other.name] = known
        return known

    def _reclaims_now(self, other: QueueNode) -> bool:
        """Whether it may reclaim from a queue as things stand."""
        known = self._lend_now.get(other.name)
        if known is None:
            known = self._lend_now[other.name] = self.reclaims_from(other)
        return known

    def _reclaims_at_once(self, other: QueueNode) -> bool:
        """Whether a queue's tasks may be reclaimed now: this unit's queue is guaranteed them, or has waited as long as one may.

        What is fair beyond a guarantee is reclaimed at the next checkpoint, where the class of the tasks waits for these.
        """
        known = self._at_once.get(other.name)
        if known is None:
            claim = self._claim(other)
            known = self.waited or (claim is not None and self.may_be_guaranteed(claim.mine))
            self._at_once[other.name] = known
        return known

    def may_stay_within(self, top: QueueNode) -> bool:
        """Whether queues up to one on its path stay within their fair shares with it, or would without what may be evicted."""
        fair, claimants = self.state.queues.fair, self.queue.up_to(top)
        if within_share(fair, claimants, self.demand):
            return True
        return self.nested and within_share(fair, claimants, self.demand, self._all_beside)

    def may_be_guaranteed(self, top: QueueNode) -> bool:
        """Whether a queue on its path is within quota with it, or would be without what may be evicted beside its own."""
        return self.within_quota(top) or (self.nested and self._guaranteed_without(top, self._all_beside))

    @cached_property
    def _all_beside(self) -> dict[str, dict[str, int]]:
        """What can be preempted at most below the queues above its own, that is not its own queue's."""
        if self._wide or self.any_preemptible_by_rank() or self.reclaims_from_users:
            return relief.of_all(self.queue)
        queues = self.state.queues
        return relief.of_lenders(self.queue, self.demand, queues.fair, queues.tree, self._guaranteed)

    def _guaranteed(self, top: QueueNode, taken: dict[str, dict[str, int]]) -> list[str]:
        """What is scarce for a queue on its path, if it is within its quota without what is taken."""
        return [name for name, _ in self._scarce(top)] if self._guaranteed_without(top, taken) else []

    # -- which pods ----------------------------------------------------------------------------

    def reason_for(self, task: Task) -> PreemptionReason | None:
        """Why a task may be preempted, or None if it may not."""
        if task.state is not TaskState.BOUND or task.row < 0 or not task.pod.ours:
            return None
        if task.pod.terminating and not self.state.departures.stays_on(task, self.state.services.now):
            return None
        if self.state.departures.spares(task, self.state.services.now):
            return None
        reason = self._reason_by_kind(task)
        if reason is None or not self._wide or task.queue == self.queue.name:
            return reason
        return None if self._cycle.in_vain(task) else reason

    def _reason_by_kind(self, task: Task) -> PreemptionReason | None:
        """Why work of a task's kind may be preempted at all, or None if it may not: the same for all of the kind."""
        if not self.state.services.is_preemptible(task):
            return None
        return self._reason_of(task, self.state.queues.queues[task.queue])

    def _reason_of_kind(self, kind: Kind) -> PreemptionReason | None:
        """The same of a kind of which all are alike; asked once."""
        if kind not in self._of_kinds:
            self._of_kinds[kind] = self._reason_by_kind(kind.victims[-1].tasks[0])
        return self._of_kinds[kind]

    def reason_for_victim(self, victim: Victim) -> PreemptionReason | None:
        """Why a victim may be preempted, as `reason_for_all`, of a state that is as when its kind was first asked about."""
        tasks, kind = victim.tasks, victim.kind
        if not kind.alike:
            return self.reason_for_all(tasks)
        reason = self._reason_of_kind(kind)
        if reason is None or (self._wide and kind.queue != self.queue.name):
            return reason and self.reason_for_all(tasks)
        if tasks[0].gang is not None and tasks[0].gang is self.unit.gang:
            return None
        departures, now = self.state.departures, self.state.services.now
        if departures.spares_some and any(departures.spares(task, now) for task in tasks):
            return None
        return reason

    def may_take(self, kind: Kind, wanted: PreemptionReason | None = None) -> bool:
        """Whether any of a kind may be preempted for a reason, or for any; or must be asked about one by one."""
        if not kind.alike:
            return True
        reason = self._reason_of_kind(kind)
        return reason is not None and (wanted in (None, reason) or (self._wide and kind.queue != self.queue.name))

    def may_only_take_later(self, kind: Kind) -> bool:
        """Whether any of a kind may be preempted only once others were: its queue holds no more than its share by now."""
        if not kind.alike or self._wide or self._reason_of_kind(kind) is not PreemptionReason.SHARE:
            return False
        return not self._reclaims_now(self.state.queues.queues[kind.queue])

    def _reason_of(self, task: Task, other: QueueNode) -> PreemptionReason | None:  # noqa: PLR0911 - the first reason
        """The same for one that is preemptible at all, of a queue."""
        unit, services = self.unit, self.state.services
        service = services.of(task)
        level = services.level(task) if service.levels else 0
        near = self._in_scope(other)
        if near and task.pod.elastic and task.pod.priority <= unit.priority and task.gang is not None and task.gang.spares():
            return PreemptionReason.ELASTIC
        if (
            level > unit.level
            and task.pod.priority <= unit.priority
            and self.service.preempts_by_service(unit.level, level, near=near)
            and services.time_slice_over(task)
        ):
            return PreemptionReason.SERVICE
        if near and task.pod.priority < unit.priority:
            return PreemptionReason.PRIORITY
        if other is self.queue and not self._reclaims:
            return None  # the hot path: no task of one's own queue is preempted for shares
        if level < service.express and self._cycle.spares(task.pod.priority):
            return None
        if other is self.queue:
            goes_first = task.pod.priority <= unit.priority and unit.level <= level  # else it would take its place back
            return PreemptionReason.USER if goes_first and self.user_holds_more((task,)) else None
        if not self.may_reclaim_from(other) or (self._wide and self._cycle.keeps(task, level)):
            return None
        return PreemptionReason.SHARE if services.time_slice_over(task) or self._reclaims_at_once(other) else None

    def in_vain(self, tasks: Sequence[Task]) -> bool:
        """Whether a job that waits would take in turn what all these leave together, where each alone is of no use to it."""
        if not self._wide or len(tasks) == 1 or all(task.queue == self.queue.name for task in tasks):
            return False
        return self._cycle.in_vain_together(list(tasks))

    def reason_for_all(self, tasks: tuple[Task, ...]) -> PreemptionReason | None:
        """Why tasks that are preempted together only may be; None if one of them may not, or if they are the unit's own gang."""
        if tasks[0].gang is not None and tasks[0].gang is self.unit.gang:
            return None
        if len(tasks) == 1:
            return self.reason_for(tasks[0])
        reasons = [self.reason_for(task) for task in tasks]
        found = [reason for reason in reasons if reason is not None]
        return max(found) if len(found) == len(reasons) else None

    def reasons(self) -> list[PreemptionReason]:
        """For which tasks may be preempted at all, in order."""
        possible = []
        if self.state.pods.elastic:
            possible.append(PreemptionReason.ELASTIC)
        if self.service.levels:
            possible.append(PreemptionReason.SERVICE)
        if self.reclaims_from_users:
            possible.append(PreemptionReason.USER)
        if self.entitled:
            possible.append(PreemptionReason.SHARE)
        return [*possible, PreemptionReason.PRIORITY]

    @property
    def minds_shares(self) -> bool:
        """Whether fair shares decide about anything that it may preempt."""
        return self._wide or self.entitled or self.reclaims_from_users

    def any_preemptible(self) -> bool:
        """Whether anything may be preemptible at all: a cheap test."""
        return self.any_preemptible_by_rank() or self.entitled or self.reclaims_from_users

    def any_preemptible_by_rank(self) -> bool:
        """Whether anything may be, whatever queues and users hold."""
        priority = self.unit.priority
        if any(count and each < priority for each, count in self.queue.priorities.items()):
            return True
        return bool(self.state.pods.elastic or self.service.levels or self.service.scope != "Queue")


def may_lend(preemption: PreemptionPolicy, *, later: bool = True) -> Iterator[QueueNode]:
    """The queues from which a unit may reclaim, and perhaps others, some more than once.

    All from them up to the sibling of one on its queue's path hold more than they should, and its own up to that one would not.
    later: or not without what may be evicted before.
    """
    if not preemption.entitled:
        return
    fair, own, known = preemption.state.queues.fair, preemption.queue, preemption.state.queues.lenders
    for mine in own.path:
        if later:
            guaranteed = preemption.may_be_guaranteed(mine)
            within = guaranteed or preemption.may_stay_within(mine)
        else:
            guaranteed = preemption.within_quota(mine)
            within = guaranteed or within_share(fair, own.up_to(mine), preemption.demand)
        for by_quota in (False, True) if guaranteed else (False,) if within else ():
            for _, lenders in known.beside(mine, by_quota=by_quota):
                yield from lenders


def share_due(state: ClusterState, unit: Unit) -> float:
    """From when on a unit takes what makes up its queue's share though a lender is left with less than its own by that."""
    pending_class = pending_class_of(unit)
    return (
        math.inf
        if pending_class is None or not state.policy.reclaim
        else state.queues.fair.due(unit, pending_class.queue, state.policy.share_wait)
    )


def _amounts(tasks: Sequence[Task]) -> tuple[int, int]:
    """(devices, CPU) that tasks ask for together, in milli, as users' holdings are counted."""
    return sum(task.shape.device_milli for task in tasks), sum(task.shape.cpu for task in tasks)
