"""What is placed stays what it was admitted as, whatever its labels, annotations and PodGroup become later."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Kept, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.state.snapshot import snapshot
from tests.builders import GPU, cluster, confirm, held, node, placed, pod, preempted, queue, refused, run, settle, spec

replace = msgspec.structs.replace


def changed(state, name, **fields):
    """The pod as the cluster would show it after a user changed it."""
    task = state.tasks[f"uid-{name}"]
    state.upsert_pod(replace(task.pod, node=state.nodes.names[task.row], **fields))
    return task


def evicted(decided):
    return sorted(each.pod.name for one in decided if isinstance(one, Evict) for each in one.victims)


@pytest.mark.parametrize("other", ["vision", "nosuch"])
def test_a_running_pod_stays_in_its_queue_and_its_limit_holds(other):
    state = cluster([node("n", gpus=8), node("m", gpus=8)], [queue("mal", limit=4), queue("vision", quota=8)])
    for i in range(8):
        state.upsert_pod(pod(f"b{i}", queue="mal", created=float(i)))
    settle(state)
    for i in range(4):
        changed(state, f"b{i}", queue=other)
    assert placed(run(state)) == {}
    assert (held(state, "mal"), held(state, "vision")) == (4, 0)
    invariants.check(state)


def test_a_running_pod_keeps_class_user_group_and_priority():
    state = cluster([node("n", gpus=1)], [queue("q", quota=1), queue("owner", quota=1)])
    state.upsert_class(ServiceClass("gold", mode="Never"))
    state.upsert_pod(pod("p", queue="q"))
    settle(state)
    task = changed(state, "p", service_class="gold", priority=1_000_000, user="ann", group="g", elastic=True)
    assert (task.service_class, task.pod.priority, task.user, task.pod.group, task.pod.elastic) == ("", 0, "ns", "", False)
    state.upsert_pod(pod("urgent", queue="q", priority=1, created=5.0))
    assert preempted(run(state)) == [["p"]]


def test_a_fraction_stays_and_a_real_resize_is_followed():
    state = cluster([node("n", gpus=1)], [queue("q", limit=1)])
    state.upsert_pod(pod("p", queue="q", gpus=1, milli=900))
    state.upsert_pod(pod("w", queue="q", gpus=1, milli=500, created=1.0))
    settle(state)
    task = changed(state, "p", spec=spec(gpus=1, milli=1, cpu=3000))
    assert state.queues.queues["q"].used[GPU] == 900
    assert state.queues.queues["q"].used["cpu"] == 3000
    assert task.row < 0, "it was counted anew"
    assert placed(run(state)) == {}
    invariants.check(state)


def test_time_limits_become_shorter_never_longer():
    state = cluster([node("n", gpus=8)], [queue("q")])
    state.upsert_class(ServiceClass("batch", time_limit=20.0, longest=30.0))
    for name, limit in (("given", 10.0), ("default", 0.0), ("shorter", 25.0), ("unclassed", 10.0)):
        state.upsert_pod(pod(name, queue="q", service_class="batch", time_limit=limit))
    settle(state, 0.0)
    changed(state, "given", time_limit=3600.0)
    changed(state, "default", time_limit=29.0)
    changed(state, "shorter", time_limit=5.0)
    changed(state, "unclassed", service_class="", time_limit=0.0)
    assert evicted(run(state, 6.0)) == ["shorter"]
    assert evicted(run(state, 11.0)) == ["given", "unclassed"]
    assert evicted(run(state, 21.0)) == ["default"]


def test_the_limit_of_a_class_holds_for_what_was_believed_at_a_restart():
    state = cluster([node("n", gpus=8)], [queue("q")])
    state.upsert_class(ServiceClass("batch", longest=30.0))
    state.upsert_pod(pod("p", queue="q", service_class="batch", time_limit=3600.0, at="n", started=0.0))
    assert evicted(run(state, 31.0)) == ["p"]


def test_a_class_that_an_administrator_changes_applies_to_what_runs():
    state = cluster([node("n", gpus=8)], [queue("q")])
    state.upsert_class(ServiceClass("batch", longest=3600.0))
    state.upsert_pod(pod("p", queue="q", service_class="batch", time_limit=100.0))
    settle(state)
    state.upsert_class(ServiceClass("batch", longest=30.0))
    assert evicted(run(state, 31.0)) == ["p"]


def test_a_started_gang_keeps_queue_class_minimum_and_limit_and_says_so():
    state = cluster([node("n", gpus=8)], [queue("mal", limit=4), queue("vision", quota=8)])
    state.upsert_class(ServiceClass("gold", mode="Never"))
    admitted = Group("ns", "g", 2, "mal", time_limit=60.0)
    state.upsert_group(admitted)
    for i in range(2):
        state.upsert_pod(pod(f"g{i}", queue="mal", group="g", gpus=2))
    settle(state)
    patched = Group("ns", "g", 100_000, "vision", service_class="gold", time_limit=3600.0, expected=5.0)
    state.upsert_group(patched)
    state.upsert_pod(pod("more", queue="mal"))
    assert placed(settle(state)) == {}
    assert (held(state, "mal"), held(state, "vision")) == (4, 0)
    assert state.tasks["uid-g0"].service_class == ""
    reason = state.belonging.differs("ns/g")
    assert reason.code == "AdmittedStays"
    for field in ("queue", "serviceClass", "minMember", "timeLimit", "expectedDuration"):
        assert field in reason.message
    assert evicted(run(state, 61.0)) == ["g0", "g1"]
    state.upsert_group(admitted)
    assert state.belonging.differs("ns/g") is None


def test_a_gang_of_which_nothing_has_a_place_any_more_follows_its_spec():
    state = cluster([node("n", gpus=8)], [queue("a"), queue("b")], groups=[Group("ns", "g", 1, "a")])
    state.upsert_pod(pod("g0", queue="a", group="g"))
    settle(state)
    state.upsert_group(Group("ns", "g", 1, "b"))
    state.remove_pod("uid-g0")
    state.upsert_pod(pod("g1", queue="a", group="g"))
    settle(state)
    assert (held(state, "a"), held(state, "b")) == (0, 1)
    assert state.belonging.differs("ns/g") is None


def test_a_gang_that_waits_may_change():
    state = cluster([node("n", gpus=8)], [queue("a"), queue("b")], groups=[Group("ns", "g", 2, "a")])
    state.upsert_pod(pod("g0", queue="a", group="g"))
    settle(state)
    state.upsert_group(Group("ns", "g", 1, "b"))
    settle(state)
    assert held(state, "b") == 1


def test_a_group_that_is_deleted_and_made_again_changes_nothing_of_what_runs():
    state = cluster([node("n", gpus=2)], [queue("mal", limit=2), queue("vision", quota=2)])
    state.upsert_class(ServiceClass("gold", mode="Never"))
    state.upsert_class(ServiceClass("batch", longest=60.0))
    state.upsert_group(Group("ns", "g", 2, "mal", service_class="batch", time_limit=50.0))
    for i in range(2):
        state.upsert_pod(pod(f"g{i}", queue="mal", group="g"))
    settle(state)
    state.remove_group("ns/g")
    assert held(state, "mal") == 2
    assert state.services.limits.enforced(state.tasks["uid-g0"]) == 50.0
    state.upsert_group(Group("ns", "g", 1, "vision", service_class="gold"))
    assert (held(state, "mal"), held(state, "vision")) == (2, 0)
    assert state.tasks["uid-g0"].service_class == "batch"
    assert evicted(run(state, 51.0)) == ["g0", "g1"]
    invariants.check(state)


def test_a_pod_whose_binding_is_on_its_way_is_what_was_decided_or_what_it_says_then():
    state = cluster([node("n", gpus=4)], [queue("a", limit=2), queue("b")])
    for name in ("kept", "again"):
        state.upsert_pod(pod(name, queue="a"))
    run(state)
    for name in ("kept", "again"):
        task = state.tasks[f"uid-{name}"]
        assert task.state is TaskState.ASSUMED
        state.upsert_pod(replace(task.pod, queue="b"))
        assert task.queue == "a"
    state.pods.bound("uid-kept")
    state.bind_failed("uid-again", 0.0)
    assert (held(state, "a"), held(state, "b")) == (1, 0)
    settle(state, 10.0)
    assert (held(state, "a"), held(state, "b")) == (1, 1)
    invariants.check(state)


def test_relabelled_running_pods_get_one_event():
    state = cluster([node("n", gpus=4)], [queue("a"), queue("b")])
    state.upsert_pod(pod("p", queue="a"))
    settle(state)
    changed(state, "p", queue="b")
    told = [each for each in run(state) if isinstance(each, Kept)]
    assert [(each.pod.name, each.reason.code) for each in told] == [("p", "AdmittedStays")]
    assert "queue" in told[0].reason.message
    changed(state, "p", queue="b", started=5.0)
    assert not [each for each in run(state) if isinstance(each, Kept)]


# -- after a restart -----------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["vision", "nosuch"])
def test_what_runs_where_it_may_not_is_charged_to_its_namespaces_queue(named):
    mine = Namespace("ns", (("fairlead.dev/default-queue", "mal"), ("team", "mal")))
    vision = replace(queue("vision", quota=8), namespaces=(Requirement("team", "In", ("vision",)),))
    state = cluster([node("n", gpus=8)], pods=[pod(f"p{i}", queue=named, at="n") for i in range(4)])
    for each in (queue("mal", limit=4), vision):
        state.upsert_queue(each)
    state.upsert_namespace(mine)
    state.upsert_pod(pod("more", queue="mal"))
    decided = run(state)
    assert placed(decided) == {}
    assert held(state, "mal") == 4
    assert held(state, "vision") == 0
    told = [each for each in decided if isinstance(each, Kept)]
    assert {each.reason.code for each in told} == {"NotAllowed"}
    assert len(told) == 4
    assert "'mal'" in told[0].reason.message
    invariants.check(state)


def test_a_class_that_may_not_be_used_gives_nothing_to_what_runs():
    state = cluster([node("n", gpus=1)], [queue("q", quota=1)])
    state.upsert_class(ServiceClass("gold", mode="Never", users=("ann",)))
    state.upsert_pod(pod("p", queue="q", service_class="gold", priority=1_000_000, at="n"))
    state.upsert_pod(pod("urgent", queue="q", priority=1, created=5.0))
    assert preempted(run(state)) == [["p"]]


# -- random worlds -------------------------------------------------------------------------------

_QUEUES = ("a", "b", "c")
_CLASSES = ("", "plain", "never", "short")


class World:
    """One cluster, to which the same happens as to another, besides what tenants write on what runs."""

    def __init__(self):
        self.state = cluster([node(f"n{i}", gpus=4) for i in range(3)], [queue("a", 4, 6), queue("b", 4, 8), queue("c", 0, 5)])
        self.state.upsert_class(ServiceClass("plain"))
        self.state.upsert_class(ServiceClass("never", mode="Never"))
        self.state.upsert_class(ServiceClass("short", time_limit=40.0, longest=80.0))
        self.pods = {}  # uid -> as admitted
        self.written = {}  # uid -> what tenants wrote on it

    def add(self, made):
        self.pods[made.uid] = made
        self.state.upsert_pod(made)

    def say(self, uid, **fields):
        """The cluster's view of a pod that has a node."""
        task, self.pods[uid] = self.state.tasks[uid], replace(self.pods[uid], **fields)
        view = replace(self.pods[uid], node=self.state.nodes.names[task.row], **self.written.get(uid, {}))
        self.state.upsert_pod(view)

    def end(self, uid):
        self.state.remove_pod(uid)
        self.written.pop(uid, None)
        return self.pods.pop(uid)

    def step(self, now):
        decided = run(self.state, now)
        confirm(self.state, decided)
        for each in decided:
            for victim in each.victims if isinstance(each, Preempt | Evict) else ():
                if victim.pod.uid not in self.pods:
                    continue  # it is gone for another reason already
                old = self.end(victim.pod.uid)
                self.add(replace(old, uid=f"{old.uid}+", name=f"{old.name}+", started=None))
        return [each for each in decided if not isinstance(each, Kept)]

    def counts(self):
        """Everything that is charged, and how long what runs may run."""
        tasks = {uid: task for uid, task in sorted(self.state.tasks.items()) if task.row >= 0}
        return snapshot(self.state), {
            uid: (task.queue, task.service_class, task.user, task.pod.priority, self.state.services.limits.enforced(task))
            for uid, task in tasks.items()
        }


