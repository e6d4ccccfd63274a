"""Pressure and measured load in scores: pods are kept apart, nothing is refused, and sums follow what is placed."""

import random

import msgspec
import numpy as np
import pytest

from fairlead.core import invariants
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.model.undo import UndoLog
from fairlead.core.pods.scores.contention import lost, lost_on
from fairlead.core.state.pressures import Pressures, stem
from tests.builders import cluster, confirm, node, placed, pod, run, spec, start

BANDWIDTH, NETWORK = (600, 0, 0, 0), (0, 0, 600, 0)


def pressing(name, pressure, declares=True, **more):
    made = spec(**{key: more.pop(key) for key in ("gpus", "cpu", "milli") if key in more})
    return pod(name, spec_=msgspec.structs.replace(made, pressure=pressure), declares=declares, **more)


def test_pods_that_press_on_the_same_are_kept_apart():
    state = cluster([node("n1"), node("n2")])
    for number in range(2):
        state.upsert_pod(pressing(f"b{number}", BANDWIDTH))
        state.upsert_pod(pressing(f"w{number}", NETWORK))
    found = start(state)
    assert found["b0"] != found["b1"]
    assert found["w0"] != found["w1"]
    assert all(state.nodes.contention.pods[:, row].tolist() == [600, 0, 600, 0] for row in (0, 1))


def test_without_pressure_they_are_packed():
    state = cluster([node("n1"), node("n2")])
    for number in range(4):
        state.upsert_pod(pod(f"b{number}"))
    assert set(start(state).values()) == {"n1"}
    assert not state.nodes.contention.active


def losses(state, made):
    """What a pod costs on each node, thousandths of a device; rows judged one by one and together agree."""
    state.upsert_pod(made)
    shape = state.tasks[made.uid].shape
    found = lost(state.nodes, shape, np.arange(state.nodes.count, dtype=np.int32)).tolist()
    assert found == [lost_on(state.nodes, shape, row) for row in range(state.nodes.count)]
    return dict(zip(state.nodes.names, found, strict=True))


def test_what_is_lost_is_what_the_shortest_kind_lacks_for_all_devices_in_use():
    running = [
        pressing("a", (800, 0, 0, 0), gpus=2, at="short"),
        pressing("b", (800, 0, 700, 0), gpus=2, at="short"),
        pressing("c", (0, 0, 700, 0), gpus=1, at="few"),
        pressing("d", (0, 0, 700, 0), gpus=4, at="many"),
    ]
    state = cluster([node(name) for name in ("short", "few", "many", "free")], pods=running)
    found = losses(state, pressing("new", (0, 0, 700, 0)))
    assert found["free"] == 0
    assert found["few"] * 5 == found["many"] * 2  # two devices and five are slowed down alike
    # On the short node the network would lack as much, but its memory bandwidth lacks more already: the new pod alone loses.
    assert found["short"] < found["few"]
    alone = losses(state, pressing("none", (1, 0, 0, 0)))
    assert abs(found["short"] - alone["short"]) <= 5


def test_pods_are_put_where_fewest_devices_are_slowed_down():
    running = [pressing("a", BANDWIDTH, gpus=1, at="n1"), pressing("b", BANDWIDTH, gpus=6, at="n2")]
    state = cluster([node("n1"), node("n2")], pods=running)
    state.upsert_pod(pressing("c", BANDWIDTH))
    assert start(state) == {"c": "n1"}  # best fit would take the other


def test_sums_near_the_capacity_count_a_little():
    state = cluster([node("n1")], pods=[pressing("a", BANDWIDTH, at="n1")])
    found = [losses(state, pressing(f"p{more}", (more, 0, 0, 0)))["n1"] for more in (100, 300, 400, 500, 600, 700)]
    assert found[0] == 0
    assert 0 < found[1] < found[2] < found[3]
    assert found[5] - found[4] == 200  # beyond it: two devices, a tenth more each
    assert found[2] - found[1] < found[3] - found[2] < found[4] - found[3]


def test_a_score_refuses_nothing():
    state = cluster([node("n1", gpus=4)])
    for number in range(4):
        state.upsert_pod(pressing(f"b{number}", (1000, 1000, 1000, 1000)))
    assert len(start(state)) == 4


def loaded(name, at, load=(900, 0, 0, 0, 900), **more):
    return node(name, load=load, loaded_at=at, **more)


