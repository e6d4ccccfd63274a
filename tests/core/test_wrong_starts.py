"""Nothing starts only to be evicted for a queue's share in the next pass, while nothing comes, ends or changes in between.

Nor does anything idle for it: what no reclaim could place keeps no job from free devices.
"""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.causes import PreemptionReason
from fairlead.core.model.nodes import Taint
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victims import victims_of
from tests.builders import GPU, cluster, group, held, node, placed, pod, preempted, queue, run, settle

CALM = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0, "share_wait": 0.0, "search_backoff": 0.0}


def part(name, quota, priority=0):
    """A queue; of priority 1 it is served before those of 0."""
    return Queue(name, "", priority, (QueueResource(GPU, quota * 1000),))


def leaves(state, name):
    """A victim is on its way out."""
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=state.services.now + 30.0))


def passes(state, *times):
    """What some passes start and evict together."""
    decided = [each for now in times for each in settle(state, now)]
    invariants.check(state)
    return placed(decided), preempted(decided)


# -- what is to be shared ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "closed", [{"unschedulable": True}, {"taints": (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)}]
)
def test_what_is_free_where_nothing_new_is_taken_is_not_shared(closed):
    state = cluster([node("n1", gpus=8, **closed), node("n2", gpus=2)], [queue("q0", 4), queue("q1")], reservations=0)
    state.upsert_pod(pod("c1", "q0", at="n2"))
    state.upsert_pod(pod("h0", "q0", gpus=16, created=1.0))
    state.upsert_pod(pod("f3", "q0", created=2.0))
    state.upsert_pod(pod("b2", "q1", created=3.0))
    assert passes(state, 4000.0, 4001.0, 4002.0) == ({"f3": "n2"}, [])
    assert state.queues.fair.share == {"q0": {GPU: 2000}, "q1": {GPU: 0}}
    state.upsert_node(node("n1", gpus=8))
    assert passes(state, 4003.0) == ({"b2": "n1"}, [])
    assert state.queues.fair.share == {}


def test_jobs_that_no_node_can_take_ask_for_no_share():
    nodes = [node("a", gpus=4, labels={"model": "a100"}), node("h", gpus=8, labels={"model": "h100"})]
    state = cluster(nodes, [queue(name) for name in ("hopeless", "one", "two")], reservations=0)
    for index in range(8):
        state.upsert_pod(pod(f"p{index}", "hopeless", selector={"model": "none"}))
    for index in range(12):
        for name in ("one", "two"):
            state.upsert_pod(pod(f"{name}-{index}", name, created=float(index)))
    passes(state, 1.0, 2.0)
    assert state.queues.fair.share == {"one": {GPU: 6000}, "two": {GPU: 6000}}
    state.upsert_node(node("n", gpus=0, labels={"model": "none"}))
    assert passes(state, 3.0) == ({}, []), "it has no GPU"
    assert "hopeless" not in state.queues.fair.share


def test_a_queue_with_weight_zero_gets_its_quota_and_no_more():
    zero = Queue("zero", resources=(QueueResource(GPU, quota=1000, weight=0),))
    state = cluster([node("n", gpus=8)], [zero, Queue("one", resources=(QueueResource(GPU, quota=1000, weight=1),))])
    for index in range(8):
        for name in ("zero", "one"):
            state.upsert_pod(pod(f"{name}-{index}", name, created=float(index)))
    passes(state, 1.0)
    assert state.queues.fair.share == {"zero": {GPU: 1000}, "one": {GPU: 7000}}


def test_what_runs_where_nothing_new_is_taken_is_part_of_what_there_is():
    """Also parts of devices: of the 8 GPUs of the cordoned node 2.5 are in use."""
    state = cluster([node("n1", gpus=8), node("n2", gpus=2)], [queue("q0", 4), queue("q1")], **CALM)
    for name, more in {"whole": {"gpus": 2}, "half": {"milli": 500}}.items():
        state.upsert_pod(pod(name, "q0", at="n1", **more))
    assert state.queues.tree.usable(GPU) == 10_000
    state.upsert_node(node("n1", gpus=8, unschedulable=True))
    assert state.queues.tree.usable(GPU) == 4500
    state.remove_node("n1")
    assert state.queues.tree.usable(GPU) == 2000