def write(rng, world, uid):
    """Something that a tenant would like to be so."""
    pod_ = world.pods[uid]
    limit = pod_.time_limit or (40.0 if world.state.tasks[uid].service_class == "short" else 0.0)
    offers = {
        "queue": rng.choice([*_QUEUES, "nosuch"]),
        "service_class": rng.choice([*_CLASSES, "nosuch"]),
        "user": rng.choice(("u", "v")),
        "group": rng.choice(("", "g0", "other")),
        "priority": rng.choice((0, 5, 1_000_000)),
        "elastic": rng.choice((True, False)),
        "never_preempts": True,
        "time_limit": rng.choice((0.0, limit * 2)),
        "expected": float(rng.randrange(100)),
        "spec": replace(pod_.spec, gpu_milli=1) if pod_.spec.gpu_milli < 1000 else pod_.spec,
    }
    names = rng.sample(sorted(offers), rng.randint(1, 4))
    if "never_preempts" in names and "elastic" not in names:
        names.remove("never_preempts")
    if "elastic" in names and offers["elastic"] == pod_.elastic and "never_preempts" in names:
        names.remove("never_preempts")
    world.written.setdefault(uid, {}).update({name: offers[name] for name in names})


def runs(gang):
    """Whether a gang runs. One that only holds places until victims have left may lose them in a pass: then what is written counts."""
    return gang is not None and any(task.state is TaskState.BOUND for task in gang.tasks.values())


