"""A class of service names a PriorityClass: its value is the priority of the class's pods, whatever comes first."""

import itertools

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.port import Upsert
from fairlead.cluster.translate import Change, Translator
from fairlead.core.model import Pod


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
