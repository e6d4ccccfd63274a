"""Assume: a decision is true in the state before anything is written, and what is yielded says all that is to be written."""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions.assume import begin, preempted
from fairlead.core.actions.free_capacity import free_capacity
from fairlead.core.allocation import allocate
from fairlead.core.model.groups import Group, Member, Target
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt, Resume
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption.search import by_upstream
from tests.builders import cluster, first, group, node, pod, refused, run, settle

QUIET = {"patience": 9e9, "moves_per_minute": 0.0}


def begun(state, now=5.0):
    """What is decided for the next unit, which has places."""
    unit = first(state, now)
    placed = allocate(state, unit)
    assert isinstance(placed, list)
    return unit, list(begin(state, unit, placed, now))


def planned(state, now=5.0):
    """What is decided for the next unit, for which victims go."""
    unit = first(state, now)
    state.log.mark()
    plan = free_capacity(state, unit, allocate(state, unit).code, now)
    decided = preempted(state, unit, plan, now)
    state.log.commit()
    return unit, decided


def test_a_pod_that_starts_is_one_binding_and_waits_no_longer():
    state = cluster([node("n", gpus=2)], pods=[pod("p", gpus=2)], **QUIET)
    unit, decided = begun(state)
    (task,) = unit.tasks
    assert decided == [Place(decided[0].bindings)], "of no gang"
    ((binding,),) = [each.bindings for each in decided]
    assert (binding.pod.uid, binding.node, binding.devices, binding.volumes) == ("uid-p", "n", (0, 1), ())
    assert not unit.alive
    assert (task.state, task.started, task.reported) == (TaskState.ASSUMED, 5.0, None)
    assert state.queues.waiting.next() is None
    assert state.queues.queues["default"].used["nvidia.com/gpu"] == 2000
    invariants.check(state)


def test_shares_are_computed_anew_once_something_has_started():
    state = cluster([node("n")], pods=[pod("p")], **QUIET)
    first(state)
    assert not state.queues.fair.stale
    begun(state)
    assert state.queues.fair.stale


def test_a_start_ends_the_search_backoff_of_its_class():
    """The next of the class may be searched for at once."""
    state = cluster([node("n", gpus=1)], pods=[pod("low", at="n"), pod("a", created=1.0), pod("b", created=2.0)], **QUIET)
    run(state, 0.0)
    (pending_class,) = state.queues.queues["default"].pending_classes.values()
    task, search = state.tasks["uid-a"], pending_class.search
    assert task.reported is not None
    search.vain, search.backoff_until, search.moves_vain, search.moves_again = 7, 9e9, 7, 9e9
    state.remove_pod("uid-low")
    state.queues.waiting.requeue(pending_class)
    unit, _ = begun(state)
    assert (unit.pending_class, task.reported) == (pending_class, None)
    assert (search.vain, search.backoff_until, search.moves_vain, search.moves_again) == (0, 0.0, 0, 0.0)


def test_a_start_ends_its_reservation_and_is_compared_with_its_forecast():
    state = cluster([node("n", gpus=2)], pods=[pod("long", at="n", started=0.0), pod("large", gpus=2)], patience=0.0)
    assert set(refused(run(state, 1.0))) == {"large"}
    assert set(state.reserved.holds) == {"pod/uid-large"}
    state.remove_pod("uid-long")
    started = []
    state.foretold.started = lambda job, now: started.append((job, now))
    (pending_class,) = state.queues.queues["default"].pending_classes.values()
    state.queues.waiting.requeue(pending_class)
    unit, _ = begun(state)
    assert not state.reserved.holds
    assert started == [(unit.tasks[0].job, 5.0)]


def test_a_gang_starts_in_one_transaction():
    state = cluster([node("n", gpus=2)], pods=[pod(f"g-{i}", group="g") for i in range(2)], groups=[group("g", 2)], **QUIET)
    _, (place,) = begun(state)
    assert (place.group, [each.pod.name for each in place.bindings]) == ("ns/g", ["g-0", "g-1"])
    assert not state.tables.unsettled, "all have places"


def test_once_the_minimum_has_places_the_other_members_come_to_wait():
    state = cluster([node("n", gpus=4)], pods=[pod(f"g-{i}", group="g") for i in range(3)], groups=[group("g", 2)], **QUIET)
    _, (place,) = begun(state)
    assert len(place.bindings) == 2
    assert set(state.tables.unsettled) == {"ns/g"}
    unit, (place,) = begun(state)
    assert [each.pod.name for each in place.bindings] == ["g-2"]
    assert unit.tasks[0].beyond
    assert not state.tables.unsettled, "no more come"


