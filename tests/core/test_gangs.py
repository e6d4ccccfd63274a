from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.transactions import Evict, Place, Refuse
from tests.builders import cluster, confirm, group, node, placed, pod, queue, refused, run, settle


def gang(name, size, minimum=None, **more):
    return [pod(f"{name}-{i}", group=name, **more) for i in range(size)]


def test_all_or_nothing():
    state = cluster([node("n", gpus=8)], pods=gang("g", 9), groups=[group("g", 9)])
    done = run(state)
    assert not placed(done)
    assert {reason.code for reason in refused(done).values()} == {ReasonCode.TOO_LARGE}
    assert len(refused(done)) == 9
    state.upsert_node(node("m", gpus=1))
    assert len(placed(run(state))) == 9
    invariants.check(state)


def test_one_transaction_for_one_gang():
    state = cluster([node("a"), node("b")], pods=gang("g", 16), groups=[group("g", 16)])
    (place,) = run(state)
    assert isinstance(place, Place)
    assert place.group == "ns/g"
    assert len(place.bindings) == 16


def test_no_two_gangs_each_hold_half():
    state = cluster([node("n", gpus=8)], pods=gang("a", 6) + gang("b", 6), groups=[group("a", 6), group("b", 6)])
    done = settle(state)
    assert {name.partition("-")[0] for name in placed(done)} == {"a"}
    for index in range(6):
        state.remove_pod(f"uid-a-{index}")
    assert len(placed(run(state))) == 6


def test_it_waits_for_its_members_and_its_group():
    state = cluster([node("n")], pods=gang("g", 2))
    assert refused(run(state))["g-0"].code is ReasonCode.GANG_INCOMPLETE
    state.upsert_group(group("g", 3))
    run(state)
    state.upsert_pod(pod("g-2", group="g"))
    assert len(placed(run(state))) == 3


def test_optional_members_are_placed_as_they_fit():
    state = cluster([node("n", gpus=8)], pods=gang("g", 10), groups=[group("g", 4)])
    assert len(placed(settle(state))) == 8
    state.upsert_node(node("m", gpus=8))
    assert len(placed(run(state))) == 2


def test_few_nodes_for_a_gang():
    state = cluster(
        [node(f"n{i}", gpus=8) for i in range(4)] + [node("small", gpus=4)], pods=gang("g", 8), groups=[group("g", 8)]
    )
    assert len(set(placed(run(state)).values())) == 1


def test_spread_lays_a_gang_wide():
    state = cluster([node(f"n{i}", gpus=8) for i in range(4)], pods=gang("g", 4), groups=[group("g", 4)], strategy="spread")
    assert len(set(placed(run(state)).values())) == 4


def test_members_of_several_shapes():
    pods = [*gang("g", 3, gpus=2), pod("g-driver", group="g", gpus=0, cpu=40000)]
    state = cluster([node("a", gpus=4), node("b", gpus=2, cpu=50_000)], pods=pods, groups=[group("g", 4)])
    done = run(state)
    assert len(placed(done)) == 4
    invariants.check(state)


def test_a_limit_holds_for_the_whole_gang():
    state = cluster([node("n")], [queue("q", limit=3)], gang("g", 4, queue="q"), [group("g", 4)])
    assert not placed(run(state))
    state.upsert_queue(queue("q", limit=4))
    assert len(placed(run(state))) == 4


def test_a_failed_member_is_placed_again_while_the_others_hold():
    state = cluster([node("n")], pods=gang("g", 4), groups=[group("g", 4)])
    done = run(state, now=0.0)
    for index in range(3):
        state.pods.bound(f"uid-g-{index}")
    state.bind_failed("uid-g-3", 0.0)
    assert not placed(run(state, now=0.5))
    assert set(placed(run(state, now=1.0))) == {"g-3"}
    assert done


def test_a_gang_that_cannot_be_completed_is_taken_down_after_its_grace():
    state = cluster([node("n", gpus=4)], pods=gang("g", 4), groups=[group("g", 4)])
    settle(state, now=0.0)
    state.remove_pod("uid-g-3")
    state.upsert_pod(pod("thief", at="n", ours=False))
    state.upsert_pod(pod("g-new", group="g"))
    first = run(state, now=10.0)
    assert not any(isinstance(each, Evict) for each in first)
    assert state.next_due == 70.0
    (evict,) = [each for each in run(state, now=71.0) if isinstance(each, Evict)]
    assert sorted(victim.pod.name for victim in evict.victims) == ["g-0", "g-1", "g-2"]


def test_members_without_a_controller_stay():
    state = cluster([node("n", gpus=2)], pods=gang("g", 2, controlled=False), groups=[group("g", 2)])
    settle(state)
    state.remove_pod("uid-g-1")
    run(state, now=0.0)
    (evict,) = [each for each in run(state, now=61.0) if isinstance(each, Evict)]
    assert evict.victims == ()
    assert evict.reason.numbers["kept"] == 1


def test_a_gang_larger_than_the_cluster_blocks_no_other():
    state = cluster([node("n")], pods=[*gang("huge", 5000), pod("small", created=9)], groups=[group("huge", 5000)])
    done = run(state)
    assert placed(done) == {"small": "n"}
    (refusal,) = [each for each in done if isinstance(each, Refuse)]
    assert refusal.group == "ns/huge"
    assert refusal.reason.code is ReasonCode.TOO_LARGE


def test_a_deleted_group_leaves_its_pods_running():
    state = cluster([node("n")], pods=gang("g", 2), groups=[group("g", 2)])
    settle(state)
    state.remove_group("ns/g")
    confirm(state, run(state))
    assert len(state.nodes.pods[0]) == 2


def test_a_refusal_names_the_gang_that_is_refused_not_another_that_waits_for_the_same():
    state = cluster([node("n", gpus=4)], [queue("q", quota=4)])
    names = ["one", "one-more", "two"]
    for number, name in enumerate(names):
        state.upsert_group(group(name, 3, "q"))
        for member in range(3):
            state.upsert_pod(pod(f"{name}-{member}", "q", group=name, gpus=2, created=float(number)))
    found = {each.group: each.reason for each in run(state, 10.0) if isinstance(each, Refuse)}
    assert {reason.message.split(" needs ")[0] for reason in found.values()} == {f"gang ns/{name}" for name in names}
    assert all(reason.message.startswith(f"gang {key} needs") and reason.gang == key for key, reason in found.items())
    assert len(found) == 3
    waits = {task.unit.key: task.unit.pending_class for task in state.tasks.values()}
    assert len(set(map(id, waits.values()))) == 1, "they share a pending class"
