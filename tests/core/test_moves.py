"""Moves for what the counting of whole places does not see: parts of devices, unlike members, members of gangs; against a judge."""

from itertools import product

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions.nominated import kept_places
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group, Target
from fairlead.core.model.kept_places import KeptPlaces
from fairlead.core.model.queues import Queue
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption import rearrange
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, queue, run
from tests.core.moving import KINDS, LATE, World, move, verdict


def where(state):
    return {uid.removeprefix("uid-"): (task.row, task.devices) for uid, task in sorted(state.tasks.items())}


@pytest.mark.parametrize("wanted", [700, 1000])
@pytest.mark.parametrize("nodes", [1, 2])
def test_two_halves_are_put_on_one_device(nodes, wanted):
    state = cluster([node(f"n{i}", gpus=2 // nodes) for i in range(nodes)], [Queue("q")], reservations=0)
    for i in range(2):  # beside each a second one that ends
        on = f"n{i % nodes}"
        state.upsert_pod(pod(f"half-{i}", "q", milli=500, at=on, started=0.0))
        state.upsert_pod(pod(f"ends-{i}", "q", milli=500, at=on, started=0.0))
        if nodes == 1:
            assert state.tasks[f"uid-half-{i}"].devices == (i,)
    for i in range(2):
        state.remove_pod(f"uid-ends-{i}")
    state.upsert_pod(pod("wide", "q", milli=wanted))
    decided = run(state, LATE)
    (plan,) = decided
    assert isinstance(plan, Preempt)
    assert plan.moved == (plan.victims[0].pod.uid,)
    invariants.check(state)
    (again,) = move(state, decided, LATE)
    decided = run(state, LATE + 1)
    assert set(placed(decided)) == {"wide", again}
    invariants.check(state)
    assert not preempted(run(state, LATE + 2))


def halves_on_a_tight_node(**policy):
    """Half of each of two devices is free, and a pod waits for a whole one; the node's CPU does not hold a moved pod twice."""
    state = cluster([node("n", gpus=2, cpu=2500)], [Queue("q")], reservations=0, **policy)
    for name in ("a", "a-ends", "b", "b-ends"):
        state.upsert_pod(pod(name, "q", milli=500, at="n", started=0.0, cpu=100 if "ends" in name else 1000))
    for name in ("a-ends", "b-ends"):
        state.remove_pod(f"uid-{name}")
    state.upsert_pod(pod("wide", "q", cpu=500))
    return state


def test_on_one_node_the_replacement_waits_until_the_moved_pod_is_gone():
    state = halves_on_a_tight_node()
    (plan,) = run(state, LATE)
    (victim,) = plan.victims
    old = state.tasks[victim.pod.uid].pod
    state.upsert_pod(pod("again", "q", milli=500, cpu=1000, created=LATE))
    assert run(state, LATE + 1) == []
    assert state.tasks["uid-again"].state is TaskState.HELD
    invariants.check(state)
    state.remove_pod(old.uid)
    assert set(placed(run(state, LATE + 2))) == {"wide", "again"}
    invariants.check(state)


def test_a_replacement_that_never_comes_leaves_the_place_closed_while_the_victim_is_there():
    state = halves_on_a_tight_node(victim_timeout=10_000.0)
    (plan,) = run(state, LATE)
    state.upsert_pod(pod("other", "q", milli=500, cpu=1000, created=LATE, owner="somebody", never_preempts=True))
    assert "other" not in placed(run(state, LATE + 300))
    invariants.check(state)
    state.remove_pod(plan.victims[0].pod.uid)
    assert set(placed(run(state, LATE + 301))) == {"wide", "other"}
    invariants.check(state)


def test_pods_are_moved_for_a_launcher_and_its_workers():
    state = cluster([node(f"n{i}", gpus=4) for i in range(3)], [Queue("q")], groups=[group("job", 3, "q")], reservations=0)
    for i in range(3):
        for j in range(2):
            state.upsert_pod(pod(f"p{i}-{j}", "q", at=f"n{i}", started=0.0))
    # launcher without a device on any, two workers of three devices
    state.upsert_pod(pod("launcher", "q", gpus=0, group="job", cpu=500))
    for i in range(2):
        state.upsert_pod(pod(f"worker-{i}", "q", gpus=3, group="job"))
    decided = run(state, LATE)
    (plan,) = decided
    assert plan.moves
    assert {each.pod.name for each in plan.beneficiaries} == {"launcher", "worker-0", "worker-1"}
    assert len(plan.victims) == 2
    again = move(state, decided, LATE)
    decided = run(state, LATE + 1)
    assert set(placed(decided)) == {"launcher", "worker-0", "worker-1", *again}
    invariants.check(state)


def gang_in_the_way(least, service=None, members=2):
    """Two nodes of four devices, three in use on each; the gang holds one on each of them."""
    state = cluster([node(f"n{i}", gpus=4) for i in range(2)], [Queue("q")], groups=[group("g", least, "q")], reservations=0)
    if service is not None:
        state.upsert_class(service)
    for i in range(2):
        state.upsert_pod(pod(f"fixed-{i}", "q", gpus=2, at=f"n{i}", started=0.0, stays=True))
    for i in range(members):
        name = service.name if service is not None else ""
        state.upsert_pod(pod(f"g-{i}", "q", group="g", at=f"n{i}", started=0.0, created=float(i), service_class=name))
    return state


def test_a_member_beyond_the_minimum_is_moved_and_its_gang_goes_on():
    state = gang_in_the_way(least=1)
    state.upsert_pod(pod("wide", "q", gpus=2))
    decided = run(state, LATE)
    (plan,) = decided
    assert plan.moved == ("uid-g-1",)
    assert plan.groups == ()
    (again,) = move(state, decided, LATE)
    assert set(placed(run(state, LATE + 1))) == {"wide", again}
    invariants.check(state)


def test_no_more_members_move_than_the_gang_can_do_without():
    state = cluster([node(f"n{i}", gpus=2) for i in range(4)], [Queue("q")], groups=[group("g", 3, "q")], reservations=0)
    for i in range(4):
        state.upsert_pod(pod(f"g-{i}", "q", group="g", at=f"n{i}", started=0.0, created=float(i)))
    for i in range(2):
        state.upsert_pod(pod(f"wide-{i}", "q", gpus=2))
    assert [len(each) for each in preempted(run(state, LATE))] == [1]
    gang = state.gangs["ns/g"]
    assert len(gang.placed()) == 3
    invariants.check(state)


WHOLE_CLASS = ServiceClass("whole", moves_whole=True, checkpoint_interval=600.0)


def test_a_gang_with_a_recent_checkpoint_moves_as_one():
    state = gang_in_the_way(least=2, service=WHOLE_CLASS)
    state.upsert_pod(pod("wide", "q", gpus=2))
    decided = run(state, 610.0)
    (plan,) = decided
    assert sorted(plan.moved) == ["uid-g-0", "uid-g-1"]
    assert plan.suspends == ()
    assert {each.pod.name for each in plan.beneficiaries} == {"wide"}
    invariants.check(state)
    again = move(state, decided, 611.0)
    decided = run(state, 611.0)
    assert set(placed(decided)) == {"wide", *again}
    assert [len(each.bindings) for each in decided if isinstance(each, Place) and each.group] == [2], "it starts as one"
    invariants.check(state)


def test_a_gang_that_moves_starts_once_all_of_it_has_come():
    state = gang_in_the_way(least=2, service=WHOLE_CLASS)
    state.upsert_pod(pod("wide", "q", gpus=2))
    (plan,) = run(state, 610.0)
    olds = [state.tasks[uid].pod for uid in plan.moved]
    for old in olds:
        state.remove_pod(old.uid)
    state.upsert_pod(pod("new-0", "q", group="g", created=611.0, service_class="whole"))
    assert set(placed(run(state, 611.0))) == {"wide"}
    state.upsert_pod(pod("new-1", "q", group="g", created=612.0, service_class="whole"))
    assert set(placed(run(state, 612.0))) == {"new-0", "new-1"}
    invariants.check(state)


@pytest.mark.parametrize(
    ("service", "now"),
    [
        (ServiceClass("plain", checkpoint_interval=600.0), 610.0),  # only single pods
        (ServiceClass("plain", moves_whole=True), 610.0),  # nothing is saved
        (ServiceClass("plain", moves_whole=True, checkpoint_interval=6000.0), 5000.0),  # too long ago: 2 x 5,060 > 5,000 x 2
        (ServiceClass("plain", moves_whole=True, checkpoint_interval=600.0, mode="Never"), 610.0),
        (ServiceClass("plain", moves_whole=True, checkpoint_interval=600.0, min_runtime=3600.0), 610.0),
        (ServiceClass("plain", moves_whole=True, checkpoint_interval=600.0, movable=False), 610.0),
    ],
)
def test_a_gang_that_does_not_move(service, now):
    state = gang_in_the_way(least=2, service=service)
    state.upsert_pod(pod("wide", "q", gpus=2))
    assert not preempted(run(state, now))
    invariants.check(state)


def test_a_gang_of_which_members_have_succeeded_stays_where_it_is():
    """Its controller may make these again with those that move: for them no place is kept."""
    state = gang_in_the_way(least=3, service=WHOLE_CLASS)
    state.upsert_pod(pod("done", "q", group="g", finished=True, succeeded=5.0, service_class="whole"))
    state.upsert_pod(pod("wide", "q", gpus=2))
    assert not preempted(run(state, 610.0))
    invariants.check(state)


def test_a_member_without_a_controller_keeps_its_gang_where_it_is():
    state = gang_in_the_way(least=2, service=WHOLE_CLASS, members=1)
    state.upsert_pod(pod("g-1", "q", group="g", at="n1", started=0.0, service_class="whole", controlled=False))
    state.upsert_pod(pod("wide", "q", gpus=2))
    assert not preempted(run(state, 610.0))


@pytest.mark.parametrize(("allowed", "moves"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("milli", [1000, 500])
def test_disruption_budgets_keep_pods_from_being_moved(allowed, moves, milli):
    state = cluster([node(f"n{i}", gpus=1 if milli == 500 else 2) for i in range(2)], [Queue("q")], reservations=0)
    state.upsert_budget(DisruptionBudget("ns", "b", (Requirement("app", "In", ("a",)),), allowed))
    for i in range(2):
        state.upsert_pod(pod(f"p{i}", "q", at=f"n{i}", milli=milli, started=0.0, labels=(("app", "a"),)))
    state.upsert_pod(pod("wide", "q", gpus=2 if milli == 1000 else 1))
    assert sum(map(len, preempted(run(state, LATE)))) == moves
    invariants.check(state)


def test_a_moved_pod_keeps_its_part_of_its_queues_limit():
    queues = [queue("mine", limit=2), Queue("other")]
    state = cluster([node(f"n{i}", gpus=2) for i in range(2)], queues, reservations=0)
    for i in range(2):
        state.upsert_pod(pod(f"p{i}", "mine", at=f"n{i}", started=0.0))
    state.upsert_pod(pod("wide", "other", gpus=2))
    decided = run(state, LATE)
    assert len(preempted(decided)[0]) == 1
    assert state.queues.queues["mine"].used[GPU] == 2000
    old = state.tasks[decided[0].victims[0].pod.uid].pod
    state.remove_pod(old.uid)
    state.upsert_pod(pod("thief", "mine", created=LATE, owner="another"))
    assert set(placed(run(state, LATE + 1))) == {"wide"}, "the limit is reached with the pod that is to come"
    invariants.check(state)
    state.upsert_pod(pod("again", "mine", created=LATE + 1))
    assert set(placed(run(state, LATE + 2))) == {"again"}
    invariants.check(state)


class Moving:
    """A pod of queue `mine`, which holds all that it may, moves so that a wide one fits; it takes its time to go."""

    def __init__(self, limit=2, **policy):
        queues = [queue("mine", limit=limit), Queue("other")]
        nodes = [node(f"n{i}", gpus=2) for i in range(2)]
        self.state = cluster(nodes, queues, reservations=0, **{"victim_timeout": 10_000.0, **policy})
        for i in range(2):
            self.state.upsert_pod(pod(f"p{i}", "mine", at=f"n{i}", started=0.0, owner="job", root="batch/v1/Job/j"))
        self.state.upsert_pod(pod("wide", "other", gpus=2))
        (plan,) = run(self.state, LATE)
        ((self.victim, self.stays),) = [(each.pod.uid, f"p{each.pod.name == 'p0':d}") for each in plan.victims]
        self.kept = self.state.in_flight.kept[self.victim].placeholder

    @property
    def used(self):
        return self.state.queues.queues["mine"].used[GPU]

    def replace(self, name="again"):
        self.state.upsert_pod(pod(name, "mine", created=LATE + 1, owner="job", root="batch/v1/Job/j"))

    def tempt(self):
        """Another job of the queue wants what is left of its limit; there is a free node."""
        self.state.upsert_node(node("free", gpus=1))
        self.state.upsert_pod(pod("thief", "mine", created=LATE + 2, owner="another", never_preempts=True))


def given_up_for_a_suspension(moving):
    target = Target("Suspended", 1, ("job",), (), 0.0, 0.0)
    moving.state.upsert_group(Group("ns", "job-batch.j", 1, target=target))


def node_of_the_new_place_goes(moving):
    moving.state.remove_node(moving.state.nodes.names[moving.kept.row])
    moving.state.remove_pod(f"uid-{moving.stays}")
    moving.state.upsert_pod(pod("beside", "mine", at="elsewhere"))


def no_replacement_came(moving):
    assert placed(run(moving.state, LATE + 400)) == {}


def replacement_came_and_went(moving):
    moving.replace()
    assert run(moving.state, LATE + 1) == []
    assert moving.state.tasks["uid-again"].state is TaskState.HELD
    moving.state.remove_pod("uid-again")


def replacement_came_and_went_before_a_pass(moving):
    moving.replace()
    moving.state.remove_pod("uid-again")


def counted_anew(moving):
    moving.replace()
    with moving.state.isolation.guard("moves"):
        raise ValueError


@pytest.mark.parametrize(
    "becomes",
    [
        given_up_for_a_suspension,
        node_of_the_new_place_goes,
        no_replacement_came,
        replacement_came_and_went,
        replacement_came_and_went_before_a_pass,
        counted_anew,
    ],
)
def test_a_pod_that_was_to_move_is_charged_for_until_it_is_gone(becomes):
    moving = Moving()
    becomes(moving)
    invariants.check(moving.state)
    assert moving.used == 2000
    moving.tempt()
    assert "thief" not in placed(run(moving.state, LATE + 401)), "three would run"
    invariants.check(moving.state)
    moving.state.remove_pod(moving.victim)
    assert ("thief" in placed(run(moving.state, LATE + 402))) is (becomes is not counted_anew)
    assert moving.used == 2000
    invariants.check(moving.state)


@pytest.mark.parametrize("came", [False, True])
@pytest.mark.parametrize("ends", ["gone", "given up", "node comes again", "node and then gone"])
def test_a_pod_that_moves_is_charged_once_also_when_its_node_fails(came, ends):
    """It is known for as long as its claim is allocated, or its object is there. came: its replacement, which waits for the limit."""
    moving = Moving()
    if came:
        moving.replace()
        run(moving.state, LATE + 1)
        assert moving.state.tasks["uid-again"].state is TaskState.HELD
    failed = moving.state.tasks[moving.victim].pod.node
    moving.state.remove_node(failed)
    invariants.check(moving.state)
    assert moving.used == 2000
    moving.tempt()
    assert "thief" not in placed(run(moving.state, LATE + 2))
    if ends == "given up":
        run(moving.state, LATE + 400) if not came else moving.state.remove_pod("uid-again")
    if "node" in ends:
        moving.state.upsert_node(node(failed, gpus=2))
        invariants.check(moving.state)
    if "gone" in ends:
        moving.state.remove_pod(moving.victim)
    invariants.check(moving.state)
    assert moving.used == {"node comes again": 3000}.get(ends, 2000)
    run(moving.state, LATE + 401)
    invariants.check(moving.state)
    with moving.state.isolation.guard("moves"):
        raise ValueError
    invariants.check(moving.state)


@pytest.mark.parametrize("limit", [2, 3])
def test_a_replacement_runs_beside_the_pod_that_moves_only_within_its_queues_limit(limit):
    moving = Moving(limit)
    moving.replace()
    first = placed(run(moving.state, LATE + 1))
    assert set(first) == ({"again"} if limit == 3 else set())
    invariants.check(moving.state)
    moving.tempt()
    assert placed(run(moving.state, LATE + 2)) == {}
    invariants.check(moving.state)
    moving.state.remove_pod(moving.victim)
    later = placed(run(moving.state, LATE + 3))
    assert set(later) == ({"wide", "thief"} if limit == 3 else {"wide", "again"})
    invariants.check(moving.state)


def test_a_replacement_that_waits_for_the_limit_waits_in_line_once_the_pod_stays():
    moving = Moving()
    moving.replace()
    run(moving.state, LATE + 1)
    moving.state.evictions.failed(moving.victim, LATE + 2)
    assert moving.state.tasks[moving.victim].state is TaskState.BOUND
    assert moving.state.tasks["uid-again"].state is TaskState.WAITING
    assert moving.used == 2000
    invariants.check(moving.state)
    moving.state.remove_pod(moving.victim)
    assert set(placed(run(moving.state, LATE + 500))) == {"again", "wide"}
    assert moving.used == 2000
    invariants.check(moving.state)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fewest_that_trying_all_finds_are_moved_and_no_pod_waits_in_vain(kind):
    servable = missed = 0
    for seed in range(150):
        world = World(kind, seed)
        least, moved = verdict(world, 3)
        if least:
            servable += 1
            missed += moved is None
            if moved is not None and kind != "gangs":  # of gangs that move as one the judge counts those
                assert moved <= max(least + 1, 1.3 * least), f"seed {seed}: {moved} moved, {least} are enough"
        elif least is None and moved is not None:
            assert moved > 3 or kind == "gangs"
    assert servable >= 10
    assert not missed


@pytest.mark.parametrize("small", [rearrange.SMALL, 0])
def test_what_is_foreseen_of_the_last_move_is_what_trying_it_finds(small, monkeypatch):
    monkeypatch.setattr(rearrange, "SMALL", small)
    foreseen, after = rearrange._Last.ends_there, []

    def decisions(kind, seed, reservations):
        state = World(kind, seed, reservations, fullest=0.98).state
        if reservations:  # what is reserved for it is closed to others
            state.upsert_pod(pod("head", "q", gpus=4, created=0.0, priority=seed % 2))
        decided = run(state, LATE)
        after.append(state.moves.budget.steps(1 << 60))
        return repr(decided)

    ended = 0

    def counted(self, row, blocks):
        nonlocal ended
        verdict = foreseen(self, row, blocks)
        ended += verdict
        return verdict

    for kind, seed, reservations in product(("whole", "unlike", "elastic"), range(40), (0, 2)):
        monkeypatch.setattr(rearrange._Last, "ends_there", counted)
        found = decisions(kind, seed, reservations)
        monkeypatch.setattr(rearrange._Last, "ends_there", lambda *_: False)
        assert found == decisions(kind, seed, reservations), f"{kind} {seed}"
        assert after[-1] == after[-2], f"{kind} {seed}: searches took other numbers of steps"
    assert ended > 20


def test_a_gang_moves_once_its_next_checkpoint_is_over():
    state = gang_in_the_way(least=2, service=WHOLE_CLASS)
    state.upsert_pod(pod("wide", "q", gpus=2, created=300.0))
    now, plans = 300.0, []
    while now < 2000.0 and not plans:
        plans = preempted(run(state, now))
        assert state.next_due is not None
        now = max(state.next_due, now + 1.0)
    assert plans == [["g-0", "g-1"]]
    assert 600.0 <= now <= 800.0


@pytest.mark.parametrize("first", ["n0", "n1"])
def test_rank_0_is_not_moved_though_its_gang_has_members_beyond_the_minimum(first):
    state = cluster([node(f"n{i}", gpus=2) for i in range(2)], [Queue("q")], groups=[group("g", 1, "q")], reservations=0)
    state.upsert_pod(pod("g-2", "q", group="g", at=first, started=0.0))
    state.upsert_pod(pod("g-10", "q", group="g", at="n1" if first == "n0" else "n0", started=0.0))
    state.upsert_pod(pod("wide", "q", gpus=2))
    (plan,) = run(state, LATE)
    assert plan.moved == ("uid-g-10",)
    invariants.check(state)


def test_a_master_is_not_moved_though_it_came_last():
    state = cluster([node(f"n{i}", gpus=2) for i in range(2)], [Queue("q")], groups=[group("g", 1, "q")], reservations=0)
    role = ("training.kubeflow.org/job-role", "master")
    state.upsert_pod(pod("g-0", "q", group="g", at="n0", started=0.0, created=5.0, labels=(role,)))
    state.upsert_pod(pod("g-1", "q", group="g", at="n1", started=0.0, created=1.0))
    state.upsert_pod(pod("wide", "q", gpus=2))
    (plan,) = run(state, LATE)
    assert plan.moved == ("uid-g-1",)
    invariants.check(state)


def goes_on(kind, seed, *, gone=False):
    """Pods are moved; the scheduler is started anew before they are gone, and something small waits for any free place.

    Returns how many were moved, and of how many the new place is reserved again. Not so where it is free only once others have
    left: then the gang that moves may find that place taken.
    """
    world = World(kind, seed)
    decided = run(world.state, LATE)
    plans = [each for each in decided if isinstance(each, Preempt)]
    if not plans:
        return 0, 0
    places = {uid: where for each in plans for uid, where in zip(each.moved, each.moved_to, strict=True)}
    nominated = {each.pod.uid: each.node for plan in plans for each in plan.beneficiaries}
    known = {}
    for uid, task in world.state.tasks.items():
        leaves = {"terminating": True, "leaves": LATE + 30.0, "moves_to": places[uid]} if uid in places else {}
        known[uid] = msgspec.structs.replace(task.pod, nominated=nominated.get(uid, ""), **leaves)
    known["uid-small"] = pod("small", "q", milli=500 if kind == "fractions" else 1000, created=LATE + 1.0)
    nodes = [world.state.nodes.objects[row] for row in world.state.nodes.rows.values()]
    groups = [gang.group for gang in world.state.gangs.values() if gang.group is not None]
    state = cluster(
        nodes, [Queue("q")], [each for uid, each in known.items() if not gone or uid not in places], groups, reservations=0
    )
    for each in world.state.services.classes.values():
        state.upsert_class(each)
    if gone:
        recorded = msgspec.json.encode(kept_places(world.state))
        assert {each.uid for each in kept_places(world.state).moved} == set(places)
        state.places_before.remember(msgspec.json.decode(recorded, type=KeptPlaces))
    again = [msgspec.structs.replace(known[uid], uid=f"{uid}+", name=f"{uid}+", **ANEW) for uid in sorted(places)]
    for now in range(1, 5):
        run_and_confirm(state, LATE + now)
        if now == 1:
            kept = len(state.in_flight.kept)
        if now == 2 and not gone:
            for uid in sorted(places):
                state.remove_pod(uid)
        for each in again if now == 3 else ():
            state.upsert_pod(each)
    invariants.check(state)
    lacking = [each.name for each in again if state.tasks[each.uid].state is not TaskState.BOUND]
    lacking += [uid for uid in nominated if state.tasks[uid].state is not TaskState.BOUND]
    assert not lacking or kept < len(places), f"{lacking} of {sorted(places.items())} {nominated}"
    return len(places), kept


ANEW = {"node": "", "created": LATE + 3.0, "started": None, "terminating": False, "leaves": 0.0, "moves_to": ""}


def run_and_confirm(state, now):
    decided = confirm(state, run(state, now))
    assert not [each for each in decided if isinstance(each, Preempt)]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_moves_go_on_after_a_restart(kind, gone):
    """gone: the pods that move have left by then, and those that replace them have not come."""
    moved, kept = map(sum, zip(*(goes_on(kind, seed, gone=gone) for seed in range(60)), strict=True))
    assert moved > 5
    assert kept >= 0.7 * moved, (kept, moved)
