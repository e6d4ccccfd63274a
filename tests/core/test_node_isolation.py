"""Classes that isolate nodes or GPUs: in both directions, for later pods, gangs and evictions."""

import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, refused, run, start

NODE = ServiceClass("serve", isolation="Node")
PARTS = ServiceClass("parts", isolation="GPU")


def world(nodes, classes=(NODE,), **more):
    state = cluster(nodes, **more)
    for each in classes:
        state.upsert_class(each)
    return state


def serve(name, **more):
    return pod(name, service_class="serve", **more)


def test_no_other_job_with_gpus_comes_to_the_node():
    state = world([node("n1"), node("n2")])
    state.upsert_pod(serve("s1"))
    home = start(state)["s1"]
    for number in range(10):
        state.upsert_pod(pod(f"b{number}"))
    found = start(state)
    assert len(found) == 8
    assert set(found.values()) == {"n1", "n2"} - {home}
    state.upsert_pod(pod("cpu", gpus=0))
    state.upsert_pod(pod("late"))
    decided = run(state, 2.0)
    assert set(placed(decided)) == {"cpu"}
    reason = refused(decided)["late"]
    assert "1 node(s) had pods of a job whose ServiceClass isolates nodes" in reason.message
    invariants.check(state)


def test_it_comes_to_no_node_with_gpus_of_others():
    state = world([node("n1"), node("n2")], pods=[pod("b1", at="n1", gpus=1), pod("cpu", at="n2", gpus=0)])
    state.upsert_pod(serve("s1"))
    assert start(state) == {"s1": "n2"}
    state.upsert_pod(serve("s2"))
    reason = refused(run(state, 2.0))["s2"]
    assert "2 node(s) had pods with GPUs of other jobs, and the ServiceClass isolates nodes" in reason.message


def test_pods_of_one_job_share_a_node():
    state = world([node("n1"), node("n2", gpus=0)], groups=[group("g", 3)])
    for number in range(3):
        state.upsert_pod(serve(f"m{number}", group="g"))
    assert start(state) == {"m0": "n1", "m1": "n1", "m2": "n1"}
    state.upsert_pod(serve("alone", owner="rs"))
    assert "alone" in refused(run(state, 2.0))
    state = world([node("n1")])
    for number in range(3):
        state.upsert_pod(serve(f"r{number}", owner="rs"))
    assert len(start(state)) == 3


def test_the_place_opens_when_the_job_ends():
    state = world([node("n1")])
    state.upsert_pod(serve("s1"))
    start(state)
    state.upsert_pod(pod("late"))
    assert not placed(run(state, 2.0))
    state.remove_pod("uid-s1")
    assert placed(run(state, 3.0)) == {"late": "n1"}
    invariants.check(state)


def test_foreign_pods_keep_it_off():
    state = world([node("n1")], pods=[pod("other", at="n1", ours=False)])
    state.upsert_pod(serve("s1"))
    assert not placed(run(state))


def test_it_preempts_all_others_with_gpus_there():
    state = world([node("n1"), node("n2")], pods=[pod(f"b{n}", at="n1", priority=0) for n in range(3)])
    for number in range(8):
        state.upsert_pod(pod(f"c{number}", at="n2", priority=100))
    run(state)
    state.upsert_pod(serve("s1", priority=50))
    decided = run(state, 1.0)
    assert preempted(decided) == [["b0", "b1", "b2"]]
    invariants.check(state)
    for number in range(3):
        state.remove_pod(f"uid-b{number}")
    run(state, 2.0)
    assert state.tasks["uid-s1"].row == state.nodes.rows["n1"]
    invariants.check(state)


def test_others_preempt_all_of_it():
    state = world([node("n1")], pods=[serve(f"s{n}", at="n1", owner="rs") for n in range(2)])
    run(state)
    state.upsert_pod(pod("big", priority=50))
    assert preempted(run(state, 1.0)) == [["s0", "s1"]]


def test_a_class_that_changes_holds_for_what_comes():
    plain = msgspec.structs.replace(NODE, isolation="None")
    state = world([node("n1"), node("n2")], classes=(plain,))
    state.upsert_pod(serve("s1"))
    home = start(state)["s1"]
    state.upsert_class(NODE)
    invariants.check(state)
    for number in range(9):
        state.upsert_pod(pod(f"b{number}"))
    assert home not in start(state).values()
    state.upsert_class(plain)
    assert placed(confirm(state, run(state, 3.0))) == {"b8": home}
    invariants.check(state)


@pytest.mark.parametrize("early", [True, False], ids=["class first", "pods first"])
def test_a_scheduler_that_begins_anew_knows_it(early):
    state = cluster([node("n1")])
    if early:
        state.upsert_class(NODE)
    state.upsert_pod(serve("s1", at="n1"))
    if not early:
        state.upsert_class(NODE)
    state.upsert_pod(pod("late"))
    assert not placed(run(state))
    invariants.check(state)


