"""Conditions of policies that follow what queues hold and what nodes have, without a change of the policies."""

import pytest

from fairlead.core.dra.model import DeviceClass
from fairlead.core.model.queues import Queue, QueueResource
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
