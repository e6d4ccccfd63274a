"""Victims that share a device, which is whole only once all of them leave: what asks for whole devices needs all or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.state.cluster import ClusterState

Together = tuple[Preemptible, ...]
"""Victims that are tried together."""


def wants_whole(unit: Unit) -> bool:
    """Whether every member of a unit asks for whole devices."""
    return all(task.shape.gpus and task.shape.gpu_milli == WHOLE for task in unit.tasks)


def whole_devices(state: ClusterState, rows: Sequence[int], gone: Iterable[Task] = ()) -> int:
    """How many devices of some rows would be whole without some of the pods there."""
    freed: Counter[tuple[int, int]] = Counter()
    for task in gone:
        for device in task.devices:
            freed[task.row, device] += task.shape.gpu_milli
    devices = state.nodes.devices.states
    return sum(
        left + freed[row, device] == WHOLE for row in rows for device, left in enumerate(devices[state.nodes.device.item(row)])
    )


def by_device(state: ClusterState, victims: Sequence[Preemptible], rows: Sequence[int]) -> list[Together]:
    """Victims as whole devices need them: those on one shared device of these rows together, all others by themselves.

    A device that another pod keeps a part of never becomes whole: what is there is left out. Empty where no device is shared.
    """
    of = {task.pod.uid: each for each in victims for task in each[1].tasks}
    sharing: dict[tuple[int, int], list[Task]] = {}
    for row in rows:
        for task in state.nodes.pods[row].values():
            for device in task.devices if _is_part(task) else ():
                sharing.setdefault((row, device), []).append(task)
    if not sharing:
        return []
    found: list[Together] = [
        tuple({id(of[task.pod.uid][1]): of[task.pod.uid] for task in tasks}.values())
        for tasks in sharing.values()
        if all(task.pod.uid in of for task in tasks)
    ]
    on = set(rows)
    return found + [(each,) for each in victims if any(not (_is_part(task) and task.row in on) for task in each[1].tasks)]


def _is_part(task: Task) -> bool:
    """Whether a pod holds parts of devices."""
    return bool(task.shape.gpus) and task.shape.gpu_milli < WHOLE
