"""Defragment devices of claims: nodes that hold little are emptied, and then GPUs of which partitions are in use.

The same as for devices of device plugins (`defragment`): no job waits for it, each pod has its new place before it goes, and a
node or a GPU is emptied of all its pods or left alone. A node gives to nodes that are in use; a GPU to others that are partly in
use, on any node, so that no whole GPU is taken for it. What holds least gives first. Devices of the network are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.dra.model import Chosen
from fairlead.core.model.arrays import Mask
from fairlead.core.model.policy import Defragment
from fairlead.core.nodes.device_claims import key_of
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.tasks import Placeholder, Task
from fairlead.core.preemption.rearrange import closed_to_moved
from fairlead.core.state.cluster import ClusterState

if TYPE_CHECKING:
    from fairlead.core.dra.held import NodeState


class Emptied(NamedTuple):
    """What is emptied of a row: which pods go, and what holds their new places. gpu: it is one GPU, and not the node."""

    row: int
    moved: list[Task]
    placeholders: dict[str, Placeholder]
    gpu: bool = False


class _Donor(NamedTuple):
    """What may be emptied: a row, or of it a set of devices. held: in thousandths of GPUs."""

    held: int
    name: str
    row: int
    tasks: list[Task]
    devices: int


def empty_devices(state: ClusterState, policy: Defragment, left: int) -> Iterator[Emptied]:
    """Empty nodes, then GPUs, by so many pods at most; placeholders are in place when one is yielded, its pods still there."""
    if not state.device_claims.known or not state.device_claims.used or not _is_fragmented(state, policy):
        return
    given, in_use = set[int](), _in_use(state)
    for donor in sorted(_nodes(state), key=lambda each: each[:3]):
        if len(donor.tasks) <= left and donor.row not in given:
            placeholders = _empty(state, donor, in_use - given - {donor.row}, whole=False)
            if placeholders:
                left -= len(donor.tasks)
                given.add(donor.row)
                yield Emptied(donor.row, donor.tasks, placeholders)
    taking: set[int] = set()  # rows that got something: their GPUs give nothing in this run
    for donor in sorted(_gpus(state), key=lambda each: each[:3]):
        if len(donor.tasks) <= left and donor.row not in given and donor.row not in taking:
            placeholders = _empty(state, donor, in_use - given, whole=True)
            if placeholders:
                left -= len(donor.tasks)
                taking |= {each.row for each in placeholders.values()}
                yield Emptied(donor.row, donor.tasks, placeholders, gpu=True)


def _is_fragmented(state: ClusterState, policy: Defragment) -> bool:
    """Whether enough of what is free is on nodes, or in GPUs, of which something is in use."""
    fragmented = total = 0
    in_use = _in_use(state)
    for row in state.nodes.rows.values():
        there = state.device_claims.devices.state_of(row)
        if there is None or not state.nodes.open.item(row):
            continue
        free = _free_parts(there)
        total += sum(free)
        fragmented += sum(each for each in free if row in in_use or each < _WHOLE)
    return bool(fragmented) and fragmented >= policy.threshold * total


_WHOLE = 1000


def _free_parts(there: NodeState) -> list[int]:
    """What is free of each GPU of a node, in thousandths: of its scarcest counter; of devices without counters all or nothing."""
    inventory = there.inventory
    parts = [
        min(_WHOLE * max(0, there.free[at]) // inventory.totals[at] for at in counters if inventory.totals[at])
        for _, _, counters in inventory.forms
        if any(inventory.totals[at] for at in counters)
    ]
    plain = inventory.all & ~there.alone & ~sum(1 << at for cell in inventory.cells for at in cell)
    return [*parts, *([_WHOLE] * plain.bit_count())]


def _with_devices(state: ClusterState, row: int) -> list[Task]:
    """The pods on a row that have devices by claims, or are to have them."""
    return [task for task in state.nodes.pods[row].values() if task.pod.claims and task.shape.spec.devices]


def _in_use(state: ClusterState) -> set[int]:
    return {row for row in state.nodes.rows.values() if _with_devices(state, row)}


def _may_go(state: ClusterState, tasks: list[Task]) -> bool:
    shared = state.device_claims.devices.slices.is_shared
    return all(
        task.pod.uid not in state.in_flight.kept and state.moves.is_movable(task) and all(use.template for use in task.pod.claims)
        for task in tasks
    ) and not any(
        shared((each.device.driver, each.device.pool))
        for task in tasks
        for key in state.device_claims.keys_of(task.pod)
        for each in _devices_of(state, key)
    )


def _devices_of(state: ClusterState, key: str) -> tuple[Chosen, ...]:
    allocation = state.device_claims.allocation_of(key)
    return allocation.devices if allocation is not None else ()


def _nodes(state: ClusterState) -> Iterator[_Donor]:
    for row in sorted(_in_use(state)):
        tasks = _with_devices(state, row)
        if state.nodes.open.item(row) and _may_go(state, tasks):
            yield _Donor(sum(task.shape.claimed_milli for task in tasks), state.nodes.names[row], row, tasks, 0)


def _cells(state: ClusterState, row: int) -> list[int]:
    """The GPUs of a row that can be partitioned, as sets of devices."""
    there = state.device_claims.devices.state_of(row)
    return [] if there is None else [sum(1 << at for at in cell) for cell in there.inventory.cells]


def _gpus(state: ClusterState) -> Iterator[_Donor]:
    """GPUs of which some partitions are in use, all of them by pods that may go and have nothing else."""
    for row in sorted(_in_use(state)):
        there = state.device_claims.devices.state_of(row)
        if there is None or not state.nodes.open.item(row):
            continue
        of_task = [(task, _positions(state, there, task)) for task in _with_devices(state, row)]
        for cell in _cells(state, row):
            tasks = [task for task, devices in of_task if devices & cell]
            inside = all(not devices & ~cell for _, devices in of_task if devices & cell)
            held = sum(task.shape.claimed_milli for task in tasks)
            if tasks and inside and held < _WHOLE and _may_go(state, tasks):
                yield _Donor(held, state.nodes.names[row], row, tasks, cell)


def _positions(state: ClusterState, there: NodeState, task: Task) -> int:
    found = 0
    for key in state.device_claims.keys_of(task.pod):
        for each in _devices_of(state, key):
            at = there.inventory.position.get(each.device)
            found |= 1 << at if at is not None else 0
    return found


def _empty(state: ClusterState, donor: _Donor, rows: set[int], *, whole: bool) -> dict[str, Placeholder]:
    """Places for all pods of a donor beside what is there now; empty, and nothing has changed: there are none."""
    mark = state.log.mark()
    placeholders: dict[str, Placeholder] = {}
    for task in sorted(donor.tasks, key=lambda each: (-each.shape.claimed_milli, each.pod.key)):
        made = placeholders[task.pod.uid] = state.moves.placeholder(task)
        if not _place(state, made, donor, rows, whole=whole):
            state.log.rollback(mark)
            for each in placeholders.values():
                state.shapes.release(each.ranking)
            return {}
    state.log.commit()
    return placeholders


def _place(state: ClusterState, made: Placeholder, donor: _Donor, rows: set[int], *, whole: bool) -> bool:
    """Put a placeholder where least is free of what may be taken. whole: no GPU of which nothing is in use may be."""
    relation, closed = DynamicResources.of(made.ranking.relations), closed_to_moved(state, made)
    if relation is None or relation.stop() is not None:
        return False
    choices = []
    for row in sorted(rows):
        there = state.device_claims.devices.state_of(row)
        if there is None or not _is_open(made, row, closed):
            continue
        taboo = donor.devices if row == donor.row else 0
        taboo |= _untouched(there) if whole else 0
        left = there.taking(taboo)
        found = relation.decide(row, left)
        if isinstance(found, list):
            free = (there.inventory.all & ~(left.alone | left.unservable)).bit_count()
            choices.append((free, state.nodes.names[row], row, found))
    if not choices:
        return False
    _, _, row, found = min(choices, key=lambda each: each[:2])
    decided = {key_of(made.pod.uid, made.pod.claims[at]): allocation for at, allocation in found}
    with state.placement.deciding(decided):
        state.placement.place(made, row)
    state.reserved.take_moved(made, row)
    return True


def _is_open(made: Placeholder, row: int, closed: Mask | None) -> bool:
    return made.ranking.fits_alone(row) and not (closed is not None and bool(closed[row]))


def _untouched(there: NodeState) -> int:
    """The devices of GPUs of which nothing is in use."""
    inventory, found = there.inventory, 0
    for cell, (_, _, counters) in zip(inventory.cells, inventory.forms, strict=True):
        if all(there.free[at] == inventory.totals[at] for at in counters):
            found |= sum(1 << at for at in cell)
    return found
