"""Two jobs on one GPU: which classes, on which nodes, beside whom by what was measured, and how a pair is parted.

The judge of the random worlds reads objects and bindings only: which pods name which partners, and what each pod asked for.
"""

import random
from itertools import combinations, permutations

import msgspec
import pytest

from fairlead.api.names import ALONE, GPU_SHARING_LABEL, KUBERNETES_PROFILE, OWN_AGENT
from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pairs.speeds import FLOOR, Speeds
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, queue, refused, run
from tests.core.test_suspended import Story

PAIRS = ServiceClass("small", sharing="Pairs")
LABELS = {GPU_SHARING_LABEL: OWN_AGENT}


def agents(count=1, gpus=1, **more):
    return [node(f"n{i}", gpus=gpus, labels=LABELS, **more) for i in range(count)]


def world(nodes, classes=(PAIRS,), **more):
    state = cluster(nodes, **more)
    for each in classes:
        state.upsert_class(each)
    return state


def small(name, **more):
    return pod(name, service_class="small", **more)


def start(state, now=1.0):
    """One pass; what was bound is observed as the API server has it then. Returns the partner of each pod by name."""
    found = {}
    for each in run(state, now):
        for binding in each.bindings if isinstance(each, Place) else ():
            old = state.tasks[binding.pod.uid].pod
            state.pods.bound(old.uid)
            seen = msgspec.structs.replace(asked(old), node=binding.node, partner=binding.partner, started=now)
            state.upsert_pod(seen)
            found[binding.pod.name] = binding.partner
    return found


def asked(old):
    """A bound pod as it is translated: half of a GPU, and nothing that the state wrote."""
    return msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, paired=()))


def measure(state, name, speed, at):
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, speed=speed, speed_at=at))


def end(state, name, *, succeeded=True):
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, finished=True, succeeded=500.0 if succeeded else 0.0))


def teach(state, first, second, speeds, alone=10.0):
    """What pods of two names do on one GPU, as parts of their speed alone."""
    for name in (first, second):
        state.nodes.partners.speeds.alone(names(name), alone)
    state.nodes.partners.speeds.together(names(first), names(second), tuple(alone * speed for speed in speeds))


def names(name):
    return (f"name/ns//{name}",)


# -- who shares --------------------------------------------------------------------------------


def test_two_jobs_share_a_gpu_and_a_third_waits():
    state = world(agents())
    for name in ("a", "b", "c"):
        state.upsert_pod(small(name))
    assert start(state) == {"a": ALONE, "b": "uid-a"}
    assert state.tasks["uid-a"].devices == state.tasks["uid-b"].devices == (0,)
    assert state.tasks["uid-c"].row < 0
    invariants.check(state)


def test_a_free_gpu_is_preferred_to_a_partner():
    state = world(agents(2, gpus=2))
    for number in range(6):
        state.upsert_pod(small(f"j{number}", created=float(number)))
    found = start(state)
    assert [found[f"j{number}"] == ALONE for number in range(6)] == [True] * 4 + [False] * 2


def test_each_is_charged_what_it_is_given():
    state = world(agents(), queues=[queue("q", quota=1, limit=1)])
    for name in ("a", "b"):
        state.upsert_pod(small(name, queue="q"))
    assert len(start(state)) == 2
    parts = state.queues.tree.parts
    assert (state.queues.queues["q"].used[GPU], parts.on(0)) == (1000, (1000, 1000))
    end(state, "a")
    assert (state.queues.queues["q"].used[GPU], parts.on(0)) == (500, (1000, 500))


@pytest.mark.parametrize(
    "other",
    [
        pod("x"),
        pod("x", milli=500),
        pod("x", service_class="other"),
        pod("x", gpus=2, service_class="small"),
        pod("x", service_class="small", milli=500),
        pod("x", service_class="small", profile=KUBERNETES_PROFILE),
        pod("x", service_class="small", group="g"),
    ],
    ids=["no class", "fraction", "class without", "several GPUs", "own fraction", "other profile", "member of a gang"],
)
def test_nothing_else_comes_beside_it(other):
    state = world(agents(), [PAIRS, ServiceClass("other")], groups=[group("g", 2)])
    state.upsert_pod(small("a"))
    start(state)
    state.upsert_pod(other)
    assert start(state, 2.0) == {}
    invariants.check(state)


