"""The priority that counts: a class's, and in a queue that names classes never more than theirs."""

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.priorities import Priorities
from tests.builders import pod


def named(**values):
    made = Priorities()
    for name, value in values.items():
        made.set_value(views.PriorityClass(metadata=views.Metadata(name=name), value=value), name)
        made.set_class(
            name, msgspec.convert({"metadata": {"name": name}, "spec": {"priorityClassName": name}}, views.ServiceClass)
        )
    return made


def test_a_priority_class_goes_before_no_class_of_a_shared_queue():
    made = named(batch=100, urgent=1000)
    made.set_queue("shared", "", ("batch", "urgent"))
    assert made.of(pod("p", queue="shared", priority=2_000_001_000)).priority == 1000
    assert made.of(pod("q", queue="shared", priority=2_000_001_000, service_class="unvalued")).priority == 1000
    assert made.of(pod("r", queue="shared", priority=7)).priority == 7
    assert made.of(pod("s", queue="open", priority=2_000_001_000)).priority == 2_000_001_000
    assert made.of(pod("t", queue="shared", service_class="batch", priority=5)).priority == 100


def test_classes_of_a_queue_above_bind_and_without_a_priority_they_give_none():
    made = named(batch=100)
    made.set_queue("top", "", ("plain",))
    made.set_queue("leaf", "top", ("batch",))
    assert made.of(pod("p", queue="leaf", priority=50)).priority == 0
    assert made.of(pod("n", queue="leaf", priority=-5)).priority == -5


def test_what_queues_classes_and_groups_come_to_say_is_followed():
    made = named(batch=100)
    made.of(pod("p", queue="shared", priority=500))
    made.of(pod("g", queue="other", priority=500, group="g"))
    assert made.set_queue("shared", "", None) == []
    assert {each.name: each.priority for each in made.set_queue("shared", "", ("batch",))}["p"] == 100
    assert [each.priority for each in made.set_group("ns/g", "", "shared")] == [100]
    assert {each.name: each.priority for each in made.set_queue("shared", "", None)} == {"p": 500, "g": 500}


@pytest.mark.parametrize("label", [{"service_class": "batch"}, {"group": "g"}])
def test_a_pod_that_was_relabelled_is_remembered_once(label):
    made = named(batch=100)
    made.of(pod("p", **label))
    made.of(pod("p", group="other"))
    assert [each.group for each in made.set_queue("default", "", ("batch",))] == ["other"]
    made.forget("uid-p")
    assert made.set_queue("default", "", None) == []
