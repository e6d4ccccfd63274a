"""What nothing may be preempted for is not searched for, until something may be: then at once."""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.core import schedule
from fairlead.core.actions import free_capacity, victimless
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Fault, Place, Preempt
from fairlead.core.queues.without_victims import Alike, Group, Hope, Vain, WithoutVictims
from tests.builders import GPU, cluster, confirm, node, placed, pod, preempted, queue, run


@pytest.fixture
def searched(monkeypatch):
    """The names of pods for which victims are searched, in order."""
    names, search = [], free_capacity._search
    monkeypatch.setattr(
        free_capacity, "_search", lambda state, unit, *more: names.append(unit.tasks[0].pod.name) or search(state, unit, *more)
    )
    return names


def full(*queues, filled="q", **policy):
    """One node of 8 GPUs, all of them taken by one queue, and a pod of each size that waits in it."""
    state = cluster([node("n", gpus=8)], list(queues), **{"reservations": 0, "moves_per_minute": 0.0, **policy})
    for number in range(8):
        state.upsert_pod(pod(f"runs-{number}", filled, at="n", created=float(number), gpus=1))
    run(state, 10.0)
    return state


def test_it_is_searched_for_once_and_not_again_while_pods_come_and_go(searched):
    state = full(queue("q"))
    for number, cpu in enumerate((1000, 2000, 3000)):
        state.upsert_pod(pod(f"waits-{number}", "q", created=20.0 + number, gpus=1, cpu=cpu))
    assert not placed(run(state, 30.0))
    first = len(searched)
    assert 0 < first <= 3
    for number in range(3):
        state.remove_pod(f"uid-runs-{number}")
        state.upsert_pod(pod(f"instead-{number}", "q", created=1.0, gpus=1, cpu=500))
        assert placed(run(state, 31.0 + number)).keys() == {f"instead-{number}"}
    assert len(searched) == first
    state.remove_pod("uid-runs-7")
    assert placed(run(state, 40.0)).keys() == {"waits-0"}, "a free place is taken"


def test_it_preempts_in_the_pass_in_which_its_queue_comes_to_deserve_more(searched):
    """Searches before that were none, so that nothing is put off."""
    state = full(queue("q", quota=8), queue("other", quota=0), filled="q")
    state.upsert_pod(pod("waits", "other", created=20.0, gpus=1))
    state.upsert_pod(pod("ahead", "q", created=21.0, gpus=1))
    for number in range(20):
        assert not preempted(run(state, 30.0 + number))
        state.upsert_pod(pod(f"comes-{number}", "q", created=25.0 + number, gpus=8))
    state.upsert_queue(queue("other", quota=2))
    state.upsert_queue(queue("q", quota=6))
    (victims,) = preempted(run(state, 60.0))
    assert len(victims) == 1
    assert "waits" in searched


def test_one_that_asks_for_less_is_tried_after_one_for_which_nothing_was_found(searched):
    """Both become entitled at once; the victims leave too little memory for the first."""
    state = cluster(
        [node("n", gpus=8, cpu=16_000)],
        [queue("q", quota=4), queue("other", quota=4)],
        reservations=0,
        moves_per_minute=0.0,
    )
    for number in range(8):
        state.upsert_pod(pod(f"runs-{number}", "q", at="n", created=float(number), gpus=1, cpu=1000, priority=0))
    run(state, 10.0)
    state.upsert_queue(queue("other", quota=0))
    state.upsert_queue(queue("q", quota=8))
    for name, created, cpu in (("large", 20.0, 15_000), ("larger", 20.5, 16_000), ("small", 21.0, 1000)):
        state.upsert_pod(pod(name, "other", created=created, gpus=1, cpu=cpu))
    assert not preempted(run(state, 30.0))
    state.upsert_queue(queue("q", quota=7))
    state.upsert_queue(queue("other", quota=1))
    searched.clear()
    (victims,) = preempted(run(state, 40.0))
    assert len(victims) == 1
    assert "small" in searched
    assert "larger" not in searched, "it asks for more than what found nothing"


def _device(state, number):
    return state.tasks[f"uid-half-{number}"].devices


def test_pods_are_moved_for_it_where_devices_are_left_free():
    """Two halves of GPUs become free on one node; two pods of half a GPU can be put together."""
    state = cluster([node("n", gpus=2)], [queue("q")], reservations=0, moves_per_minute=60.0, move_patience=5.0)
    for number in range(4):
        state.upsert_pod(pod(f"half-{number}", "q", at="n", created=float(number), gpus=1, milli=500))
    run(state, 10.0)
    state.upsert_pod(pod("whole", "q", created=20.0, gpus=1))
    assert not preempted(run(state, 30.0))
    alone = next(f"half-{number}" for number in range(1, 4) if _device(state, number) != _device(state, 0))
    state.remove_pod("uid-half-0")
    assert not preempted(run(state, 31.0)), "half a device is not enough"
    state.remove_pod(f"uid-{alone}")
    (moved,) = preempted(run(state, 32.0))
    assert set(moved) < {f"half-{number}" for number in range(1, 4)}


