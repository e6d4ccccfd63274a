"""Nothing starts only to be evicted for a queue's share in the next pass, while nothing comes, ends or changes in between.

Nor does anything idle for it: what no reclaim could place keeps no job from free devices.
"""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model import Queue, QueueResource, Taint
from tests.builders import GPU, cluster, group, held, node, placed, pod, preempted, queue, settle

CALM = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0, "share_wait": 0.0, "search_backoff": 0.0}


def part(name, quota, priority=0):
    """A queue; of priority 1 it is served before those of 0."""
    return Queue(name, "", priority, (QueueResource(GPU, quota * 1000),))


def leaves(state, name):
    """A victim is on its way out."""
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=state.services.now + 30.0))


def passes(state, *times):
    """What some passes start and evict together."""
    decided = [each for now in times for each in settle(state, now)]
    invariants.check(state)
    return placed(decided), preempted(decided)


# -- what is to be shared ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "closed", [{"unschedulable": True}, {"taints": (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)}]
)
def test_what_is_free_where_nothing_new_is_taken_is_not_shared(closed):
    state = cluster([node("n1", gpus=8, **closed), node("n2", gpus=2)], [queue("q0", 4), queue("q1")], reservations=0)
    state.upsert_pod(pod("c1", "q0", at="n2"))
    state.upsert_pod(pod("h0", "q0", gpus=16, created=1.0))
    state.upsert_pod(pod("f3", "q0", created=2.0))
    state.upsert_pod(pod("b2", "q1", created=3.0))
    assert passes(state, 4000.0, 4001.0, 4002.0) == ({"f3": "n2"}, [])
    assert state.queues.fair.share == {"q0": {GPU: 2000}, "q1": {GPU: 0}}
    state.upsert_node(node("n1", gpus=8))
    assert passes(state, 4003.0) == ({"b2": "n1"}, [])
    assert state.queues.fair.share == {}


def test_what_runs_where_nothing_new_is_taken_is_part_of_what_there_is():
    """Also parts of devices: of the 8 GPUs of the cordoned node 2.5 are in use."""
    state = cluster([node("n1", gpus=8), node("n2", gpus=2)], [queue("q0", 4), queue("q1")], **CALM)
    for name, more in {"whole": {"gpus": 2}, "half": {"milli": 500}}.items():
        state.upsert_pod(pod(name, "q0", at="n1", **more))
    assert state.queues.usable(GPU) == 10_000
    state.upsert_node(node("n1", gpus=8, unschedulable=True))
    assert state.queues.usable(GPU) == 4500
    state.remove_node("n1")
    assert state.queues.usable(GPU) == 2000


def test_what_waited_for_a_node_counts_for_shares_as_soon_as_it_comes():
    """And not only in the pass after the one in which it was looked at: shares would have moved just after others started."""
    state = cluster([node("n", gpus=2, unschedulable=True)], [queue("q0", 0), queue("q1", 0)], **CALM)
    for name, more in {"a0": {"gpus": 2}, "a1": {}, "a2": {}}.items():
        state.upsert_pod(pod(name, "q0", created=1.0, **more))
    state.upsert_pod(pod("b", "q1", created=2.0))
    passes(state, 3.0)
    state.upsert_pod(pod("c", "q1", created=3.0))
    passes(state, 3.5)
    state.upsert_node(node("n", gpus=2))
    passes(state, 4.0)
    shares = state.queues.fair.share
    assert passes(state, 5.0) == ({}, [])
    assert state.queues.fair.share == shares == {"q0": {GPU: 1000}, "q1": {GPU: 1000}}


def test_what_is_closed_for_leaving_victims_is_shared():
    """Three of four are gone, and what they held is kept closed until the last is: no other scheduler's pods hold it."""
    state = cluster([node("n", gpus=8)], [queue("q0", 4), queue("q1", 4)], groups=[group("g", 4, "q1")], **CALM)
    for name in ("x0", "x1"):
        state.upsert_pod(pod(name, "q1", gpus=2, priority=1, at="n", started=0.0))
    for number in range(4):
        state.upsert_pod(pod(f"g-{number}", "q1", group="g", at="n", started=0.0))
    state.upsert_pod(pod("mine", "q0", created=1.0))
    for name in ("x2", "x3"):
        state.upsert_pod(pod(name, "q1", gpus=2, created=2.0))
    state.upsert_pod(pod("more", "q0", gpus=8, created=2.0))
    (victims,) = passes(state, 3.0)[1]
    for name in victims[:-1]:
        leaves(state, name)
        state.remove_pod(f"uid-{name}")
    assert state.queues.fair.foreign(GPU, [each for each in state.queues.queues.values() if each.parent is None]) == 0


# -- members beyond the minimum of a gang --------------------------------------------------------


def test_members_beyond_a_minimum_for_which_there_is_no_node_hold_nothing_back():
    state = cluster([node("n", gpus=8)], [part("q0", 0, 1), part("q1", 8)], groups=[group("g", 1, "q1")], **CALM)
    state.upsert_pod(pod("g-0", "q1", group="g", created=1.0))
    state.upsert_pod(pod("g-1", "q1", group="g", gpus=16, created=1.0))
    for number in range(7):
        state.upsert_pod(pod(f"b-{number}", "q0", created=2.0))
    assert len(passes(state, 3.0, 4.0)[0]) == 8
    assert held(state, "q0") == 7


def test_the_request_of_a_queue_is_the_same_before_and_after_a_minimum_starts():
    state = cluster([node("n", gpus=2)], [part("q0", 0), part("q1", 0)], groups=[group("g", 1, "q1")], **CALM)
    for number in range(3):
        state.upsert_pod(pod(f"g-{number}", "q1", group="g", created=1.0))
    state.upsert_pod(pod("b", "q0", created=2.0))
    requests = []
    for now in (3.0, 4.0, 5.0):
        state.settle(now)
        requests.append(state.queues.fair._requests()["q1"][GPU])
        passes(state, now)
    state.remove_pod("uid-g-2")
    state.settle(6.0)
    assert [*requests, state.queues.fair._requests()["q1"][GPU]] == [3000, 3000, 3000, 2000]
