"""Types of kinds are read as they are; only `strict` holds them to the rules of their CustomResourceDefinitions."""

import msgspec
import pytest

from fairlead.api.kinds.node_pool import NodePool
from fairlead.api.kinds.pod_group import PodGroup
from fairlead.api.kinds.queue import Queue
from fairlead.api.kinds.reservation import Reservation
from fairlead.api.kinds.rules import strict
from fairlead.api.kinds.service_class import ServiceClass

# What another version may have written, and what is wrong with it.
FOREIGN = [
    (Queue, {"spec": {"userFairness": "Lottery"}}, "userFairness"),
    (Queue, {"spec": {"resources": [{"quota": 1}]}}, "name"),
    (Queue, {"spec": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}, "operator"),
    (Queue, {"status": {"usage": {"deviceSeconds": 1.0}}}, "at"),
    (Queue, {"status": {"runTimes": None}}, "runTimes"),
    (ServiceClass, {"spec": {"preemption": {"mode": "Ask"}}}, "mode"),
    (ServiceClass, {"spec": {"timeSlicing": {}}}, "levels"),
    (ServiceClass, {"spec": {"checkpointInterval": "soon"}}, "checkpointInterval"),
    (PodGroup, {"spec": {"minMember": 0}}, "minMember"),
    (PodGroup, {"status": {"phase": "Hibernating", "conditions": [{"type": "New", "status": "Perhaps"}]}}, "phase"),
    (PodGroup, {"status": {"target": {"state": "Frozen"}}}, "state"),
    (Reservation, {"spec": {"purpose": "Party", "start": "", "end": ""}}, "purpose"),
    (NodePool, {"spec": {"topologyLevels": [{"name": "rack"}]}}, "label"),
]


@pytest.mark.parametrize(("kind", "body", "field"), FOREIGN, ids=lambda each: getattr(each, "__name__", None))
def test_what_another_version_wrote_is_read(kind, body, field):
    found = msgspec.convert(body, kind)
    assert isinstance(found, kind)
    if field != "runTimes":  # null, where an older version of this program may have saved it
        with pytest.raises(msgspec.ValidationError, match=field):
            msgspec.convert(body, strict(kind))


def test_what_keeps_the_rules_is_the_same_by_either():
    body = {"metadata": {"name": "q"}, "spec": {"resources": [{"name": "cpu", "quota": "10%"}], "users": ["ann"]}}
    lenient, held = msgspec.convert(body, Queue), msgspec.convert(body, strict(Queue))
    assert isinstance(held, Queue)
    assert msgspec.to_builtins(lenient) == msgspec.to_builtins(held) == body
    assert held.metadata.key == lenient.metadata.key
    assert strict(Queue) is strict(Queue)


@pytest.mark.parametrize("kind", [Queue, ServiceClass, PodGroup, Reservation, NodePool])
def test_every_field_has_a_default(kind):
    assert kind().spec is not None