def test_what_waited_for_a_node_counts_for_shares_as_soon_as_it_comes():
    """And not only in the pass after the one in which it was tried: shares would have moved just after others started."""
    state = cluster([node("n", gpus=2, unschedulable=True)], [queue("q0", 0), queue("q1", 0)], **CALM)
    for name, more in {"a0": {"gpus": 2}, "a1": {}, "a2": {}}.items():
        state.upsert_pod(pod(name, "q0", created=1.0, **more))
    state.upsert_pod(pod("b", "q1", created=2.0))
    passes(state, 3.0)
    state.upsert_pod(pod("c", "q1", created=3.0))
    passes(state, 3.5)
    state.upsert_node(node("n", gpus=2))
    passes(state, 4.0)
    shares = state.queues.fair.share
    assert passes(state, 5.0) == ({}, [])
    assert state.queues.fair.share == shares == {"q0": {GPU: 1000}, "q1": {GPU: 1000}}


def test_what_is_closed_for_leaving_victims_is_shared():
    """Three of four are gone, and what they held is kept closed until the last is: no other scheduler's pods hold it."""
    state = cluster([node("n", gpus=8)], [queue("q0", 4), queue("q1", 4)], groups=[group("g", 4, "q1")], **CALM)
    for name in ("x0", "x1"):
        state.upsert_pod(pod(name, "q1", gpus=2, priority=1, at="n", started=0.0))
    for number in range(4):
        state.upsert_pod(pod(f"g-{number}", "q1", group="g", at="n", started=0.0))
    state.upsert_pod(pod("mine", "q0", created=1.0))
    for name in ("x2", "x3"):
        state.upsert_pod(pod(name, "q1", gpus=2, created=2.0))
    state.upsert_pod(pod("more", "q0", gpus=8, created=2.0))
    (victims,) = passes(state, 3.0)[1]
    for name in victims[:-1]:
        leaves(state, name)
        state.remove_pod(f"uid-{name}")
    assert state.queues.fair.foreign(GPU, [each for each in state.queues.queues.values() if each.parent is None]) == 0


# -- members beyond the minimum of a gang --------------------------------------------------------


def test_members_beyond_a_minimum_are_waited_for_before_it_has_started():
    state = cluster([node("n", gpus=8)], [part("q0", 0, 1), part("q1", 8)], groups=[group("g", 1, "q1")], **CALM)
    for number in range(4):
        state.upsert_pod(pod(f"g-{number}", "q1", group="g", gpus=2, created=1.0))
    state.upsert_pod(pod("b", "q0", created=2.0))
    started, evicted = passes(state, 3.0, 4.0, 5.0)
    assert (sorted(started), evicted) == (["g-0", "g-1", "g-2", "g-3"], [])
    assert state.queues.fair.share == {"q0": {GPU: 0}, "q1": {GPU: 8000}}


def test_members_beyond_a_minimum_for_which_there_is_no_node_hold_nothing_back():
    state = cluster([node("n", gpus=8)], [part("q0", 0, 1), part("q1", 8)], groups=[group("g", 1, "q1")], **CALM)
    state.upsert_pod(pod("g-0", "q1", group="g", created=1.0))
    state.upsert_pod(pod("g-1", "q1", group="g", gpus=16, created=1.0))
    for number in range(7):
        state.upsert_pod(pod(f"b-{number}", "q0", created=2.0))
    assert len(passes(state, 3.0, 4.0)[0]) == 8
    assert held(state, "q0") == 7


def test_the_request_of_a_queue_is_the_same_before_and_after_a_minimum_starts():
    state = cluster([node("n", gpus=2)], [part("q0", 0), part("q1", 0)], groups=[group("g", 1, "q1")], **CALM)
    for number in range(3):
        state.upsert_pod(pod(f"g-{number}", "q1", group="g", created=1.0))
    state.upsert_pod(pod("b", "q0", created=2.0))
    requests = []
    for now in (3.0, 4.0, 5.0):
        state.settle(now)
        requests.append(state.queues.fair._requests.by_queue()["q1"][GPU])
        passes(state, now)
    state.remove_pod("uid-g-2")
    state.settle(6.0)
    assert [*requests, state.queues.fair._requests.by_queue()["q1"][GPU]] == [3000, 3000, 3000, 2000]


