"""Victimless: single pods for which nothing may be preempted, whatever is where, nor moved. They are not searched for.

Such a search would be in vain, and is not counted as one: it would only put off the first that need not be. Nor is one made where
one for others alike, that ask for no more, was in vain just now. So once it is known, only a place helps such a class
(`queues.without_victims`), and it is kept with those in backoff. It is searched for again

- when something may be preempted for it, and it is the first of those alike: its queue came to hold less than it deserves, or
  something of lower priority. Others are tried after it only if they ask for less than what found nothing;
- once all else is served, where devices are left free and pods may be moved together for it;
- at a time from which on more may be done for it (`requeue`), or where queues or classes of service changed.

What decides that is alike for most of what waits in a queue, so it is asked once for all of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions import backoff
from fairlead.core.actions.backoff import is_plain
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.trial import may_claim, may_reclaim
from fairlead.core.queues.queue_node import PendingClass, QueueNode
from fairlead.core.queues.without_victims import Alike, Facts, Group, Hope, Vain
from fairlead.core.state.cluster import ClusterState


def _is_plain(state: ClusterState, pending_class: PendingClass, unit: Unit) -> bool:
    """Whether a place, and victims, are decided by what a unit asks for alone."""
    return not unit.tasks[0].shape.minds_neighbours and is_plain(state, pending_class, unit)


def is_in_vain(state: ClusterState, pending_class: PendingClass, unit: Unit, now: float) -> bool:
    """Whether a search for a unit of a class is in vain, as one was just now for a unit that is alike and asks for no more."""
    known = state.queues.waiting.without_victims
    vain = known.vain_at(_as_of(state, now))
    if not vain or not _is_plain(state, pending_class, unit) or moves_from(state, unit) <= now:
        return False
    group = _group(state, pending_class, unit)
    if not any(each.covers(unit) for each in map(Vain, vain.get(group, ()))):
        return False
    if group in known.sought:
        known.sought[group].vain.append(unit)
    return True


def note(state: ClusterState, pending_class: PendingClass, unit: Unit, now: float, blocking: Blocking, *, found: bool) -> bool:
    """Victims were searched for: whether there can be none, so that this was no search.

    blocking: what was found to block it, without which there may be some. found: there were some.
    """
    if not _is_plain(state, pending_class, unit):
        return False
    known, group = state.queues.waiting.without_victims, _group(state, pending_class, unit)
    if found:
        known.rests.pop(group, None)
        return False
    if moves_from(state, unit) <= now or blocking.blocked_by is not None:
        return False
    pending_class.search.without_victims = _has_none(state, unit)
    if not pending_class.search.without_victims:
        known.vain_at(_as_of(state, now)).setdefault(group, []).append(unit)
        if group in known.sought:
            known.sought[group].vain.append(unit)
    return pending_class.search.without_victims


def _has_none(state: ClusterState, unit: Unit) -> bool:
    """Whether nothing may be preempted for a unit now."""
    if state.reserved.holds and state.reserved.against(unit.tasks[0]):
        return False  # fewer holds may keep it out later
    return not _may_preempt(state, unit)


def _as_of(state: ClusterState, now: float) -> tuple[float, ...]:
    """As of which what was found in vain is so."""
    queues = state.queues
    versions = queues.accounts.version, queues.fair.version, queues.waiting.policies, state.services.starts
    return now, *versions, state.reserved.version, state.nodes.described


def _group(state: ClusterState, pending_class: PendingClass, unit: Unit) -> Group:
    names = _facts(state, pending_class.queue, unit).names
    first = unit.tasks[0]
    work = first.pod.never_preempts, first.service_class, unit.level
    alike = Alike(unit.priority, work, names, pending_class.core_of(names), first.shape.device_milli)
    return Group(pending_class.queue, alike)


def _may_preempt(state: ClusterState, unit: Unit) -> bool:
    if not state.policy.preempt or unit.tasks[0].pod.never_preempts:
        return False
    return _may_take(PreemptionPolicy(state, unit)) or (
        reclaims_from(state, unit) < math.inf and _may_take(PreemptionPolicy(state, unit, enforce_quota=True))
    )


def _may_take(preemption: PreemptionPolicy) -> bool:
    if preemption.any_preemptible_by_rank() or preemption.reclaims_from_users:
        return True
    return preemption.entitled and may_reclaim(preemption)


def note_refused(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason) -> None:
    """A class was just refused. What is not kept as such any more is searched for when it is tried."""
    search = pending_class.search
    if not search.without_victims:
        return
    if reason.code is ReasonCode.RESOURCES and _is_plain(state, pending_class, unit):
        state.queues.waiting.without_victims.add(pending_class, _group(state, pending_class, unit))
    else:
        search.without_victims = False


def forget_empty(state: ClusterState) -> None:
    """Where nothing waits any more nothing is kept."""
    waiting, emptied = state.queues.waiting, state.queues.tree.emptied
    for pending_class in emptied:
        if not pending_class.waiting and pending_class.unschedulable is not None:
            waiting.may_take(pending_class)
    emptied.clear()


def regroup(state: ClusterState) -> None:
    """What is alike depends on what shares and quotas are about."""
    known = state.queues.waiting.without_victims
    facts = known.facts_of(state.queues.fair.names_version)
    if known.grouped_by is facts:
        return
    complete = True
    for group in known.groups():
        for each in list(known.alike(group)):
            of_queue = facts.get(group.node)
            if of_queue is not None and of_queue.names == group.alike.names:
                break
            unit = each.first()
            if unit is None:
                complete = False  # limits stop all its users for now
            elif (now := _group(state, each, unit)) != group:
                known.add(each, now)
    known.grouped_by = facts if complete else None


def with_victims(state: ClusterState, now: float) -> Iterator[Group]:
    """The groups for which something may be preempted by now. What rests is tried again later."""
    waiting = state.queues.waiting
    known = waiting.without_victims
    if not known:
        return
    known.facts_of(state.queues.fair.names_version)
    as_of = known.found_anew, bool(state.pods.elastic), state.queues.guarantees.classes
    for group in known.hopeful(partial(_hope, state), as_of, lends=state.queues.lenders.any()):
        if not _may_have_some(state, group):
            continue
        one = next((unit for each in known.alike(group) if (unit := each.first()) is not None), None)
        if one is None or not _may_preempt(state, one):
            continue
        _, until = known.rests.get(group, (0, 0.0))
        if until <= now:
            yield group
        else:
            known.retry(group, until)


def retry(state: ClusterState, now: float) -> None:
    """Groups that something happened to while they rested are tried again."""
    waiting = state.queues.waiting
    for group in waiting.without_victims.due(now):
        first = next_of(state, group)
        if first is not None:
            waiting.without_victims.seek(group).tried.add(first[1])
            waiting.requeue(first[0])


def keep(state: ClusterState, pending_class: PendingClass, unit: Unit) -> None:
    """Nothing happened that could help one that was just checked."""
    pending_class.search.without_victims = True
    state.queues.waiting.without_victims.add(pending_class, _group(state, pending_class, unit))
    backoff.keep(state, pending_class)


def _has_some(state: ClusterState, group: Group, unit: Unit) -> bool:
    """Whether something may be preempted for those of a group, of which one is given."""
    return _may_have_some(state, group) and _may_preempt(state, unit)


def _may_have_some(state: ClusterState, group: Group) -> bool:
    """Whether something may be: a test for every queue in every pass, which asks no more than it needs."""
    hope = _hope(state, group)
    return hope is Hope.BY_RANK or (hope is Hope.BY_SHARE and state.queues.lenders.any_beside(group.node.path))


def _hope(state: ClusterState, group: Group) -> Hope:
    """The same as far as it follows from what the group's queue holds."""
    node, alike = group
    facts = state.queues.waiting.without_victims.facts_of(state.queues.fair.names_version).get(node)
    if facts is None or facts.in_fragments or state.pods.elastic:
        return Hope.BY_RANK
    if node.priorities and min(node.priorities) < alike.priority:
        return Hope.BY_RANK
    return Hope.BY_SHARE if facts.scarce and may_claim(state, node, alike.charge) else Hope.NONE


