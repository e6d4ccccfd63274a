"""Combine: one plan that evicts some and moves others, where evictions alone would take more devices than are lacking.

Victims are whole pods: evicting a pod of two devices for a unit that lacks one leaves one idle. If a smaller pod is evicted
instead, or none, and others move to the fragments that are left, all devices stay in use. So a plan of evictions that would leave
devices free is compared with sets of victims that hold less: pods that may be evicted in any case, from the least devices on,
each set tried with moves (`rearrange`).

No more work is lost than with the plan alone, beyond what the unit could have done while it waited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from fairlead.core.actions.consolidate import (
    Moved,
    can_be_placed,
    devices_free,
    devices_of,
    gpus_of,
    rearranged,
    usable_by,
    work_waited,
)
from fairlead.core.dra.model import Allocation
from fairlead.core.nodes.device_claims import DeviceClaims
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.device_bounds import could_be_free
from fairlead.core.preemption.movers import Movers
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.rearrange import Rearrangement
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.search import Plan, cause
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.preemption.worth import Worth
from fairlead.core.state.cluster import ClusterState

_CANDIDATES = 16
"""So many of the cheapest victims are considered, in sets of up to three or, where more are needed, from the cheapest on."""
_SETS = 6  # so many sets are tried with moves
_LARGEST = 3
_STEPS_LESS, _STEPS_MORE = 600, 200  # of all sets together: to evict less than a plan would; where there is none


class Laid(NamedTuple):
    """A plan as it stands in the state, so that it can be taken back and laid out again."""

    plan: Plan
    places: list[tuple[Task, int, tuple[int, ...], dict[str, Allocation]]]

    @classmethod
    def of(cls, state: ClusterState, plan: Plan) -> Laid:
        """What a plan has assumed: places, devices, and what claims get."""
        assumed = state.device_claims.assumed
        return cls(plan, [(task, task.row, task.devices, _decided(assumed, task)) for task in plan.placed])

    def again(self, state: ClusterState) -> Plan:
        """The same once more, on the state as it was before."""
        for task in self.plan.victims:
            state.placement.unassign(task)
        for task, row, devices, decided in self.places:
            with state.placement.deciding(decided):
                state.placement.assign(task, row, devices)
            state.reserved.take(task, row)
            task.become(TaskState.ASSUMED)
        return self.plan


def _decided(assumed: Mapping[str, Allocation], task: Task) -> dict[str, Allocation]:
    keys = DeviceClaims.keys_of(task.pod) if task.pod.claims else ()
    return {key: assumed[key] for key in keys if key in assumed}


def leaves_fragments(state: ClusterState, plan: Plan) -> bool:
    """Whether devices are free anywhere while a plan is laid out: else no plan could evict less."""
    return (
        state.moves.any_free() and any(task.shape.gpus for task in plan.placed) and any(task.shape.gpus for task in plan.victims)
    )


def combine(
    state: ClusterState, unit: Unit, now: float, plan: Plan | None, blocking: Blocking, *, enforce_quota: bool = False
) -> Moved | None:
    """A plan that evicts less than one of evictions alone, or what that cannot do at all (None); None changes nothing."""
    core = unit.core()
    usable = usable_by(state, core)
    lacking = max(0, devices_of(core.tasks) - devices_free(state, usable))
    bound = devices_of(plan.victims) if plan is not None else 1 << 60
    if lacking >= bound or (plan is None and not lacking):
        return None
    preemption = PreemptionPolicy(state, unit, enforce_quota=enforce_quota, blocking=blocking)
    candidates = list(islice(victims_of(state).one_by_one(preemption, usable.item), _CANDIDATES))
    spent = sum(state.services.lost_with(task) for task in plan.victims) if plan is not None else 0.0
    most_lost = spent + work_waited(unit, now)
    steps = _STEPS_LESS if plan is not None else _STEPS_MORE
    for some in _sets(candidates, lacking, bound):
        chosen = victims_of(state).with_rest(preemption, some)
        if sum(devices_of(victim.tasks) for _, victim in chosen) >= bound:
            continue
        found, taken = attempt(preemption, core, chosen, most_lost, now, steps)
        steps -= taken
        if found is not None or steps <= 0:
            return found
    return None


def _sets(candidates: list[Preemptible], lacking: int, bound: int) -> list[tuple[Preemptible, ...]]:
    """Sets of victims that hold what is lacking and less than the bound, those with the least devices first."""
    held = [devices_of(victim.tasks) for _, victim in candidates]
    found: list[tuple[int, int, tuple[int, ...]]] = []
    for size in range(_LARGEST + 1):
        for chosen in combinations(range(len(candidates)), size):
            total = sum(held[index] for index in chosen)
            if lacking <= total < bound and not any(total - held[index] >= lacking for index in chosen):
                found.append((total, size, chosen))
    total, first = 0, []
    for index, amount in enumerate(held):
        if total >= lacking:
            break
        total += amount
        first.append(index)
    if len(first) > _LARGEST and lacking <= total < bound:
        found.append((total, len(first), tuple(first)))
    found.sort()
    return [tuple(candidates[index] for index in chosen) for _, _, chosen in found[:_SETS]]


def attempt(
    preemption: PreemptionPolicy,
    core: Unit,
    chosen: Sequence[Preemptible],
    most_lost: float,
    now: float,
    steps: int,
    *,
    whole: bool = False,
) -> tuple[Moved | None, int]:
    """A set of victims and the moves with which the unit fits, if there are such, and how many steps the search took.

    most_lost: device-seconds of work, of all together. whole: whether gangs may move as such, too.
    """
    state, services = preemption.state, preemption.state.services
    down = [task for _, victim in chosen for task in victim.tasks]
    planned = PlannedVictims(preemption)
    if not all(planned.admits(*each) for each in chosen) or (down and preemption.in_vain(down)):
        return None, 0
    left = most_lost - sum(services.lost_with(task) for task in down)
    worth = Worth(state, now, left, gpus_of(core.tasks), none=True)
    mark, removal = state.log.mark(), Removal(state)
    removal.take(down)
    ended = {task.gang.key for _, victim in chosen if not victim.spare for task in victim.tasks if task.gang is not None}
    movers = Movers(state, preemption.unit, whole=whole, ended=ended)
    search = Rearrangement(state, movers, worth, without=down, steps=steps)
    possible = can_be_placed(state, core) and could_be_free(state, movers, core.tasks)
    if not possible or not search.place_with_moves(core.tasks) or not (down or search.moved):
        state.log.rollback(mark)
        return None, search.taken
    state.log.commit()
    return rearranged(search, core, down, removal.places, cause(chosen)), search.taken