def test_a_gang_of_profile_kubernetes_gets_no_more_gpus_than_pairs_leave():
    """Halves of GPUs take nothing of the amount that this profile counts: of four GPUs one is in use."""
    state = world(agents(gpus=4), groups=[group("g", 2)])
    state.upsert_pod(small("a"))
    start(state)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", gpus=2, group="g", profile=KUBERNETES_PROFILE))
    assert start(state, 2.0) == {}
    end(state, "a")
    assert set(start(state, 3.0)) == {"g-0", "g-1"}
    invariants.check(state)


def test_it_comes_beside_nothing_else():
    state = world(agents(), pods=[pod("x", milli=500, at="n0")])
    state.upsert_pod(small("a"))
    assert start(state) == {}
    assert "no GPU to share: none free" in refused(run(world_of(state), 2.0))["a"].message


def world_of(state):
    """The same objects anew, with all reasons unreported."""
    fresh = world([each for each in state.nodes.objects if each is not None])
    for task in state.tasks.values():
        fresh.upsert_pod(task.pod)
    return fresh


def test_a_fraction_keeps_off_nodes_with_pairs():
    state = world(agents(gpus=2))
    state.upsert_pod(small("a"))
    start(state)
    state.upsert_pod(pod("x", milli=500))
    reason = refused(run(state, 2.0))["x"]
    assert "1 node(s) had pods that share GPUs in pairs, and give out no fractions" in reason.message
    end(state, "a")
    assert set(placed(run(state, 3.0))) == {"x"}


@pytest.mark.parametrize("labels", [{}, {GPU_SHARING_LABEL: "another"}])
def test_halves_of_whole_gpus_are_given_by_our_own_agent_only(labels):
    """A kubelet would give a device plugin's GPU to one of the two only, also where another agent gives out fractions."""
    state = world([node("n", labels=labels)])
    state.upsert_pod(pod("whole"))
    assert set(placed(run(state, 0.5))) == {"whole"}
    state.upsert_pod(small("a"))
    reason = refused(run(state, 1.0))["a"]
    assert reason.code is ReasonCode.DEVICES
    assert "1 node(s) are not of `fairlead agent`" in reason.message


def test_pods_that_wait_follow_their_class():
    state = world(agents(), classes=())
    for name in ("a", "b"):
        state.upsert_pod(small(name))
    state.upsert_class(ServiceClass("small"))
    assert state.tasks["uid-a"].shape.gpu_milli == 1000
    state.upsert_class(PAIRS)
    assert state.tasks["uid-a"].shape.gpu_milli == 500
    state.upsert_class(ServiceClass("small"))
    again = state.tasks["uid-b"].pod
    assert again == small("b")
    state.upsert_class(PAIRS)
    assert len(start(state)) == 2
    state.upsert_class(ServiceClass("small"))
    assert state.tasks["uid-a"].shape.gpu_milli == 500  # what runs stays as it was placed
    invariants.check(state)


def test_a_gang_of_one_pod_shares():
    state = world(agents(), groups=[group("g", 1), group("h", 1)])
    for name in ("g", "h"):
        state.upsert_pod(small(f"{name}-0", group=name))
    assert start(state) == {"g-0": ALONE, "h-0": "uid-g-0"}