def test_members_that_get_places_wait_for_the_victims_of_their_gang():
    """Before these are gone the gang's capacity is not there: bound at once, the members would come on top of them."""
    state = cluster([node("n", gpus=2)], pods=[pod("low", gpus=2, at="n")], groups=[group("g", 2)], **QUIET)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", group="g", priority=5, created=1.0))
    _, decided = planned(state)
    assert [each.pod.name for each in decided.victims] == ["low"]
    state.upsert_node(node("m", gpus=1))
    state.upsert_pod(pod("g-2", group="g", priority=5, created=2.0))
    unit, decided = begun(state)
    assert [task.pod.name for task in unit.tasks] == ["g-2"]
    assert decided == []
    assert unit.tasks[0].state is TaskState.HELD
    state.remove_pod("uid-low")
    (place,) = [each for each in run(state, 6.0) if isinstance(each, Place)]
    assert {each.pod.name for each in place.bindings} == {"g-0", "g-1", "g-2"}


def two_plans():
    """The member that a gang needs is to have the place of one victim, one beyond its minimum that of another."""
    victims = [pod("wide", gpus=2, at="n"), pod("thin", gpus=1, at="m")]
    state = cluster([node("n", gpus=2), node("m", gpus=1)], pods=victims, groups=[group("g", 1)], **QUIET)
    state.upsert_pod(pod("g-0", group="g", gpus=2, priority=5, created=1.0))
    _, decided = planned(state)
    assert [each.pod.name for each in decided.victims] == ["wide"]
    state.upsert_pod(pod("g-1", group="g", gpus=1, priority=5, created=2.0))
    unit, decided = planned(state)
    assert unit.tasks[0].beyond
    assert [each.pod.name for each in decided.victims] == ["thin"]
    return state


@pytest.mark.parametrize("order", [("thin", "wide"), ("wide", "thin")])
def test_no_member_beyond_the_minimum_starts_before_those_that_its_gang_needs(order):
    state = two_plans()
    state.remove_pod(f"uid-{order[0]}")
    started = [each.bindings[0].pod.name for each in run(state, 6.0) if isinstance(each, Place)]
    assert started == (["g-0"] if order[0] == "wide" else []), "what it needs waits for no victim of the others"
    state.remove_pod(f"uid-{order[1]}")
    placed = [each for each in run(state, 7.0) if isinstance(each, Place)]
    started += [binding.pod.name for each in placed for binding in each.bindings]
    assert sorted(started) == ["g-0", "g-1"]
    invariants.check(state)
    assert not state.in_flight.waits


def test_victims_of_a_member_that_is_deleted_are_counted_again_though_it_waited_for_others_too():
    state = two_plans()
    state.remove_pod("uid-g-1")
    assert state.tasks["uid-thin"].state is TaskState.BOUND, "nothing waits for it any more"
    assert state.tasks["uid-wide"].state is TaskState.EVICTING
    assert state.tasks["uid-g-0"].state is TaskState.HELD
    invariants.check(state)
    state.upsert_pod(pod("other", gpus=1, priority=0, created=3.0))
    assert not [each for each in run(state, 6.0) if isinstance(each, Place)], "its GPU is not free"


def test_members_beyond_the_minimum_do_not_wait_for_each_others_victims():
    state = cluster([node("n", gpus=2), node("m", gpus=1), node("o", gpus=1)], groups=[group("g", 1)], **QUIET)
    state.upsert_pod(pod("g-0", group="g", at="o", priority=5))
    for name, number in (("wide", 2), ("thin", 1)):
        state.upsert_pod(pod(name, gpus=number, at="n" if number > 1 else "m"))
    for number in (1, 2):
        state.upsert_pod(pod(f"g-{number}", group="g", gpus=3 - number, priority=5, created=float(number)))
        planned(state)
    state.remove_pod("uid-thin")
    (place,) = [each for each in run(state, 6.0) if isinstance(each, Place)]
    assert [each.pod.name for each in place.bindings] == ["g-2"], "the gang runs with what it needs"


def test_a_member_beyond_the_minimum_starts_in_a_free_place_though_another_waits_for_victims():
    victim = pod("low", gpus=2, at="n")
    state = cluster([node("n", gpus=2), node("o", gpus=1)], pods=[victim], groups=[group("g", 1)], **QUIET)
    state.upsert_pod(pod("g-0", group="g", at="o", priority=5))
    state.upsert_pod(pod("g-1", group="g", gpus=2, priority=5, created=1.0))
    planned(state)
    state.upsert_node(node("m", gpus=1))
    state.upsert_pod(pod("g-2", group="g", priority=5, created=2.0))
    _, (place,) = begun(state)
    assert [each.pod.name for each in place.bindings] == ["g-2"], "the gang runs with what it needs"


