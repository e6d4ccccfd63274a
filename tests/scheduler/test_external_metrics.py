"""Which queues' metrics a namespace gets: those that it may use."""

import msgspec
import pytest

from fairlead.cluster.port import Synced, Upsert
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.policy import Policy
from fairlead.core.model.selectors import Requirement
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.external_metrics import backlogs
from tests.builders import node, pod, queue

VISION = (Requirement("team", "In", ("vision",)),)


def open_to(made, namespaces=None, users=None):
    return msgspec.structs.replace(made, **({"namespaces": namespaces} if namespaces else {}), users=users)


def told(namespace, *things):
    core = CoreLoop(Policy(), lambda _: None)
    spaces = (Namespace("vision", (("team", "vision"),)), Namespace("mal", (("team", "mal"),)))
    core.apply([*(Upsert(each) for each in (*spaces, node("n", gpus=2), *things)), Synced()], 100.0)
    core.decide(100.0)
    return sorted(name for name in backlogs(core, namespace, None, 110.0) if name != "default")


def whose(name, namespace, user, queue_name, gpus=1):
    made = pod(name, queue=queue_name, gpus=gpus)
    return msgspec.structs.replace(made, namespace=namespace, uid=f"uid-{namespace}-{name}", user=user)


def test_a_queue_is_told_to_the_namespaces_that_it_admits():
    queues = (open_to(queue("vision"), VISION), queue("open"))
    assert told("vision", *queues) == ["open", "vision"]
    assert told("mal", *queues) == ["open"]
    assert told("unknown", *queues) == ["open"]


def test_queues_above_bind_those_below():
    queues = (open_to(queue("org"), VISION), queue("org-a", parent="org"))
    assert told("vision", *queues) == ["org", "org-a"]
    assert told("mal", *queues) == []


@pytest.mark.parametrize("gpus", [1, 8], ids=["runs", "waits"])
def test_a_queue_of_users_is_told_where_they_have_work_in_it(gpus):
    queues = (open_to(queue("anns"), users=("ann",)), queue("anns-a", parent="anns"))
    assert told("vision", *queues) == []
    assert told("vision", *queues, whose("p", "vision", "ann", "anns-a", gpus)) == ["anns", "anns-a"]
    assert told("mal", *queues, whose("p", "vision", "ann", "anns", gpus)) == []
    # What is refused there shows nothing.
    assert told("mal", *queues, whose("p", "mal", "mallory", "anns", gpus)) == []
    # Without a stamp the namespace is the user.
    assert told("vision", open_to(queue("theirs"), users=("vision",))) == ["theirs"]