@pytest.mark.parametrize("count", [1, 2])
def test_jobs_that_are_alone_move_together_for_a_job_that_needs_a_whole_gpu(count):
    nodes = agents(count, gpus=2 // count)
    state = world(nodes, [PAIRS], patience=0.0, moves_per_minute=60, move_patience=0.0, reservations=0)
    for name in ("a", "b"):
        state.upsert_pod(small(name, controlled=True, started=0.0))
    assert set(start(state, 10.0).values()) == {ALONE}
    state.upsert_pod(pod("whole", created=20.0))
    preempts = [each for each in run(state, 1000.0) if isinstance(each, Preempt)]
    (moved,) = [each.victims[0].pod for each in preempts if each.moved]
    old = state.tasks[moved.uid].pod
    state.remove_pod(moved.uid)
    state.upsert_pod(small(f"{moved.name}-2", controlled=True, owner=old.owner))
    assert start(state, 1010.0) == {"whole": "", f"{moved.name}-2": "uid-b" if moved.name == "a" else "uid-a"}
    invariants.check(state)


def test_suspended_jobs_come_back_to_halves():
    """Places for what is to resume are halves, too, and none joins them before there is a pod."""
    story = Story(*agents(gpus=2))
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", sharing="Pairs"))
    jobs = ("one", "two", "three")
    for number, job in enumerate(jobs):
        story.submit(job, 1, created=float(number))
    story.step()
    assert len(story.running()) == 3
    story.state.upsert_pod(pod("high", priority=5, gpus=2, created=9.0))
    story.step()
    assert len(story.asked) == 3
    for job in jobs:
        story.delete(job)
    story.step()
    assert story.running() == ["high"]
    story.state.remove_pod("uid-high")
    decided = story.step()
    partners = [binding.partner for each in decided if isinstance(each, Place) for binding in each.bindings]
    assert not partners
    for number, job in enumerate(jobs):
        story.submit(job, 1, created=float(number))
        story.step()
    assert story.running() == ["one-0", "three-0", "two-0"]
    there = [task for task in story.state.tasks.values() if task.row >= 0]
    assert sorted(task.devices for task in there) in ([(0,), (0,), (1,)], [(0,), (1,), (1,)])
    assert all(task.shape.spec.paired for task in there)


# -- by what was measured ----------------------------------------------------------------------


def test_the_partner_is_chosen_by_what_was_measured():
    state = world(agents(3))
    for name in ("good", "bad", "poor"):
        state.upsert_pod(small(name))
    start(state)
    teach(state, "late", "good", (0.9, 0.95))
    teach(state, "late", "poor", (0.75, 0.75))
    teach(state, "late", "bad", (0.3, 0.9))
    state.upsert_pod(small("late"))
    assert start(state, 2.0) == {"late": "uid-good"}
    state.upsert_pod(small("late-2"))
    assert start(state, 3.0) == {"late-2": "uid-poor"}
    state.upsert_pod(small("late-3"))
    assert start(state, 4.0) == {}
    assert state.tasks["uid-late-3"].row < 0


def test_speeds_are_learned_from_what_pods_report():
    state = world(agents())
    state.upsert_pod(small("a"))
    start(state, 10.0)
    measure(state, "a", 8.0, 60.0)  # too early: its rate has the time before its start
    assert not state.nodes.partners.speeds.base(*names("a"))
    measure(state, "a", 8.0, 110.0)
    end(state, "a")
    state.upsert_pod(small("b"))
    start(state, 500.0)
    measure(state, "b", 5.0, 600.0)
    state.upsert_pod(small("a-2"))
    assert start(state, 700.0) == {"a-2": "uid-b"}
    measure(state, "a-2", 6.0, 800.0)
    measure(state, "b", 4.0, 801.0)
    speeds = state.nodes.partners.speeds
    assert speeds.loss(names("a"), names("b")) == 450  # 0.75 and 0.8
    assert not [each for each in run(state, 810.0) if isinstance(each, Evict)]


def test_one_pod_of_a_new_kind_is_alone_until_it_was_measured():
    state = world(agents(3))
    for name in ("old", "new", "new-2"):
        state.upsert_pod(small(name))
    start(state, 10.0)
    measure(state, "old", 10.0, 110.0)
    end(state, "new")
    state.upsert_pod(small("new-3"))
    assert start(state, 200.0) == {"new-3": ALONE}
    for number in range(3):
        state.upsert_pod(small(f"more-{number}"))
    assert set(start(state, 210.0).values()) == {"uid-old", "uid-new-2"}
    measure(state, "new-3", 10.0, 300.0)
    assert set(start(state, 301.0).values()) == {"uid-new-3"}


def test_a_pod_that_reports_nothing_is_not_alone_for_long():
    state = world(agents(2))
    for name in ("old", "new"):
        state.upsert_pod(small(name))
    start(state, 10.0)
    measure(state, "old", 10.0, 110.0)
    end(state, "new")
    state.upsert_pod(small("silent"))
    assert start(state, 200.0) == {"silent": ALONE}
    for number in range(2):
        state.upsert_pod(small(f"more-{number}"))
    assert set(start(state, 210.0).values()) == {"uid-old"}
    assert start(state, 400.0) == {}
    assert set(start(state, 520.0).values()) == {"uid-silent"}
    invariants.check(state)


def test_a_pair_below_the_floor_is_parted_and_not_tried_again():
    state = world(agents())
    for name in ("a", "b"):
        state.nodes.partners.speeds.alone(names(name), 10.0)
        state.upsert_pod(small(name))
    start(state, 10.0)
    measure(state, "a", 9.0, 200.0)
    measure(state, "b", 10.0 * FLOOR - 0.5, 201.0)
    evicted = [each for each in run(state, 210.0) if isinstance(each, Evict)]
    assert [(each.reason.code, [victim.pod.name for victim in each.victims]) for each in evicted] == [
        (ReasonCode.PAIR_PARTED, ["b"])
    ]
    assert not [each for each in run(state, 211.0) if isinstance(each, Evict)]
    state.remove_pod("uid-b")
    state.upsert_pod(small("b-2"))
    assert start(state, 220.0) == {}
    end(state, "a")
    assert start(state, 230.0) == {"b-2": ALONE}


def test_a_pod_without_controller_is_not_parted():
    state = world(agents())
    for name in ("a", "b"):
        state.nodes.partners.speeds.alone(names(name), 10.0)
        state.upsert_pod(small(name, controlled=False))
    start(state, 10.0)
    measure(state, "a", 1.0, 200.0)
    measure(state, "b", 1.0, 201.0)
    assert not [each for each in run(state, 210.0) if isinstance(each, Evict)]


def test_a_pair_of_which_one_fails_at_the_start_is_not_tried_again():
    state = world(agents(2))
    for name in ("a", "b"):
        state.upsert_pod(small(name))
    start(state, 10.0)
    state.upsert_pod(small("c"))
    partner = start(state, 11.0)["c"]
    run(state, 30.0)
    end(state, "c", succeeded=False)
    state.upsert_pod(small("c-2"))
    assert set(start(state, 40.0).values()) == {"uid-a", "uid-b"} - {partner}


def test_a_pair_that_fails_is_not_tried_again_though_the_clock_is_ahead():
    """Starts are those of the API server; this scheduler's clock is two hours ahead of them."""
    state = world(agents())
    state.upsert_pod(small("a"))
    start(state, 10.0)
    state.upsert_pod(small("b"))
    run(state, 7200.0)
    state.pods.bound("uid-b")
    seen = msgspec.structs.replace(asked(state.tasks["uid-b"].pod), node="n0", partner="uid-a", started=20.0)
    state.upsert_pod(seen)
    run(state, 7230.0)
    end(state, "b", succeeded=False)
    state.upsert_pod(small("b-2"))
    assert start(state, 7240.0) == {}
    invariants.check(state)


# -- restarts ----------------------------------------------------------------------------------


def test_a_scheduler_that_begins_anew_finds_the_pairs():
    state = world(agents(gpus=3))
    for name in ("a", "b", "c", "d", "e"):
        state.upsert_pod(small(name))
    start(state)
    end(state, "a")
    state.upsert_pod(small("f"))
    start(state, 2.0)
    pairs = pairs_in(state)
    pods = [task.pod for task in state.tasks.values()]
    for seed in range(20):
        random.Random(seed).shuffle(pods)
        fresh = world(agents(gpus=3))
        for each in pods:
            fresh.upsert_pod(asked(each))
        assert pairs_in(fresh) == pairs
        invariants.check(fresh)


BOUND_ANEW = {"early": ("uid-late", 10.0), "late": ("uid-third", 19.0), "third": (ALONE, 10.0), "joins": ("uid-early", 30.0)}
"""The first binding of `late` failed after `early` was bound beside it; then it joined `third`, and `joins` came to `early`."""


@pytest.mark.parametrize(
    ("bound", "pairs"),
    [
        (BOUND_ANEW, [["early", "joins"], ["late", "third"]]),
        ({name: BOUND_ANEW[name] for name in ("early", "late", "third")}, [["early"], ["late", "third"]]),
        ({name: BOUND_ANEW[name] for name in ("early", "late", "joins")}, [["early", "joins"], ["late"]]),
        ({"early": ("uid-late", 10.0), "late": ("uid-gone", 12.0)}, [["early", "late"]]),
        ({"early": ("uid-late", None), "late": (ALONE, None)}, [["early", "late"]]),
    ],
)
def test_pods_whose_partner_was_bound_anew_are_found_where_they_are(bound, pairs):
    pods = [
        msgspec.structs.replace(small(name, at="n0", milli=500), partner=partner, started=started)
        for name, (partner, started) in bound.items()
    ]
    for order in permutations(pods):
        fresh = world(agents(gpus=3))
        for each in order:
            fresh.upsert_pod(each)
        assert pairs_in(fresh) == pairs
        invariants.check(fresh)


def test_nothing_joins_pods_on_a_node_that_reports_fewer_gpus_than_they_use():
    """Two pairs and two pods alone use four GPUs. On three, two of these four are counted together, and one alone may seem to be."""
    bound = {"a": "uid-gone", "b": "uid-a", "c": "uid-gone", "d": "uid-c", "e": "uid-gone", "f": "uid-gone"}
    pods = [
        msgspec.structs.replace(small(name, at="n0", milli=500), partner=partner, started=float(ord(name)))
        for name, partner in bound.items()
    ]
    for order in list(permutations(pods))[::7]:
        fresh = world(agents(gpus=3))
        for each in (*order, small("new")):
            fresh.upsert_pod(each)
        assert start(fresh) == {}
        invariants.check(fresh)
        fresh.upsert_node(*agents(gpus=4))
        assert start(fresh, 100.0)["new"] in ("uid-e", "uid-f")


def test_pods_that_were_counted_while_their_node_had_too_few_gpus_are_no_partners():
    """A scheduler that begins while a node reports half of its GPUs knows who shares one all the same, also once it has all."""
    state = world(agents(gpus=4))
    for name in ("a", "b", "c", "d", "e"):
        state.upsert_pod(small(name))
    start(state)
    pairs = pairs_in(state)
    partner = next(task.pod.partner for task in state.tasks.values() if task.pod.partner != ALONE)
    pods = [task.pod for task in state.tasks.values()]
    for seed in range(20):
        random.Random(seed).shuffle(pods)
        fresh = world(agents(gpus=2))
        for each in pods:
            fresh.upsert_pod(asked(each))
        mates = {uid: fresh.nodes.partners.mate(task, 0) for uid, task in fresh.tasks.items()}
        assert {uid: mate.pod.uid for uid, mate in mates.items() if mate is not None} == {partner: "uid-e", "uid-e": partner}
        for each in agents(gpus=4):
            fresh.upsert_node(each)
        assert pairs_in(fresh) == pairs
        invariants.check(fresh)


def test_a_gpu_that_is_free_by_the_count_is_not_when_pods_are_crowded():
    """Of four pods alone on a node that reports two GPUs, two end: the others have one each."""
    state = world(agents(gpus=4))
    for name in ("a", "b", "c", "d"):
        state.upsert_pod(small(name))
    start(state)
    pods = [asked(task.pod) for task in state.tasks.values()]
    for gone in combinations(("a", "b", "c", "d"), 2):
        fresh = world(agents(gpus=2))
        for each in pods:
            fresh.upsert_pod(each)
        for name in gone:
            end(fresh, name)
        fresh.upsert_pod(small("late"))
        assert start(fresh, 2.0)["late"] != ALONE
        invariants.check(fresh)


def test_parts_of_gpus_counted_into_debt_have_their_own_gpus_again():
    """Fractions that were seen while a device plugin reported fewer GPUs: those that it reports again are not all free."""
    pods = [pod(f"p{number}", milli=750, at="n0") for number in range(3)]
    state = world(agents(gpus=1), classes=(), pods=pods)
    for each in agents(gpus=4):
        state.upsert_node(each)
    state.upsert_pod(pod("two", gpus=2))
    assert start(state) == {}
    invariants.check(state)


def pairs_in(state):
    by_device = {}
    for task in state.tasks.values():
        if task.row >= 0:
            by_device.setdefault((task.row, task.devices), set()).add(task.pod.name)
    return sorted(sorted(each) for each in by_device.values())


# -- random worlds -----------------------------------------------------------------------------


def random_world(seed):
    draw = random.Random(f"gpu pairs {seed}")
    nodes = [node(f"n{i}", gpus=draw.randint(1, 3), labels=LABELS if draw.random() < 0.8 else {}) for i in range(4)]
    queues = [queue("q", quota=draw.randint(1, 6)), queue("r", limit=draw.randint(2, 8))]
    classes = [PAIRS, ServiceClass("own", isolation="GPU"), ServiceClass("alone", isolation="Node")]
    return draw, world(nodes, classes, queues=queues, patience=0.0, moves_per_minute=draw.choice((0, 60)))


def random_pod(draw, number):
    kind = draw.choice(("small", "small", "small", "whole", "own", "alone", "part", "many"))
    more = {"queue": draw.choice(("q", "r")), "priority": draw.choice((0, 0, 5)), "created": float(number), "controlled": True}
    if kind == "part":
        return pod(f"part-{number}", milli=draw.choice((250, 500)), **more)
    if kind in ("whole", "many"):
        return pod(f"{kind}-{number}", gpus=1 if kind == "whole" else 2, **more)
    name = f"{kind}-{draw.choice('abcd')}-{number}"
    return pod(name, service_class=kind, **more)


def judge(state, wanted):
    """Whose pods share GPUs, by what was bound. wanted: what each pod asked for, before the state wrote its spec."""
    on = {}
    for task in state.tasks.values():
        if task.row >= 0:
            for device in task.devices:
                on.setdefault((task.row, device), []).append(task)
    for there in on.values():
        assert sum(task.shape.gpu_milli for task in there) <= 1000
        real = [wanted[task.pod.uid] for task in there if task.pod.uid in wanted]
        small = [each for each in real if each.service_class == "small"]
        if small:
            assert len(real) <= 2
            assert len(small) == len(real)
        assert not (len(real) > 1 and any(each.service_class in ("own", "alone") for each in real))


@pytest.mark.parametrize("seed", range(40))
def test_random_worlds_never_share_what_must_not_be_shared(seed):
    lived(seed)


def test_random_worlds_have_pairs_and_part_some():
    decided = [each for seed in range(12) for each in lived(seed)]
    bindings = [binding for each in decided if isinstance(each, Place) for binding in each.bindings]
    assert sum(binding.partner not in ("", ALONE) for binding in bindings) > 20
    assert any(isinstance(each, Evict) and each.reason.code is ReasonCode.PAIR_PARTED for each in decided)
    assert decided == [each for seed in range(12) for each in lived(seed)]


def lived(seed):
    """What was decided in a random world, each step of it judged."""
    draw, state = random_world(seed)
    decided, wanted = [], {}
    for step in range(60):
        now = 100.0 * step
        move = draw.random()
        running = sorted(task.pod.name for task in state.tasks.values() if task.pod.node and not task.pod.terminating)
        if move < 0.55 or not running:
            made = random_pod(draw, step)
            wanted[made.uid] = made
            state.upsert_pod(made)
        elif move < 0.75:
            end(state, draw.choice(running), succeeded=draw.random() < 0.8)
        else:
            for name in draw.sample(running, min(4, len(running))):
                measure(state, name, draw.choice((0.0, 3.0, 8.0, 10.0)), now)
        for each in run(state, now):
            decided.append(each)
            if isinstance(each, Place):
                for binding in each.bindings:
                    old = state.tasks[binding.pod.uid].pod
                    mates = [wanted[uid] for uid in (binding.partner,) if uid not in ("", ALONE)]
                    assert all(mate.service_class == "small" for mate in mates)
                    assert bool(binding.partner) == (wanted[old.uid].service_class == "small")
                    state.pods.bound(old.uid)
                    seen = msgspec.structs.replace(asked(old), node=binding.node, partner=binding.partner, started=now)
                    state.upsert_pod(seen)
            elif isinstance(each, Preempt | Evict):
                for victim in each.victims:
                    if victim.pod.uid in state.tasks:
                        state.remove_pod(victim.pod.uid)
        judge(state, wanted)
        invariants.check(state)
        for task in state.tasks.values():
            if task.row < 0 and task.unit is not None:
                rows = range(state.nodes.count)
                assert task.ranking.alone().tolist() == [
                    task.ranking.fits_alone(row) and state.nodes.open.item(row) for row in rows
                ]
    return decided


def test_pods_without_such_classes_are_decided_as_before():
    """The same stream with and without an unused class."""
    decisions = []
    for classes in ((), (PAIRS,)):
        draw = random.Random("twins")
        state = world([node(f"n{i}", gpus=4, labels=LABELS) for i in range(3)], classes)
        decisions.append([])
        for step in range(60):
            state.upsert_pod(pod(f"p{step}", gpus=1, milli=draw.choice((250, 500, 1000)), created=float(step)))
            running = sorted(task.pod.name for task in state.tasks.values() if task.pod.node)
            if running and draw.random() < 0.4:
                end(state, draw.choice(running))
            decisions[-1] += confirm(state, run(state, float(step)))
    assert decisions[0] == decisions[1]


# -- what is learned ---------------------------------------------------------------------------


def known(*kinds, alone=10.0):
    speeds = Speeds()
    for kind in kinds:
        speeds.alone((kind,), alone)
    return speeds


def test_a_kind_that_never_ran_alone_is_at_least_as_fast_as_beside_another():
    speeds = known("b")
    assert speeds.together(("a",), ("b",), (5.0, 5.0)) == (True, True)
    assert speeds.loss(("a",), ("b",)) == 500
    speeds.together(("a",), ("c",), (10.0, 1.0))
    assert speeds.base("a") == 10.0
    assert speeds.loss(("a",), ("b",)) is None, "0.5 and 0.5 now"
    assert speeds.loss(("a",), ("b",), urgent=True) == 1000
    speeds.alone(("a",), 20.0)
    assert speeds.loss(("a",), ("b",), urgent=True) is None, "0.25"


def test_what_was_never_measured_is_tried():
    assert Speeds().loss(("a",), ("b",)) == 0
    assert known("a", "b").loss(("a",), ("b",)) == 0


def test_a_kind_is_taken_by_its_images_where_its_name_is_new():
    speeds = known("name", "image", "other")
    speeds.together(("image",), ("other",), (10.0, 10.0))
    assert speeds.kind(("new", "image")) == "image"
    assert speeds.loss(("new", "image"), ("other",)) == 0


def test_a_pair_that_does_not_run_is_not_tried_until_it_was_seen_to_run():
    speeds = known("a", "b")
    speeds.stop(("b",), ("a",))
    assert speeds.loss(("a",), ("b",)) is None
    version = speeds.version
    speeds.stop(("a",), ("b",))
    assert speeds.version == version
    assert speeds.together(("a",), ("b",), (9.0, 9.0)) == (True, True)
    assert speeds.loss(("a",), ("b",)) == 200


def test_a_pair_that_does_not_run_is_known_by_its_names_also_once_the_same_images_were_measured():
    speeds = Speeds()
    first, second = ("name/a", "images/x"), ("name/b", "images/x")
    speeds.stop(first, second)
    speeds.alone(first, 10.0)
    assert speeds.kind(second) == "name/b", "not what its images are known by"
    assert speeds.loss(first, second) is None


def test_kinds_that_stop_the_others_are_expected_to_stop_more():
    kinds = [f"k{number}" for number in range(8)]
    speeds = known(*kinds, "greedy")
    for kind in kinds[:6]:
        assert speeds.together((kind,), ("greedy",), (0.0, 0.0)) == (False, True)
    assert speeds.loss((kinds[7],), ("greedy",)) is None
    assert speeds.loss((kinds[6],), (kinds[7],)) is not None


def test_one_pair_that_does_not_run_speaks_for_no_other():
    speeds = known("a", "b", "c")
    speeds.together(("a",), ("b",), (0.0, 0.0))
    assert speeds.loss(("a",), ("c",), urgent=True) is not None


def test_small_errors_change_nothing():
    speeds = known("a", "b")
    assert speeds.together(("a",), ("b",), (8.0, 8.0)) == (True, True)
    version = speeds.version
    assert speeds.together(("a",), ("b",), (8.1, 7.9)) == (True, False)
    assert speeds.version == version


def test_measurements_are_bounded_and_the_oldest_are_forgotten():
    speeds = Speeds()
    for number in range(5000):
        speeds.alone((f"k{number}",), 1.0)
    for number in range(4900, 4999):
        speeds.together((f"k{number}",), (f"k{number + 1}",), (0.9, 0.9))
    assert speeds.base("k0") == 0.0
    assert speeds.base("k4999") == 1.0
    assert speeds.loss(("k4998",), ("k4999",)) == 200
    for number in range(3000):
        speeds.together(("x",), (f"y{number}",), (1.0, 1.0))
    assert speeds.base("y0") == 0.0
    assert speeds.base("y2999") == 1.0


# -- waiting -----------------------------------------------------------------------------------


def test_what_gains_little_waits_an_hour_and_the_floor_always_holds():
    state = world(agents(2))
    for name in ("a", "b"):
        state.upsert_pod(small(name))
    start(state)
    teach(state, "late", "a", (0.6, 0.6))
    teach(state, "late", "b", (0.3, 0.9))
    state.upsert_pod(small("late", created=2.0))
    assert start(state, 2.0) == {}
    assert start(state, 3500.0) == {}
    assert start(state, 3700.0) == {"late": "uid-a"}
    state.upsert_pod(small("late-2", created=2.0))
    assert start(state, 9000.0) == {}


def test_a_gpu_is_kept_for_what_runs_beside_no_other():
    """It waits no longer than the pods on one GPU run, though others of the class come all the time."""
    state = world(agents(2), moves_per_minute=0)
    for name in ("a", "b"):
        state.upsert_pod(small(name))
    start(state, 1.0)
    for name in ("a", "b", "next"):
        teach(state, "greedy", name, (0.0, 0.0))
        teach(state, "next", name, (0.9, 0.9))
    state.upsert_pod(small("greedy", created=2.0))
    state.upsert_pod(small("next-1", created=3.0))
    assert start(state, 4.0) == {"next-1": "uid-a"}
    assert start(state, 7300.0) == {}
    for number in (2, 3):
        state.upsert_pod(small(f"next-{number}", created=7000.0 + number))
    assert start(state, 7310.0) == {}, "the GPU of b, which runs alone, is kept"
    end(state, "a")
    assert start(state, 7320.0) == {"next-2": "uid-next-1"}
    end(state, "b")
    assert start(state, 7330.0) == {"greedy": ALONE}
    assert state.nodes.partners.kept is not None
    start(state, 7500.0)
    assert state.nodes.partners.kept is None
    invariants.check(state)
