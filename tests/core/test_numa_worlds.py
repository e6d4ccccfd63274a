"""NUMA nodes in passes: no pod is sent where its kubelet would refuse it, and all that is tried is taken back."""

import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.transactions import Preempt
from fairlead.core.numa.model import ContainerNeed, Machine, NodeTopology, Zone
from tests.builders import GIB, GPU, cluster, group, node, placed, pod, preempted, refused, run, spec, start

GPUS = (((GPU), 4),)


def topology(name, policy="single-numa-node", gpus=(4, 4), cpus=32, **more):
    zones = tuple(
        Zone(f"node-{at}", cpus, 0, at, (("memory", 256 * GIB),), ((GPU, count),) if count else ())
        for at, count in enumerate(gpus)
    )
    return NodeTopology(name, Machine(zones, policy, static=True, memory_static=True, **more))


def asks(gpus, cpus=1, memory=GIB):
    need = (ContainerNeed(cpus, (("memory", memory),), ((GPU, gpus),) if gpus else ()),)
    return msgspec.structs.replace(spec(gpus, cpu=cpus * 1000, memory=memory), numa=need)


def world(nodes, pods=(), topologies=(), **more):
    state = cluster(nodes, pods=(), **more)
    for each in topologies:
        state.numa.upsert(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def test_a_pod_waits_for_gpus_of_one_numa_node_with_numbers():
    """Six GPUs are free, three on each NUMA node: four together are not."""
    there = [pod("a", spec_=asks(1), at="n"), pod("b", spec_=asks(1), at="n")]
    state = world([node("n")], topologies=[topology("n")])
    run(state)  # from then on they are taken in the order in which they come
    state.upsert_pod(there[0])
    state.upsert_pod(pod("x", spec_=asks(3), at="n"))  # with the first all of one NUMA node
    state.upsert_pod(there[1])
    state.remove_pod("uid-x")
    state.upsert_pod(pod("c", spec_=asks(4, cpus=8)))
    reason = refused(run(state))["c"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "cannot give 4 nvidia.com/gpu and 8 cpu and 1024 MiB of memory from one NUMA node" in reason.message
    assert "node-0 has 3 nvidia.com/gpu and 31 cpu" in reason.message
    assert "node-1 has 3 nvidia.com/gpu and 31 cpu" in reason.message
    state.remove_pod("uid-b")
    assert placed(run(state)) == {"c": "n"}
    assert not invariants.violations(state)


def test_without_topology_the_same_pods_are_placed():
    state = world([node("n", gpus=6)], [pod("c", spec_=asks(4))])
    assert placed(run(state)) == {"c": "n"}


def test_members_of_a_gang_count_one_after_the_other():
    """Two nodes of 4+4 GPUs hold four members of 3 GPUs, not five, though sixteen GPUs are free."""
    nodes, told = [node("a"), node("b")], [topology("a"), topology("b")]
    members = [pod(f"g-{at}", group="g", spec_=asks(3)) for at in range(5)]
    state = world(nodes, members, told, groups=[group("g", 5)])
    assert not start(state)
    assert not state.numa.rows[0].worlds[0].holds
    assert not invariants.violations(state)
    state = world(nodes, members[:4], told, groups=[group("g", 4)])
    assert len(start(state)) == 4
    assert not invariants.violations(state)


def test_the_node_where_the_kubelet_needs_fewer_numa_nodes_is_taken():
    """Best-effort admits everywhere: the pod goes where its GPUs are together, though the name of the other comes first."""
    told = [topology("a", "best-effort", gpus=(2, 2)), topology("b", "best-effort")]
    state = world([node("a", gpus=4), node("b")], [pod("p", spec_=asks(4))], told)
    assert placed(run(state)) == {"p": "b"}


def test_victims_free_one_numa_node():
    """Preemption: only what frees four GPUs of one NUMA node helps."""
    state = world([node("n")], topologies=[topology("n")])
    for name, gpus in (("a", 3), ("b", 3), ("c", 1)):
        state.upsert_pod(pod(name, spec_=asks(gpus), at="n"))
    state.upsert_pod(pod("high", priority=10, spec_=asks(4)))
    out = run(state)
    victims = {name for each in preempted(out) for name in each}
    assert any(isinstance(each, Preempt) for each in out)
    assert len(victims) == 1
    assert victims <= {"a", "b"}
    assert not invariants.violations(state)


def test_zones_that_contradict_the_node_are_not_used():
    state = world([node("n", gpus=8)], [pod("c", spec_=asks(4))], [topology("n", gpus=(2, 2))])
    assert state.numa.faults == {"n": "its zones have 4 nvidia.com/gpu, and 8 are allocatable on the node"}
    assert placed(run(state)) == {"c": "n"}


def test_a_node_that_begins_to_tell_of_its_numa_nodes_counts_what_runs():
    state = world([node("n")], [pod("a", spec_=asks(3), at="n"), pod("b", spec_=asks(3), at="n")])
    state.numa.upsert(topology("n"))
    state.upsert_pod(pod("c", spec_=asks(2)))
    assert refused(run(state))["c"].code is ReasonCode.TOPOLOGY
    state.numa.remove("n")
    assert placed(run(state)) == {"c": "n"}


def test_random_events_and_passes_keep_the_accounting_exact():
    """Pods, nodes and topologies come and go at random; what is tried is taken back, and one row and all rows agree."""
    for seed in range(40):
        draw = random.Random(seed)
        state, names = world([]), ["a", "b", "c"]
        for step in range(25):
            name = draw.choice(names)
            kind = draw.randrange(7)
            if kind == 0:
                state.upsert_node(node(name))
            elif kind == 1:
                policy = draw.choice(["none", "best-effort", "restricted", "single-numa-node"])
                state.numa.upsert(topology(name, policy, scope=draw.choice(["pod", "container"])))
            elif kind == 2 and draw.random() < 0.3:
                state.numa.remove(name)
            elif kind == 3 and draw.random() < 0.2:
                state.remove_node(name)
            elif kind == 4 and state.tasks:
                state.remove_pod(draw.choice(sorted(state.tasks)))
            else:
                gpus = draw.choice([0, 1, 2, 3, 4, 5, 8])
                wanted = asks(gpus, draw.randrange(1, 24), draw.randrange(1, 200) * GIB)
                group_ = draw.choice(["", "", "g"])
                state.upsert_pod(pod(f"p{step}", priority=draw.randrange(3), spec_=wanted, group=group_))
            run(state, now=float(step))
            assert not invariants.violations(state), (seed, step)
            for task in state.tasks.values():
                for relation in task.ranking.relations:
                    if relation.plugin == "NumaAlignment":
                        mask = relation.refused()
                        rows = range(state.nodes.count)
                        one = [relation.refuses(row) is not None for row in rows]
                        assert one == ([False] * len(rows) if mask is None else mask.tolist()), (seed, step)


def test_a_node_in_too_many_states_opens_once_no_aligned_pod_is_left():
    """A daemon without NUMA nodes, which never ends, does not keep it closed."""
    nic = "example.com/nic"
    zones = tuple(Zone(f"node-{at}", 0, 0, at, (), ((nic, 40), (GPU, 4))) for at in range(2))
    told = NodeTopology("n", Machine(zones, "best-effort"))
    state = world([msgspec.structs.replace(node("n"), allocatable={**node("n").allocatable, nic: 80})], topologies=[told])
    state.upsert_pod(pod("daemon", gpus=0, at="n"))
    for name, resource, count in (("a", nic, 45), ("b", GPU, 5)):
        need = (ContainerNeed(0, (), ((resource, count),)),)
        plain = spec(count if resource == GPU else 0, extra={nic: count} if resource == nic else None)
        state.upsert_pod(pod(name, spec_=msgspec.structs.replace(plain, numa=need), at="n"))
    state.upsert_pod(pod("c", spec_=asks(1)))
    assert "not known until their pods have ended" in refused(run(state))["c"].message
    state.remove_pod("uid-a")
    assert not placed(run(state, 1.0))
    state.remove_pod("uid-b")
    assert placed(run(state, 400.0)) == {"c": "n"}
    assert not invariants.violations(state)


@pytest.mark.parametrize("pods_first", [True, False])
def test_a_scheduler_that_begins_anew_takes_pods_in_the_order_of_their_starts(pods_first):
    """By names x and y would share node-0; in truth z and x do, and two GPUs of node-1 are free together."""
    told = msgspec.structs.replace(node("n"), numa=topology("n"))
    there = [pod(name, spec_=asks(gpus), at="n", started=at) for name, gpus, at in (("x", 1, 3.0), ("y", 2, 2.0), ("z", 3, 1.0))]
    state = cluster()
    events = [(state.upsert_node, told), *((state.upsert_pod, each) for each in there)]
    for event, thing in events[1:] + events[:1] if pods_first else events:
        event(thing)
    state.upsert_pod(pod("c", spec_=asks(2)))
    assert placed(run(state)) == {"c": "n"}
    assert not invariants.violations(state)