def test_a_class_that_a_pod_may_not_use_isolates_nothing():
    state = world([node("n1")], classes=(msgspec.structs.replace(NODE, users=("alice",)),))
    state.upsert_pod(serve("s1", at="n1", user="mallory"))
    state.upsert_pod(pod("late"))
    assert placed(run(state)) == {"late": "n1"}


def test_a_part_of_a_gpu_is_refused():
    state = world([node("n1", gpus=1)], classes=(PARTS,))
    state.upsert_pod(pod("p1", service_class="parts", milli=500))
    reason = refused(run(state))["p1"]
    assert reason.code == ReasonCode.NOT_ALLOWED
    assert "it asks for 0.5 of a GPU, and ServiceClass 'parts' has isolation GPU" in reason.message
    state.upsert_class(msgspec.structs.replace(PARTS, isolation="None"))
    assert placed(run(state, 1.0)) == {"p1": "n1"}


def test_replicas_of_gpus_are_not_for_such_pods():
    shared = node("n1", labels={"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"})
    state = world([shared], classes=(PARTS,))
    state.upsert_pod(pod("p1", service_class="parts"))
    assert "1 node(s) share GPUs among replicas, and the ServiceClass isolates GPUs" in refused(run(state))["p1"].message
    state.upsert_node(node("n2"))
    assert placed(run(state, 10.0)) == {"p1": "n2"}


# -- random worlds -------------------------------------------------------------------------------


def broken(pods, groups):
    """Nodes where a job that isolates nodes is beside another job's pods with GPUs, by the pods that the cluster has there."""
    there = {}
    for each in pods.values():
        if each.node:
            service = groups[f"ns/{each.group}"].service_class if each.group else each.service_class
            job = each.group or each.owner or each.uid
            there.setdefault(each.node, []).append((job, service == "serve", bool(each.spec.gpus)))
    return [
        (name, job)
        for name, found in there.items()
        for job, isolates, _ in found
        if isolates and any(gpus and other != job for other, _, gpus in found)
    ]


def taken_over(rnd, nodes, objects):
    """Another scheduler begins, and learns of what there is in any order."""
    state = cluster(nodes)
    rnd.shuffle(objects)
    for each in objects:
        if isinstance(each, ServiceClass):
            state.upsert_class(each)
        elif isinstance(each, Group):
            state.upsert_group(each)
        else:
            state.upsert_pod(each)
    return state


def wrong(state):
    """What is counted wrongly; single members of gangs fail here, which later passes mend."""
    return [each for each in invariants.violations(state) if "members placed" not in each]


@pytest.mark.parametrize("seed", range(12))
def test_random_worlds_never_break_isolation(seed):
    rnd = random.Random(seed)
    nodes = [node(f"n{number}", gpus=rnd.choice([2, 4, 8])) for number in range(rnd.randint(2, 6))]
    groups = {}
    pods = {}
    classes = [NODE, ServiceClass("plain", moves_whole=True, checkpoint_interval=600.0)]
    state = world(nodes, classes=classes)
    now, number = 1.0, 0
    for _ in range(60):
        now += rnd.choice([1.0, 20.0, 400.0])
        for _ in range(rnd.randint(0, 3)):
            number += 1
            service = rnd.choice(["serve", "plain", "plain", ""])
            priority = rnd.choice([0, 10, 100])
            if rnd.random() < 0.35:
                size = rnd.randint(2, 4)
                made = Group("ns", f"g{number}", size, service_class=service)
                groups[made.key] = made
                state.upsert_group(made)
                gpus = rnd.choice([0, 1, 2])
                for member in range(size):
                    each = pod(f"g{number}-{member}", group=f"g{number}", gpus=gpus, priority=priority, created=now)
                    pods[each.uid] = each
                    state.upsert_pod(each)
            else:
                owner = rnd.choice(["", "rs1", "rs2"]) if service == "serve" else ""
                each = pod(
                    f"p{number}",
                    gpus=rnd.choice([0, 1, 1, 2, 4]),
                    priority=priority,
                    service_class=service,
                    owner=owner,
                    created=now,
                )
                pods[each.uid] = each
                state.upsert_pod(each)
        for transaction in run(state, now):
            if isinstance(transaction, Place):
                for binding in transaction.bindings:
                    if rnd.random() < 0.9:
                        state.pods.bound(binding.pod.uid)
                        pods[binding.pod.uid] = msgspec.structs.replace(pods[binding.pod.uid], node=binding.node)
                    else:
                        state.bind_failed(binding.pod.uid, now)
            elif isinstance(transaction, Preempt):
                for victim in transaction.victims:
                    if rnd.random() < 0.7:
                        state.remove_pod(victim.pod.uid)
                        pods.pop(victim.pod.uid, None)
        assert not broken(pods, groups)
        assert not wrong(state)
        for uid in [uid for uid in pods if rnd.random() < 0.08]:
            state.remove_pod(uid)
            del pods[uid]
        if rnd.random() < 0.1:
            state = taken_over(rnd, nodes, [*classes, *groups.values(), *pods.values()])
            assert not broken(pods, groups)
            assert not wrong(state)
