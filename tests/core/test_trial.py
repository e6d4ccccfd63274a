"""A trial of who would reclaim what starts leaves out queues in which all is in vain: it finds what a trial of all queues finds."""

from collections import Counter
from contextlib import contextmanager

import pytest

from fairlead.core import invariants
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Fault
from fairlead.core.preemption import claimants, few_rows, firsts, reclaimable, trial, victims
from tests.builders import GPU, cluster, node, placed, pod, preempted, queue, refused, run, settle
from tests.core import plain_claimants
from tests.core.test_backoff import Twins


class Deep(Twins):
    """A world with queues in trees of one to four levels, in all of which jobs may wait."""

    def tree(self):
        rnd, made = self.rnd, []
        for number in range(rnd.choice([2, 3, 5, 9])):
            quota = rnd.choice([None, 0, 1000, 2000, 4000])
            limit = rnd.choice([None, None, None, None, 8000])
            weight = rnd.choice([None, None, 1, 3])
            resources = (QueueResource(GPU, quota=quota, limit=limit, weight=weight),) if (quota, limit) != (None, None) else ()
            inner = [each.name for each in made if each.name.startswith("i")]
            parent = rnd.choice(["", *inner])
            name = f"{'i' if number % 3 == 0 and number < 7 else 'l'}{number}"
            made.append(Queue(name, parent, rnd.choice([0, 0, 0, 1]), resources, users_reclaim=rnd.random() < 0.1))
        return made

    @property
    def leaves(self):
        return [each.name for each in self.queues if each.name.startswith("l")]

    def step(self):
        self.now += self.rnd.choice([0.1, 1.0, 1.0, 30.0])
        for uid in [uid for uid, at in self.leaving.items() if at <= self.now]:
            self.goes(uid)
        decided = run(self.states[0], self.now)
        assert not any(isinstance(each, Fault) for each in decided)
        invariants.check(self.states[0])
        self.carry_out(decided)


@contextmanager
def beside(state, steps=victims.STEPS):
    """A question besides those of the pass: it uses up nothing of the steps that are left for sets of victims, and has its own."""
    table = victims.victims_of(state)
    left, table.steps = table.steps, steps
    yield table
    table.steps = left


def both(monkeypatch):
    """Every trial is made of all queues, too; returns how often what happened."""
    seen, search = Counter(), reclaimable._search
    left_out = trial.Trial.queues
    unclaimed, answers = reclaimable.is_unclaimed, []

    def is_unclaimed(asked):
        """The trial is made all the same."""
        answers.append(unclaimed(asked))
        return False

    def queues(self):
        found = left_out(self)
        seen["left out"] += len(self._left_out)
        seen["tried"] += len(found)
        return found

    def compared(state, unit, placed, *, all_queues, borrowing, only=None):
        table = victims.victims_of(state)
        before = table.steps
        answers.clear()
        found = search(state, unit, placed, all_queues=all_queues, borrowing=borrowing, only=only)
        if answers and answers[0]:
            seen["unclaimed"] += 1
            assert found is None or (found.unit is None and not found.blocked)
        if only is not None and found is not None and found.unit is not None:
            seen["again"] += 1
            with beside(state) as table:
                assert search(state, unit, placed, all_queues=True, borrowing=True).unit is not None or table.steps <= 0
        if all_queues:
            return found
        enough = table.steps > 0
        with beside(state, before):
            everything = search(state, unit, placed, all_queues=True, borrowing=borrowing)
            enough = enough and table.steps > 0
        if found is None:
            seen["made again"] += 1
            return None
        assert found == everything or not enough
        seen["ended early"] += not enough
        seen["found" if found.unit is not None else "none"] += 1
        return found

    monkeypatch.setattr(reclaimable, "_search", compared)
    monkeypatch.setattr(reclaimable, "is_unclaimed", is_unclaimed)
    monkeypatch.setattr(trial.Trial, "queues", queues)
    return seen


def play(seed, monkeypatch, steps):
    world = Deep(seed, monkeypatch)
    world.states = world.states[:1]
    for _ in range(world.rnd.choice([0, 20, 60])):
        world.comes()
    for _ in range(steps):
        for _ in range(world.rnd.choice([0, 1, 2, 6])):
            world.happens()
        world.step()


@pytest.mark.parametrize("seed", range(24))
def test_queues_that_are_left_out_are_in_vain(seed, monkeypatch):
    both(monkeypatch)
    play(seed, monkeypatch, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 1024))
def test_queues_that_are_left_out_are_in_vain_in_many_worlds(seed, monkeypatch):
    both(monkeypatch)
    play(seed, monkeypatch, 100)


def test_the_worlds_meet_every_end_of_a_trial(monkeypatch):
    seen = both(monkeypatch)
    for seed in range(20, 36):
        play(seed, monkeypatch, 40)
    assert all(seen[what] > 10 for what in ("left out", "tried", "found", "none", "unclaimed")), seen
    assert seen["again"], seen