@pytest.mark.parametrize("seed", range(200))
def test_what_tenants_write_on_what_runs_changes_nothing(seed):
    rng, now = random.Random(seed), 0.0
    honest, written = World(), World()
    worlds = honest, written
    groups = {}
    for i in range(2):
        groups[f"g{i}"] = Group("ns", f"g{i}", rng.randint(1, 3), rng.choice(("", "a")), time_limit=rng.choice((0.0, 60.0)))
        for world in worlds:
            world.state.upsert_group(groups[f"g{i}"])
    for number in range(40):
        now += rng.uniform(0.5, 8.0)
        for _ in range(rng.randint(0, 3)):
            milli = rng.choice((1000, 1000, 500))
            made = pod(
                f"p{number}-{rng.randrange(1 << 30)}",
                queue=rng.choice(_QUEUES),
                priority=rng.choice((0, 0, 5)),
                created=float(int(now)),
                user=rng.choice("uv"),
                group=rng.choice(("", "", "g0", "g1")),
                service_class=rng.choice(_CLASSES),
                time_limit=rng.choice((0.0, 0.0, 30.0)),
                gpus=1 if milli < 1000 else rng.choice((1, 1, 2)),
                milli=milli,
            )
            for world in worlds:
                world.add(made)
        running = sorted(uid for uid, task in honest.state.tasks.items() if task.state is TaskState.BOUND)
        for uid in rng.sample(running, min(len(running), rng.randint(0, 3))):
            write(rng, written, uid)
            written.say(uid)
        for uid in rng.sample(running, min(len(running), rng.randint(0, 2))):
            for world in worlds:
                world.say(uid, started=now)
        for key, group in groups.items():
            gang = written.state.gangs.get(f"ns/{key}")
            if runs(gang):
                if rng.random() < 0.3:
                    more = {"queue": rng.choice(_QUEUES), "service_class": rng.choice(_CLASSES), "expected": 3.0}
                    limit = group.time_limit * 2 if rng.random() < 0.5 else 0.0
                    minimum = group.min_member + rng.randint(0, 5)
                    written.state.upsert_group(replace(group, min_member=minimum, time_limit=limit, **more))
            else:
                written.state.upsert_group(group)  # what waits may change: it is set back
        for uid in rng.sample(running, min(len(running), rng.randint(0, 2))):
            for world in worlds:
                world.end(uid)
        for key, group in groups.items():
            if not runs(written.state.gangs.get(f"ns/{key}")):
                written.state.upsert_group(group)
        decided = [world.step(now) for world in worlds]
        assert decided[0] == decided[1]
        assert honest.counts() == written.counts()
        assert invariants.violations(honest.state) == invariants.violations(written.state)


