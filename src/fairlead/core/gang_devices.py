"""Devices for a gang whose members do not find them one after the other.

The first member takes what it prefers, a whole GPU where a half would do, and the last one finds nothing. So the claims of all
members are allocated together (`dra/gangs.py`), on the nodes that each could have for everything else, with the amounts that they
need of nodes' other resources, those of device plugins included. What is around them (affinity, ports, which GPUs a plugin
has) is checked as they are placed: where two of them do not fit a node together for that, the gang waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairlead.core.dra.model import Allocation, Claim, DeviceId
from fairlead.core.dra.refusals import Refusal
from fairlead.core.model.arrays import Mask
from fairlead.core.model.late import late
from fairlead.core.nodes.device_claims import key_of
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.tasks import Task
from fairlead.core.state.cluster import ClusterState

if TYPE_CHECKING:
    from fairlead.core.dra import allocator, gangs
else:
    allocator, gangs = late("fairlead.core.dra.allocator"), late("fairlead.core.dra.gangs")

Closed = Callable[[Task], Mask | None]
"""For each row whether it is closed to a task, None: none is."""


def place_members(state: ClusterState, tasks: list[Task], closed: Closed) -> bool:
    """Place members of a gang, all of which have claims, under the undo log; whether that was possible.

    Where it was not, the caller rolls back what was placed. Members whose extended resources device plugins can serve are placed
    by these first, so that devices are left; only where that fails it is decided for all members together which is served how.
    """
    served = any(need.served for task in tasks for need in task.shape.spec.devices)
    mark = state.log.mark()
    if _place(state, tasks, closed, plugins_first=served):
        state.log.commit()
        return True
    state.log.rollback(mark)
    return served and _place(state, tasks, closed, plugins_first=False)


def _place(state: ClusterState, tasks: list[Task], closed: Closed, *, plugins_first: bool) -> bool:
    claims, nodes = state.device_claims, state.nodes
    served = {nodes.resource(each.resource) for task in tasks for need in task.shape.spec.devices for each in need.served}
    rows = {
        name: row
        for name, row in sorted(nodes.rows.items())
        if claims.devices.has_devices(row) or any(nodes.alloc[column].item(row) for column in served)
    }
    uses = Counter(need.claim for task in tasks for need in task.shape.spec.devices if need.claim)
    shared: dict[str, int] = {}
    contents: list[Claim] = []
    failed: dict[DeviceId, str] = {}  # for claims of some members; none of the gang gets them
    members: list[gangs.Member] = []
    left: list[Task] = []
    for task in tasks:
        judge = DynamicResources.of(task.ranking.relations)
        if judge is None or judge.stop() is not None:
            return False
        if plugins_first and _put_beside_plugins(state, task, judge, closed(task)):
            continue
        together: list[int] = []
        for need in task.shape.spec.devices:
            if need.served or (need.claim and claims.allocation_of(need.claim) is not None):
                continue
            failed.update(claims.failures.of_claim(need.claim))
            if uses[need.claim] > 1 and need.claim:
                if need.claim not in shared:
                    shared[need.claim] = len(contents)
                    contents.append(claims.wants.content(need.content))
                together.append(shared[need.claim])
        members.append(_member(state, task, judge, rows, closed(task), shared, together))
        left.append(task)
    if not left:
        return True
    possible = frozenset().union(*(each.nodes or () for each in members))
    columns = sorted({int(name) for each in members for form in each.forms for name, _ in form.amounts})
    places = [
        msgspec.structs.replace(place, amounts={str(column): max(0, nodes.free[column].item(row)) for column in columns})
        for name, row in rows.items()
        if name in possible and (place := claims.devices.place_of(row)) is not None
    ]
    held = claims.devices.held.closing(failed) if failed else claims.devices.held
    found = gangs.allocate_gang(places, held, members, contents, claims.classes, allocator.PACKED)
    if isinstance(found, Refusal):
        return False
    given = {key: found.shared[at] for key, at in shared.items()}
    return all(_put(state, task, placed, given) for task, placed in zip(left, found.members, strict=True))


def _member(
    state: ClusterState,
    task: Task,
    judge: DynamicResources,
    rows: dict[str, int],
    shut: Mask | None,
    shared: dict[str, int],
    together: list[int],
) -> gangs.Member:
    """A member as it is served on each node where it may run: what a node's device plugins serve is no claim there."""
    claims = state.device_claims
    by_form: dict[gangs.Form, list[str]] = {}
    forms: dict[tuple[object, ...], gangs.Form] = {}
    for name, row in rows.items():
        if not _may_have(task, judge, row, shut):
            continue
        way = tuple(judge.served_on(row, need) for need in task.shape.spec.devices)
        form = forms.get(way)
        if form is None:
            own = []
            amounts = dict(task.shape.demand)
            for need in task.shape.spec.devices:
                if need.served:
                    content = judge.content_on(row, need)
                    own += [content] if content is not None else []
                    by_claim = {each.resource for each in judge.served_on(row, need)}
                    amounts |= {
                        state.nodes.resource(each.resource): each.amount for each in need.served if each.resource not in by_claim
                    }
                elif need.claim not in shared and not (need.claim and claims.allocation_of(need.claim) is not None):
                    own.append(claims.wants.content(need.content))
            form = forms[way] = gangs.Form(tuple(own), tuple((str(column), amount) for column, amount in sorted(amounts.items())))
        by_form.setdefault(form, []).append(name)
    (first, names), *others = by_form.items() if by_form else [(gangs.Form(), [])]
    return gangs.Member(
        task.pod.uid,
        first.claims,
        tuple(together),
        frozenset(names).union(*(each for _, each in others)),
        first.amounts,
        tuple((frozenset(each), form) for form, each in others),
    )


