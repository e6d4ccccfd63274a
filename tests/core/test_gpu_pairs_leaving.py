"""Two jobs on one GPU while others leave: what still runs keeps pairs and fractions apart, and replacements find their places."""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt
from tests.builders import pod, run
from tests.core.test_gpu_pairs import PAIRS, agents, small, start, world
from tests.core.test_suspended import Story, worker


def leaving(state, name, until):
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=until))


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_fraction_waits_until_a_pod_that_may_share_has_left(gpus):
    state = world(agents(gpus=gpus), [PAIRS], moves_per_minute=0)
    state.upsert_pod(small("a", grace=300))
    assert start(state) == {"a": "alone"}
    state.upsert_pod(pod("f", milli=500, priority=10))
    if gpus == 2:
        state.upsert_pod(pod("w", created=-1.0, priority=10))
    assert any(isinstance(each, Preempt) for each in run(state, 2.0))
    leaving(state, "a", 302.0)
    state.upsert_pod(pod("g", milli=500))
    assert "g" not in start(state, 3.0)
    invariants.check(state)
    state.remove_pod("uid-a")
    assert {"f", "g"} <= {*start(state, 4.0), *start(state, 5.0)}


def test_a_pair_waits_until_a_fraction_has_left():
    state = world(agents(gpus=2), [PAIRS], pods=[pod("f", milli=500, at="n0", grace=300)], moves_per_minute=0)
    state.upsert_pod(small("h", priority=10))
    assert any(isinstance(each, Preempt) for each in run(state, 1.0))
    leaving(state, "f", 301.0)
    state.upsert_pod(small("other"))
    assert start(state, 2.0) == {}
    state.remove_pod("uid-f")
    assert {"h", "other"} == {*start(state, 3.0), *start(state, 4.0)}
    invariants.check(state)


@pytest.mark.parametrize(("first", "second"), [("a-7h2kd", "a-9x4cd"), ("a-xkvbz", "a-7h2kd"), ("a-xkvbz", "a-qwrtp")])
def test_the_replacement_of_a_moved_pod_gets_its_place_whatever_its_name_is(first, second):
    state = world(agents(gpus=2), [PAIRS], patience=0.0, moves_per_minute=60, move_patience=0.0, reservations=0)
    state.upsert_pod(small(first, controlled=True, owner="job-a", started=0.0))
    state.upsert_pod(small("b", controlled=True, owner="job-b", stays=True))
    assert set(start(state, 10.0)) == {first, "b"}
    state.upsert_pod(pod("whole", created=20.0))
    assert any(isinstance(each, Preempt) and each.moved for each in run(state, 1000.0))
    old = state.tasks[f"uid-{first}"].pod
    state.remove_pod(old.uid)
    state.upsert_pod(small(second, controlled=True, owner=old.owner))
    assert set(start(state, 1010.0)) == {"whole", second}


@pytest.mark.parametrize(("first", "second"), [("one-7h2kd", "one-9xc4d"), ("one-xkvbz", "one-7h2kd")])
def test_a_suspended_job_that_resumes_gets_its_place_whatever_its_pods_are_called(first, second):
    story = Story(*agents(gpus=1))
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", sharing="Pairs"))

    def submit(name, number):
        made = worker("one", number, group="")
        story.state.upsert_pod(msgspec.structs.replace(made, name=name, uid=f"uid-{name}"))

    submit(first, 0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, created=9.0))
    story.step()
    story.state.remove_pod(f"uid-{first}")
    story.step()
    assert story.running() == ["high"]
    story.state.remove_pod("uid-high")
    story.step()
    submit(second, 1)
    story.step()
    assert story.running() == [second]
