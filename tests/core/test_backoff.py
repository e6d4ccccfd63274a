"""Classes in backoff are decided on as by the plain rule, which checks and tries each by itself, and asks about every victim.

Random worlds, twice each.
"""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions import backoff, victimless
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Fault, Place, Preempt, Refuse
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.search import preempt
from fairlead.core.queues.backoff import BackoffClasses
from fairlead.core.queues.searches import Search
from tests.builders import GPU, cluster, node, placed, pod, queue, run, spec

USERS = "abcdefgh"


def without_texts(decided):
    """What was decided, without the texts of reasons and what they count."""
    found = []
    for each in decided:
        if isinstance(each, Refuse):
            found.append(
                ("Refuse", sorted(ref.pod.uid if hasattr(ref, "pod") else ref.uid for ref in each.pods), each.reason.code)
            )
        else:
            found.append(repr(each))
    return found


def searches(state):
    """Of each class that waits: why it has no place, and when it searches, or is tried, again."""
    waiting = state.queues.waiting
    return {
        (name, pending_class.composition): (
            pending_class.unschedulable.code if pending_class.unschedulable is not None else None,
            pending_class in waiting.backing_off,
            [getattr(pending_class.search, field) for field in Search.__slots__ if field != "budgets"],
        )
        for name, node in state.queues.queues.items()
        for pending_class in node.pending_classes.values()
        if pending_class.waiting
    }


