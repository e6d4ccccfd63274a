"""Conditions: what could help an unschedulable pending class. The first that holds is enough to try it again.

Conditions are questions and change nothing. What was seen is one record, `PendingClass.seen`; what blocks a class, and that a
search is due for it once its backoff is over, is collected in its `Check`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Unit, rankings_of
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.search import could_free_capacity, holds_victims
from fairlead.core.preemption.trial import may_reclaim
from fairlead.core.preemption.victims import victims_of
from fairlead.core.queues.queue_node import PendingClass
from fairlead.core.queues.searches import Seen
from fairlead.core.state.cluster import ClusterState

_NO_SHARES = Seen().shares


def kept_out(state: ClusterState, unit: Unit) -> int:
    """How many holds keep rows from a unit."""
    return len(state.reserved.against(unit.tasks[0])) if state.reserved.holds else 0


class Check:
    """An unschedulable class while it is checked. rows: those with new capacity, freed: queues with new headroom.

    search_due: there may be victims for it now, or pods to be moved, which are not searched for before its backoff is over.
    released: the job for which it is held back may not have more.
    """

    def __init__(
        self, state: ClusterState, pending_class: PendingClass, unit: Unit, why: Reason, rows: list[int], freed: set[str]
    ) -> None:
        self.state = state
        self.pending_class = pending_class
        self.unit = unit
        self.why = why
        self.rows = rows
        self.freed = freed
        self.blocking = Blocking()
        self.preempts = state.policy.preempt and not unit.tasks[0].pod.never_preempts
        self.search_due = False
        self.released = False

    @cached_property
    def preemption(self) -> PreemptionPolicy:
        """Whom its first unit may preempt."""
        return PreemptionPolicy(
            self.state,
            self.unit,
            enforce_quota=reclaims_from(self.state, self.unit) <= self.state.services.now,
            blocking=self.blocking,
        )

    @cached_property
    def hunts(self) -> bool:
        """Whether there may be victims for it at all."""
        preemption = self.preemption
        return self.preempts and preemption.any_preemptible()

    @cached_property
    def claims(self) -> bool:
        """Whether it is below its fair share, or its user below others."""
        return self.preempts and (self.preemption.entitled or self.preemption.reclaims_from_users)

    @cached_property
    def may_reclaim(self) -> bool:
        """Whether there is a queue, or a user of its own, from which it may reclaim something now."""
        return self.preemption.reclaims_from_users or may_reclaim(self.preemption)

    @cached_property
    def claim_is_over(self) -> bool:
        """Whether the job for which it is held back waits no longer, or does not deserve anything before it any more."""
        queues, other, pending_class = self.state.queues, self.pending_class.held_back, self.pending_class
        if other is None:
            return False
        if not other.alive:
            return True
        theirs, demand = queues.queues[other.tasks[0].queue], queues.tree.asked_together(other.tasks[: other.need])
        return not queues.reclaim.is_due_before(theirs, demand, pending_class.queue, pending_class.demand)

    @cached_property
    def rests(self) -> bool:
        """Whether only a place helps: a search is due for it once its backoff is over, or nothing may be preempted for it."""
        waiting, pending_class = self.state.queues.waiting, self.pending_class
        search = pending_class.search
        return search.without_victims or (pending_class in waiting.backing_off and self.state.services.now < search.backoff_until)

    def may_search(self) -> bool:
        """Whether a search is made for it when it is tried; else one is due once its backoff is over."""
        self.search_due = self.search_due or self.state.services.now < self.pending_class.search.backoff_until
        return not self.search_due

    @property
    def limited(self) -> bool:
        """Whether a limit blocks it. Where a budget does, a limit may, too: the victims that it protects would free that."""
        return self.why.code in (ReasonCode.LIMIT_EXCEEDED, ReasonCode.DISRUPTION_BUDGET)

    @cached_property
    def rankings(self) -> list[Ranking]:
        """Of what it asks for."""
        return rankings_of(self.unit.tasks)

    @cached_property
    def surroundings(self) -> tuple[int, ...]:
        """How those of its shapes stand that depend on other pods."""
        return tuple(ranking.surroundings() for ranking in self.rankings if ranking.relations)

    @property
    def shares(self) -> tuple[int, int]:
        """Which fair shares there are, and how many jobs have started."""
        return self.state.queues.fair.version, self.state.services.starts

    @property
    def path_freed(self) -> bool:
        """Whether a queue of its pods, or one above it, holds less or may hold more."""
        nodes = self.state.queues.queues
        return any(node.name in self.freed for name in self.queues for node in nodes[name].path)

    @cached_property
    def queues(self) -> set[str]:
        """Those of its pods: members of a gang may name different ones."""
        return {self.pending_class.queue.name, *(task.queue for task in self.unit.tasks)}


# -- for which reasons a condition matters -----------------------------------------------------


def _always(_: Check) -> bool:
    return True


def _held_back(check: Check) -> bool:
    """It is blocked by a job that would reclaim from its queue at once."""
    return check.pending_class.held_back is not None


def _guaranteed_to_others(check: Check) -> bool:
    """It is non-preemptible, and would hold what others are guaranteed."""
    return check.why.code is ReasonCode.QUOTA_EXCEEDED


def _limited(check: Check) -> bool:
    return check.limited


def _lacks_place(check: Check) -> bool:
    """It has no place. Against a limit a place helps only where victims of its own would free that, or the limit is of a pool:
    a place outside it helps, too.
    """
    if check.why.code is ReasonCode.QUOTA_EXCEEDED:
        return False
    if check.why.code is not ReasonCode.LIMIT_EXCEEDED or check.hunts:
        return True
    return check.state.queues.limits.limited_by_row(check.pending_class.queue.name)


def _may_search(check: Check) -> bool:
    """It has no place, and no search is due for it already."""
    return not check.rests and _lacks_place(check)


# -- conditions --------------------------------------------------------------------------------


def _reservations_changed(check: Check, seen: Seen) -> bool:
    """Rows that were reserved for others may be free now. Pods on such rows were no victims, and may be now, too."""
    kept_out = check.why.code is ReasonCode.RESERVATION or (seen.kept_out and check.preempts)
    return bool(kept_out) and seen.reservations != check.state.reserved.version


def _fewer_holds_exclude_it(check: Check, seen: Seen) -> bool:
    """It is known by now to end in time for some of the holds."""
    return bool(seen.kept_out) and kept_out(check.state, check.unit) < seen.kept_out


def _queue_may_hold_it(check: Check, seen: Seen) -> bool:
    """What its queue may hold was reserved for another: by now the queue holds less, or may hold more, and both are possible."""
    return seen.exhausted and check.state.reserved.exhausted_by(check.unit) is None


def _claim_is_gone(check: Check, seen: Seen) -> bool:
    """The job for which it is held back may have no claim any more: it waits no longer, or shares moved."""
    if check.claim_is_over:
        return True
    if seen.shares[0] == check.state.queues.fair.version:
        return False
    other = check.pending_class.held_back
    check.released = other is not None and check.state.queues.limits.over_limits(other) is not None
    if check.released:
        return True
    return all(ranking.best() >= 0 for ranking in check.rankings) or check.may_search()  # a place needs no search


def _others_need_less(check: Check, _: Seen) -> bool:
    """Limits, and what others are guaranteed, leave enough for it; the rest is held by non-preemptible work."""
    return check.state.queues.limits.over_limits(check.unit) is None


def _limit_freed(check: Check, _: Seen) -> bool:
    """Queues on its path hold less: it is within limits, or what it lacked besides may have come."""
    return check.path_freed and (
        check.hunts
        or len(check.queues) > 1
        or check.state.queues.limits.within_limits(check.pending_class.queue.name, check.preemption.demand)
    )


def _surroundings_changed(check: Check, seen: Seen) -> bool:
    """A pod that came or went anywhere may have opened a place, or victims, elsewhere, where it matters which pods are where."""
    if check.surroundings == seen.surroundings:
        return False
    return check.hunts or any(ranking.relations and ranking.best() >= 0 for ranking in check.rankings)


def _shares_changed(check: Check, seen: Seen) -> bool:
    """It may reclaim from jobs that started, or since shares moved; its own queue may hold less, and be within quota."""
    if not check.claims:
        return False
    preemption = check.preemption
    changed = check.shares != seen.shares or (
        preemption.entitled
        and any(node.name in check.freed and preemption.within_quota(node) for node in check.pending_class.queue.path)
    )
    return changed and check.may_reclaim and check.may_search()


def _rows_gained(check: Check, _: Seen) -> bool:
    """A row with new capacity takes it, with victims or without. Against a limit victims help anywhere."""
    if any(ranking.fits_row(row) for ranking in check.rankings for row in check.rows):
        return True
    if not check.preempts:
        return False
    preemption, limited = check.preemption, check.limited
    return (
        not check.rests
        and any(could_free_capacity(preemption, row) or (limited and holds_victims(preemption, row)) for row in check.rows)
        and check.may_search()
    )


def _enough_in_fragments(check: Check, _: Seen) -> bool:
    """What became free may be enough with the fragments elsewhere, by itself or with what is evicted beside the moves."""
    state, unit = check.state, check.unit
    if not check.rows or moves_from(state, unit) > state.services.now:
        return False
    if not state.moves.enough_free(unit) and not _enough_beside_moves(check):
        return False
    return check.may_search()


def _enough_beside_moves(check: Check) -> bool:
    """Whether a row with new capacity has free devices, and what may be evicted holds what all that are free lack.

    Not for work with levels of attained service: something with more runs always, and each search in vain puts off the next one,
    beyond the moments at which time slices end. It is tried again whenever one ends, in any case.
    """
    state = check.state
    if (
        check.preemption.service.levels
        or not check.hunts
        or not any(state.nodes.devices.total.item(state.nodes.device.item(row)) > 0 for row in check.rows)
    ):
        return False
    return victims_of(state).hold(check.preemption, state.moves.lacking(check.unit))


# -- what is remembered once a condition was asked ---------------------------------------------


def _nothing(_: Check, seen: Seen) -> Seen:
    return seen


def _fair_version(check: Check, seen: Seen) -> Seen:
    return seen._replace(shares=(check.shares[0], seen.shares[1]))


def _surroundings(check: Check, seen: Seen) -> Seen:
    return seen._replace(surroundings=check.surroundings)


def _shares(check: Check, seen: Seen) -> Seen:
    return seen._replace(shares=check.shares if check.claims else _NO_SHARES)


class Condition(NamedTuple):
    """When a class is tried again: for which classes this matters, whether it holds, and what is remembered once it was asked."""

    matters: Callable[[Check], bool]
    helps: Callable[[Check, Seen], bool]
    notes: Callable[[Check, Seen], Seen] = _nothing


CONDITIONS = (
    Condition(_always, _reservations_changed),
    Condition(_always, _fewer_holds_exclude_it),
    Condition(_always, _queue_may_hold_it),
    Condition(_held_back, _claim_is_gone, _fair_version),
    Condition(_guaranteed_to_others, _others_need_less),
    Condition(_limited, _limit_freed),
    Condition(_lacks_place, _surroundings_changed, _surroundings),
    Condition(_may_search, _shares_changed, _shares),
    Condition(_lacks_place, _rows_gained),
    Condition(_may_search, _enough_in_fragments),
)
"""In the order in which they are asked; the first that holds is enough."""
