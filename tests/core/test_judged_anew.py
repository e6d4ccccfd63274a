"""Who waits is judged anew whenever a queue's policy goes away, or the queue is moved below another."""

import msgspec

from fairlead.core.model.queues import Queue, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from tests.builders import cluster, node, placed, pod, queue, refused, run


def test_what_a_queue_refused_waits_once_the_queue_is_gone_and_made_again():
    state = cluster([node("n")], [Queue("b", classes=("lim",))], [pod("p", "b")])
    assert "p" in refused(run(state, 0.0))
    state.remove_queue("b")
    assert refused(run(state, 1.0))["p"].code.value == "UnknownQueue"
    state.upsert_queue(Queue("b"))
    assert placed(run(state, 2.0)) == {"p": "n"}


def test_what_a_parent_refused_waits_once_the_parent_is_gone():
    state = cluster([node("n")], [Queue("b", classes=("lim",)), queue("c", parent="b")], [pod("p", "c")])
    assert "p" in refused(run(state, 0.0))
    state.remove_queue("b")
    assert placed(run(state, 1.0)) == {"p": "n"}


def test_what_a_parent_refused_waits_once_the_queue_is_moved():
    state = cluster([node("n")], [Queue("b", classes=("lim",)), Queue("c", "b")], [pod("p", "c")])
    assert "p" in refused(run(state, 0.0))
    state.upsert_queue(Queue("c"))
    assert placed(run(state, 1.0)) == {"p": "n"}


def test_a_queue_that_is_moved_below_one_that_refuses_keeps_its_jobs_out():
    state = cluster([node("n", gpus=1)], [Queue("b", classes=("lim",)), Queue("c")], [pod("p", "c"), pod("q", "c")])
    state.upsert_class(ServiceClass("lim"))
    state.upsert_queue(Queue("c", "b"))
    decided = run(state, 0.0)
    assert not placed(decided)
    assert set(refused(decided)) == {"p", "q"}


def test_jobs_that_were_to_be_counted_are_not_lost_when_their_queue_is_moved_to_where_none_are():
    state = cluster([node("n")], [Queue("b", jobs=UserLimits(submitted=6)), Queue("c", "b")])
    for number in range(2):
        state.upsert_pod(msgspec.structs.replace(pod(f"p{number}", "c"), created=float(number)))
    state.upsert_queue(Queue("c"))
    assert set(placed(run(state, 0.0))) == {"p0", "p1"}
