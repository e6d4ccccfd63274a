"""Preempt and reclaim: free capacity for a unit by evicting work that ranks behind it (`policy` decides whose).

Everything is tried on the state itself under the undo log: victims are taken off, the unit is
placed, and victims are put back for as long as the unit still fits, most valuable first. Only
then pods are evicted, so none is evicted in vain. A gang is evicted as a whole once it would drop
below its minimum; its elastic replicas are evicted one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core import allocation
from fairlead.core.gang_topology import could_hold, near_of
from fairlead.core.model.causes import NO_CAUSE, Cause
from fairlead.core.model.pods import Near
from fairlead.core.pods import amounts
from fairlead.core.pods.colocation import kin
from fairlead.core.pods.tasks import Task, TaskState, Unit, rankings_of
from fairlead.core.preemption.candidates import candidates_of
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.domain_clearing import fewest, joins_domain, price_of
from fairlead.core.preemption.may_have import MayHave, may_have_any, rows_by_shape, where_victims_help
from fairlead.core.preemption.network_devices import elsewhere
from fairlead.core.preemption.node_clearing import clear
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import Budgets, PreemptionPolicy
from fairlead.core.preemption.removal import Removal, cost, least_on, reprieve
from fairlead.core.preemption.shared_amounts import Together
from fairlead.core.preemption.subsets import search
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState

_ROWS_TOGETHER = 16
"""On how many rows sets of victims are tried for a gang; on more, rows are cleared one by one."""
_DOMAINS = 16
"""In so many domains of the network victims are sought for a gang that must be in one."""
_CANDIDATES = 100
"""How many nodes are examined exactly for a single pod, those with the cheapest victims first (kube-scheduler's bound)."""


class Plan(NamedTuple):
    """What is evicted and what is placed, both already so in the state.

    places: victim's UID -> the row and devices it still occupies until it is gone. why: the reason. overrides: UIDs of
    victims whose disruption budgets forbid it. leaving: pods that are terminating anyway and must be gone, too.
    """

    victims: list[Task]
    placed: list[Task]
    places: dict[str, tuple[int, tuple[int, ...]]]
    why: Cause = NO_CAUSE
    overrides: tuple[str, ...] = ()
    leaving: Sequence[Task] = ()


def cause(chosen: Sequence[Preemptible]) -> Cause:
    """Why these are evicted."""
    if len(chosen) == 1:
        return Cause((chosen[0][0],))
    counts = Counter(reason for reason, _ in chosen)
    return Cause(tuple(reason for reason, _ in counts.most_common()))


def preempt(
    state: ClusterState,
    unit: Unit,
    *,
    enforce_quota: bool = False,
    waited: bool = False,
    budgets: Budgets = Budgets.KEEP,
    blocking: Blocking | None = None,
) -> Plan | None:
    """Places for a unit by evicting others; None changes nothing. For the options see `PreemptionPolicy`."""
    if not state.policy.preempt or unit.tasks[0].pod.never_preempts:
        return None
    if by_upstream(unit):
        return _as_upstream(state, unit)
    preemption = PreemptionPolicy(state, unit, enforce_quota=enforce_quota, waited=waited, budgets=budgets, blocking=blocking)
    if joins_domain(unit):
        with state.network.domains.released():
            return _by_rules(preemption)
    return _by_rules(preemption)


def _by_rules(preemption: PreemptionPolicy) -> Plan | None:
    state, unit = preemption.state, preemption.unit
    if len(unit.tasks) == 1:
        if not may_have_any(state, unit):
            return _for_gang(preemption) if _only_limits_exclude(state, unit, {}) else None
        return _for_one(preemption)
    near = near_of(state, unit)
    return _for_gang(preemption) if near is None or not near.required else _in_one_domain(preemption, near)


def by_upstream(unit: Unit) -> bool:
    """Whether a unit preempts as kube-scheduler does: pods of lower priority of any queue, on one node. Gangs do not."""
    return len(unit.tasks) == 1 and unit.tasks[0].pod.profile == KUBERNETES_PROFILE


def _as_upstream(state: ClusterState, unit: Unit) -> Plan | None:
    task = unit.tasks[0]
    if _waits_for_victims(state, task) or state.queues.limits.over_limit(task) is not None:
        return None
    choice = candidates_of(state).of(task.ranking, unit.priority).best()
    if choice is None or state.queues.limits.over_limit(task, row=choice.row) is not None:
        return None
    removal = Removal(state)
    removal.take(choice.victims)
    return _in_place_of(choice.victims, task, choice.row, removal)


def _in_place_of(victims: list[Task], task: Task, row: int, removal: Removal, why: Cause = NO_CAUSE) -> Plan:
    """A single pod gets its place on a row that victims have left."""
    removal.state.placement.place(task, row)
    return Plan(victims, [task], removal.places, why)


def _waits_for_victims(state: ClusterState, task: Task) -> bool:
    """Whether victims of an earlier preemption for this pod, perhaps before a restart, are still leaving its node."""
    row = state.nodes.rows.get(task.pod.nominated)
    return row is not None and any(
        each.pod.priority < task.pod.priority and each.pod.terminating and each.pod.preempted
        for each in state.nodes.pods[row].values()
    )


def holds_victims(preemption: PreemptionPolicy, row: int) -> bool:
    """Whether anything on a row may be evicted for a unit."""
    return any(preemption.reason_for(task) is not None for task in preemption.state.nodes.pods[row].values())


def could_free_capacity(preemption: PreemptionPolicy, row: int) -> bool:
    """Whether one member of a unit could fit a row, were all gone from it that may be evicted.

    Exact by resource, blind to devices and gangs: a cheap test of whether a full search is worth while.
    """
    state, unit = preemption.state, preemption.unit
    if by_upstream(unit):
        ranking = unit.tasks[0].ranking
        return ranking.fits_row(row) or candidates_of(state).of(ranking, unit.priority).least(row) is not None
    freed = amounts.by_column(task for task in state.nodes.pods[row].values() if preemption.reason_for(task) is not None)
    return any(amounts.fits(state.nodes, row, each.shape.demand, freed) and each.admits(row) for each in rankings_of(unit.tasks))


def _only_limits_exclude(state: ClusterState, unit: Unit, tried: dict[int, list[Preemptible]]) -> bool:
    """Whether what its queue holds elsewhere keeps a pod out: there is a place, or could be one but for a limit."""
    task = unit.tasks[0]
    pool_is_full = state.queues.limits.closed(task) is not None
    if not pool_is_full and state.queues.limits.over_limit(task) is None:
        return False
    return (
        allocation.best_row(state, task) >= 0
        or (pool_is_full and task.ranking.best() >= 0)
        or any(_could_fit(state, unit, *each) for each in tried.items())
    )


def _for_one(preemption: PreemptionPolicy) -> Plan | None:
    """The cheapest node for a single pod: each candidate is solved exactly, then compared."""
    state, unit = preemption.state, preemption.unit
    task = unit.tasks[0]
    may_have = MayHave(state, task)
    others = elsewhere(state, unit.tasks)
    best: tuple[tuple[object, ...], int, list[Preemptible]] | None = None
    examined = 0
    tried: dict[int, list[Preemptible]] = {}
    where = may_have if others is None else lambda row: row in others.rows or may_have(row)
    for reason, cheapest in victims_of(state).one_by_one(preemption, where):
        if not tried and (others is None or may_have(cheapest.tasks[0].row)):
            plan = _at_once(preemption, (reason, cheapest))
            if plan is not None:
                return plan
        rows = {each.row for each in cheapest.tasks} if others is None else others.helped((reason, cheapest))
        for row in sorted(rows, key=state.nodes.names.__getitem__):
            if row in tried or not may_have(row) or state.placement.takes(task, row):
                continue  # a row that it fits already is reserved for those nominated there: nothing need be evicted
            victims_there = victims_of(state).on_row if others is None else others.together
            victims = tried[row] = victims_there(preemption, row)
            mark = state.log.mark()
            chosen = least_on(state, task, row, victims)
            state.log.rollback(mark)
            if chosen is None or not PlannedVictims(preemption).admits_all(chosen):
                continue
            examined += 1
            chosen = victims_of(state).with_rest(preemption, chosen)
            price = (*cost(chosen), state.nodes.names[row])
            if best is None or price < best[0]:
                best = (price, row, chosen)
            if len(chosen) == 1 and chosen[0][1] is cheapest and len(cheapest.tasks) == 1 and others is None:
                examined = _CANDIDATES  # what comes later costs more
        if examined >= max(_CANDIDATES, len(state.nodes) // 10):
            break
    if best is None and (found := _by_subsets(preemption, unit)):
        chosen, (row,) = found
        best = (cost(chosen), row, victims_of(state).with_rest(preemption, chosen))
    if best is None:
        return _for_gang(preemption) if _only_limits_exclude(state, unit, tried) else None
    return _on_row(preemption, *best[1:])


def _on_row(preemption: PreemptionPolicy, row: int, chosen: list[Preemptible]) -> Plan | None:
    """The plan for a single pod on a row; None if what leaves would take its place back."""
    down = [each for _, victim in chosen for each in victim.tasks]
    if preemption.in_vain(down):
        return None
    removal = Removal(preemption.state)
    removal.take(down)
    return _in_place_of(down, preemption.unit.tasks[0], row, removal, cause(chosen))


def _at_once(preemption: PreemptionPolicy, cheapest: Preemptible) -> Plan | None:
    """The plan that the cheapest victim of all gives if it is a single pod and its place is enough: none costs less.

    The unit may have that place.
    """
    state, unit = preemption.state, preemption.unit
    if len(cheapest[1].tasks) > 1 or state.budgets.may_block:
        return None  # budgets are checked for all victims of a node together
    task, (victim,) = unit.tasks[0], cheapest[1].tasks
    row = victim.row
    if state.placement.takes(task, row):
        return None
    if len(victims_of(state).with_rest(preemption, [cheapest])) > 1:
        return None
    mark = state.log.mark()
    removal = Removal(state)
    removal.take((victim,))
    if not state.placement.takes(task, row):
        state.log.rollback(mark)
        return None
    plan = _in_place_of([victim], task, row, removal, cause([cheapest]))
    state.log.commit()
    return plan


def _could_fit(state: ClusterState, unit: Unit, row: int, victims: Sequence[Preemptible]) -> bool:
    """Whether a single pod fits a row without all of these victims, whatever its limits."""
    mark = state.log.mark()
    removal = Removal(state)
    for _, victim in victims:
        removal.take(victim.tasks)
    fits = unit.tasks[0].ranking.fits_row(row)
    state.log.rollback(mark)
    return fits


def _in_one_domain(preemption: PreemptionPolicy, near: Near) -> Plan | None:
    """Places for a gang that must be in one domain of the network, in that where the fewest pods are evicted.

    A domain is tried if it could hold the gang were it empty; those that hold most of it now come first.
    """
    state, unit = preemption.state, preemption.unit
    best: tuple[tuple[int, ...], int] | None = None
    domains = list(could_hold(state, unit.core(), near, _DOMAINS))
    for number, rows in enumerate(domains):
        mark = state.log.mark()
        with state.network.within(near.gang, rows):
            plan = _for_gang(preemption)
        if plan is not None:
            price = price_of(plan.victims, plan.why if near.domain else None)
            best = (price, number) if best is None else min(best, (price, number))
        _take_back(state, unit, mark)
    if best is None:
        return None
    with state.network.within(near.gang, domains[best[1]]):
        return _for_gang(preemption)


def _take_back(state: ClusterState, unit: Unit, mark: int) -> None:
    """What was tried for a unit is undone."""
    state.log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)


def _for_gang(preemption: PreemptionPolicy) -> Plan | None:
    """Places for a gang: down the list of the cheapest, or else row by row; then those that need not be evicted are put back."""
    state, unit = preemption.state, preemption.unit
    core = unit.core()
    fits = _fit_of(state, core)
    limited = _limited(state, core)
    if not limited and not may_have_any(state, core):
        return None
    found = fewest(preemption, core, rows_by_shape(state, core), fits) if joins_domain(core) and not limited else None
    if found is None:
        found = _cheapest(preemption, core, fits, limited=limited)
    if found is None or preemption.in_vain([task for _, victim in found for task in victim.tasks]):
        return None
    mark, removal = state.log.mark(), Removal(state)
    for _, victim in found:
        removal.take(victim.tasks)
    chosen = reprieve(removal, found, fits, Together(state, core).may_return(removal)) if fits() else []
    if len(chosen) < len(found) and preemption.nested:
        state.log.rollback(mark)
        mark, removal = state.log.mark(), Removal(state)
        chosen = chosen if PlannedVictims(preemption).admits_all(chosen) else []
        for _, victim in chosen:
            removal.take(victim.tasks)
    if rest := victims_of(state).with_rest(preemption, chosen)[len(chosen) :]:
        for _, victim in rest:
            removal.take(victim.tasks)
        chosen = [*chosen, *rest]
    placed = allocation.allocate(state, core) if chosen else None
    if not isinstance(placed, list):
        state.log.rollback(mark)
        return None
    state.log.commit()
    return Plan([task for _, victim in chosen for task in victim.tasks], placed, removal.places, cause(chosen))


def _cheapest(preemption: PreemptionPolicy, core: Unit, fits: Callable[[], bool], *, limited: bool) -> list[Preemptible] | None:
    """The victims for a gang: down the list of the cheapest, or else row by row, or in sets; None: there are none."""
    state = preemption.state
    only = None if limited else Together(state, core).only()
    source = victims_of(state).in_order(preemption, None if limited else where_victims_help(state, core), only)
    first = _enough(state, core, source)
    found = _down_the_list(state, first, source, fits) if first is not None else None
    reclaims = not limited and (preemption.entitled or preemption.reclaims_from_users)
    if found is None and first is not None and reclaims:
        found = _row_by_row(preemption, core)
    if found is None and reclaims:
        found, _ = _by_subsets(preemption, core) or (None, [])
    return found


def _down_the_list(
    state: ClusterState, victims: list[Preemptible], source: Iterator[Preemptible], fits: Callable[[], bool]
) -> list[Preemptible] | None:
    """The fewest from the cheapest on without which a gang fits; None if all are too few. The state is left as it was.

    victims: the first that could be enough. source: those that follow.
    """
    mark = state.log.mark()
    removal = Removal(state)
    down = 0  # so many of them are off their rows, and that is not enough

    def suffice(count: int) -> bool:
        """Whether the first so many are enough; if not, they stay off their rows."""
        nonlocal down
        trial = state.log.mark()
        for _, victim in victims[down:count]:
            removal.take(victim.tasks)
        if fits():
            state.log.rollback(trial)
            return True
        state.log.commit()
        down = count
        return False

    # The bound is often enough; else their number is doubled until it is, and what lies between is halved.
    short, count = 0, len(victims)
    while not suffice(count):
        # All of them are put back first: what may be reclaimed is computed from what queues hold while they run.
        state.log.rollback(mark)
        more = list(islice(source, count))
        if not more:
            return None
        mark, down = state.log.mark(), 0
        victims += more
        short, count = count, len(victims)
    while short and short + 1 < count:
        middle = (short + count) // 2
        if suffice(middle):
            count = middle
        else:
            short = middle
    state.log.rollback(mark)
    return victims[:count]


def _by_subsets(preemption: PreemptionPolicy, core: Unit) -> tuple[list[Preemptible], Sequence[int]] | None:
    """The victims and the rows that were tried, where sets are: each row that may hold a single pod, for a gang all together.

    A row that is tried need not be one of the victims': a limit, or a term between pods, may be all that kept the pod off it.
    """
    state = preemption.state
    if not (preemption.entitled or preemption.reclaims_from_users) or victims_of(state).steps <= 0:
        return None
    there = victims_of(state).rows(preemption)
    if not there:
        return None  # without victims no set of them is any use
    rows = np.flatnonzero(np.logical_or.reduce(list(rows_by_shape(state, core).values()))).tolist()
    if len(core.tasks) > 1:
        fits = _fit_of(state, core)
        return search(preemption, core, [rows] if len(rows) <= _ROWS_TOGETHER else [], lambda _: fits())
    task = core.tasks[0]
    others = elsewhere(state, core.tasks)
    anywhere = preemption.nested or others is not None
    rows = others.worth(rows) if others is not None else rows
    named = sorted((row for row in rows if anywhere or row in there), key=state.nodes.names.__getitem__)
    return search(
        preemption,
        core,
        ([row] for row in named if not state.placement.takes(task, row)),
        lambda on: state.placement.takes(task, on[0]),
    )


def _row_by_row(preemption: PreemptionPolicy, core: Unit) -> list[Preemptible] | None:
    """The victims for a gang where whole rows are cleared; of one that must share a domain, where that costs least."""
    state = preemption.state
    rows = rows_by_shape(state, core)
    groups = kin(core.tasks)
    if not groups:
        return clear(preemption, core, rows)
    if len(groups) > 1:
        return None  # so many choices are not worth it
    best: list[Preemptible] | None = None
    domains = groups[0].domain
    for domain in sorted(set(domains.tolist()) - {0}):
        near = {number: mask & (domains == domain) if number in groups[0].shapes else mask for number, mask in rows.items()}
        found = clear(preemption, core, near)
        if found and (best is None or cost(found) < cost(best)):
            best = found
    return best


def _limited(state: ClusterState, core: Unit) -> bool:
    """Whether a limit may be in a gang's way, so that victims anywhere help."""
    first, queues = core.tasks[0], state.queues
    refused = queues.limits.over_limits(core) or queues.limits.over_limit(first, core.need)
    return refused is not None or queues.limits.limited_by_row(first.queue)


def _enough(state: ClusterState, core: Unit, source: Iterator[Preemptible]) -> list[Preemptible] | None:
    """The first victims that could be enough, by amounts alone: what all nodes have free, and what these hold."""
    where = where_victims_help(state, core) if near_of(state, core) is not None else None
    rows = slice(0, state.nodes.count) if where is None else np.flatnonzero(where).tolist()
    missing = amounts.lacking(state.nodes, rows, amounts.asked_by(core.tasks))
    victims, freed, shared = list[Preemptible](), dict[int, int](), Together(state, core)
    for each in source:
        victims.append(each)
        amounts.add(freed, each[1].tasks)
        if shared.covered_with(each[1].tasks) and amounts.covers(freed, missing):
            return victims
    return None


def _fit_of(state: ClusterState, core: Unit) -> Callable[[], bool]:
    """Whether the needed members fit as things stand; by counting where they are alike and free of rules."""
    first = core.tasks[0]

    def by_counting() -> bool:
        if state.queues.limits.over_limit(first, core.need) is not None:
            return False
        return int(first.ranking.counts().sum()) >= core.need

    alike = all(task.shape is first.shape and task.queue == first.queue for task in core.tasks)
    plain = not first.ranking.relations and not state.pods.nominated and not state.reserved.holds
    plain = plain and not state.queues.limits.limited_by_row(first.queue)
    return by_counting if alike and plain else lambda: allocation.fits(state, core)
