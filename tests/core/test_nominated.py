"""Places that are held while victims leave outlive the scheduler: the pods that wait for them have `nominatedNodeName`."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions.nominated import kept_places
from fairlead.core.model.groups import Group
from fairlead.core.model.kept_places import KeptPlaces
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place, Preempt, Refuse
from fairlead.core.pods.tasks import TaskState
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, run

QUIET = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0}
GRACE = 30.0


def part(name, quota, parent="", weight=None):
    return Queue(name, parent, 0, (QueueResource(GPU, quota * 1000, weight=weight),))


class Api:
    """What the API server knows: objects, and what was written about them; a scheduler can be started anew from that."""

    def __init__(self, nodes, queues, pods, groups=(), writes=True, **policy):
        self.policy = {**QUIET, **policy}
        self.nodes, self.queues, self.groups, self.writes = nodes, queues, groups, writes
        self.pods = {each.uid: each for each in pods}
        self.gone_at = {each.uid: each.leaves for each in pods if each.terminating}
        self.evicted, self.placed = [], {}
        self.state = None
        self.restart()

    def restart(self):
        recorded = msgspec.json.encode(kept_places(self.state)) if self.state and self.writes else b"{}"
        self.state = cluster(self.nodes, self.queues, list(self.pods.values()), self.groups, **self.policy)
        self.state.places_before.remember(msgspec.json.decode(recorded, type=KeptPlaces))
        self.state.upsert_pool(NodePool("p", levels=(NetworkLevel("rack", "rack"),)))

    def change(self, uid, **fields):
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], **fields)
        self.state.upsert_pod(self.pods[uid])

    def pass_at(self, now, restart=False):
        for uid in sorted(uid for uid, at in self.gone_at.items() if at <= now):
            del self.gone_at[uid]
            self.state.remove_pod(uid)
            del self.pods[uid]
        if restart:
            self.restart()
        decided = confirm(self.state, run(self.state, now))
        for each in decided:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.placed[binding.pod.name] = binding.node
                    self.change(binding.pod.uid, node=binding.node, started=now)
            elif isinstance(each, Preempt):
                self.evicted += [victim.pod.name for victim in each.victims]
                real = [binding for binding in each.beneficiaries if self.writes and not binding.pod.placeholder]
                for binding in real:
                    self.change(binding.pod.uid, nominated=binding.node)
                for uid, where in zip(each.moved, each.moved_to, strict=True) if self.writes else ():
                    self.change(uid, moves_to=where)
                for victim in each.victims:
                    self.gone_at[victim.pod.uid] = now + GRACE
                    self.change(victim.pod.uid, terminating=True, leaves=now + GRACE)
            elif isinstance(each, Refuse):
                for uid in each.withdrawn:
                    self.change(uid, nominated="")
        invariants.check(self.state)
        return decided


def held(state, name):
    """Where a place is held for a pod."""
    task = state.tasks[f"uid-{name}"]
    return state.nodes.names[task.row] if task.state is TaskState.HELD else ""


def two_nodes():
    """`owner` takes its quota back from `a`; `late` of the same queue comes meanwhile and fits where `a` leaves, too."""
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    queues = [part("lender", 2), part("owner", 4), part("other", 2)]
    running = [pod(name, queue="lender", gpus=4, at=at, started=0.0) for name, at in (("a", "n0"), ("b", "n1"))]
    return Api(nodes, queues, [*running, pod("mine", queue="owner", gpus=4, created=1.0)])


@pytest.mark.parametrize("restart", [False, True])
def test_the_place_is_held_again_and_given_to_the_same_pod(restart):
    api = two_nodes()
    (victim,) = preempted(api.pass_at(5.0))[0]
    was_at = api.pods[f"uid-{victim}"].node
    assert api.pods["uid-mine"].nominated == was_at
    api.pods["uid-late"] = pod("late", queue="other", gpus=2, created=6.0)
    api.state.upsert_pod(api.pods["uid-late"])
    api.pass_at(6.0, restart=restart)
    assert held(api.state, "mine") == was_at
    api.pass_at(40.0)
    assert api.placed["mine"] == was_at
    assert api.evicted.count("a") + api.evicted.count("b") <= 2


def test_a_unit_whose_victims_left_while_no_scheduler_ran_starts_where_it_was_to():
    api = two_nodes()
    ((victim,),) = preempted(api.pass_at(5.0))
    was_at = api.pods[f"uid-{victim}"].node
    assert placed(api.pass_at(40.0, restart=True)) == {"mine": was_at}


def test_a_gang_is_held_as_a_whole_or_not_at_all():
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    queues = [part("lender", 0), part("owner", 8)]
    running = [pod(name, queue="lender", gpus=4, at=at, started=0.0) for name, at in (("a", "n0"), ("b", "n1"))]
    members = [pod(f"m{each}", queue="owner", gpus=4, created=1.0, group="g") for each in range(2)]
    api = Api(nodes, queues, [*running, *members], [group("g", 2, "owner")])
    api.pass_at(5.0)
    assert sorted(api.evicted) == ["a", "b"]
    api.pass_at(6.0, restart=True)
    assert {held(api.state, "m0"), held(api.state, "m1")} == {"n0", "n1"}
    # One of the nodes is gone: there is no place for both any more.
    api.nodes = nodes[:1]
    for uid in [uid for uid, each in api.pods.items() if each.node == "n1"]:
        del api.pods[uid]
        del api.gone_at[uid]
    api.pass_at(7.0, restart=True)
    assert {held(api.state, "m0"), held(api.state, "m1")} == {""}
    assert {each.nominated for each in api.pods.values()} == {""}, "no place is held for them"


def test_a_nomination_that_is_no_good_any_more_is_withdrawn():
    api = two_nodes()
    api.pass_at(5.0)
    nominated = api.pods["uid-mine"].nominated
    api.pods["uid-big"] = pod("big", queue="owner", gpus=4, at=nominated, started=6.0, created=5.0)
    for uid in list(api.gone_at):
        del api.gone_at[uid], api.pods[uid]
    api.pass_at(7.0, restart=True)
    assert held(api.state, "mine") == ""
    assert api.pods["uid-mine"].nominated in ("", "n1", "n0")
    assert api.pods["uid-mine"].nominated != nominated or api.evicted.count("b") == 1


def test_victims_that_relieve_a_limit_may_be_on_other_nodes():
    nodes = [node("n0", gpus=2), node("n1", gpus=4)]
    limited = Queue("q", resources=(QueueResource(GPU, 4000, limit=4000),))
    running = [pod(f"low{each}", queue="q", gpus=1, at=at, started=0.0) for each, at in enumerate(("n0", "n0", "n1"))]
    api = Api(nodes, [limited], [*running, pod("mine", queue="q", gpus=3, priority=9, created=1.0)])
    api.pass_at(5.0)
    where = held(api.state, "mine")
    assert (where, len(api.evicted)) == ("n1", 2)
    api.pass_at(6.0, restart=True)
    assert held(api.state, "mine") == where


@pytest.mark.parametrize("lost", [False, True])
def test_members_beyond_the_minimum_are_held_again_where_they_still_can_be(lost):
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    running = [pod(name, queue="lender", gpus=4, at=at, started=0.0) for name, at in (("a", "n0"), ("b", "n1"))]
    members = [pod(f"m{each}", queue="owner", gpus=4, created=1.0 + each, group="g", elastic=each > 0) for each in range(2)]
    api = Api(nodes, [part("lender", 0), part("owner", 8)], [*running, *members], [group("g", 1, "owner")])
    api.pass_at(5.0)
    api.pass_at(6.0)
    (first, second) = (api.pods[f"uid-m{each}"].nominated for each in range(2))
    assert {first, second} == {"n0", "n1"}
    if lost:
        (victim,) = [each.uid for each in api.pods.values() if each.node == second]
        del api.pods[victim], api.gone_at[victim]
        api.pods["uid-big"] = pod("big", queue="owner", gpus=4, at=second, started=6.0)
    api.pass_at(7.0, restart=True)
    assert (held(api.state, "m0"), held(api.state, "m1")) == (first, "" if lost else second)
    assert sorted(api.evicted) == ["a", "b"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_gang_is_held_again_with_its_spare_places(restart):
    nodes = [node(f"n{each}", gpus=4, labels={"rack": "r0"}) for each in range(3)]
    running = [pod(f"v{each}", queue="lender", gpus=4, at=f"n{each}", started=0.0) for each in range(3)]
    members = [pod(f"m{each}", queue="owner", gpus=4, created=1.0, group="g") for each in range(2)]
    gang = Group("ns", "g", 2, "owner", closeness=Closeness(("rack",), spares=1))
    api = Api(nodes, [part("lender", 0), part("owner", 12)], [*running, *members], [gang])
    api.pass_at(5.0)
    assert sorted(api.evicted) == ["v0", "v1", "v2"]
    api.pass_at(6.0, restart=restart)
    taken = {task.pod.name: task.row for task in api.state.tasks.values() if task.state is TaskState.HELD}
    assert len(set(taken.values())) == len(taken) == 3
    api.pass_at(40.0)
    assert api.placed == {name: api.state.nodes.names[row] for name, row in taken.items() if name.startswith("m")}


@pytest.mark.parametrize("restart", [False, True])
def test_who_has_a_place_is_no_nominated_pod_of_others(restart):
    api = two_nodes()
    api.pass_at(5.0)
    api.pass_at(6.0, restart=restart)
    assert not api.state.pods.nominated, "else no pod is moved and none is placed by counting"
    # The nomination changes while the place is held, and the pod starts.
    api.change("uid-mine", nominated="n1")
    api.change("uid-mine", nominated="n0")
    api.pass_at(40.0)
    assert api.placed.keys() == {"mine"}
    assert not api.state.pods.nominated


def test_a_nomination_is_withdrawn_though_it_was_not_observed_yet():
    running, mine = pod("a", queue="lender", gpus=4, at="n", started=0.0), pod("mine", queue="owner", gpus=4, created=1.0)
    state = cluster([node("n", gpus=4)], [part("lender", 0), part("owner", 4)], [running, mine], **QUIET)
    assert preempted(confirm(state, run(state, 5.0))) == [["a"]]
    state.evictions.failed("uid-a", 5.1)
    state.upsert_node(node("n", gpus=4, unschedulable=True))
    decided = [each for now in (5.2, 60.0) for each in confirm(state, run(state, now))]
    assert [each.withdrawn for each in decided if isinstance(each, Refuse)] == [("uid-mine",)]


def test_pods_of_kube_schedulers_rules_keep_their_nomination_while_they_wait():
    leaving = pod("leaving", gpus=4, at="n", started=0.0, terminating=True, preempted=True, leaves=60.0)
    waits = pod("waits", gpus=8, priority=9, profile="kubernetes", nominated="n")
    state = cluster([node("n")], pods=[leaving, waits])
    decided = run(state)
    assert [each.withdrawn for each in decided if isinstance(each, Refuse)] == [()]


class World:
    """Two or three nodes and queues; jobs run, others wait, some come later. Passes go on until nothing happens any more."""

    def __init__(self, seed, writes=True):
        rnd = random.Random(f"nominated {seed}")
        gpus = [rnd.choice([2, 3, 4]) for _ in range(rnd.randint(1, 3))]
        left, weighted = sum(gpus), rnd.random() < 0.5
        names = ["q0", "q1", "q2"][: rnd.randint(2, 3)]
        top, ranks = rnd.random() < 0.5, rnd.random() < 0.3
        queues = [part("top", rnd.randint(0, left))] if top else []
        for name in names:
            quota = rnd.randint(0, left)
            left -= quota
            parent = "top" if top and rnd.random() < 0.5 else ""
            queues.append(part(name, quota, parent, rnd.choice([1, 2, 3]) if weighted else None))
        pods, groups, free = [], [], list(gpus)
        for number in range(rnd.randint(2, 6)):
            size = rnd.choice([1, 1, 2, 3])
            rows = [row for row, each in enumerate(free) if each >= size]
            if rows:
                row = rnd.choice(rows)
                free[row] -= size
                priority = rnd.choice([0, 5]) if ranks else 0
                more = {"queue": rnd.choice(names), "priority": priority, "gpus": size}
                pods.append(pod(f"r{number}", at=f"n{row}", started=0.0, **more))
        self.later = []
        for number in range(rnd.randint(2, 6)):
            members, size, queue = rnd.choice([1, 1, 2, 3]), rnd.choice([1, 2, 3, 4]), rnd.choice(names)
            if members > 1:
                groups.append(group(f"w{number}", rnd.randint(1, members), queue))
            at = rnd.choice([0.0, 0.0, 8.0])
            more = {"queue": queue, "gpus": size, "created": at + number / 100, "group": f"w{number}" if members > 1 else ""}
            more["priority"] = rnd.choice([0, 5, 9]) if ranks else 0
            for index in range(members):
                (self.later if at else pods).append(pod(f"w{number}-{index}", **more))
        nodes = [node(f"n{row}", gpus=each) for row, each in enumerate(gpus)]
        self.api = Api(nodes, queues, pods, groups, writes)

    def play(self, restarts=()):
        for now in (5.0, 9.0, 15.0, 25.0, 36.0, 42.0, 55.0):
            if now == 9.0:
                for each in self.later:
                    self.api.pods[each.uid] = each
                    self.api.state.upsert_pod(each)
            self.api.pass_at(now, restart=now in restarts)
        return sorted(self.api.evicted), self.api.placed


def played(seeds, writes=True):
    """Worlds that evict, those of them in which a restart costs evictions, and in which a beneficiary comes to wait longer."""
    evict, dearer, later = [], [], []
    for seed in seeds:
        evicted, where = World(seed, writes).play()
        if not evicted:
            continue
        evict.append(seed)
        again, then = World(seed, writes).play(restarts=(9.0, 15.0, 25.0))
        if len(again) > len(evicted):
            dearer.append(seed)
        if where.keys() - then.keys():
            later.append(seed)
    return evict, dearer, later


@pytest.mark.parametrize("part_of", range(8))
def test_in_random_worlds_restarts_cost_no_eviction(part_of):
    evict, dearer, later = played(range(part_of * 50, part_of * 50 + 50))
    assert len(evict) >= 10
    assert (dearer, later) == ([], [])


def test_without_nominations_restarts_cost_evictions():
    _, dearer, later = played(range(100), writes=False)
    assert dearer or later


def moved_for_a_wide_one(*, writes=True, limit=None):
    """One of three pods of a controller on each node goes to the free device of the other, so that a wide one fits; it is leaving."""
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    queues = [Queue("q", resources=(QueueResource(GPU, 8000, limit=limit),))]
    running = [pod(f"p{at}-{each}", queue="q", owner="set", at=f"n{at}", started=0.0) for at in range(2) for each in range(3)]
    waits = [pod("wide", queue="q", gpus=2, created=1.0)]
    api = Api(nodes, queues, [*running, *waits], writes=writes, moves_per_minute=20.0, patience=60.0)
    ((victim,),) = preempted(api.pass_at(65.0))
    return api, api.pods[f"uid-{victim}"]


def comes(api, name, **more):
    api.pods[f"uid-{name}"] = pod(name, **{"queue": "q", "created": 9.0, **more})
    api.state.upsert_pod(api.pods[f"uid-{name}"])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("limit", [None, 8000])
def test_the_new_place_of_a_pod_that_is_moved_is_reserved_again(early, limit):
    """early: the replacement has come before the restart, and the scheduler was killed before it was bound."""
    api, victim = moved_for_a_wide_one(limit=limit)
    where = {"n0": "n1", "n1": "n0"}[victim.node]
    if early:
        comes(api, "again", owner="set", created=65.0)
    comes(api, "thief", priority=9, never_preempts=True, created=2.0)
    api.pass_at(66.0, restart=True)
    assert "thief" not in api.placed
    assert held(api.state, "wide") == victim.node
    if not early:
        comes(api, "again", owner="set", created=67.0)
        api.pass_at(67.0)
    api.pass_at(96.0)
    assert (api.placed["wide"], api.placed["again"]) == (victim.node, where)
    assert "thief" not in api.placed
    assert api.evicted == [victim.name]


def gone(api, victim):
    """The scheduler is killed, and the pod that moves has left before the next one begins."""
    recorded = kept_places(api.state)
    del api.pods[victim.uid], api.gone_at[victim.uid]
    api.restart()
    api.state.places_before.remember(recorded)


@pytest.mark.parametrize("limit", [None, 8000])
def test_the_new_place_of_a_pod_that_is_gone_is_reserved_again(limit):
    """limit: the queue may not hold more than with the replacement, so no other pod of it starts on the node that is added."""
    api, victim = moved_for_a_wide_one(limit=limit)
    comes(api, "thief", priority=9, never_preempts=True, created=2.0)
    if limit:
        api.nodes.append(node("n2", gpus=1))
    gone(api, victim)
    api.pass_at(97.0)
    assert api.placed == {"wide": victim.node}
    comes(api, "again", owner="set", created=98.0)
    api.pass_at(98.0)
    assert api.placed == {"wide": victim.node, "again": {"n0": "n1", "n1": "n0"}[victim.node]}


def test_a_place_of_a_scheduler_whose_clock_was_ahead_is_not_reserved_for_longer():
    api, victim = moved_for_a_wide_one()
    comes(api, "thief", priority=9, never_preempts=True, created=2.0)
    (place,) = kept_places(api.state).moved
    gone(api, victim)
    ahead = msgspec.structs.replace(place, since=place.since + 7200.0, until=place.until + 7200.0)
    api.state.places_before.remember(KeptPlaces((ahead,)))
    api.pass_at(97.0)
    assert api.placed == {"wide": victim.node}
    api.pass_at(97.0 + place.until - place.since)
    assert api.placed == {"wide": victim.node, "thief": {"n0": "n1", "n1": "n0"}[victim.node]}


def test_a_place_is_not_reserved_again_for_a_pod_that_is_gone_and_whose_replacement_runs():
    api, victim = moved_for_a_wide_one()
    other = {"n0": "n1", "n1": "n0"}[victim.node]
    comes(api, "again", owner="set", created=65.0, at=other, started=66.0)
    del api.pods[next(uid for uid, each in api.pods.items() if each.node == other and uid != "uid-again")]
    comes(api, "small", created=68.0)
    gone(api, victim)
    api.pass_at(97.0)
    assert api.placed["small"] == other


def test_a_place_of_a_pod_that_is_gone_is_free_after_a_while():
    api, victim = moved_for_a_wide_one()
    where = {"n0": "n1", "n1": "n0"}[victim.node]
    comes(api, "small", created=2.0)
    gone(api, victim)
    api.pass_at(97.0)
    assert "small" not in api.placed
    api.pass_at(186.0)
    assert api.placed["small"] == where


def test_a_place_is_not_reserved_again_for_a_pod_whose_replacement_runs():
    api, victim = moved_for_a_wide_one()
    comes(api, "again", owner="set", created=65.0)
    api.pass_at(66.0)
    assert "again" in api.placed
    api.state.remove_pod("uid-again")
    other = {"n0": "n1", "n1": "n0"}[victim.node]
    api.change("uid-again", node=other, started=66.0)
    del api.pods[next(uid for uid, each in api.pods.items() if each.node == other and uid != "uid-again")]
    comes(api, "small", created=68.0)
    api.pass_at(68.0, restart=True)
    assert api.placed["small"] == other


def test_a_place_that_no_replacement_comes_to_is_free_after_a_while_also_after_a_restart():
    api, victim = moved_for_a_wide_one()
    where = {"n0": "n1", "n1": "n0"}[victim.node]
    comes(api, "small", created=2.0)
    api.pass_at(66.0, restart=True)
    assert "small" not in api.placed
    api.pass_at(187.0)
    assert api.placed["small"] == where


def test_the_new_place_of_a_pod_that_leaves_an_emptied_node_is_reserved_again():
    """Nothing waits for it: its node is emptied on schedule."""
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    leaving = pod("gone", at="n0", started=0.0, owner="set", terminating=True, leaves=30.0, moves_to="n1")
    beside = [pod(f"b{each}", at="n1", started=0.0) for each in range(3)]
    wide = [pod("wide", gpus=4, created=1.0)]
    api = Api(nodes, [], [leaving, *beside, *wide])
    comes(api, "small", queue="default", created=2.0, priority=5, never_preempts=True, selector=None)
    api.pass_at(6.0, restart=True)
    assert "n1" not in api.placed.values()