class Twins:
    """The same world twice: one decides by the plain rule. Without a monkeypatch: only once."""

    def __init__(self, seed, monkeypatch=None):
        self.rnd = rnd = random.Random(seed)
        self.now, self.number = 1000.0, 0
        self.quiet = seed % 2 == 1  # one queue, or two, of work that is alike but in size: nothing is preempted
        self.plain = self.quiet or rnd.random() < 0.6  # nothing but places decides
        # By the plain rule units in backoff are refused again, and each refusal may plan a reservation.
        reserves = not self.plain and monkeypatch is None
        policy = {
            "reservations": int(reserves),
            "moves_per_minute": rnd.choice([0.0, 0.0, 20.0]),
            "patience": rnd.choice([20.0, 300.0]),
            "share_wait": rnd.choice([0.0, 60.0, 3600.0]),
            "reclaim": rnd.random() < 0.8,
        }
        self.nodes = [self.node(f"n{number}") for number in range(rnd.randint(2, 5))]
        self.queues = self.tree()
        self.states = [cluster(self.nodes, self.queues, **policy) for _ in range(2 if monkeypatch is not None else 1)]
        if monkeypatch is not None:
            self.decide_plainly(self.states[1], monkeypatch)
        self.both("upsert_class", ServiceClass("prompt", max_wait=400.0))
        self.pods, self.bound, self.leaving = {}, set(), {}
        self.passed = self.tried = self.searched = 0

    @staticmethod
    def decide_plainly(plain, monkeypatch):
        known = backoff.note_refused
        monkeypatch.setattr(backoff, "note_refused", lambda state, *more: None if state is plain else known(state, *more))
        later = PreemptionPolicy.may_only_take_later  # by the plain rule every victim is asked about
        monkeypatch.setattr(
            PreemptionPolicy, "may_only_take_later", lambda policy, kind: policy.state is not plain and later(policy, kind)
        )
        # What no row holds is passed over one by one, as by the plain rule, and not at once.
        monkeypatch.setattr(BackoffClasses, "holds_any", lambda _: True)

    def node(self, name, **more):
        rnd = self.rnd
        return node(name, gpus=rnd.choice([0, 2, 4, 8, 8]), cpu=rnd.choice([8_000, 32_000, 64_000]), **more)

    def tree(self):
        rnd = self.rnd
        top = [Queue("top")] if rnd.random() < 0.5 else []
        for name in "qrstu"[: rnd.choice([1, 1, 1, 2] if self.quiet else [1, 1, 2, 3, 5])]:
            quota = None if self.quiet else rnd.choice([None, None, None, 0, 1000, 4000])
            limit = None if self.plain else rnd.choice([None, None, None, 8000])
            resources = (QueueResource(GPU, quota=quota, limit=limit),) if quota is not None or limit is not None else ()
            parent = "top" if top and rnd.random() < 0.7 else ""
            top.append(
                Queue(name, parent, rnd.choice([0, 0, 0, 1]), resources, users_reclaim=not self.plain and rnd.random() < 0.1)
            )
        return top

    @property
    def leaves(self):
        return [each.name for each in self.queues if each.name != "top"]

    def both(self, what, *objects):
        for state in self.states:
            getattr(state, what)(*objects)

    def happens(self):
        rnd, chance = self.rnd, self.rnd.random()
        if self.quiet:
            chance *= 0.87
        waiting = sorted(set(self.pods) - self.bound)
        if chance < 0.5:
            self.comes()
        elif chance < 0.8 and self.bound:
            self.goes(rnd.choice(sorted(self.bound)))
        elif chance < 0.86 and waiting:
            self.goes(rnd.choice(waiting))
        elif chance < 0.9:
            name = rnd.choice([each.name for each in self.nodes] + [f"m{self.number}"])
            self.both("upsert_node", self.node(name, unschedulable=rnd.random() < 0.3, labels={"zone": rnd.choice("ab")}))
        elif chance < 0.93:
            self.both("upsert_queue", rnd.choice([each for each in self.tree() if each.name in self.leaves] or self.queues))
        elif chance < 0.96:
            self.gang()
        elif chance < 0.98:
            self.both("upsert_class", ServiceClass("prompt", max_wait=rnd.choice([0.0, 400.0])))

    def comes(self):
        rnd = self.rnd
        self.number += 1
        gpus = rnd.choice([0, 1, 1, 1, 2, 4, 8])
        self.add(
            pod(
                f"p{self.number}",
                rnd.choice(self.leaves),
                0 if self.quiet else rnd.choice([0, 0, 0, 5]),
                created=self.now - rnd.choice([0.0, 0.0, 100.0]),
                user=rnd.choice(USERS[: rnd.choice([1, 2, 8])]),
                service_class="" if self.plain else rnd.choice(["", "", "", "prompt"]),
                never_preempts=not self.plain and rnd.random() < 0.1,
                spec_=spec(
                    gpus,
                    rnd.choice([1000, 1000, 1000, 500]) if gpus == 1 else 1000,
                    cpu=rnd.randrange(500, 4000, 10) if self.quiet else rnd.choice([1000, 2000, 4000, 8000]),
                    selector={"zone": "a"} if rnd.random() < 0.1 else None,
                ),
            )
        )

    def gang(self):
        rnd = self.rnd
        if self.plain and rnd.random() < 0.8:
            return
        self.number += 1
        name, size, where = f"g{self.number}", rnd.randint(2, 3), rnd.choice(self.leaves)
        self.both("upsert_group", Group("ns", name, size, created=self.now))
        for member in range(size + rnd.choice([0, 1])):
            self.add(pod(f"{name}-{member}", where, group=name, created=self.now, gpus=rnd.choice([1, 1, 2])))

    def add(self, made):
        self.pods[made.uid] = made
        self.both("upsert_pod", made)

    def goes(self, uid):
        self.pods.pop(uid, None)
        self.bound.discard(uid)
        self.leaving.pop(uid, None)
        self.both("remove_pod", uid)

    def step(self):
        rnd = self.rnd
        self.now += rnd.choice([0.0, 0.1, 0.2, 1.0, 1.0, 5.0] if self.quiet else [0.0, 0.1, 1.0, 1.0, 30.0, 90.0])
        for uid in [uid for uid, at in self.leaving.items() if at <= self.now]:
            self.goes(uid)
        plans = [run(state, self.now) for state in self.states]
        for plan, state in zip(plans[1:], self.states[1:], strict=True):
            assert without_texts(plans[0]) == without_texts(plan), f"at {self.now}"
            assert searches(self.states[0]) == searches(state), f"at {self.now}"
        for state in self.states:
            invariants.check(state)
            for pending_class in state.queues.waiting.backoff:
                first = pending_class.first()
                assert first is None or first.tasks[0].ranking.best() in {-1, *state.nodes.gained}, (
                    f"a place is left at {self.now}"
                )
        if len(self.states) == 1:
            self.nothing_is_found()
        self.carry_out(plans[0])

    def nothing_is_found(self):
        """For what is kept as without victims no search finds any, if something may not be preempted for it by now."""
        (state,) = self.states
        waiting = state.queues.waiting
        for group in waiting.without_victims.groups():
            for unit in filter(None, [each.first() for each in waiting.without_victims.alike(group)]):
                assert unit.pending_class.search.without_victims
                if victimless._has_some(state, group, unit):
                    continue
                for waited in (False, True):
                    mark = state.log.mark()
                    found = preempt(state, unit, waited=waited)
                    state.log.rollback(mark)
                    assert found is None, f"for {unit.tasks[0].pod.name} at {self.now}"
                    self.searched += 1

    def carry_out(self, decided):
        rnd = self.rnd
        for each in decided:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.bind(binding)
            elif isinstance(each, Preempt | Evict):
                for victim in each.victims:
                    self.leaving[victim.pod.uid] = self.now + rnd.choice([0.0, 5.0, 40.0])

    def bind(self, binding):
        uid = binding.pod.uid
        if self.rnd.random() < 0.03:
            self.both("bind_failed", uid, self.now)
            return
        self.bound.add(uid)
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node)
        for state in self.states:
            state.pods.bound(uid)
        if self.rnd.random() < 0.5:
            self.both("upsert_pod", self.pods[uid])


