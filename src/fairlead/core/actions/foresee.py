"""Foresee: what must have ended until a unit fits, found under the undo log with all that decides on places.

What runs is taken off its row in the order of its expected end until the unit fits; how many must be gone is doubled until
that is enough, and halved. That costs a trial of the unit for each step. Devices of claims, parts of devices and relations
need no cases of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.reserved_devices import ReservedDevices
from fairlead.core.state.cluster import ClusterState

Ends = Sequence[tuple[float, str, Task]]
"""What runs: (when it is thought to end, its UID, it), in that order."""


def take_off(state: ClusterState, ends: Ends, fits: Callable[[], bool]) -> int | None:
    """How many must have ended at least until something fits; they are off their rows afterwards. None: it never does."""
    log = state.log

    def tried(first: int, after: int) -> bool:
        mark = log.mark()
        for _, _, task in ends[first:after]:
            state.placement.unassign(task)
        if fits():
            log.rollback(mark)
            return True
        log.commit()
        return False

    if fits():
        return 0
    low, step = 0, 1
    while not tried(low, low + step):
        low, step = low + step, 2 * step
        if low >= len(ends):
            return None
    while step > 1:
        step //= 2
        if not tried(low, low + step):
            low += step
    state.placement.unassign(ends[low][2])
    return low + 1


def left_on(state: ClusterState, row: int) -> dict[int, int]:
    """What is free on a row, by column; of devices those of which nothing is given out."""
    nodes = state.nodes
    left = {column: free.item(row) for column, free in enumerate(nodes.free)}
    whole = sum(each == WHOLE for each in nodes.devices.states[nodes.device.item(row)])
    for name in nodes.gpu_resources:
        column = nodes.resources.get(name)
        if column is not None and left[column] > 0:
            left[column] = min(left[column], whole)
    return left


def kept_devices(state: ClusterState, placed: Sequence[Task]) -> ReservedDevices | None:
    """What devices are spoken for, in a trial in which a unit has its places; None: it uses no claims."""
    with_claims = [task for task in placed if task.pod.claims and task.shape.spec.devices]
    if not with_claims:
        return None
    found = ReservedDevices(state.nodes, state.device_claims, with_claims, state.log)
    return found if found.pools else None
