"""Assume: what was decided for a unit is true in the state at once, and becomes a transaction.

Pods with places start, placeholders let their jobs resume; where victims must go first, places are held. Outcomes of the
writes arrive as events.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.actions.consolidate import Moved
from fairlead.core.actions.reserve import name_of
from fairlead.core.model.transactions import Binding, Place, Preempt, Transaction
from fairlead.core.pods.tasks import Gang, Task, Unit
from fairlead.core.preemption.search import Plan, by_upstream
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState


def begin(state: ClusterState, unit: Unit, placed: list[Task], now: float) -> Iterator[Transaction]:
    """Those of a unit that have places start, unless members with places wait for victims."""
    assume(state, unit, placed, now)
    if unit.gang is None and not placed[0].pod.placeholder and not placed[0].pod.claims:
        yield Place((_binding(state, placed[0]),))  # as most are
    elif not joins_held(state, unit.gang, placed):
        yield from start(state, placed, now)


def start(state: ClusterState, tasks: list[Task], now: float) -> Iterator[Transaction]:
    """Tasks that have places are bound; placeholders let their suspended job resume."""
    gang, pods = tasks[0].gang, [task for task in tasks if not task.pod.placeholder]
    if pods:
        yield Place(tuple(_binding(state, task) for task in pods), gang.key if gang is not None else "")
    if len(pods) < len(tasks):
        state.spares.keep(task for task in tasks if task.pod.spare)
        resumed = [task for task in tasks if task.pod.placeholder and not task.pod.spare]
        if resumed:
            yield state.suspended.resume(resumed, now)


def assume(state: ClusterState, unit: Unit, placed: list[Task], now: float) -> None:
    """A unit has its places: it waits no longer, and what is remembered of vain searches for it is over."""
    unit.retire()
    if unit.gang is not None and state.spares.keys:
        state.spares.followed(unit.gang.key)
    state.queues.fair.touch()
    state.reserved.started(name_of(unit))
    state.foretold.started(unit.tasks[0].job, now)
    if (pending_class := pending_class_of(unit)) is not None:
        state.queues.waiting.backing_off.end(pending_class)
        if pending_class not in state.queues.waiting.without_victims:
            pending_class.search.without_victims = False
    for task in placed:
        task.started = now
        task.reported = None
        if state.pods.nominated:
            state.pods.withdraw_nomination(task.pod.uid)
    first = unit.tasks[0]
    if unit.gang is not None and not first.beyond and len(placed) < len(unit.gang.tasks):
        state.tables.unsettle(unit.gang)  # the others may have places now, too


def joins_held(state: ClusterState, gang: Gang | None, placed: list[Task]) -> bool:
    """Members with places wait for the victims that others wait for which their gang needs; whether there are such victims.

    So do pods that share a claim with one that waits: its devices are those of the victims.
    """
    these, mates = set(placed), list[Task]()
    if gang is not None and (held := gang.held()) and (placed[0].pod.placeholder or gang.lacks_some(without=these)):
        mates = [task for task in held if task not in these]
    mates += state.claims.held_with(placed)
    return bool(mates) and state.evictions.join(placed, mates)


def hold(state: ClusterState, unit: Unit, plan: Plan, now: float, moved: frozenset[str] = frozenset()) -> None:
    """Victims go, and the places that they make are held for a unit. moved: as in `Evictions.begin`."""
    assume(state, unit, plan.placed, now)
    state.evictions.begin([*plan.victims, *plan.leaving], plan.placed, plan.places, now, moved)
    joins_held(state, unit.gang, plan.placed)


def preempted(state: ClusterState, unit: Unit, plan: Plan | Moved, now: float) -> Preempt:
    """What a plan takes is evicted, or moves; the places that it makes are held for the unit."""
    return _moved(state, unit, plan, now) if isinstance(plan, Moved) else _evicted(state, unit, plan, now)


def _moved(state: ClusterState, unit: Unit, moved: Moved, now: float) -> Preempt:
    plan, placeholders = moved
    rows = sorted({placeholder.row for placeholder in placeholders.values()})
    after = {row: state.moves.after(plan.places, plan.placed, row) for row in rows}
    for task in plan.victims:
        if (placeholder := placeholders.get(task.pod.uid)) is not None:
            state.moves.keep(task, placeholder, now, after[placeholder.row])
    state.moves.budget.spend(len(placeholders))
    return _evicted(state, unit, plan, now, frozenset(placeholders))


def _evicted(state: ClusterState, unit: Unit, plan: Plan, now: float, moved: frozenset[str] = frozenset()) -> Preempt:
    """moved: UIDs of victims that only move: the placeholders that keep their new places are charged in their stead."""
    hold(state, unit, plan, now, moved)
    names = state.nodes.names
    held = tuple(Binding(task.ref, names[task.row], task.devices) for task in plan.placed)
    victims = [task for task in plan.victims if not task.pod.spare]  # those are gone with their gangs, without a write
    evicted = [task for task in victims if task.pod.uid not in moved]
    groups = tuple(sorted({task.gang.key for task in evicted if task.gang is not None}))
    outright = by_upstream(unit)
    suspends = () if outright else state.suspended.ask(evicted, now)
    group = unit.gang.key if unit.gang else ""
    graces = () if outright else state.departures.graces(victims)
    going = tuple(sorted(moved))
    return Preempt(
        tuple(Binding(task.ref, task.pod.node) for task in victims),
        held,
        group,
        outright,
        moved=going,
        moved_to=tuple(names[state.in_flight.kept[uid].placeholder.row] for uid in going),
        groups=groups,
        why=plan.why,
        suspends=suspends,
        graces=graces,
        overrides=plan.overrides,
    )


def _binding(state: ClusterState, task: Task) -> Binding:
    volumes = state.placement.volumes_of(task) if task.shape.spec.claims else ()
    claims = state.placement.device_claims_of(task) if task.shape.spec.devices else ()
    partner = state.neighbours.partner_of(task) if task.shape.spec.paired else ""
    return Binding(task.ref, state.nodes.names[task.row], task.devices, volumes, claims, partner)
