"""Victims of a unit, while they are tried: off their rows, and back on them for as long as the unit still fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.pods.amounts import by_column, fits
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.state.cluster import ClusterState

_SKEW = 1 << 31  # makes every priority positive, as kube-scheduler does when it sums them


class Removal:
    """Tasks taken off their rows in a trial, with where they were, so that they can be put back."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def take(self, tasks: Sequence[Task]) -> None:
        """Take tasks off their rows."""
        for task in tasks:
            self.places[task.pod.uid] = (task.row, task.devices)
            self.state.placement.unassign(task)

    def put_back(self, tasks: Sequence[Task]) -> None:
        """Put tasks back where they were."""
        for task in tasks:
            self.state.placement.assign(task, *self.places.pop(task.pod.uid))

    def spares(self, tasks: Sequence[Task], fits: Callable[[], bool]) -> bool:
        """Put tasks back for good if the beneficiary still fits beside them; whether it does."""
        places = {task.pod.uid: self.places[task.pod.uid] for task in tasks}
        self.put_back(tasks)
        if fits():
            return True
        self.take(tasks)
        self.places.update(places)
        return False


def least_on(state: ClusterState, task: Task, row: int, victims: Sequence[Preemptible]) -> list[Preemptible] | None:
    """The victims needed on one row for a single pod, or None if even all of them are not enough; they stay off it."""
    if not _enough_on(state, task, row, victims):
        return None
    removal = Removal(state)
    taken: list[Preemptible] = []

    for each in victims:
        removal.take(each[1].tasks)
        taken.append(each)
        if state.placement.takes(task, row):
            break
    else:
        return None
    return reprieve(
        removal, taken, lambda: state.placement.takes(task, row), lambda tasks: _beside(state, task, row, tasks, removal)
    )


def _enough_on(state: ClusterState, task: Task, row: int, victims: Sequence[Preemptible]) -> bool:
    """Whether a row has enough for a pod by amounts alone, without all of these: most that are tried have not."""
    gone = by_column(each for _, victim in victims for each in victim.tasks if each.row == row)
    return fits(state.nodes, row, task.shape.demand, gone)


def _beside(state: ClusterState, task: Task, row: int, tasks: Sequence[Task], removal: Removal) -> bool:
    """Whether by amounts alone a row has capacity for a pod and for those of some removed tasks that were there."""
    back = by_column(each for each in tasks if removal.places[each.pod.uid][0] == row)
    return fits(state.nodes, row, task.shape.demand, back=back)


def reprieve(
    removal: Removal,
    taken: list[Preemptible],
    fits: Callable[[], bool],
    may_return: Callable[[Sequence[Task]], bool] = lambda _: True,
) -> list[Preemptible]:
    """Put victims back, most valuable first, for as long as the beneficiary still fits.

    may_return: a cheap test that rejects most of those with which it would not.
    """
    kept: list[Preemptible] = []
    for each in reversed(taken):
        tasks = each[1].tasks
        if not may_return(tasks) or (each[1].spare and _ended(tasks[0], kept)) or not removal.spares(tasks, fits):
            kept.append(each)
    kept.reverse()
    return kept


def _ended(member: Task, kept: Sequence[Preemptible]) -> bool:
    """Whether a gang loses members which it needs: one beyond these would be of no use alone."""
    return any(
        victim.tasks[0].gang is member.gang and not victim.spare and not victim.tasks[0].pod.terminating for _, victim in kept
    )


def cost(victims: Sequence[Preemptible]) -> tuple[float, ...]:
    """Whether any is evicted that its gang cannot do without; the worst reason, lowest top priority, least lost work, least sum
    of priorities, fewest pods, latest start.
    """
    tasks = [task for _, victim in victims for task in victim.tasks]
    top, *rest = upstream_cost(tasks, lambda task: task.pod.created)
    return (
        any(not victim.spare for _, victim in victims),
        max(reason for reason, _ in victims),
        top,
        sum(victim.lost for _, victim in victims),
        *rest,
    )


def upstream_cost(tasks: Sequence[Task], start: Callable[[Task], float]) -> tuple[int, int, int, float]:
    """What kube-scheduler compares of victims: top priority, sum of priorities, how many, latest start of those at the top."""
    top = max(task.pod.priority for task in tasks)
    return (
        top,
        sum(task.pod.priority + _SKEW for task in tasks),
        len(tasks),
        -min(start(task) for task in tasks if task.pod.priority == top),
    )