def test_a_loaded_node_is_avoided_while_the_measurement_is_new():
    state = cluster([node("n1"), node("n2")])
    run(state, 100.0)
    state.upsert_node(loaded("n1", 90.0))
    state.upsert_pod(pod("a", gpus=0))
    assert placed(confirm(state, run(state, 110.0))) == {"a": "n2"}
    state.upsert_pod(pod("b", gpus=4, at="n1"))
    state.remove_pod("uid-b")
    run(state, 151.0)
    assert not state.nodes.contention.load.any()
    state.upsert_pod(pod("c"))
    assert placed(confirm(state, run(state, 152.0))) == {"c": "n1"}


def test_an_old_measurement_is_ignored():
    state = cluster([node("n1"), node("n2")])
    run(state, 100.0)
    state.upsert_node(loaded("n1", 39.0))
    state.upsert_pod(pod("a"))
    assert placed(run(state, 101.0)) == {"a": "n1"}


@pytest.mark.parametrize(("at", "taken"), [(1e9, "n1"), (161.5, "n1"), (160.0, "n2")])
def test_a_measurement_of_a_time_to_come_is_ignored(at, taken):
    state = cluster([node("n1"), node("n2")])
    run(state, 100.0)
    state.upsert_node(loaded("n1", at))
    state.upsert_pod(pod("a"))
    assert placed(run(state, 101.0)) == {"a": taken}


def test_a_measurement_tries_nothing_again():
    state = cluster([node("n1", gpus=1)], pods=[pod("a", at="n1"), pod("b")])
    run(state, 100.0)
    state.nodes.gained.clear()
    state.upsert_node(loaded("n1", 100.0, gpus=1))
    assert not state.nodes.gained
    described = state.nodes.described
    state.upsert_node(loaded("n1", 101.0, load=(0, 0, 0, 0, 100), gpus=1))
    assert state.nodes.described == described
    state.upsert_node(node("n1", gpus=1))
    assert not state.nodes.contention.load.any()
    assert state.nodes.objects[0].load == ()


def test_a_measured_pod_teaches_what_its_kind_uses():
    state = cluster([node("n1"), node("n2")])
    run(state, 100.0)
    state.upsert_pod(pod("train-1", at="n1"))
    state.upsert_pod(pod("train-2"))
    measured = pod("train-1", at="n1", measured=BANDWIDTH, measured_at=95.0)
    state.upsert_pod(measured)
    assert state.nodes.contention.pods[:, state.nodes.rows["n1"]].tolist() == [600, 0, 0, 0]
    assert state.tasks["uid-train-2"].shape.spec.pressure == BANDWIDTH
    assert placed(confirm(state, run(state, 101.0))) == {"train-2": "n2"}
    state.upsert_pod(pod("train-3", user="other"))
    assert state.tasks["uid-train-3"].shape.spec.pressure == ()
    state.upsert_pod(pod("train-4"))
    assert state.tasks["uid-train-4"].shape.spec.pressure == BANDWIDTH
    state.upsert_pod(pressing("train-5", NETWORK))
    assert state.tasks["uid-train-5"].shape.spec.pressure == NETWORK
    invariants.check(state)


def test_a_measurement_that_is_too_old_teaches_nothing():
    state = cluster([node("n1")], pods=[pod("a-1", at="n1")])
    run(state, 1000.0)
    state.upsert_pod(pod("a-1", at="n1", measured=BANDWIDTH, measured_at=939.0))
    state.upsert_pod(pod("a-2"))
    assert not state.nodes.contention.pods.any()
    assert state.tasks["uid-a-2"].shape.spec.pressure == ()


def test_the_newest_counts_for_a_quarter():
    known = Pressures()
    for amounts, wanted in [((400, 0, 0, 0), (400, 0, 0, 0)), ((800, 0, 0, 0), (500, 0, 0, 0))]:
        assert known.learn(pod("a-1", measured=amounts))
        assert known.of(pod("a-2")) == wanted
    assert known.of(pod("b-2")) == ()


def test_a_kind_with_other_numbers_of_gpus_presses_in_proportion_until_it_is_measured():
    known = Pressures()
    assert known.learn(pod("a-1", gpus=2, measured=(400, 100, 0, 0)))
    assert known.of(pod("a-2", gpus=2)) == (400, 100, 0, 0)
    assert known.of(pod("a-3", gpus=1)) == (200, 50, 0, 0)
    assert known.of(pod("a-4", gpus=8)) == (1000, 400, 0, 0)
    assert known.learn(pod("a-4", gpus=8, measured=(500, 0, 0, 0)))
    assert known.of(pod("a-5", gpus=8)) == (500, 0, 0, 0)
    assert known.of(pod("a-6", gpus=2)) == (400, 100, 0, 0)
    assert known.of(pod("a-7", gpus=0)) == ()