def _facts(state: ClusterState, node: QueueNode, unit: Unit) -> Facts:
    """What holds for a queue as long as policies, and what shares are about, are what they are. unit: one that waits in it."""
    fair, known = state.queues.fair, state.queues.waiting.without_victims.facts_of(state.queues.fair.names_version)
    facts = known.get(node)
    if facts is None:
        facts = known[node] = Facts(fair.names_of(node), fair.scarce(node), reclaims_from(state, unit) < math.inf)
    return facts


def go_on(state: ClusterState, now: float) -> bool:
    """All else is served. What victims, or pods to be moved, may be there for now is tried; whether anything is.

    The more often all searches for a group were in vain, the longer until the next one.
    """
    waiting = state.queues.waiting
    known, again = waiting.without_victims, _to_be_moved_for(state, now)
    for group, sought in list(known.sought.items()):
        more = None
        if sought.tried:
            more = next_of(state, group, [*sought.vain, *sought.unhelped], sought.tried, sought.covered)
        if more is not None and _has_some(state, group, more[1]):
            sought.tried.add(more[1])
            waiting.may_take(more[0])
            again.append(more[0])
            continue
        del known.sought[group]
        if sought.vain and known.alike(group):
            times = known.rests.get(group, (0, 0.0))[0] + 1
            known.rests[group] = times, now + state.policy.search_rest(times)
    for pending_class in again:
        with state.isolation.guard("requeue", pending_class):
            waiting.requeue(pending_class)
    return bool(again)


def next_of(
    state: ClusterState,
    group: Group,
    vain: Sequence[Unit] = (),
    tried: AbstractSet[Unit] = frozenset(),
    covered: set[Unit] | None = None,
) -> tuple[PendingClass, Unit] | None:
    """The first of a group that was not tried, and for which a search need not be in vain, as those for some units were.

    covered: those for which one is, as far as it is known; what is found out is noted there.
    """
    known, covered, best = [Vain(unit) for unit in vain], set() if covered is None else covered, None
    for each in state.queues.waiting.without_victims.alike(group):
        unit = each.first()
        if unit is None or unit in tried or unit in covered:
            continue
        for one in known:
            if one.covers(unit):
                covered.add(unit)
                break
        else:
            if best is None or _is_before(group, unit, best[1]):
                best = each, unit
    return best


def _is_before(group: Group, unit: Unit, other: Unit) -> bool:
    """Whether a unit of a group goes before another. What one user holds decides nothing between two of the same."""
    if unit.user == other.user:
        return unit.rank < other.rank
    return group.node.unit_key(unit) < group.node.unit_key(other)


def _to_be_moved_for(state: ClusterState, now: float) -> list[PendingClass]:
    """Those that pods may be moved for, where devices were left free since rows gained capacity."""
    waiting, moves, found = state.queues.waiting, state.moves, []
    gained, waiting.rows_gained = waiting.rows_gained, False
    if not gained or not state.policy.moves_per_minute or not moves.any_free():
        return []
    for group in waiting.without_victims.groups():
        if moves.free.total() < group.alike.milli:
            continue
        classes = waiting.without_victims.alike(group)
        found += [each for each in classes if (unit := each.first()) is not None and moves_from(state, unit) <= now]
    for each in found:
        waiting.may_take(each)
    return found
