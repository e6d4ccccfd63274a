"""Who falls for a unit, while it is tried: off their rows, and back on them for as long as the unit still fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.pods.tasks import Task, by_column
from fairlead.core.preemption.victim import Falling
from fairlead.core.state.cluster import ClusterState

_SKEW = 1 << 31  # makes every priority positive, as kube-scheduler does when it sums them


class Fallen:
    """Tasks taken off their rows, with where they were, so that they can be put back."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def take(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.places[task.pod.uid] = (task.row, task.devices)
            self.state.placement.unassign(task)

    def put_back(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.state.placement.assign(task, *self.places.pop(task.pod.uid))


def least_on(state: ClusterState, task: Task, row: int, victims: Sequence[Falling]) -> list[Falling] | None:
    """The victims that must fall on one row for a single pod, or None if even all of them are not enough; they stay fallen."""
    if not _enough_on(state, task, row, victims):
        return None
    fallen = Fallen(state)
    taken: list[Falling] = []

    for each in victims:
        fallen.take(each[1].tasks)
        taken.append(each)
        if state.placement.takes(task, row):
            break
    else:
        return None
    return reprieve(
        fallen, taken, lambda: state.placement.takes(task, row), lambda tasks: _room_beside(state, task, row, tasks, fallen)
    )


def _enough_on(state: ClusterState, task: Task, row: int, victims: Sequence[Falling]) -> bool:
    """Whether a row has enough for a pod by amounts alone, without all of these: most that are tried have not."""
    free, gone = state.nodes.free, by_column(each for _, victim in victims for each in victim.tasks if each.row == row)
    return all(free[column].item(row) + gone.get(column, 0) >= amount for column, amount in task.shape.demand)


def _room_beside(state: ClusterState, task: Task, row: int, tasks: Sequence[Task], fallen: Fallen) -> bool:
    """Whether by amounts alone a row has room for a pod and for those of some fallen tasks who were there."""
    free, back = state.nodes.free, by_column(each for each in tasks if fallen.places[each.pod.uid][0] == row)
    return all(free[column].item(row) - back.get(column, 0) >= amount for column, amount in task.shape.demand)


def reprieve(
    fallen: Fallen, taken: list[Falling], fits: Callable[[], bool], may_return: Callable[[Sequence[Task]], bool] = lambda _: True
) -> list[Falling]:
    """Put victims back, most valuable first, for as long as the beneficiary still fits.

    may_return: a cheap test that turns away most of those with whom it would not.
    """
    kept: list[Falling] = []
    for each in reversed(taken):
        tasks = each[1].tasks
        if not may_return(tasks) or (each[1].spare and _ended(tasks[0], kept)):
            kept.append(each)
            continue
        places = {task.pod.uid: fallen.places[task.pod.uid] for task in tasks}
        fallen.put_back(tasks)
        if not fits():
            fallen.take(tasks)
            fallen.places.update(places)
            kept.append(each)
    kept.reverse()
    return kept


def _ended(member: Task, kept: Sequence[Falling]) -> bool:
    """Whether a gang loses members which it needs: one beyond these would be of no use alone."""
    return any(
        victim.tasks[0].gang is member.gang and not victim.spare and not victim.tasks[0].pod.terminating for _, victim in kept
    )


def cost(victims: Sequence[Falling]) -> tuple[int, int, int, float, int, int, float]:
    """Whether any falls that its gang cannot do without; the worst ground, lowest top priority, least lost work, least sum of
    priorities, fewest pods, latest start.
    """
    tasks = [task for _, victim in victims for task in victim.tasks]
    top = max(task.pod.priority for task in tasks)
    return (
        any(not victim.spare for _, victim in victims),
        max(ground for ground, _ in victims),
        top,
        sum(victim.lost for _, victim in victims),
        sum(task.pod.priority + _SKEW for task in tasks),
        len(tasks),
        -min(task.pod.created for task in tasks if task.pod.priority == top),
    )