def play(seed, monkeypatch=None, steps=120):
    twins = Twins(seed, monkeypatch)
    for _ in range(twins.rnd.choice([0, 20, 60])):
        twins.comes()
    for _ in range(steps):
        for _ in range(twins.rnd.choice([0, 1, 1, 2, 6])):
            twins.happens()
        twins.step()
        if twins.rnd.random() < 0.03:
            for state in twins.states:
                state.isolation.mend()
    return twins


@pytest.mark.parametrize("seed", range(24))
def test_classes_in_backoff_are_decided_on_as_by_the_plain_rule(seed, monkeypatch):
    play(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(100, 124))
def test_no_place_is_left_for_a_class_in_backoff(seed):
    play(seed)


def test_what_is_kept_as_without_victims_is_searched_for_by_these_worlds():
    assert all(play(seed).searched for seed in (100, 101, 102))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1024, 3024))
def test_no_place_is_left_for_a_class_in_backoff_in_many_worlds(seed):
    play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 1024))
def test_classes_in_backoff_are_decided_on_as_by_the_plain_rule_in_many_worlds(seed, monkeypatch):
    play(seed, monkeypatch)


def test_a_class_in_backoff_that_is_put_off_again_is_kept_once():
    """Else what was kept first would stay behind, and stand in line for a class that is tried, or gone."""
    state = cluster([node("n", gpus=1)], [queue("q", quota=1)], reservations=0)
    state.upsert_pod(pod("runs", "q", at="n"))
    for name in ("one", "two"):
        state.upsert_pod(pod(name, "q", cpu=1000 if name == "one" else 2000))
    run(state, 1.0)
    waiting = state.queues.waiting
    kept = list(waiting.backoff)
    assert len(kept) == 2
    for _ in range(2):
        for pending_class in kept:
            backoff.put_off(state, pending_class)
    state.remove_pod("uid-runs")
    decided = run(state, 2.0)
    assert placed(decided) == {"one": "n"}
    assert not any(isinstance(each, Fault) for each in decided)
    assert int(waiting.backoff.columns._used.sum()) == len(list(waiting.backoff))