def in_step(monkeypatch):
    """What claims in each trial is compared with the plain rule, unit by unit; returns how often what happened."""
    seen, later_of, end = Counter(), claimants._later, object()
    may_claim, firsts_of, known = trial.Trial.claiming, firsts.Firsts.of, dict[int, list]()
    placeless_of = few_rows.FewRows.without_place

    def later(state, unit):
        """Made once of each unit: both rules get the same units."""
        if id(unit) not in known:
            known[id(unit)] = later_of(state, unit)
        return known[id(unit)]

    def compared(asked):
        known.clear()
        plain, before = plain_claimants.claimants(asked), 0
        for unit in claimants.claimants(asked):
            assert next(plain, end) is unit
            yield unit
            before += 1
            seen["placed" if unit.tasks[0].row >= 0 else "not placed"] += 1
        if not asked.stale and not asked.over:
            assert next(plain, end) is end
            seen["to the end"] += before > 1

    def claiming(self):
        found = may_claim(self)
        if not self.by_class:
            nodes = [each for each in self.state.queues.queues.values() if each.pods_waiting]
            assert found == self._beside(each for each in nodes if plain_claimants.claiming(self.state, each))
            seen["may claim"] += len(found)
            seen["may not"] += len(nodes) - len(found)
        return found

    def first_units(self, node, *, refused):
        before, found = self._known.get(node), firsts_of(self, node, refused=refused)
        expected = [(node.unit_key(unit), unit.tasks) for unit in plain_claimants.firsts(self._state, node, refused=refused)]
        assert [(key, unit.tasks) for key, _, unit in found] == sorted(expected, key=lambda each: each[0])
        seen["known"] += before is not None and before is self._known.get(node)
        seen["refused" if refused else "not refused"] += len(found)
        return found

    def without_place(self, nodes):
        found = placeless_of(self, nodes)
        for group in found.values():
            for ranking in (each for pending_class in group for each in pending_class.rankings):
                assert not ranking.relations
                assert not any(ranking.fits_alone(row) for row in range(self._state.nodes.count))
        seen["placeless"] += len(found)
        return found

    monkeypatch.setattr(claimants, "_later", later)
    monkeypatch.setattr(few_rows.FewRows, "without_place", without_place)
    monkeypatch.setattr(reclaimable, "claimants", compared)
    monkeypatch.setattr(trial.Trial, "claiming", claiming)
    monkeypatch.setattr(reclaimable, "is_unclaimed", lambda _: False)  # the trial is made all the same
    monkeypatch.setattr(firsts.Firsts, "of", first_units)
    return seen


@pytest.mark.parametrize("seed", range(24))
def test_what_claims_comes_as_by_the_plain_rule(seed, monkeypatch):
    in_step(monkeypatch)
    play(seed, monkeypatch, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 1024))
def test_what_claims_comes_as_by_the_plain_rule_in_many_worlds(seed, monkeypatch):
    in_step(monkeypatch)
    play(seed, monkeypatch, 60)


def test_the_worlds_meet_what_is_kept_for_claimants(monkeypatch):
    seen = in_step(monkeypatch)
    for seed in range(20, 36):
        play(seed, monkeypatch, 40)
    wanted = ("placed", "not placed", "to the end", "may claim", "may not", "known", "refused", "not refused", "placeless")
    assert all(seen[what] > 10 for what in wanted), seen


def with_few_kinds(monkeypatch):
    """What may be preempted is listed with and without the queues of which nothing may be; returns how often what happened."""
    seen, near_of, kinds_near = Counter(), victims.VictimTable._near, victims.VictimTable._kinds_near

    def listed(table, preemption, few, *, alone):
        monkeypatch.setattr(victims, "_FEW_KINDS", few)
        found = [(reason, victim.tasks) for reason, victim in near_of(table, preemption, alone=alone)]
        return found, list(kinds_near(table, preemption, alone=alone))

    def near(self, preemption, *, alone=False):
        (plain, all_kinds), (found, kinds) = (listed(self, preemption, few, alone=alone) for few in (1_000, 0))
        assert found == plain
        seen["alone" if alone else "together"] += bool(plain)
        seen["left out"] += len(all_kinds) - len(kinds)
        if alone:
            seen["only later"] += len(list(kinds_near(self, preemption))) - len(kinds)
        yield from near_of(self, preemption, alone=alone)

    monkeypatch.setattr(victims.VictimTable, "_near", near)
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_queues_of_which_nothing_may_be_preempted_are_left_out_of_a_search(seed, monkeypatch):
    with_few_kinds(monkeypatch)
    play(seed, monkeypatch, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 1024))
def test_queues_of_which_nothing_may_be_preempted_are_left_out_of_a_search_in_many_worlds(seed, monkeypatch):
    with_few_kinds(monkeypatch)
    play(seed, monkeypatch, 60)


def test_the_worlds_meet_queues_that_are_left_out_of_a_search(monkeypatch):
    seen = with_few_kinds(monkeypatch)
    for seed in range(20, 36):
        play(seed, monkeypatch, 40)
    assert all(seen[what] > 3 for what in ("alone", "together", "left out", "only later")), seen


