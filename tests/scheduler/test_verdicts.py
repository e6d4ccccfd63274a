"""Conditions of policies that follow what queues hold and what nodes have, without a change of the policies."""

import pytest

from fairlead.cluster.port import Judged, Synced, Upsert
from fairlead.core.dra.model import DeviceClass
from fairlead.core.model.nodes import NodePool, Reservation
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Verdict
from fairlead.scheduler.reports.verdicts import Verdicts
from tests.builders import cluster, node, pod


class Faults:
    def note(self, *told):
        raise AssertionError(told)


def judged(state):
    verdicts = Verdicts(state, Faults())
    for name in state.queues.queues:
        verdicts.judged("queues", name, "")
    return verdicts


def reasons(verdicts):
    return {each.name: each.reason for each in verdicts.due()}


def test_a_resource_that_no_node_has_is_reported_until_one_does():
    state = cluster([node("a", gpus=0)], [Queue("q", resources=(QueueResource("nvidia.com/gpu", limit=4000),)), Queue("other")])
    verdicts = judged(state)
    assert reasons(verdicts)["q"] == "ResourceNotFound"
    assert reasons(verdicts) == {}
    state.upsert_node(node("b", gpus=4))
    assert reasons(verdicts) == {"q": "Accepted"}
    state.remove_node("b")
    assert reasons(verdicts) == {"q": "ResourceNotFound"}


def test_a_resource_that_a_device_class_serves_is_no_mistake():
    state = cluster([node("a")], [Queue("q", resources=(QueueResource("example.com/gpu", limit=4),))])
    state.claims.upsert(DeviceClass("c", resource="example.com/gpu"))
    assert reasons(judged(state))["q"] == "Accepted"


@pytest.mark.parametrize(
    "limit", [QueueResource("nvidia.com/gpu", limit=2000), QueueResource("nvidia.com/gpu", limit_percent=25_000)]
)
def test_a_queue_beyond_its_limit_is_judged_again_when_what_it_holds_changes(limit):
    state = cluster([node("a", gpus=8)], [Queue("q", resources=(limit,)), Queue("other")])
    verdicts = judged(state)
    assert reasons(verdicts)["q"] == "Accepted"
    for i in range(3):
        state.upsert_pod(pod(f"p{i}", queue="q", at="a"))
    verdicts.amounts_changed()
    (told,) = verdicts.due()
    assert (told.name, told.reason) == ("q", "OverLimit")
    assert told.message.startswith("it holds 3 of at most 2 nvidia.com/gpu")
    state.remove_pod("uid-p0")
    verdicts.amounts_changed()
    assert reasons(verdicts) == {"q": "Accepted"}


def test_a_class_that_a_queue_names_and_that_does_not_exist():
    state = cluster([node("a")], [Queue("q", classes=("batch", "bach"))])
    state.upsert_class(ServiceClass("batch"))
    verdicts = judged(state)
    (told,) = verdicts.due()[-1:]
    message = "ServiceClass 'bach' (serviceClasses) does not exist: no job is of it"
    assert (told.accepted, told.reason, told.message) == (True, "ServiceClassNotFound", message)
    state.upsert_class(ServiceClass("bach"))
    verdicts.judged("serviceclasses", "bach", "")
    assert reasons(verdicts) == {"q": "Accepted", "bach": "Accepted"}


def test_pools_that_a_class_names_and_that_do_not_exist():
    state = cluster([node("a")], [])
    state.upsert_class(ServiceClass("c", pools=("a100", "h100")))
    state.upsert_pool(NodePool("h100", ()))
    verdicts = Verdicts(state, Faults())
    verdicts.judged("serviceclasses", "c", "")
    (told,) = verdicts.due()
    assert (told.accepted, told.reason) == (True, "PoolNotFound")
    assert told.message == "NodePool 'a100' (alternativePools) does not exist: no alternative runs there"
    state.upsert_pool(NodePool("a100", ()))
    verdicts.judged("nodepools", "a100", "")
    assert reasons(verdicts) == {"c": "Accepted", "a100": "Accepted"}


def test_two_classes_that_are_the_default_of_the_same_jobs():
    state = cluster([node("a")], [])
    verdicts = Verdicts(state, Faults())
    for name, types in (("b", ("Training", "Inference")), ("a", ("Inference",)), ("c", ())):
        state.upsert_class(ServiceClass(name, default_for=types))
        verdicts.judged("serviceclasses", name, "")
    told = {each.name: each for each in verdicts.due()}
    assert {name: each.reason for name, each in told.items()} == {"a": "SeveralDefaults", "b": "SeveralDefaults", "c": "Accepted"}
    message = "2 ServiceClasses are the default for Inference: 'a', 'b'; the first by name, 'a', is"
    assert told["a"].message == told["b"].message == message
    state.remove_class("a")
    verdicts.forget("class", "a")
    assert reasons(verdicts) == {"b": "Accepted"}


def test_queues_that_are_each_others_parents_are_told_of_the_cycle():
    told = []
    core = CoreLoop(Policy(), lambda outputs: told.extend(each for each in outputs if isinstance(each, Verdict)))
    tree = [Queue("a", "c"), Queue("b", "a"), Queue("c", "b")]
    core.apply([*(Upsert(each) for each in tree), *(Judged("queues", each.name, "") for each in tree), Synced()], 1.0)
    core.decide(1.0)
    found = {each.name: each for each in told}
    cycle = "queue 'c' cannot have parent 'b': they would form a cycle, c -> b -> a -> c"
    assert (found["c"].reason, found["c"].message) == ("InvalidSpec", f"{cycle}; the queue is not in effect")
    assert (found["a"].accepted, found["a"].reason) == (False, "ParentNotAccepted")
    assert found["a"].message.startswith(f"parent queue 'c' is not accepted: {cycle}; until it is")
    assert found["b"].reason == "Accepted"
    told.clear()
    core.apply([Upsert(Queue("c")), Judged("queues", "c", "")], 2.0)
    core.decide(2.0)
    assert {each.name: each.reason for each in told} == {"a": "Accepted", "c": "Accepted"}


def test_reservations_of_different_queues_for_the_same_nodes():
    hour = 3600.0
    state = cluster([node("a", gpus=4), node("b", gpus=4)], [Queue("x"), Queue("y"), Queue("z", "y")])
    verdicts = Verdicts(state, Faults())

    def reserve(name, queue, start, end, **more):
        state.upsert_reservation(Reservation(name, start * hour, end * hour, queue=queue, **more))
        verdicts.reservation_changed(name)
        verdicts.judged("reservations", name, "")

    reserve("course", "x", 1, 3, resources=(("nvidia.com/gpu", 4),))
    assert reasons(verdicts) == {"course": "Accepted"}
    reserve("exam", "y", 2, 4)
    told = {each.name: each.message for each in verdicts.due()}
    assert told == {
        "course": "reservation 'exam' of queue 'y' is for 1 of its 1 nodes at the same time: no pod may use them then",
        "exam": "reservation 'course' of queue 'x' is for 1 of its 2 nodes at the same time: no pod may use them then",
    }
    reserve("course", "x", 1, 2, resources=(("nvidia.com/gpu", 4),))
    assert reasons(verdicts) == {"course": "Accepted", "exam": "Accepted"}
    reserve("talk", "z", 2, 4)
    assert reasons(verdicts) == {"talk": "Accepted"}, "pods of a queue below may use what its queue has"
    reserve("repair", "", 3, 4)
    assert reasons(verdicts) == {"exam": "SameNodes", "talk": "SameNodes", "repair": "Accepted"}
