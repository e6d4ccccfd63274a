"""Work with a choice leaves the devices on which restricted work depends."""

import numpy as np
import pytest

from fairlead.core.model.nodes import Node, Taint
from fairlead.core.model.pods import Pod, PodSpec, Toleration
from fairlead.core.model.policy import Policy
from fairlead.core.model.selectors import NAME_FIELD, Requirement, SelectorTerm
from fairlead.core.pods.scores.pressure import Pressure
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState

GPU = "nvidia.com/gpu"
AMOUNTS = {"cpu": 64_000, "memory": 1 << 38, "pods": 110, GPU: 4}
REQUESTS = (("cpu", 1000), ("memory", 1 << 30), (GPU, 1), ("pods", 1))


def world(*models: str, taints=()) -> ClusterState:
    state = ClusterState(Policy(preempt=False))
    for number, model in enumerate(models):
        state.upsert_node(Node(f"n{number:03d}", AMOUNTS, {"model": model}, taints=tuple(taints) if model == "own" else ()))
    return state


def spec(*models: str, **more) -> PodSpec:
    affinity = (SelectorTerm((Requirement("model", "In", models),)),) if models else None
    return PodSpec(REQUESTS, gpus=1, affinity=affinity, **more)


def send(state: ClusterState, what: PodSpec, count: int, at: int = 0) -> list[str]:
    """Where that many pods are placed, one after the other; empty: nowhere."""
    found = []
    for number in range(count):
        uid = f"{at}-{number}"
        state.upsert_pod(Pod(uid, "x", uid, what, created=float(at + number)))
        for _ in schedule(state, float(at + number)):
            pass
        row = state.tasks[uid].row
        found.append(state.nodes.objects[row].labels["model"] if row >= 0 else "")
        if row < 0:
            state.remove_pod(uid)
    return found


def drain(state: ClusterState) -> None:
    for uid in list(state.tasks):
        state.remove_pod(uid)


@pytest.mark.parametrize("rare", ["a", "z"])
def test_what_others_depend_on_is_left_to_them(rare):
    plenty = "m"
    state = world(*(rare if number % 5 == 2 else plenty for number in range(20)))
    send(state, spec(rare), 12)
    send(state, spec(), 30, at=100)
    drain(state)
    assert set(send(state, spec(), 60, at=200)) == {plenty}
    assert send(state, spec(rare), 16, at=300) == [rare] * 16
    assert send(state, spec(), 8, at=400) == [plenty] * 4 + [""] * 4


def test_nothing_is_kept_idle_for_others():
    state = world("rare", *["plenty"] * 4)
    send(state, spec("rare"), 10)
    send(state, spec(), 30, at=100)
    drain(state)
    assert send(state, spec(), 20, at=200) == ["plenty"] * 16 + ["rare"] * 4


def test_work_that_tolerates_a_taint_leaves_other_nodes_to_work_that_does_not():
    state = world(*["own"] * 4, *["all"] * 4, taints=[Taint("team", "a")])
    own = spec(tolerations=(Toleration("team", "Equal", "a"),))
    send(state, own, 12)
    send(state, spec(), 12, at=100)
    drain(state)
    assert send(state, own, 16, at=200) == ["own"] * 16


def test_where_nothing_is_restricted_nothing_presses():
    state = world("a", "b", "c")
    send(state, spec(), 40)
    send(state, spec("a", "b", "c"), 40, at=100)
    assert not state.shapes.strategy.pressure.any


def test_pressure_is_the_load_of_restricted_work_laid_evenly():
    state = world(*["a"] * 2, *["b"] * 6)
    pressure = Pressure(state.nodes)
    state.nodes.read_labels({"model"})
    for _ in range(10):
        pressure.arrived(spec("a"))
        pressure.arrived(spec("a", "b"))  # admitted everywhere
    assert pressure.learn()
    assert not pressure.learn()
    # half of what was asked for is admitted to a quarter of the devices: 0.5 / 0.25 = 2, and 2 / (1 + 2)
    a, b = (state.nodes.classes.column.item(state.nodes.rows[name]) for name in ("n000", "n007"))
    assert pressure.of(a).item() == 666
    assert pressure.of(b).item() == 0
    assert pressure.of(np.array([b, a, b])).tolist() == [0, 666, 0]
    state.upsert_node(Node("n999", AMOUNTS, {"model": "c"}))
    assert pressure.of(state.nodes.classes.column.item(state.nodes.rows["n999"])).item() == 0


def test_pods_that_name_their_node_are_no_kind_of_their_own():
    state = world("a", "b")
    pressure = Pressure(state.nodes)
    state.nodes.read_labels({NAME_FIELD})
    for number in range(1000):
        term = SelectorTerm((), (Requirement(NAME_FIELD, "In", (f"n{number:03d}",)),))
        pressure.arrived(PodSpec(REQUESTS, gpus=1, affinity=(term,)))
    pressure.learn()
    assert not pressure.any


def test_rows_and_row_agree_under_pressure():
    state = world(*"abcab")
    send(state, spec("a"), 8)
    send(state, spec("b", "c"), 9, at=50)
    send(state, spec(), 40, at=100)
    strategy, nodes = state.shapes.strategy, state.nodes
    assert strategy.pressure.any
    shape = state.shapes.intern(spec()).shape
    rows = np.arange(nodes.count, dtype=np.int32)
    scores = strategy.rows(shape, rows, nodes.device[rows], shape.fit.costs(nodes.device[rows]))
    assert scores.tolist() == [strategy.row(shape, row) for row in rows.tolist()]


def test_old_kinds_fade():
    pressure = Pressure(world("a", "b").nodes)
    pressure.arrived(spec("a"))
    pressure.arrived(spec("b"))
    pressure.arrived(spec("b"))
    pressure.fade()
    pressure.fade()
    pressure.learn()
    assert not pressure.any