def judged(monkeypatch):
    """Whatever is held back as what was before is tried all the same; returns how often that was."""
    seen, known = Counter(), reclaimable.HeldBack.known

    def tried(self, state, unit, placed, victims=()):
        found = known(self, state, unit, placed, victims)
        if found is not None:
            seen["known"] += 1
            with beside(state) as table:
                assert reclaimable.reclaimer(state, unit, placed).unit is not None or table.steps <= 0
        return found

    monkeypatch.setattr(reclaimable.HeldBack, "known", tried)
    return seen


@pytest.mark.parametrize("seed", range(24))
def test_what_is_held_back_as_what_was_before_would_be_reclaimed(seed, monkeypatch):
    judged(monkeypatch)
    play(seed, monkeypatch, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 1024))
def test_what_is_held_back_as_what_was_before_would_be_reclaimed_in_many_worlds(seed, monkeypatch):
    judged(monkeypatch)
    play(seed, monkeypatch, 60)


def test_a_queue_that_may_reclaim_only_since_something_was_placed_is_tried_after_all(monkeypatch):
    """`mine` has no lender until `beside` has its place, too: then the queue above both is beyond its quota, and `first` would go."""
    seen = both(monkeypatch)
    queues = [
        Queue("inner", "", 1, (QueueResource(GPU, 1000),)),
        queue("own", quota=0, parent="inner"),
        queue("near", quota=0, parent="inner"),
        queue("other", quota=2),
    ]
    state = cluster([node("n", gpus=4), node("m", gpus=0, cpu=500_000)], queues, reservations=0, patience=0.0)
    state.upsert_pod(pod("first", queue="own", created=1.0, cpu=50_000))
    state.upsert_pod(pod("beside", queue="near", created=2.0))
    state.upsert_pod(pod("mine", queue="other", gpus=2, created=3.0, cpu=32_000))
    state.upsert_pod(pod("more", queue="own", created=4.0))
    decided = settle(state)
    assert (preempted(decided), set(placed(decided)), set(refused(decided))) == ([], {"beside", "more", "mine"}, {"first"})
    assert seen["made again"] == 1


def test_what_leaves_another_room_is_not_held_back_as_what_did_not(monkeypatch):
    """Beside `large` the claimant has too few CPUs, and would reclaim it; `small` has as many GPUs, and leaves it a place."""
    seen = judged(monkeypatch)
    queues = [Queue("first", "", 1, (QueueResource(GPU, quota=0),)), queue("mine", quota=2)]
    nodes = [node("n", gpus=3, cpu=10_000, labels={"zone": "a"}), node("c", gpus=0, cpu=500_000)]
    state = cluster(nodes, queues, reservations=0, patience=0.0, share_wait=0.0)
    state.upsert_pod(pod("large", "first", gpus=2, cpu=8000, created=1.0))
    state.upsert_pod(pod("alike", "first", gpus=2, cpu=8000, created=1.5, selector={"zone": "a"}))
    state.upsert_pod(pod("small", "first", gpus=2, cpu=1000, created=2.0))
    state.upsert_pod(pod("claimant", "mine", cpu=5000, created=3.0))
    decided = run(state)
    assert placed(decided) == {"small": "n", "claimant": "n"}
    assert set(refused(decided)) == {"large", "alike"}
    assert seen["known"] == 1


def test_a_queue_beyond_its_quota_of_one_resource_becomes_a_lender_of_another(monkeypatch):
    """`x` holds more CPU than it may from the beginning, and by `second` more GPUs: only then `two` would reclaim from it."""

    def of(gpus, cpu=None):
        return tuple(QueueResource(name, quota=quota) for name, quota in ((GPU, gpus), ("cpu", cpu)) if quota is not None)

    queues = [
        Queue("r", "", 1, of(1000, 1000)),
        Queue("own", "r", 1, of(0)),
        Queue("x", "r", 0, of(0, 0)),
        Queue("y", "", 0, of(2000)),
    ]
    nodes = [node("n1", gpus=2, labels={"zone": "a"}), node("n2", gpus=2, labels={"zone": "b"}), node("c", gpus=0)]
    pods = [
        pod("cpu", "x", gpus=0, cpu=2000, at="c"),
        pod("first", "own", created=1.0, selector={"zone": "a"}),
        pod("w", "x", created=1.5, gpus=0, cpu=100),
        pod("second", "x", created=2.0, selector={"zone": "b"}),
        pod("more", "own", created=9.0, gpus=2, selector={"zone": "nowhere"}),
        pod("more-of-x", "x", created=9.0, gpus=2),
        pod("two", "y", created=3.0, gpus=2),
    ]
    both(monkeypatch)
    state = cluster(nodes, queues, reservations=0, patience=0.0)
    for each in pods:
        state.upsert_pod(each)
    decided = settle(state)
    assert placed(decided) == {"w": "c", "second": "n2", "two": "n1"}
    assert "first" in refused(decided)
    assert not preempted(decided)
