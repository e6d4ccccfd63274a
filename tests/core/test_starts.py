"""Gangs that have their nodes and do not start: when they are taken down, who goes, and when they are placed again."""

import math
import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.starts import FailedStarts, StartTrouble
from fairlead.core.model.transactions import Evict
from tests.builders import cluster, group, node, placed, pod, queue, run
from tests.core.test_completions import later

PULLS = StartTrouble("ImagePullBackOff", "container main: ImagePullBackOff: not found")
NAME = StartTrouble("InvalidImageName", "container main: InvalidImageName", hopeless=True)
CONFIG = StartTrouble("CreateContainerConfigError", "container main: no secret", retried=True)


def world(**group_fields):
    state = cluster([node("n")], [queue("q", quota=8)])
    state.upsert_group(msgspec.structs.replace(group("g", 3, "q"), **group_fields))
    return state


def member(state, name, bound, starting=None, **more):
    state.upsert_pod(pod(name, "q", group="g", at="n", bound=bound, starting=starting, **{"owner": "job", **more}))


def taken_down(decisions):
    """Names of those that are evicted for not starting, by eviction."""
    code = ReasonCode.START_TIMEOUT
    return [
        sorted(each.pod.name for each in one.victims) for one in decisions if isinstance(one, Evict) and one.reason.code is code
    ]


def gone(state, *names):
    for name in names:
        state.remove_pod(f"uid-{name}")


def test_a_gang_is_taken_down_when_its_timeout_is_over():
    state = world(start_timeout=300.0)
    member(state, "a", 100.0)
    member(state, "b", 110.0, PULLS)
    member(state, "c", 120.0)
    assert not taken_down(later(state, 120.0, 299.0))
    (evicted,) = [each for each in run(state, 420.0) if isinstance(each, Evict)]
    assert sorted(each.pod.name for each in evicted.victims) == ["a", "b", "c"]
    assert evicted.reason.message == f"gang ns/g has its nodes, but b did not start within 300 s: {PULLS.message}"


def test_its_clock_begins_when_the_last_that_it_needs_has_a_node():
    state = world()
    member(state, "a", 0.0, PULLS)
    member(state, "b", 0.0)
    run(state, 0.0)
    member(state, "c", 50.0)
    assert not taken_down(later(state, 50.0, 899.0))
    assert taken_down(run(state, 950.0)) == [["a", "b", "c"]]


def test_the_class_gives_the_timeout_where_the_group_does_not():
    state = world(service_class="quick")
    state.upsert_class(ServiceClass("quick", start_timeout=60.0))
    for name in "abc":
        member(state, name, 0.0, PULLS)
    assert taken_down(later(state, 0.0, 61.0)) == [["a", "b", "c"]]


def test_what_has_started_is_left_alone_and_its_failures_are_forgotten():
    state = world(failed_starts=FailedStarts(4, 10.0))
    for name in "abc":
        member(state, name, 20.0, PULLS)
    run(state, 20.0)
    assert state.gangs["ns/g"].failed_starts.count == 4
    for name in "abc":
        member(state, name, 20.0)
    assert not taken_down(later(state, 30.0, 5000.0))
    assert state.gangs["ns/g"].failed_starts is None


def test_it_waits_ever_longer_before_it_is_placed_again():
    state = world(start_timeout=60.0)
    now, stopped, waits = 0.0, 0.0, []
    for attempt in range(8):
        names = [f"{letter}{attempt}" for letter in "abc"]
        for name in names:
            state.upsert_pod(pod(name, "q", group="g", owner="job", created=now))
        while not (places := placed(run(state, now))):
            reason = state.gangs["ns/g"].reason
            assert reason.code is ReasonCode.BACKOFF
            assert PULLS.message in reason.message
            now = state.next_due
        assert set(places) == set(names)
        if attempt:
            waits.append(now - stopped)
        for name in names:
            member(state, name, now, PULLS)
        assert taken_down(later(state, now, 61.0)) == [names]
        stopped = now = now + 60.0
        gone(state, *names)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0]


def test_the_backoff_survives_a_restart_of_the_scheduler():
    state = world(failed_starts=FailedStarts(2, 500.0, "why"))
    for name in "abc":
        state.upsert_pod(pod(name, "q", group="g", owner="job", created=480.0))
    assert not placed(run(state, 480.0))
    assert state.next_due == 500.0
    assert len(placed(run(state, 500.0))) == 3


def test_members_that_it_can_do_without_go_alone():
    state = world()
    for name in "abc":
        member(state, name, 0.0)
    member(state, "d", 100.0, PULLS)
    member(state, "e", 100.0)
    assert not taken_down(later(state, 0.0, 999.0))
    assert taken_down(later(state, 999.0, 2.0)) == [["d"]]