def test_each_is_tried_once_in_a_pass_whatever_is_found_out_about_others(monkeypatch):
    """Something seems to be preemptible in each pass, and what is tried is known to be in vain for another reason each time."""
    served, serve = [], schedule.serve

    def noted(state, unit, now):
        served.append(unit.tasks[0].pod.name)
        if len(served) > 100:
            pytest.fail("the pass does not end")
        return serve(state, unit, now)

    monkeypatch.setattr(schedule, "serve", noted)
    monkeypatch.setattr(victimless, "_may_preempt", lambda *_: True)
    monkeypatch.setattr(victimless, "_hope", lambda *_: Hope.BY_RANK)
    monkeypatch.setattr(Vain, "covers", lambda *_: False)
    state = full(queue("q"), searches=1000)
    for number, cpu in enumerate((1000, 2000, 3000)):
        state.upsert_pod(pod(f"waits-{number}", "q", created=20.0 + number, gpus=1, cpu=cpu))
    run(state, 30.0)
    monkeypatch.setattr(victimless, "is_in_vain", lambda _, pending_class, *__: pending_class.order() > first.order())
    classes = sorted(state.queues.waiting.unschedulable)
    first = classes[0]
    for each in classes:
        victimless.keep(state, each, each.first())
    served.clear()
    state.remove_pod("uid-runs-0")
    state.upsert_pod(pod("instead", "q", created=1.0, gpus=1, cpu=500))
    run(state, 31.0)
    assert max(Counter(served).values()) <= 2
    assert set(served) >= {"instead", "waits-0", "waits-1", "waits-2"}


class _Deserving:
    """A queue without quota that comes to deserve half of what another borrows, once what a third one waits for is gone.

    Zone 1 and 2 are held by the one that borrows then, zone 3 by the third.
    """

    def __init__(self, *waits, size=8):
        queues = [queue("q", quota=size), queue("third", quota=2 * size), queue("other", quota=0)]
        nodes = [node(f"n{zone}", gpus=size, labels={"zone": str(zone)}) for zone in (1, 2, 3)]
        self.state = state = cluster(nodes, queues, reservations=0, moves_per_minute=0.0)
        for number in range(size):
            for name, where, at in (("q", "q", "n1"), ("p", "q", "n2"), ("t", "third", "n3")):
                state.upsert_pod(pod(f"{name}{number}", where, at=at, created=float(number)))
        self.decides(10.0)
        for number in range(size):
            state.upsert_pod(pod(f"w{number}", "third", created=15.0 + number, selector={"zone": "3"}))
        self.decides(15.0)
        for each in waits:
            state.upsert_pod(each)
        for now in range(60, 75):
            assert not self.decides(float(now))
        for number in range(size):
            state.remove_pod(f"uid-w{number}")

    def decides(self, now):
        decided = run(self.state, now)
        confirm(self.state, decided)
        return preempted(decided)


def _waits(name, created, zone="1", **more):
    return pod(name, "other", created=created, selector={"zone": zone}, **more)


@pytest.mark.parametrize("first", ["never", "takes"])
def test_one_that_never_preempts_stands_for_no_other(first):
    pods = [_waits("never", 20.0, never_preempts=True), _waits("takes", 21.0)]
    (victims,) = _Deserving(*(pods if first == "never" else pods[::-1])).decides(75.0)
    assert len(victims) == 1


def test_all_that_may_preempt_do_in_the_same_pass():
    world = _Deserving(*[_waits(f"a{number}", 20.0 + number, cpu=100 + number) for number in range(12)], size=16)
    assert len(world.decides(75.0)) == 7


def test_one_that_waits_for_what_leaves_holds_up_no_other_of_its_group():
    world = _Deserving(_waits("near", 20.0), _waits("elsewhere", 21.0, zone="2"))
    leaving = world.state.tasks["uid-q0"].pod
    world.state.upsert_pod(msgspec.structs.replace(leaving, terminating=True, leaves=375.0))
    (victims,) = world.decides(75.0)
    assert victims[0].startswith("p"), "in the other zone"


