"""What is counted row by row, where rows changed, is what counting all rows anew gives: free devices, pods that rows hold."""

import random

import pytest

from fairlead.core import invariants
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.idle import FreeDevices
from tests.builders import cluster, node, pod


def counted(state):
    return FreeDevices(state.nodes).total()


def by_hand(state):
    """What the objects show: devices of nodes that can be read, less what the pods there hold, at least 0 on each."""
    left = 0
    for name, row in state.nodes.rows.items():
        if state.nodes.open[row]:
            gpus = len(state.nodes.devices.states[state.nodes.device.item(row)])
            held = sum(task.shape.device_milli for task in state.nodes.pods[row].values())
            left += max(0, gpus * WHOLE - held)
            assert state.nodes.names[row] == name
    return left


def count_pods(state):
    """How many pods of each shape every row holds is the same whether few rows are counted or all."""
    for ranking in {task.shape.number: task.ranking for task in state.tasks.values()}.values():
        assert ranking.counts().tolist() == ranking._count().tolist()


@pytest.mark.parametrize("seed", range(40))
def test_any_history_of_nodes_pods_and_trials_leaves_what_is_counted_right(seed):
    draw = random.Random(seed)
    state = cluster([node(f"n{i}", gpus=draw.choice((0, 1, 4, 8))) for i in range(3)])
    for number, gpus in enumerate((0, 1, 1, 2, 8)):
        state.upsert_pod(pod(f"waits-{number}", gpus=gpus, milli=draw.choice((250, 1000)) if gpus == 1 else 1000))
    for step in range(120):
        kind = draw.choice(("pod", "pod", "pod", "gone", "node", "node gone", "shut", "trial", "anew", "many"))
        name = f"n{draw.randrange(8)}"
        pods = sorted(state.tasks)
        if kind == "pod" and name in state.nodes.rows:
            state.upsert_pod(pod(f"p{step}", milli=draw.choice((250, 500, 1000)), at=name, started=0.0))
        elif kind == "gone" and pods:
            state.remove_pod(draw.choice(pods))
        elif kind == "node":
            state.upsert_node(node(name, gpus=draw.choice((0, 1, 4, 8))))
        elif kind == "node gone":
            state.remove_node(name)
        elif kind == "shut":
            state.nodes.poison(name, "huge", bad=draw.random() < 0.5)
        elif kind == "trial":
            before, mark = state.moves.free.total(), state.log.mark()
            for uid in draw.sample(pods, min(3, len(pods))):
                state.placement.unassign(state.tasks[uid])
                if draw.random() < 0.5:
                    assert state.moves.free.total() == counted(state)
                    count_pods(state)
            state.log.rollback(mark)
            assert state.moves.free.total() == before
        elif kind == "anew":
            state.isolation.recovery.recount()
        elif kind == "many":  # more changes than are handled one by one
            for _ in range(200):
                for row in state.nodes.rows.values():
                    state.nodes.changes.touch(row)
        if draw.random() < 0.7:
            assert state.moves.free.total() == counted(state) == by_hand(state)
            count_pods(state)


def test_a_sum_that_is_wrong_is_a_violation():
    state = cluster([node("n", gpus=4)])
    assert not invariants.violations(state)
    state.moves.free._sum += 1
    assert invariants.violations(state) == ["4000 milli of devices are free, 4001 are counted"]
