"""One large victim that would do, where small ones would use up what may be reclaimed from their queue."""

import pytest

from fairlead.core import invariants
from fairlead.core.model.causes import PreemptionReason
from fairlead.core.preemption import victims
from fairlead.core.preemption.shared_devices import by_device, whole_devices
from fairlead.core.preemption.victim import Victim
from tests.builders import cluster, node, pod, preempted, queue, refused, run, spec
from tests.core.test_reclaim import weighted


def lent(*, ages=(0.0, 1.0, 2.0, 3.0), quota=4, **policy):
    state = cluster([node("n", gpus=8)], [weighted("lender", 1, quota=2), weighted("owner", 1, quota=quota)], **policy)
    for name, size, age in zip(("five", "one", "two", "three"), (5, 1, 1, 1), ages, strict=True):
        state.upsert_pod(pod(name, queue="lender", gpus=size, at="n", created=age))
    state.upsert_pod(pod("mine", queue="owner", gpus=5, created=9.0))
    return state


@pytest.mark.parametrize("ages", [(0.0, 1.0, 2.0, 3.0), (3.0, 2.0, 1.0, 0.0), (1.5, 1.0, 2.0, 3.0)])
def test_the_large_victim_is_chosen_where_small_ones_would_not_do(ages):
    state = lent(ages=ages)
    assert preempted(run(state)) == [["five"]]
    invariants.check(state)


def test_the_lender_keeps_its_share():
    state = lent(quota=1)
    state.upsert_pod(pod("more", queue="owner", gpus=1, created=8.0))
    fallen = {name for names in preempted(run(state)) for name in names}
    assert "five" not in fallen or len(fallen) == 1


def test_how_many_sets_are_tried_is_bounded(monkeypatch):
    monkeypatch.setattr(victims, "STEPS", 0)
    assert preempted(run(lent())) == [], "no set may be tried"


def relieved(beyond):
    """A job that may run only where another department's pods do; its own holds so much beyond its quota, beside the job's queue."""
    held = 4 + beyond
    nodes = [node(f"n{number}") for number in range(-(-held // 8))]
    rest = len(nodes) * 8 - held
    queues = [queue("d", 4), queue("mine", 2, parent="d"), queue("beside", 2, parent="d"), queue("other", 0), queue("full", rest)]
    pods = [pod(f"beside-{number}", "beside", at=f"n{number // 8}") for number in range(held)]
    pods += [pod(f"full-{number}", "full", at=nodes[-1].name) for number in range(rest)]
    pods += [pod(f"other-{number}", "other", at="m") for number in range(8)]
    pods += [pod("wants", "mine", spec_=spec(selector={"pool": "m"}))]
    return cluster([*nodes, node("m", labels={"pool": "m"})], queues, pods, reservations=0)


@pytest.mark.parametrize(("beyond", "evicted"), [(20, 21), (40, 41), (80, 0), (1100, 0)])
def test_a_department_is_relieved_by_so_many_victims_at_most(beyond, evicted):
    state = relieved(beyond)
    decided = run(state)
    victims = [name for plan in preempted(decided) for name in plan]
    assert sum(name.startswith("beside") for name in victims) in ((evicted, evicted + 1) if evicted else (0,))
    assert len(victims) == 0 or sum(name.startswith("other") for name in victims) == 1
    assert ("wants" in refused(decided)) is not bool(evicted)
    invariants.check(state)


def shared():
    """Four GPUs, each shared by four pods of a quarter."""
    state = cluster([node("n", gpus=4)], [weighted("lender", 1, quota=2), weighted("owner", 1, quota=2)])
    for number in range(16):
        state.upsert_pod(pod(f"part-{number:02}", queue="lender", milli=250, at="n", created=float(number)))
    state.upsert_pod(pod("mine", queue="owner", gpus=2, created=99.0))
    return state


def test_what_shares_a_device_is_preempted_together():
    state = shared()
    devices = {name: task.devices for task in state.tasks.values() if (name := task.pod.name) != "mine"}
    (gone,) = preempted(run(state))
    assert len(gone) == 8
    assert len({devices[name] for name in gone}) == 2
    invariants.check(state)


def test_a_device_of_which_another_pod_keeps_a_part_is_left_out():
    state = shared()
    row, parts = state.nodes.rows["n"], [task for task in state.tasks.values() if task.pod.node]
    kept = next(task for task in parts if task.devices == (1,))
    victims_ = [
        (PreemptionReason.SHARE, Victim((1, 0, 0, 0.0, 1, 0.0, task.pod.uid), (task,), None))
        for task in parts
        if task is not kept
    ]
    together = by_device(state, victims_, [row])
    assert sorted(many[0][1].tasks[0].devices for many in together) == [(0,), (2,), (3,)]
    assert all(len(many) == 4 and len({victim.tasks[0].devices for _, victim in many}) == 1 for many in together)
    assert whole_devices(state, [row]) == 0
    assert whole_devices(state, [row], [task for task in parts if task is not kept]) == 3
