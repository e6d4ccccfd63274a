"""A class of service names a PriorityClass: its value is the priority of the class's pods, whatever comes first."""

import itertools

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.port import Judged, Upsert
from fairlead.cluster.translate import Change, Translator
from fairlead.core.model.pods import Pod


def made(view, **fields):
    return msgspec.convert(fields, view)


def change(view):
    name = view.metadata.name
    return Change(f"ns/{name}" if isinstance(view, views.PodGroup) else view.metadata.uid or name, view)


def waiting(name, *, service="", group="", priority=5):
    labels = {"fairlead.dev/service-class": service} if service else {}
    labels |= {"fairlead.dev/pod-group": group} if group else {}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    return made(views.Pod, metadata=metadata, spec={"schedulerName": "fairlead", "priority": priority, "containers": []})


OBJECTS = {
    "priorities": made(views.PriorityClass, metadata={"name": "high"}, value=1000, preemptionPolicy="Never"),
    "classes": made(views.ServiceClass, metadata={"name": "gold"}, spec={"priorityClassName": "high"}),
    "groups": made(views.PodGroup, metadata={"name": "g", "namespace": "ns"}, spec={"serviceClass": "gold"}),
    "pods": None,
}


def tell(translator, kind, pods, seen):
    if kind == "pods":
        events = translator.pods([change(each) for each in pods])
    else:
        events = getattr(translator, kind)([change(OBJECTS[kind])])
        events = events[0] if isinstance(events, tuple) else events
    for event in events:
        if isinstance(event, Upsert) and isinstance(event.object, Pod):
            seen[event.object.name] = (event.object.priority, event.object.never_preempts)


@pytest.mark.parametrize("order", list(itertools.permutations(OBJECTS)))
def test_in_whatever_order_they_come(order):
    translator = Translator()
    seen = {}
    pods = [waiting("mine", service="gold"), waiting("gangs", group="g"), waiting("plain"), waiting("typo", service="golden")]
    for kind in order:
        tell(translator, kind, pods, seen)
    assert seen == {"mine": (1000, True), "gangs": (1000, True), "plain": (5, False), "typo": (5, False)}


def test_what_goes_leaves_the_pods_their_own():
    translator = Translator()
    seen = {}
    for kind in OBJECTS:
        tell(translator, kind, [waiting("mine", service="gold"), waiting("gangs", group="g")], seen)
    for event in translator.groups([Change("ns/g", None)]):
        if isinstance(event, Upsert):
            seen[event.object.name] = event.object.priority
    assert seen["gangs"] == 5
    (event,) = translator.priorities([Change("high", None)])[:1]
    assert event.object.priority == 5
    translator.pods([Change("mine", None)])
    assert translator.priorities([change(OBJECTS["priorities"])])[0].object.name != "mine"


def labelled(labels, node=""):
    metadata = {"name": "p", "namespace": "ns", "uid": "p", "labels": labels}
    return made(views.Pod, metadata=metadata, spec={"schedulerName": "fairlead", "nodeName": node, "containers": []})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"fairlead.dev/service-class": "gold"}, {}),
        ({"fairlead.dev/pod-group": "g"}, {}),
        ({"fairlead.dev/pod-group": "g"}, {"fairlead.dev/pod-group": "h"}),
        ({}, {"fairlead.dev/queue": "q"}),
    ],
)
def test_what_a_pod_was_is_never_told_again(before, after):
    """It was, when a class or its namespace changed: a pod that ran was reported as one that has no node."""
    translator = Translator()
    translator.pods([change(labelled(before))])
    translator.pods([change(labelled(after, node="n"))])
    told = translator.priorities([change(OBJECTS["priorities"])]) + translator.classes([change(OBJECTS["classes"])])
    told += translator.groups([change(OBJECTS["groups"])])
    told += translator.namespaces(
        [change(made(views.Namespace, metadata={"name": "ns", "labels": {"fairlead.dev/default-queue": "r"}}))]
    )
    pods = [event.object for event in told if isinstance(event, Upsert) and isinstance(event.object, Pod)]
    assert all(each.node == "n" for each in pods), pods


def test_nothing_is_told_of_what_a_pod_was_before_it_could_not_be_read():
    translator = Translator()
    translator.pods([change(labelled({"fairlead.dev/service-class": "gold"}))])
    bare = views.OnlyMetadata(labelled({"fairlead.dev/service-class": "gold"}).metadata)
    translator.pods([Change("p", bare, "Expected `str`, got `int`")])
    told = translator.priorities([change(OBJECTS["priorities"])]) + translator.classes([change(OBJECTS["classes"])])
    told += translator.namespaces(
        [change(made(views.Namespace, metadata={"name": "ns", "labels": {"fairlead.dev/default-queue": "r"}}))]
    )
    assert not [event for event in told if isinstance(event, Upsert) and isinstance(event.object, Pod)]


@pytest.mark.parametrize("order", [("priorities", "classes"), ("classes", "priorities")])
def test_a_class_says_that_its_priority_class_does_not_exist_as_long_as_that_is_so(order):
    translator = Translator()
    said = []

    def tell(kind, told):
        said.extend(each.complaint for each in getattr(translator, kind)([told]) if isinstance(each, Judged))

    for kind in order:
        tell(kind, change(OBJECTS[kind]))
    assert said[-1] == ""
    tell("priorities", Change("high", None))
    assert said[-1] == "PriorityClass 'high' does not exist; pods keep their own priority"
    tell("priorities", change(OBJECTS["priorities"]))
    assert said[-1] == ""
    tell("classes", Change("gold", None))
    count = len(said)
    tell("priorities", Change("high", None))
    assert len(said) == count