@pytest.mark.parametrize("others", [None, PULLS], ids=["the others run", "the others start still"])
@pytest.mark.parametrize(("trouble", "after"), [(NAME, 0.0), (CONFIG, 30.0)])
def test_what_is_hopeless_beyond_the_minimum_does_not_wait_either_and_goes_alone(trouble, after, others):
    state = world()
    for name in "abce":
        member(state, name, 0.0, others)
    run(state, 10.0)
    member(state, "d", 0.0, trouble)
    assert not taken_down(later(state, 10.0, after))
    assert taken_down(run(state, 10.0 + after)) == [["d"]]
    assert "d cannot start" in state.gangs["ns/g"].failed_starts.message


def test_too_many_hopeless_members_and_a_leader_take_the_gang_down():
    state = world()
    for name in "abcd":
        member(state, name, 0.0, NAME if name in "cd" else PULLS)
    assert taken_down(run(state, 10.0)) == [["a", "b", "c", "d"]]
    state = world()
    for name in "abc":
        member(state, name, 0.0, PULLS)
    member(state, "d", 0.0, NAME, labels=(("training.kubeflow.org/job-role", "launcher"),))
    assert taken_down(run(state, 10.0)) == [["a", "b", "c", "d"]]


@pytest.mark.parametrize("starting", [False, True], ids=["the others run", "one starts still"])
@pytest.mark.parametrize(("trouble", "after"), [(PULLS, 60.0), (NAME, 1.0)])
def test_members_beyond_the_minimum_wait_ever_longer_too(trouble, after, starting):
    """Whether or not another of them is starting all the time."""
    state = world(start_timeout=60.0 if trouble is PULLS else 9000.0)
    for name in "abc":
        member(state, name, 0.0)
    if starting:
        member(state, "e", 9e9, PULLS)
    tried, waits, decided = [], 0.0, []
    for second in range(600):
        now = float(second)
        if second == 0 or taken_down(decided):
            gone(state, *tried[-1:])
            state.upsert_pod(pod(f"d{len(tried)}", "q", group="g", owner="job", created=now))
            waits = now
        decided = run(state, now)
        for name in placed(decided):
            tried.append(name)
            state.pods.bound(f"uid-{name}")
            member(state, name, now, trouble)
            assert now - waits == (0.0, 9.0, 19.0, 39.0, 79.0, 159.0)[len(tried) - 1]
    assert len(tried) >= 5


def test_those_that_succeeded_count():
    state = world()
    member(state, "a", 0.0)
    member(state, "b", 0.0)
    member(state, "c", 0.0, PULLS)
    run(state, 0.0)
    state.upsert_pod(pod("a", "q", group="g", finished=True, at="n", succeeded=10.0, owner="job"))
    assert taken_down(later(state, 10.0, 891.0)) == [["b", "c"]]


@pytest.mark.parametrize(("trouble", "after"), [(NAME, 0.0), (CONFIG, 30.0)])
def test_what_is_hopeless_does_not_wait(trouble, after):
    state = world()
    for name in "abc":
        member(state, name, 0.0, PULLS)
    run(state, 10.0)
    member(state, "b", 0.0, trouble)
    assert not taken_down(later(state, 10.0, after))
    assert taken_down(run(state, 10.0 + after)) == [["a", "b", "c"]]


def test_one_more_kind_of_trouble_is_given_its_own_retry():
    state = world()
    for name in "abc":
        member(state, name, 0.0, CONFIG)
    run(state, 10.0)
    member(state, "a", 0.0, PULLS)
    member(state, "b", 0.0)
    member(state, "c", 0.0)
    assert not taken_down(later(state, 10.0, 500.0))
    member(state, "a", 0.0, CONFIG)
    assert not taken_down(later(state, 510.0, 29.0))
    assert taken_down(run(state, 540.0)) == [["a", "b", "c"]]


def test_members_without_a_controller_stay_and_the_group_says_so():
    state = world()
    for name in "abc":
        member(state, name, 0.0, PULLS, controlled=False)
    decisions = later(state, 0.0, 4000.0)
    (told,) = [each for each in decisions if isinstance(each, Evict)]
    assert not told.victims
    assert "3 of its pods have no controller and stay" in state.starts.stay["ns/g"].message
    assert state.starts.failing == 1
    for name in "abc":
        member(state, name, 0.0, controlled=False)
    run(state, 4001.0)
    assert state.starts.failing == 0