# -- queues above --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [{"users": ("ann",)}, {"classes": ("gold",)}, {"namespaces": (Requirement("team", "In", ("vision",)),)}],
)
def test_who_may_not_use_a_queue_may_not_use_those_below_it(rule):
    above = [replace(queue("top"), **rule), queue("middle", parent="top"), queue("leaf", parent="middle", quota=4)]
    state = cluster([node("n")], above)
    state.upsert_pod(pod("p", queue="leaf"))
    reason = refused(run(state))["p"]
    assert reason.code == "NotAllowed"
    assert "queue 'top'" in reason.message
    assert "a parent of queue 'leaf'" in reason.message
    state.upsert_queue(queue("top"))
    assert placed(run(state)) == {"p": "n"}


# -- queue `default` -----------------------------------------------------------------------------


def test_the_default_queue_is_there_by_itself_only_while_there_is_no_queue():
    state = cluster([node("n", gpus=8)])
    state.upsert_pod(pod("before"))
    settle(state)
    state.upsert_pod(pod("waits", gpus=8))
    assert refused(settle(state))["waits"].code == "Resources"
    state.upsert_queue(queue("mal", limit=4))
    state.upsert_pod(pod("evades"))
    told = refused(settle(state))
    assert {name: reason.code for name, reason in told.items()} == {"waits": "UnknownQueue", "evades": "UnknownQueue"}
    assert "an administrator must create it" in told["evades"].message
    assert state.tasks["uid-before"].state is TaskState.BOUND, "what runs goes on"
    assert held(state, "default") == 1
    state.upsert_queue(queue("default", limit=2))
    assert placed(settle(state)) == {"evades": "n"}
    state.remove_queue("default")
    state.upsert_pod(pod("again"))
    assert refused(run(state))["again"].code == "UnknownQueue"
    state.remove_queue("mal")
    assert placed(run(state)) == {"again": "n"}
    invariants.check(state)