# -- the trial -----------------------------------------------------------------------------------


def test_what_a_queue_is_charged_for_while_victims_leave_is_not_held_against_it():
    """q1 holds 4 until `v` is gone and 3 then, so that `m` is within its quota of 5 and would take the place of `b`."""
    state = cluster([node("n0", gpus=4), node("n1", gpus=2)], [part("q0", 0, 1), part("q1", 5)], **CALM)
    state.upsert_pod(pod("v", "q1", gpus=4, at="n0", started=0.0))
    state.upsert_pod(pod("w", "q1", gpus=3, priority=5, created=2.0))
    assert passes(state, 2.0) == ({}, [["v"]])
    leaves(state, "v")
    state.upsert_pod(pod("m", "q1", gpus=2, created=3.0))
    state.upsert_pod(pod("b", "q0", created=3.0))
    state.upsert_pod(pod("x", "q0", gpus=2, created=3.5))
    assert passes(state, 3.0) == ({"m": "n1"}, [])
    state.remove_pod("uid-v")
    assert passes(state, 4.0, 5.0) == ({"w": "n0", "b": "n0"}, [])


def test_places_that_are_closed_while_victims_leave_count_for_what_waits():
    """Three GPUs of n0 are free once `v` is gone; a gang of four then lacks just the one on which `b` would have started."""
    nodes = [node("n0", gpus=4, labels={"zone": "a"}), node("n1", gpus=1)]
    state = cluster(nodes, [part("q0", 0, 1), part("q1", 5)], **CALM)
    state.upsert_pod(pod("v", "q0", gpus=4, at="n0", started=0.0))
    state.upsert_pod(pod("w", "q1", created=2.0, selector={"zone": "a"}))
    state.upsert_pod(pod("x", "q0", gpus=4, created=2.0))
    assert passes(state, 2.0) == ({}, [["v"]])
    leaves(state, "v")
    state.upsert_group(group("m", 4, "q1"))
    for number in range(4):
        state.upsert_pod(pod(f"m-{number}", "q1", group="m", created=3.0))
    state.upsert_pod(pod("b", "q0", created=3.0))
    assert passes(state, 3.0) == ({}, [])
    state.remove_pod("uid-v")
    started, evicted = passes(state, 4.0, 5.0)
    assert (sorted(started), evicted) == (["m-0", "m-1", "m-2", "m-3", "w"], [])


def test_what_takes_the_place_of_its_own_queue_is_asked_too():
    """It would be evicted for the other queue's share next: that one evicts at once what runs."""
    state = cluster([node("n", gpus=8)], [part("q0", 0, 1), part("q1", 8)], **CALM)
    state.upsert_pod(pod("old", "q0", gpus=8, at="n", started=0.0))
    state.upsert_pod(pod("high", "q0", gpus=6, priority=5, created=1.0))
    state.upsert_pod(pod("mine", "q1", gpus=8, created=2.0))
    assert passes(state, 3.0) == ({}, [["old"]])
    state.remove_pod("uid-old")
    assert passes(state, 4.0, 5.0) == ({"mine": "n"}, [])


def test_what_is_taken_off_in_a_trial_stays_a_victim():
    state = cluster([node("n", gpus=2)], [part("q0", 0), part("q1", 2)], **CALM)
    for name in "ab":
        state.upsert_pod(pod(name, "q0", at="n", started=0.0))
    run(state, 1.0)
    state.upsert_pod(pod("mine", "q1", gpus=2, created=2.0))
    state.begin(2.0)
    state.settle(2.0)
    state.queues.settle(2.0)

    def victims():
        preemption = PreemptionPolicy(state, state.tasks["uid-mine"].unit)
        return [victim.tasks[0].pod.name for _, victim in victims_of(state).one_by_one(preemption, lambda _: True)]

    assert victims() == ["a", "b"]
    mark = state.log.mark()
    state.placement.unassign(state.tasks["uid-a"])
    assert victims() == ["b"]
    state.log.rollback(mark)
    assert victims() == ["a", "b"]