def test_an_eviction_that_fails_is_asked_for_again_and_counts_once():
    state = world()
    for name in "abc":
        member(state, name, 0.0, PULLS)
    found = taken_down(later(state, 0.0, 900.0 + 60.0 * 3))
    assert found == [["a", "b", "c"]] * 3
    assert state.gangs["ns/g"].failed_starts.count == 1


@pytest.mark.parametrize("seed", range(300))
def test_random_histories_against_a_judge_that_checks_every_second(seed):
    """Members get nodes, start and are stuck at random times: a gang is evicted in that second in which the rule requires it."""
    draw = random.Random(seed)
    needed, limit = draw.randint(1, 4), draw.choice([60.0, 100.0])
    count = needed + draw.randint(0, 2)
    bound = [float(draw.randint(0, 80)) for _ in range(count)]
    starts = [draw.choice([at + draw.randint(1, 300), math.inf]) for at in bound]
    state = world(start_timeout=limit, min_member=needed)
    state.policy = msgspec.structs.replace(state.policy, gang_grace=1e9)
    fallen: dict[str, float] = {}
    expected: dict[str, float] = {}
    for second in range(500):
        now = float(second)
        there = [i for i in range(count) if bound[i] <= now and str(i) not in expected]
        for i in [i for i in there if str(i) not in fallen]:
            member(state, str(i), bound[i], None if starts[i] <= now else PULLS)
        for names in taken_down(run(state, now)):
            fallen |= dict.fromkeys(names, now)
        for name in [name for name in fallen if fallen[name] == now]:
            gone(state, name)
        # The judge: from the definitions.
        if len(there) >= needed:
            whole = sorted(bound[i] for i in there)[needed - 1]
            late = [i for i in there if starts[i] > now >= max(whole, bound[i]) + limit]
            enough = sum(starts[i] <= now for i in there) >= needed
            if late:
                expected |= {str(i): now for i in (late if enough else there)}
        assert fallen == expected, second
        if expected and not enough:
            break


@pytest.mark.parametrize("seed", range(200))
def test_random_troubles_against_a_judge_that_checks_every_second(seed):
    """As above, with members that cannot start at all: these go at once, alone where the others are enough."""
    draw = random.Random(seed)
    needed, limit = draw.randint(1, 4), draw.choice([60.0, 100.0])
    count = needed + draw.randint(0, 3)
    bound = [float(draw.randint(0, 80)) for _ in range(count)]
    kinds = [draw.choice([PULLS, PULLS, PULLS, NAME, CONFIG]) for _ in range(count)]
    starts = [
        draw.choice([at + draw.randint(1, 300), math.inf]) if kind is PULLS else math.inf
        for at, kind in zip(bound, kinds, strict=True)
    ]
    state = world(start_timeout=limit, min_member=needed)
    state.policy = msgspec.structs.replace(state.policy, gang_grace=1e9)
    fallen: dict[str, float] = {}
    expected: dict[str, float] = {}
    for second in range(500):
        now = float(second)
        there = [i for i in range(count) if bound[i] <= now and str(i) not in expected]
        for i in [i for i in there if str(i) not in fallen]:
            member(state, str(i), bound[i], None if starts[i] <= now else kinds[i])
        for names in taken_down(run(state, now)):
            fallen |= dict.fromkeys(names, now)
        for name in [name for name in fallen if fallen[name] == now]:
            gone(state, name)
        hopeless = [i for i in there if kinds[i] is NAME or (kinds[i] is CONFIG and now - bound[i] >= 30.0)]
        late, whole = hopeless, len(there) >= needed
        running = sum(starts[i] <= now for i in there)
        alone = running >= needed or len(there) - len(hopeless) >= needed
        if whole and not hopeless:
            since = sorted(bound[i] for i in there)[needed - 1]
            late = [i for i in there if starts[i] > now >= max(since, bound[i]) + limit]
            alone = running >= needed
        if late:
            expected |= {str(i): now for i in (late if alone else there)}
        assert fallen == expected, second
        if late and not alone:
            break


def test_a_clock_that_is_hours_ahead_evicts_nothing_that_starts():
    """What the scheduler placed itself it judges by its own clock, not by the API server's."""
    ahead = 36_000.0
    state = world()
    for name in "abc":
        state.upsert_pod(pod(name, "q", group="g", owner="job"))
    assert len(placed(run(state, ahead))) == 3
    for name in "abc":
        member(state, name, 1.0, PULLS)
    assert not taken_down(later(state, ahead, 899.0))
    assert taken_down(run(state, ahead + 900.0)) == [["a", "b", "c"]]