# -- profile kubernetes --------------------------------------------------------------------------


def critical(name, **more):
    return pod(name, queue="borrow", priority=2_000_001_000, profile="kubernetes", created=9.0, **more)


@pytest.mark.parametrize(("quota", "never", "falls"), [(8, False, False), (0, True, False), (4, False, True), (0, False, True)])
def test_profile_kubernetes_preempts_nothing_that_is_guaranteed_or_non_preemptible(quota, never, falls):
    state = cluster([node("n", gpus=8)], [queue("vision", quota=quota), queue("borrow", quota=0)])
    state.upsert_class(ServiceClass("never", mode="Never"))
    state.upsert_pod(pod("d7", queue="vision", gpus=8, service_class="never" if never else ""))
    settle(state)
    state.upsert_pod(critical("thief", gpus=8))
    assert preempted(run(state)) == ([["d7"]] if falls else [])


def test_of_a_queue_over_quota_only_the_excess_is_preempted():
    state = cluster([node("n", gpus=8)], [queue("vision", quota=6), queue("borrow", quota=0)])
    for i in range(8):
        state.upsert_pod(pod(f"v{i}", queue="vision", created=float(i), started=float(i)))
    settle(state)
    state.upsert_pod(critical("greedy", gpus=3))
    state.upsert_pod(critical("modest", gpus=2))
    assert [len(each) for each in preempted(run(state))] == [2]
    assert held(state, "borrow") == 2
    invariants.check(state)


def test_profile_kubernetes_preempts_its_own_kind_as_upstream():
    state = cluster([node("n", gpus=8)], [queue("vision", quota=8), queue("borrow", quota=0)])
    state.upsert_pod(pod("theirs", queue="vision", gpus=8, profile="kubernetes"))
    settle(state)
    state.upsert_pod(critical("thief", gpus=8))
    assert preempted(run(state)) == [["theirs"]]


def test_what_is_in_no_queue_is_counted_apart():
    state = cluster([node("n", gpus=8)], [queue("q")])
    state.upsert_pod(pod("foreign", gpus=2, at="n", ours=False))
    state.upsert_pod(pod("part", gpus=1, milli=500, at="n", ours=False))
    state.upsert_pod(pod("ours", queue="q", gpus=1, milli=500, at="n"))
    run(state)
    assert state.belonging.outside()[GPU] == 2500
    state.remove_pod("uid-foreign")
    assert state.belonging.outside()[GPU] == 500
