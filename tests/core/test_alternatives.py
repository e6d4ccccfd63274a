"""Jobs with alternatives: which form is chosen for those that wait, in random worlds against a count of free GPUs."""

import random

import msgspec
import pytest

from fairlead.api.names import INDEX_LABEL
from fairlead.core import invariants
from fairlead.core.actions.alternatives import changed
from fairlead.core.model.groups import Choice, Chosen, Group
from fairlead.core.model.nodes import NetworkLevel, NodePool, Reservation
from fairlead.core.model.pods import Closeness, SliceRule
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Choose, Evict, Place, Preempt
from fairlead.core.numa.model import ContainerNeed, Machine, NodeTopology, Zone
from fairlead.core.schedule import schedule
from fairlead.core.state.alternatives import REST
from tests.builders import GPU, cluster, node, pod, queue, spec


def in_pool(name):
    return (Requirement("pool", "In", (name,)),)


def choice(index, pool, replicas, amount):
    return Choice(index, pool, replicas, GPU, amount, in_pool(pool) if pool else ())


class Lab:
    """Nodes, jobs in one of their forms, and the operator's part: pods are made anew in the form that is chosen."""

    def __init__(self, pools, queues=(), **policy):
        self.state = cluster(queues=queues, **policy)
        self.nodes = {}
        for pool, sizes in pools.items():
            for number, gpus in enumerate(sizes):
                self.nodes[f"{pool}{number}"] = (pool, gpus)
                self.state.upsert_node(node(f"{pool}{number}", gpus=gpus, labels={"pool": pool}))
        self.now = 100.0
        self.jobs = {}
        self.forms = {}
        self.attempts = {}
        self.chosen = []
        self.evicted = 0

    def submit(self, name, *choices, **more):
        self.jobs[name], self.forms[name], self.attempts[name] = choices, choices[0], 0
        self.more = {**getattr(self, "more", {}), name: more}
        self.make(name)

    def make(self, name):
        form, attempt, more = self.forms[name], self.attempts[name], self.more[name]
        more = dict(more)
        closeness, queue = more.pop("closeness", None), more.get("queue", "")
        current = (form.index, form.pool)
        group = Group("ns", name, form.replicas, queue, closeness=closeness, choices=self.jobs[name], current=current)
        self.state.upsert_group(group)
        affinity = (SelectorTerm(form.nodes),) if form.nodes else None
        wanted = msgspec.structs.replace(
            spec(form.amount, affinity=affinity), numa=(ContainerNeed(devices=((form.resource, form.amount),)),)
        )
        for number in range(form.replicas):
            made = pod(
                f"{name}-{number}-{attempt}",
                group=name,
                spec_=wanted,
                created=1.0,
                attempt=attempt,
                labels=((INDEX_LABEL, str(number)),),
                **more,
            )
            self.state.upsert_pod(made)

    def work(self, passes=1):
        for _ in range(passes):
            chosen = []
            for each in schedule(self.state, self.now):
                if isinstance(each, Choose):
                    chosen.append(each)
                elif isinstance(each, Place):
                    for binding in each.bindings:
                        self.state.pods.bound(binding.pod.uid)
                        task = self.state.tasks[binding.pod.uid]
                        self.state.upsert_pod(msgspec.structs.replace(task.pod, node=binding.node))
                elif isinstance(each, Preempt | Evict):
                    self.evicted += 1
            invariants.check(self.state)
            for each in chosen:
                self.take(each)
            self.now += REST + 1

    def take(self, decided):
        """As the operator does."""
        name, chosen = decided.group.partition("/")[2], decided.chosen
        self.chosen.append((name, chosen))
        assert chosen.attempt == self.attempts[name]
        form = next(each for each in self.jobs[name] if (each.index, each.pool) == (chosen.index, chosen.pool))
        assert form != self.forms[name]
        gang = self.state.gangs[decided.group]
        assert not gang.placed()
        for uid in list(gang.tasks):
            self.state.remove_pod(uid)
        self.forms[name], self.attempts[name] = form, chosen.attempt + 1
        self.make(name)

    def end(self, name):
        for uid in list(self.state.gangs[f"ns/{name}"].tasks):
            self.state.remove_pod(uid)
        self.state.remove_group(f"ns/{name}")
        del self.jobs[name]

    def runs(self, name):
        return bool(self.state.gangs[f"ns/{name}"].placed())

    def free(self):
        """Free GPUs by node, counted from the pods alone."""
        left = {name: gpus for name, (_, gpus) in self.nodes.items()}
        for task in self.state.tasks.values():
            if task.row >= 0:
                left[self.state.nodes.names[task.row]] -= dict(task.pod.spec.requests).get(GPU, 0)
        return left

    def could_start(self, name):
        """The forms of a job for which there are enough free GPUs."""
        left = self.free()
        return [
            form
            for form in self.jobs[name]
            if sum(free // form.amount for node, free in left.items() if form.pool in ("", self.nodes[node][0])) >= form.replicas
        ]


@pytest.mark.parametrize("seed", range(60))
def test_no_job_waits_that_could_start_in_a_form_that_it_names_and_none_gets_another(seed):
    rng = random.Random(seed)
    pools = {name: [rng.choice([2, 4, 8]) for _ in range(rng.randint(1, 3))] for name in ("a", "b", "c")[: rng.randint(1, 3)]}
    lab = Lab(pools, reservations=0, move_patience=1e9)
    for number in range(rng.randint(2, 10)):
        sizes = [(rng.choice([*pools, ""]), rng.randint(1, 4), rng.choice([1, 2, 4, 8])) for _ in range(rng.randint(1, 4))]
        named = [choice(index, pool if index else "", *size) for index, (pool, *size) in enumerate(sizes)]
        lab.submit(f"job-{number}", *named)
        if rng.random() < 0.4:
            lab.work(rng.randint(1, 3))
        running = sorted(name for name in lab.jobs if lab.runs(name))
        if running and rng.random() < 0.4:
            lab.end(rng.choice(running))
    lab.work(2 * len(lab.jobs) + 4)
    for name in lab.jobs:
        if not lab.runs(name):
            assert lab.could_start(name) == [], name
        form = lab.forms[name]
        for task in lab.state.gangs[f"ns/{name}"].tasks.values():
            assert dict(task.pod.spec.requests)[GPU] == form.amount
            if task.row >= 0 and form.pool:
                assert lab.nodes[lab.state.nodes.names[task.row]][0] == form.pool
    assert lab.evicted == 0
    before = len(lab.chosen)
    lab.work(3)
    assert len(lab.chosen) == before


def test_the_first_form_that_can_start_is_chosen_and_two_jobs_do_not_choose_one_place():
    lab = Lab({"a": [4], "b": [4]})
    lab.submit("first", choice(0, "", 1, 8), choice(1, "a", 1, 5), choice(2, "b", 1, 3), choice(3, "a", 1, 1))
    lab.submit("second", choice(0, "", 1, 8), choice(1, "b", 1, 2), choice(2, "a", 1, 2))
    lab.work(2)
    assert lab.chosen == [("first", Chosen(2, "b", 0)), ("second", Chosen(2, "a", 0))]
    assert lab.runs("first")
    assert lab.runs("second")


def test_a_job_that_runs_keeps_its_form_and_one_that_can_start_takes_no_other():
    lab = Lab({"a": [4], "b": [4]})
    lab.submit("first", choice(0, "", 1, 4), choice(1, "a", 1, 1))
    lab.work(3)
    assert lab.chosen == []
    assert lab.runs("first")


def test_a_limit_of_the_queue_keeps_a_job_from_a_form():
    lab = Lab({"a": [8]}, queues=[queue("q", limit=2)])
    lab.submit("big", choice(0, "", 1, 4), choice(1, "a", 1, 3), choice(2, "a", 2, 1), queue="q")
    lab.work(2)
    assert lab.chosen == [("big", Chosen(2, "a", 0))]
    assert lab.runs("big")


def test_what_was_not_carried_out_is_chosen_again_after_a_rest_and_not_before():
    lab = Lab({"a": [4]})
    lab.submit("job", choice(0, "", 1, 8), choice(1, "a", 1, 2))
    made = [each for each in schedule(lab.state, 100.0) if isinstance(each, Choose)]
    assert len(made) == 1
    assert "alternative 1 in pool" not in made[0].message
    assert "1 members with 2 nvidia.com/gpu each in pool a" in made[0].message
    assert not [each for each in schedule(lab.state, 100.0 + REST - 1) if isinstance(each, Choose)]
    again = [each for each in schedule(lab.state, 100.0 + REST + 1) if isinstance(each, Choose)]
    assert [each.chosen for each in again] == [made[0].chosen]


def test_a_job_without_its_present_form_among_its_choices_is_left_alone():
    lab = Lab({"a": [4]})
    lab.submit("job", choice(0, "", 1, 8), choice(1, "a", 1, 2))
    group = lab.state.gangs["ns/job"].group
    lab.state.upsert_group(msgspec.structs.replace(group, current=(7, "z")))
    lab.work(1)
    assert lab.chosen == []
    lab.state.remove_group("ns/job")
    assert lab.state.alternatives.groups == set()


SLICES = Closeness(slices=(SliceRule("rack", (2,)),))
PARTS = Closeness(preferred="rack", balanced=True)


@pytest.mark.parametrize("closeness", [SLICES, PARTS], ids=["slices", "equal parts"])
@pytest.mark.parametrize("written", [1, 2, 8])
def test_slices_are_those_of_the_members_of_the_form_that_is_tried(closeness, written):
    lab = Lab({})
    lab.state.upsert_pool(NodePool("p", levels=(NetworkLevel("rack", "rack"),)))
    for number in range(6):
        rack = {"rack": f"r{number // 2}"}
        lab.state.upsert_node(node(f"n{number}", gpus=1, labels=rack))
    lab.submit("job", choice(0, "", written, 8), choice(1, "", 6, 1), closeness=closeness)
    lab.work(3)
    assert lab.chosen == [("job", Chosen(1, "", 0))]
    assert lab.runs("job")


@pytest.mark.parametrize(("written", "other", "starts"), [(4, 2, True), (1, 4, False)])
def test_a_form_needs_the_gpus_of_its_own_on_numa_nodes(written, other, starts):
    lab = Lab({"a": [4], "b": [4]})
    for name in ("a0", "b0"):
        zones = tuple(Zone(f"node-{at}", socket=at, devices=((GPU, 2),)) for at in range(2))
        lab.state.numa.upsert(NodeTopology(name, Machine(zones, "single-numa-node")))
    lab.submit("job", choice(0, "b" if starts else "no", 1, written), choice(1, "a", 1, other))
    lab.work(3)
    assert lab.runs("job") is starts
    assert bool(lab.chosen) is starts


def test_a_job_that_ends_before_a_reservation_is_not_taken_for_one_that_does_not():
    lab = Lab({"a": [2]})
    lab.state.upsert_reservation(Reservation("maintenance", 1000.0, 1e9))
    lab.submit("long", choice(0, "", 1, 8), choice(1, "a", 1, 2))
    lab.submit("short", choice(0, "", 1, 8), choice(1, "a", 1, 2), time_limit=300.0)
    lab.work(3)
    assert [name for name, _ in lab.chosen] == ["short"]
    assert lab.runs("short")


@pytest.mark.parametrize("seed", range(30))
def test_a_form_and_back_is_what_it_was(seed):
    rng = random.Random(seed)
    one, other = (choice(index, rng.choice(["", "a", "b"]), 1, rng.randint(1, 8)) for index in (0, 1))
    own = tuple(Requirement("own", "In", (str(number),)) for number in range(rng.randint(0, 2)))
    terms = tuple(SelectorTerm(own + one.nodes) for _ in range(rng.randint(1, 2)))
    before = spec(one.amount, affinity=terms if own or one.nodes else None)
    there = changed(before, one, other)
    assert dict(there.requests)[GPU] == there.gpus == other.amount
    for term in there.affinity or (SelectorTerm(),):
        assert term.expressions == own + other.nodes
    back = changed(there, other, one)
    assert back == before or before.affinity is None or len(before.affinity) == 2


def test_a_fault_of_one_job_keeps_no_other_from_its_form(monkeypatch):
    from fairlead.core.actions import alternatives

    first = alternatives._first

    def faulty(state, unit, gang, *more):
        if gang.key == "ns/bad":
            state.log.mark()
            raise RuntimeError("a fault")
        return first(state, unit, gang, *more)

    monkeypatch.setattr(alternatives, "_first", faulty)
    lab = Lab({"a": [4]})
    lab.submit("bad", choice(0, "", 1, 8), choice(1, "a", 1, 2))
    lab.submit("good", choice(0, "", 1, 8), choice(1, "a", 1, 2))
    lab.work(3)
    assert [name for name, _ in lab.chosen] == ["good"]
    assert lab.runs("good")
    assert lab.state.log.depth == 0