def test_a_search_in_vain_stands_only_for_the_same_class_of_service():
    state = cluster([node("n", gpus=8)], [queue("q"), queue("wide")], reservations=0, moves_per_minute=0.0)
    state.upsert_class(ServiceClass("everywhere", scope="Cluster"))
    for number in range(8):
        state.upsert_pod(pod(f"runs-{number}", "q", at="n", created=float(number)))
    run(state, 10.0)
    state.upsert_pod(pod("plain", "wide", priority=5, created=20.0))
    state.upsert_pod(pod("classy", "wide", priority=5, created=21.0, service_class="everywhere"))
    decided = preempted(run(state, 30.0))
    assert len(decided) in {1, 2}
    assert state.queues.queues["wide"].pods_waiting < 2, "one of them has a place"


def test_what_was_in_vain_is_so_no_longer_once_quotas_are_others_at_the_same_time():
    state = full(queue("q", quota=8), queue("other", quota=0))
    state.upsert_pod(pod("waits", "other", created=20.0))
    assert not preempted(run(state, 30.0))
    state.upsert_queue(queue("q", quota=4))
    state.upsert_queue(queue("other", quota=4))
    assert len(preempted(run(state, 30.0))) == 1


def test_groups_of_several_queues_rest_until_the_same_time_and_are_tried_again_once():
    state = cluster([node("n")], [queue(name) for name in "abcd"], reservations=0)
    for number, name in enumerate("abcd"):
        state.upsert_pod(pod(f"waits-{name}", name, gpus=9, created=float(number)))
    run(state, 10.0)
    known = state.queues.waiting.without_victims
    groups = [Group(state.queues.queues[name], Alike(0, (False, "", 0), frozenset(), (), 9000)) for name in "dbca"]
    for group in groups:
        known.retry(group, 20.0)
    assert not known.due(19.0)
    assert [group.node.name for group in known.due(20.0)] == list("abcd")
    assert not known.due(30.0)


@pytest.mark.parametrize("seeds", [range(first, first + 8) for first in range(0, 32, 8)])
def test_the_groups_that_have_hope_are_those_that_would_be_found_by_asking_all(seeds, monkeypatch):
    """Whatever happens: jobs of several priorities in a tree whose quotas, weights and classes are edited."""
    known, compared = WithoutVictims.hopeful, []

    def found(self, judge, as_of, *, lends):
        hopeful = known(self, judge, as_of, lends=lends)
        hopes = {group: judge(group) for group in self.groups()}
        expected = [group for group, hope in hopes.items() if hope is Hope.BY_RANK or (lends and hope is Hope.BY_SHARE)]
        assert [group for group in hopeful if group in expected] == expected
        compared.append(len(expected))
        return hopeful

    monkeypatch.setattr(WithoutVictims, "hopeful", found)
    for seed in seeds:
        play(seed)
    assert sum(compared) > 20


def play(seed):
    """A cluster on which pods come and go, and policies change."""
    draw = random.Random(seed)
    names = [f"q{number}" for number in range(draw.randint(2, 7))]

    def policy(name):
        resources = QueueResource(GPU, draw.randint(0, 4) * 1000, weight=draw.choice([None, 1, 3]))
        return Queue(name, draw.choice(["", "org"]) if name != "org" else "", 0, (resources,) if draw.random() < 0.8 else ())

    state = cluster([node(f"n{number}", gpus=4) for number in range(draw.randint(1, 3))], [Queue("org"), *map(policy, names)])
    running = []
    for number in range(80):
        now = 1000.0 + draw.choice([0.1, 1.0, 20.0]) + 20.0 * number
        for each in range(draw.randint(0, 3)):
            more = {"priority": draw.choice([0, 0, 0, 5]), "gpus": draw.choice([1, 1, 2, 4]), "cpu": draw.choice([500, 1000])}
            state.upsert_pod(
                pod(f"p{number}-{each}", draw.choice(names), created=now, service_class=draw.choice(["", "c"]), **more)
            )
        for _ in range(draw.randint(0, 2)):
            if running:
                state.remove_pod(running.pop(draw.randrange(len(running))))
        if draw.random() < 0.1:
            state.upsert_queue(policy(draw.choice(names)))
        if draw.random() < 0.05:
            state.upsert_class(ServiceClass("c", mode=draw.choice(["Requeue", "Never"]), borrows=draw.random() < 0.5))
        made = confirm(state, run(state, now))
        assert not any(isinstance(each, Fault) for each in made)
        gone = {victim.pod.uid for each in made if isinstance(each, Preempt) for victim in each.victims}
        for uid in gone:
            state.remove_pod(uid)
        running = [uid for uid in running if uid not in gone]
        running += [binding.pod.uid for each in made if isinstance(each, Place) for binding in each.bindings]