def _put_beside_plugins(state: ClusterState, task: Task, judge: DynamicResources, closed: Mask | None) -> bool:
    """Place a member whose claims are all for extended resources where device plugins serve these, so that devices are left."""
    needs = task.shape.spec.devices
    if not all(need.served for need in needs):
        return False
    keys = task.ranking.ranked()
    for row in np.argsort(-keys, kind="stable").tolist():
        if keys.item(row) < 0:
            return False
        if (closed is None or not closed[row]) and all(judge.content_on(row, need) is None for need in needs):
            if state.queues.limits.over_limit(task, row=row) is not None:
                return False
            state.placement.place(task, row)
            state.reserved.take(task, row)
            return True
    return False


def _may_have(task: Task, judge: DynamicResources, row: int, closed: Mask | None) -> bool:
    """Whether a row would do for a task but for the devices that are to be allocated."""
    if (closed is not None and closed[row]) or not task.ranking.fits_alone(row) or not judge.reaches(row):
        return False
    if not judge.claims_can_be_had(row):
        return False
    return _fits_others(task, row)


def _fits_others(task: Task, row: int) -> bool:
    """Whether a row is to be had with what is around it now, its devices aside."""
    others = (each for each in task.ranking.relations if not isinstance(each, DynamicResources))
    return all(each.stop() is None and (not each.applies() or each.refuses(row) is None) for each in others)


def _put(state: ClusterState, task: Task, placed: gangs.Placed, shared: dict[str, Allocation | None]) -> bool:
    """Place one member where the devices were found; False where it does not fit beside the others, or is beyond a limit."""
    claims, row = state.device_claims, state.nodes.rows[placed.node]
    judge = DynamicResources.of(task.ranking.relations)
    if (
        judge is None
        or not task.ranking.fits_alone(row)
        or not _fits_others(task, row)
        or state.queues.limits.over_limit(task, row=row) is not None
    ):
        return False
    decided: dict[str, Allocation] = {}
    own = iter(placed.allocations)
    for use, need in zip(task.pod.claims, task.shape.spec.devices, strict=True):
        if need.served:
            if judge.content_on(row, need) is not None:
                decided[key_of(task.pod.uid, use)] = next(own)
            continue
        if need.claim and claims.allocation_of(need.claim) is not None:
            continue
        allocation = shared[need.claim] if need.claim in shared else next(own)
        if allocation is not None:
            decided[key_of(task.pod.uid, use)] = allocation
    with state.placement.deciding(decided):
        state.placement.place(task, row)
    state.reserved.take(task, row)
    return True
