"""Headroom beside free GPUs: pods without devices cannot block guaranteed GPUs by slots or CPU."""

import random

from fairlead.core import invariants
from tests.builders import cluster, group, node, placed, pod, queue, refused, run, settle, spec


def crowd(count, **more):
    return [pod(f"cpu-{i}", queue="mal", gpus=0, created=i, **more) for i in range(count)]


def test_pods_without_devices_leave_a_slot_for_each_free_gpu():
    nodes = [node(f"n{i}", pods=20) for i in range(2)]
    state = cluster(nodes, [queue("vision", 16), queue("mal", 0)], crowd(60, cpu=1))
    done = settle(state)
    assert len(placed(done)) == 2 * (20 - 8)
    assert "2 node(s) reserve pod slots and CPU for their free GPUs" in next(iter(refused(done).values())).message
    for i in range(16):
        state.upsert_pod(pod(f"gpu-{i}", queue="vision", created=100))
    mine = placed(settle(state))
    assert sum(name.startswith("gpu-") for name in mine) == 16
    invariants.check(state)


def test_cpu_is_kept_too_up_to_a_quarter_per_gpu():
    state = cluster([node("n", cpu=64_000)], [queue("vision", 8), queue("mal")], crowd(70, cpu=1000))
    assert len(placed(settle(state))) == 56
    small = cluster([node("n", cpu=8000)], [queue("vision", 8), queue("mal")], crowd(10, cpu=1000))
    assert len(placed(settle(small))) == 6


def test_a_gpu_that_is_taken_releases_its_headroom():
    state = cluster([node("n", pods=10)], [queue("vision", 8), queue("mal")], crowd(6, cpu=1))
    assert len(placed(settle(state))) == 2
    assert run(state) == []
    state.upsert_pod(pod("gpus", queue="vision", gpus=4))
    assert sorted(placed(settle(state))) == ["gpus"]
    assert sorted(placed(settle(state))) == ["cpu-2", "cpu-3", "cpu-4"], "7 slots were left, and 4 free GPUs keep 4 of them"


def test_nothing_is_kept_where_no_queue_is_guaranteed_gpus():
    state = cluster([node("n", pods=10)], [queue("mal")], crowd(12, cpu=1))
    assert len(placed(settle(state))) == 10
    state.upsert_queue(queue("vision", 4))
    assert state.nodes.guards_gpus
    state.remove_queue("vision")
    assert not state.nodes.guards_gpus


def test_it_can_be_switched_off_and_does_not_bind_pods_with_devices_of_other_kinds():
    off = cluster([node("n", pods=10)], [queue("v", 8), queue("mal")], crowd(12, cpu=1), pods_per_free_gpu=0, cpu_per_free_gpu=0)
    assert len(placed(settle(off))) == 10
    nic = node("n", pods=9)
    nic = type(nic)(nic.name, {**nic.allocatable, "example.com/nic": 9})
    state = cluster(
        [nic], [queue("v", 8), queue("mal")], [pod("nic", queue="mal", spec_=spec(0, cpu=1, extra={"example.com/nic": 1}))]
    )
    state.upsert_pod(pod("plain", queue="mal", gpus=0, cpu=1, created=1))
    state.upsert_pod(pod("more", queue="mal", gpus=0, cpu=1, created=2))
    assert sorted(placed(settle(state))) == ["nic"]


def test_gangs_without_devices_count_the_headroom():
    members = [pod(f"m{i}", queue="mal", group="g", gpus=0, cpu=1) for i in range(13)]
    state = cluster([node("n", pods=20)], [queue("vision", 8), queue("mal")], members, [group("g", 13)])
    assert placed(settle(state)) == {}
    state.upsert_group(group("g", 12))
    assert len(placed(settle(state))) == 12


def test_random_worlds_leave_what_free_gpus_need():
    for seed in range(60):
        dice = random.Random(seed)
        sizes = [
            (dice.randint(0, 8), dice.randint(4, 24), dice.choice((4000, 16_000, 64_000))) for _ in range(dice.randint(1, 4))
        ]
        nodes = [node(f"n{i}", gpus=gpus, pods=slots, cpu=cpu) for i, (gpus, slots, cpu) in enumerate(sizes)]
        state = cluster(nodes, [queue("vision", 8), queue("mal")])
        for i in range(60):
            gpus = dice.choice((0, 0, 0, 1, 2))
            own = pod(f"p{i}", queue=dice.choice(("vision", "mal")), gpus=gpus, cpu=dice.choice((1, 500, 3000)), created=i)
            state.upsert_pod(own)
            done = placed(settle(state))
            if any(state.tasks[f"uid-{name}"].shape.gpus for name in done):
                done = {}  # work with devices may use what was kept
            for name, where in done.items():
                row = state.nodes.rows[where]
                offered, _, cpu = sizes[int(where[1:])]
                idle = state.nodes.free[state.nodes.resource("nvidia.com/gpu")].item(row)
                assert state.nodes.free[2].item(row) >= idle or not idle, (seed, name)
                assert state.nodes.free[0].item(row) >= idle * min(1000, cpu // (4 * max(1, offered))) or not idle, (seed, name)
            for uid, task in list(state.tasks.items()):
                if task.row >= 0 and dice.random() < 0.1:
                    state.remove_pod(uid)
            invariants.check(state)