def test_members_that_wait_for_victims_of_two_plans_wait_in_line_again_where_one_is_given_up():
    state = two_plans()
    state.evictions.failed("uid-wide", 6.0)
    assert {state.tasks[f"uid-g-{i}"].state for i in range(2)} == {TaskState.WAITING}
    assert not state.in_flight.waits
    invariants.check(state)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_members_do_not_start_alone_where_others_have_gone_while_they_waited_for_victims(elsewhere):
    state = cluster([node("n", gpus=2)], pods=[pod("low", gpus=2, at="n")], groups=[group("g", 2)], **QUIET)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", group="g", priority=5, created=1.0))
    planned(state)
    state.remove_pod("uid-g-0")
    if elsewhere:
        state.upsert_node(node("m", gpus=2))  # a free place does not help alone
    else:
        state.remove_pod("uid-low")
    decided = run(state, 6.0)
    assert not [each for each in decided if isinstance(each, Place)]
    assert "1 of the 2 pods" in refused(decided)["g-1"].message
    state.upsert_pod(pod("g-2", group="g", priority=5, created=2.0))
    placed = [each for each in run(state, 7.0) if isinstance(each, Place)]
    assert sorted(binding.pod.name for each in placed for binding in each.bindings) == ["g-1", "g-2"]
    invariants.check(state)


def test_placeholders_are_not_bound_their_job_resumes():
    target = Target("Suspended", 3, ("uid-job",), (Member(2, pod("shape", owner="uid-job")),))
    state = cluster([node("n", gpus=2)], groups=[msgspec.structs.replace(Group("ns", "g", 2), target=target)], **QUIET)
    unit, decided = begun(state)
    assert all(task.pod.placeholder for task in unit.tasks)
    assert [type(each) for each in decided] == [Resume]
    assert (decided[0].group, decided[0].epoch, decided[0].nodes) == ("ns/g", 4, ("n", "n"))


@pytest.mark.parametrize("upstream", [False, True])
def test_jobs_that_can_be_are_suspended_but_not_as_kube_scheduler_preempts(upstream):
    state = cluster([node("n", gpus=2)], **QUIET)
    state.upsert_class(ServiceClass("batch", mode="Suspend"))
    for number in range(2):
        state.upsert_pod(
            pod(f"v-{number}", at="n", service_class="batch", owner="uid-job-v", root="batch/v1/Job/v", created=float(number))
        )
    more = {"profile": "kubernetes"} if upstream else {}
    state.upsert_pod(pod("high", gpus=2, priority=5, created=3.0, **more))
    _, decided = planned(state)
    assert [each.pods for each in decided.suspends] == ([] if upstream else [("uid-v-0", "uid-v-1")])


@pytest.mark.parametrize("upstream", [False, True])
def test_a_plan_is_evictions_and_places_that_are_held(upstream):
    """As kube-scheduler it deletes victims outright, with their own time to end."""
    more = {"profile": "kubernetes"} if upstream else {}
    victims = [pod(f"v-{i}", group="v", at="n", grace=7200) for i in range(2)]
    state = cluster([node("n", gpus=2)], pods=victims, groups=[group("v", 2)], max_grace=60, **QUIET)
    state.upsert_pod(pod("high", gpus=2, priority=5, created=1.0, **more))
    unit, decided = planned(state)
    assert by_upstream(unit) is upstream
    assert isinstance(decided, Preempt)
    assert {(each.pod.name, each.node) for each in decided.victims} == {("v-0", "n"), ("v-1", "n")}
    assert [(each.pod.name, each.node, each.devices) for each in decided.beneficiaries] == [("high", "n", (0, 1))]
    assert (decided.group, decided.groups, decided.outright) == ("", ("ns/v",), upstream)
    assert dict(decided.graces) == ({} if upstream else {"uid-v-0": 60, "uid-v-1": 60})
    assert (unit.alive, unit.tasks[0].state) == (False, TaskState.HELD)
    assert {state.tasks[f"uid-v-{i}"].state for i in range(2)} == {TaskState.EVICTING}
    invariants.check(state)
    assert not [each for each in run(state, 6.0) if isinstance(each, Place)], "the victims are there"
    for number in range(2):
        state.remove_pod(f"uid-v-{number}")
    assert [each.bindings[0].pod.name for each in settle(state, 7.0) if isinstance(each, Place)] == ["high"]
