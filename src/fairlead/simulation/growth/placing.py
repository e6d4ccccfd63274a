"""What one placement costs: by pending classes, users, the depth of the queue tree, queues, nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue
from fairlead.simulation.growth.cluster import Cluster, empty, pod
from fairlead.simulation.machines import GPUS_PER_NODE, queue

_PODS = 400  # of a round, at least
_ROUNDS = 8  # that fit
_LEAVES = 256


class Placing:
    """Pods come, and all of them are placed. pods: those of a round."""

    def __init__(self, cluster: Cluster, pods: Callable[[int], Iterable[Pod]]) -> None:
        self._cluster = cluster
        self._pods = pods

    def prepare(self, round_: int) -> None:
        """The pods are known."""
        self._cluster.upsert(*self._pods(round_))

    def run(self, round_: int) -> int:
        """They are placed."""
        before = self._cluster.placed
        self._cluster.decide()
        return self._cluster.placed - before


def by_nodes(nodes: int) -> Placing:
    """Pods of 20 classes in 10 queues."""
    names = [f"q{number}" for number in range(10)]
    return Placing(
        empty(nodes, [queue(name) for name in names]),
        lambda round_: [
            pod(f"{round_}-{number}", shape=number % 20, queue=names[number % 10], created=float(number)) for number in range(100)
        ],
    )


def by_classes(classes: int) -> Placing:
    """Pods of one queue in so many pending classes."""
    pods = max(_PODS, 2 * classes)
    return Placing(
        empty(_nodes(pods), [queue("q")]),
        lambda round_: [pod(f"{round_}-{number}", shape=number % classes, created=float(number)) for number in range(pods)],
    )


def by_users(users: int) -> Placing:
    """Pods of one class of so many users."""
    pods = max(_PODS, 2 * users)
    return Placing(
        empty(_nodes(pods), [queue("q")]),
        lambda round_: [
            pod(f"{round_}-{number}", user=f"user-{number % users}", created=float(number)) for number in range(pods)
        ],
    )


def by_depth(depth: int) -> Placing:
    """256 queues, so many levels below the root."""
    queues, leaves = tree(_LEAVES, depth)
    pods = 2 * _LEAVES
    return Placing(
        empty(_nodes(pods), queues),
        lambda round_: [
            pod(f"{round_}-{number}", queue=leaves[number % _LEAVES], created=float(number)) for number in range(pods)
        ],
    )


def by_queues(number_of_queues: int) -> Placing:
    """So many queues under the root."""
    queues, leaves = tree(number_of_queues, 1)
    pods = max(_PODS, 2 * number_of_queues)
    return Placing(
        empty(_nodes(pods), queues),
        lambda round_: [
            pod(f"{round_}-{number}", queue=leaves[number % number_of_queues], created=float(number)) for number in range(pods)
        ],
    )


def _nodes(pods: int) -> int:
    """So many that all pods of all rounds fit."""
    return _ROUNDS * pods // GPUS_PER_NODE


def tree(
    leaves: int, depth: int, *, quota: int = 1, inner: int | None = 1, fan: int | None = None
) -> tuple[list[Queue], list[str]]:
    """Queues, parents first, and the names of those without children, on the given level.

    quota: of these, in GPUs; inner: of their parents, None: none. fan: children of each parent; as even as can be without.
    """
    if depth == 1:
        names = [f"q{number:05d}" for number in range(leaves)]
        return [queue(name, quota) for name in names], names
    fan = fan or max(2, round(leaves ** (1 / depth)))
    queues: list[Queue] = []
    level = [""]
    for _ in range(depth - 1):
        level = [f"{parent or 'k'}-{child}" for parent in level for child in range(fan)][:leaves]
        queues += [queue(name, inner, parent=name.rpartition("-")[0] if name.count("-") > 1 else "") for name in level]
    names = [f"leaf-{number:05d}" for number in range(leaves)]
    queues += [queue(name, quota, parent=level[number % len(level)]) for number, name in enumerate(names)]
    return queues, names
