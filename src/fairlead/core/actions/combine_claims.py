"""Combine, for units whose devices come from ResourceClaims: one plan that evicts some and moves others.

The rules are those of `combine`. Which devices a claim can have is not a matter of amounts: parts of a GPU share counters, pods
share claims, and a claim may have alternatives. So sets of victims are tried by what they are charged, the empty one and the
least first: the first that serves evicts the least. A set is ruled out without a trial where all nodes together had too few
devices, or too little of a counter, without it (`claim_bounds`): moves give nothing back. Otherwise moves are searched for on
the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from fairlead.core.actions.combine import attempt
from fairlead.core.actions.consolidate import Moved, can_be_placed, usable_by, work_waited
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.device_claims import key_of
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.ascending import ascending
from fairlead.core.preemption.claim_bounds import FreedDevices, lacking_devices
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.domain_clearing import joins_domain
from fairlead.core.preemption.network_devices import elsewhere
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.search import Plan
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState

_CANDIDATES = 16
"""So many of the cheapest victims are considered."""
_LISTED = 5_000  # so many sets of them are counted
_STEPS_LESS, _STEPS_MORE = 400, 150  # of all sets together: to evict less than a plan would; where there is none


def wants_devices(unit: Unit) -> bool:
    """Whether a unit's devices come from claims; not where device plugins have its GPUs, and claims what belongs to these.

    Nodes of other ComputeDomains are no places for what moves, so gangs of such have plans of evictions alone.
    """
    needs = [need for task in unit.tasks for need in task.shape.spec.devices]
    if not needs or joins_domain(unit):
        return False
    by_plugins = any(task.shape.gpus for task in unit.tasks) and not any(need.served for need in needs)
    return not by_plugins or any(task.shape.claimed_milli for task in unit.tasks)


def leaves_devices(state: ClusterState, unit: Unit, plan: Plan) -> bool:
    """Whether devices of claims are free anywhere while a plan is laid out: else no plan could evict less."""
    if not wants_devices(unit) or not any(task.shape.spec.devices for task in plan.victims):
        return False
    states = (state.device_claims.devices.state_of(row) for row in state.nodes.rows.values())
    return any(each is not None and each.inventory.all & ~(each.alone | each.unservable) for each in states)


def combine_claims(
    state: ClusterState, unit: Unit, now: float, plan: Plan | None, blocking: Blocking, *, enforce_quota: bool = False
) -> Moved | None:
    """A plan that evicts less than one of evictions alone, or what that cannot do at all (None); None changes nothing."""
    core = unit.core()
    missing = lacking_devices(state, core.tasks) if can_be_placed(state, core) else None
    if missing is None:
        return None
    preemption = PreemptionPolicy(state, unit, enforce_quota=enforce_quota, blocking=blocking)
    charge = _Charge(state, core)
    bound = charge.of(plan.victims) if plan is not None else 1 << 60
    candidates = _candidates(preemption, core)
    freed = FreedDevices(state, [task for _, victim in candidates for task in victim.tasks])
    candidates = [each for each in candidates if freed.without(each[1].tasks)]  # others free no device
    weights = [(charge.of(victim.tasks), len(victim.tasks)) for _, victim in candidates]
    order = sorted(range(len(candidates)), key=weights.__getitem__)
    spent = sum(state.services.lost_with(task) for task in plan.victims) if plan is not None else 0.0
    most_lost, steps = spent + work_waited(unit, now), _STEPS_LESS if plan is not None else _STEPS_MORE
    for indices in islice(_sets([weights[at] for at in order], moves_alone=plan is not None), _LISTED):
        some = [candidates[order[at]] for at in indices]
        if sum(weights[order[at]][0] for at in indices) >= bound or steps <= 0:
            return None
        gives = freed.without(task for _, victim in some for task in victim.tasks)
        if any(gives.get(name, 0) < amount for name, amount in missing.items()):
            continue
        chosen = victims_of(state).with_rest(preemption, some)
        if charge.of([task for _, victim in chosen for task in victim.tasks]) >= bound:
            continue
        if len(list(PlannedVictims(preemption).admitted(chosen))) < len(chosen):
            continue
        for whole in _ways(state):
            found, taken = attempt(preemption, core, chosen, most_lost, now, steps, whole=whole)
            steps -= taken
            if found is not None:
                return found
    return None


def _sets(weights: list[tuple[int, ...]], *, moves_alone: bool) -> Iterator[tuple[int, ...]]:
    """Sets of victims, by what they are charged; where no moves alone were tried by then, the empty one first."""
    return chain([()] if moves_alone else [], ascending(weights))


def _ways(state: ClusterState) -> tuple[bool, ...]:
    """Who moves: pods by themselves; and only if these do not help gangs as a whole, where a class lets them."""
    return (False, True) if any(each.moves_whole for each in state.services.classes.values()) else (False,)


def _candidates(preemption: PreemptionPolicy, core: Unit) -> list[Preemptible]:
    """The cheapest victims on rows that the unit may have, or that hold devices which it could have there."""
    state = preemption.state
    usable = usable_by(state, core)
    others = elsewhere(state, core.tasks)
    if others is not None:
        usable[sorted(others.rows)] = True
    return list(islice(victims_of(state).one_by_one(preemption, usable.item), _CANDIDATES))


class _Charge:
    """What an eviction costs: GPUs that pods are charged for, in milli. Where the unit asks for none, each device is one."""

    def __init__(self, state: ClusterState, core: Unit) -> None:
        self._claims = state.device_claims
        self._gpus = any(task.shape.counted_milli for task in core.tasks)

    def of(self, tasks: Iterator[Task] | list[Task] | tuple[Task, ...]) -> int:
        """Of these together."""
        return sum(task.shape.counted_milli if self._gpus else self._devices(task) for task in tasks)

    def _devices(self, task: Task) -> int:
        found = (self._claims.allocation_of(key_of(task.pod.uid, use)) for use in task.pod.claims)
        return task.shape.device_milli + WHOLE * sum(len(each.devices) for each in found if each is not None)