def test_a_pod_that_uses_all_there_is_shows_the_least_that_each_of_its_gpus_uses():
    known = Pressures()
    assert known.learn(pod("a-1", gpus=1, measured=(500, 100, 0, 0)))
    assert known.learn(pod("a-2", gpus=8, measured=(1000, 800, 0, 0)))
    # Eight GPUs would use four times the node's capacity, of which there is one: that says nothing of one GPU.
    assert known.of(pod("a-3", gpus=2)) == (1000, 200, 0, 0)
    assert known.of(pod("a-4", gpus=8)) == (1000, 800, 0, 0)
    assert known.learn(pod("a-5", gpus=2, measured=(400, 200, 0, 0)))
    assert known.of(pod("a-6", gpus=4)) == (1000, 400, 0, 0)
    known = Pressures()
    assert known.learn(pod("b-1", gpus=8, measured=(1000, 0, 0, 0)))
    assert known.learn(pod("b-2", gpus=2, measured=(950, 0, 0, 0)))
    assert known.of(pod("b-3", gpus=1)) == (475, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "wanted"), [("train-17-worker-0-0", "train-worker"), ("x1-2", "x1"), ("web", "web"), ("a-b", "a-b")]
)
def test_stems(name, wanted):
    assert stem(name) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_random_worlds(seed):
    """Sums follow what is placed; rows judged one by one and together agree; what fits somewhere is placed at once."""
    rnd = random.Random(seed)
    state = cluster([node(f"n{number}", gpus=rnd.choice([0, 2, 8])) for number in range(6)], reservations=0)
    now, known = 100.0, {}
    for number in range(120):
        now += rnd.choice([0.0, 1.0, 30.0])
        match rnd.randint(0, 5):
            case 0 | 1 | 2:
                pressure = tuple(rnd.choice([0, 0, 100, 500, 1000]) for _ in range(4))
                each = pressing(
                    f"p{number}", pressure if any(pressure) else (), gpus=rnd.choice([0, 1, 2]), created=now, stays=True
                )
                known[each.uid] = each
                state.upsert_pod(each)
            case 3 if known:
                uid = rnd.choice(sorted(known))
                del known[uid]
                state.remove_pod(uid)
            case 4:
                name = f"n{rnd.randrange(6)}"
                row = state.nodes.rows[name]
                load = tuple(rnd.randrange(2000) for _ in range(5)) if rnd.random() < 0.7 else ()
                plain = state.nodes.objects[row].without_load()
                state.upsert_node(
                    msgspec.structs.replace(plain, load=load, loaded_at=now - rnd.choice([0, 59, 100]) if load else 0.0)
                )
            case 5 if known:
                uid = rnd.choice(sorted(known))
                task = state.tasks[uid]
                if task.pod.node:
                    measured = tuple(rnd.randrange(1500) for _ in range(4))
                    pressure = known[uid].spec.pressure
                    known[uid] = msgspec.structs.replace(known[uid], node=task.pod.node, measured=measured, measured_at=now)
                    state.upsert_pod(known[uid])
                    assert not pressure or task.shape.spec.pressure == pressure
        for transaction in confirm(state, run(state, now)):
            assert not isinstance(transaction, Preempt)
            if isinstance(transaction, Place):
                for binding in transaction.bindings:
                    known[binding.pod.uid] = msgspec.structs.replace(known[binding.pod.uid], node=binding.node)
        invariants.check(state)
        rows = np.arange(state.nodes.count, dtype=np.int32)
        for task in state.tasks.values():
            if task.row < 0:
                assert task.ranking.best() < 0  # a score refuses nothing
            assert lost(state.nodes, task.shape, rows).tolist() == [
                lost_on(state.nodes, task.shape, row) for row in rows.tolist()
            ]
        ranking = next((task.ranking for task in state.tasks.values()), None)
        if ranking is not None:
            before = ranking.keys().copy()
            ranking.forget()
            assert (ranking.keys() == before).all()


def test_sums_are_taken_back():
    state = cluster([node("n1"), node("n2")])
    state.upsert_pod(pressing("a", BANDWIDTH))
    task = state.tasks["uid-a"]
    log: UndoLog = state.log
    mark = log.mark()
    state.placement.place(task, 0)
    assert state.nodes.contention.pods[0, 0] == 600
    log.rollback(mark)
    assert not state.nodes.contention.pods.any()