# -- random histories ----------------------------------------------------------------------------


class History:
    """A small cluster in which jobs come and end, nodes are cordoned, and victims take their time to leave.

    changes: how often something came, ended or changed so far. What a pass starts may be evicted for a share in the next one only
    after a change, or where shares have moved since victims are gone that do not come again.
    """

    def __init__(self, seed):
        self.rnd = rnd = random.Random(f"wrong starts {seed}")
        self.now, self.number, self.changes = 1000.0, 0, 0
        self.nodes = {f"n{number}": node(f"n{number}", gpus=rnd.choice([2, 4, 8])) for number in range(rnd.randint(1, 4))}
        self.leaves = []
        self.recreates = rnd.random() < 0.5
        self.jobs = {}  # name -> uids of its pods
        self.gone = {}  # uid -> when a victim is gone
        self.running = {}  # name of a pod that the last pass started -> (changes, shares) when its place was chosen
        self.held = {}  # the same of those whose places are kept until victims are gone
        self.log = []
        policy = {**CALM, "move_patience": rnd.choice([0.0, 60.0]), "share_wait": rnd.choice([0.0, 0.0, 3600.0])}
        self.state = cluster(self.nodes.values(), self._tree(), **policy)
        self.log.append(f"{policy} {[(each.name, each.allocatable[GPU]) for each in self.nodes.values()]}")

    def _tree(self):
        rnd, left = self.rnd, sum(each.allocatable[GPU] for each in self.nodes.values())
        queues = []
        for number in range(rnd.randint(2, 4)):
            quota = rnd.randint(0, left)
            left -= quota
            name, weight = f"q{number}", rnd.choice([None, 1, 2])
            queues.append(self._queue(name, quota, "", weight))
            if rnd.random() < 0.3:
                first = rnd.randint(0, quota)
                queues.append(self._queue(f"{name}a", first, name, None))
                queues.append(self._queue(f"{name}b", quota - first, name, None))
                self.leaves += [f"{name}a", f"{name}b"]
            else:
                self.leaves.append(name)
        return queues

    def _queue(self, name, quota, parent, weight):
        self.queues = [*getattr(self, "queues", []), f"{name} {quota} {parent} {weight}"]
        return Queue(
            name, parent, 0 if parent else self.rnd.choice([0, 0, 1]), (QueueResource(GPU, quota * 1000, weight=weight),)
        )

    def say(self, what):
        self.log.append(f"{self.now:7.1f} {what}")

    # -- what happens --------------------------------------------------------------------------

    def change(self):
        rnd, chance = self.rnd, self.rnd.random()
        self.changes += 1
        running = sorted(name for name, uids in self.jobs.items() if any(self._row(uid) >= 0 for uid in uids))
        if chance < 0.6 or not running:
            self.arrive()
        elif chance < 0.9:
            self.end(rnd.choice(running))
        else:
            self.cordon()

    def arrive(self):
        rnd = self.rnd
        self.number += 1
        name, where = f"j{self.number}", rnd.choice(self.leaves)
        size, members, minimum, milli = rnd.choice([1, 1, 2, 4, 8]), 1, 1, 1000
        chance = rnd.random()
        if chance < 0.2:
            size, milli = 1, rnd.choice([300, 500, 700])
        elif chance < 0.5:
            size, members = rnd.choice([1, 1, 2]), rnd.randint(2, 4)
            minimum = rnd.randint(1, members)
        gang, priority = name if members > 1 else "", rnd.choice([0, 0, 0, 5])
        self.say(f"+ {name} {where} {members}({minimum}) x {size} x {milli}, priority {priority}")
        if gang:
            self.state.upsert_group(group(name, minimum, where))
        self.jobs[name] = set()
        for member in range(members):
            made = pod(f"{name}-{member}", where, group=gang, gpus=size, milli=milli, priority=priority, created=self.now)
            self.jobs[name].add(made.uid)
            self.state.upsert_pod(made)

    def end(self, name):
        self.say(f"x {name}")
        for uid in sorted(self.jobs.pop(name)):
            self.gone.pop(uid, None)
            self.state.remove_pod(uid)

    def cordon(self):
        name = self.rnd.choice(sorted(self.nodes))
        old = self.nodes[name]
        self.nodes[name] = msgspec.structs.replace(old, unschedulable=not old.unschedulable)
        self.say(f"{name} unschedulable {not old.unschedulable}")
        self.state.upsert_node(self.nodes[name])

    def _row(self, uid):
        task = self.state.tasks.get(uid)
        return -1 if task is None else task.row

    def leave(self):
        """Victims whose time is over go; some come again, which is a change."""
        for uid in sorted(uid for uid, at in self.gone.items() if at <= self.now):
            del self.gone[uid]
            old = self.state.tasks[uid].pod
            self.state.remove_pod(uid)
            name = old.name.partition("-")[0]
            self.jobs[name].discard(uid)
            self.say(f"gone {old.name}")
            if self.recreates:
                self.changes += 1
                new = msgspec.structs.replace(old, uid=f"{uid}+", name=f"{old.name}+", node="", terminating=False, leaves=0.0)
                self.jobs[name].add(new.uid)
                self.state.upsert_pod(new)

    # -- passes --------------------------------------------------------------------------------

    def step(self):
        """One pass. Returns whether anything was decided; what is wrong with it fails the test."""
        self.leave()
        decided = [each for each in run(self.state, self.now) if isinstance(each, Place | Preempt)]
        wrong, fresh, present = [], {}, (self.changes, self.state.queues.fair.share)
        for each in decided:
            if isinstance(each, Place):
                self.say(f"place {[(binding.pod.name, binding.node) for binding in each.bindings]}")
                for binding in each.bindings:
                    fresh[binding.pod.name] = self.held.pop(binding.pod.name, present)
                    self.state.pods.bound(binding.pod.uid)
            else:
                names = [victim.pod.name for victim in each.victims]
                self.say(f"evict {names} for {[held.pod.name for held in each.beneficiaries]}: {each.why}")
                if PreemptionReason.SHARE in each.why.reasons:
                    wrong += [name for name in names if self.running.get(name) == present]
                for held in each.beneficiaries:
                    self.held[held.pod.name] = present
                for victim in each.victims:
                    self._ask(victim.pod.uid)
        self.running = fresh
        if wrong:
            pytest.fail("\n".join([*self.queues, *self.log[:1], *self.log[-80:], f"{wrong} had just started"]))
        return bool(decided)

    def idle(self):
        """Pods that wait though they fit: within what their queues are guaranteed, or while no other queue waits."""
        state = self.state
        waiting = [task for task in state.tasks.values() if task.state is TaskState.WAITING and task.unit is not None]
        queues = {task.queue for task in waiting}
        found = []
        for task in waiting:
            if len(task.unit.tasks) > 1 or task.ranking.best() < 0:
                continue
            path = state.queues.queues[task.queue].path
            within = all(each.used.get(GPU, 0) + task.shape.device_milli <= each.quota.get(GPU, 0) for each in path)
            if within or queues == {task.queue}:
                found.append(task.pod.name)
        return found

    def _ask(self, uid):
        old = self.state.tasks[uid].pod
        wait = self.rnd.choice([0.0, 1.0, 5.0])
        self.gone[uid] = self.now + wait
        self.state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=self.now + 30.0))


def play(seed, events=40):
    history = History(seed)
    for _ in range(events):
        for _ in range(history.rnd.choice([1, 1, 1, 3])):
            history.change()
        for _ in range(8):
            busy = history.step()
            invariants.check(history.state)
            history.now += 1.0
            if not busy and not history.gone:
                assert not history.idle(), "\n".join([*history.queues, *history.log[-40:], f"idle beside {history.idle()}"])
                break
    return history


@pytest.mark.parametrize("seed", range(150))
def test_nothing_starts_only_to_be_evicted_in_the_next_pass(seed):
    play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_nothing_starts_only_to_be_evicted_in_the_next_pass_in_many_worlds(first):
    """What is foreseen is placed as it would be served: where many parts of devices start in between, a place may be lost."""
    wrong = []
    for seed in range(first, first + 100):
        try:
            play(seed)
        except pytest.fail.Exception:
            wrong.append(seed)
    assert len(wrong) <= 2, wrong
