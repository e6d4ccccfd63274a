"""Leaders with `exclusive-topology`: they start where their followers fit, and followers get the places kept for them."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.groups import Followers, Group, Target
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.pods import AffinityTerm
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from tests.builders import cluster, node, pod, queue, refused, run, spec, start

JOB, INDEX = "jobset.sigs.k8s.io/replicatedjob-name", "batch.kubernetes.io/job-completion-index"
KEY = "jobset.sigs.k8s.io/job-key"


def racks(*sizes, gpus=1, cpu=64_000):
    return [
        node(f"r{rack}n{number}", labels={"net/rack": f"r{rack}"}, gpus=gpus, cpu=cpu)
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def exclusive(own):
    """What JobSet's webhook adds to a leader: beside its own Job, in no domain of another."""
    beside = AffinityTerm("net/rack", (Requirement(KEY, "In", (own,)),), ("ns",))
    apart = AffinityTerm("net/rack", (Requirement(KEY, "Exists"), Requirement(KEY, "NotIn", (own,))), ("ns",))
    return {"pod_affinity": (beside,), "pod_anti_affinity": (apart,)}


def leader(name, *, job="a", gpus=1, own="", group="leaders", **more):
    labels = ((INDEX, "0"), (JOB, job), *(((KEY, own),) if own else ()))
    asked = spec(gpus=gpus)
    asked = msgspec.structs.replace(asked, **exclusive(own)) if own else asked
    return pod(name, spec_=asked, group=group, labels=tuple(sorted(labels)), owner=f"job-{name}", **more)


def followers(count, *, rack, gpus=1, group="followers", first=0, own="", **more):
    labels = tuple(sorted(((INDEX, "1"), (JOB, "a"), *(((KEY, own),) if own else ()))))
    chosen = {"net/rack": rack} if rack else None
    spec_ = spec(gpus=gpus, selector=chosen)
    return [pod(f"f{rack}-{number}", spec_=spec_, group=group, labels=labels, **more) for number in range(first, first + count)]


def asked(count, *, job="a", gang="followers", like=None):
    return Followers(f"ns/{gang}", (("batch.kubernetes.io/job-completion-index", "0"), (JOB, job)), "net/rack", count, like)


def groups(count, *, leaders=1, jobs=("a",), like=None, **more):
    led = Group("ns", "leaders", leaders, followers=tuple(asked(count, job=job, like=like) for job in jobs), **more)
    each = leaders * count if len(jobs) == 1 else len(jobs) * count
    return [led, Group("ns", "followers", each)]


def world(nodes, pods, groups_, queues=(), **policy):
    return cluster(nodes=nodes, queues=queues, pods=pods, groups=groups_, **policy)


def kept(state, name="leaders"):
    gang = state.gangs.get(f"ns/{name}")
    return list(state.spares.nodes(gang)) if gang is not None else []


def rack(place):
    return place[:2]


def add(state, pods):
    for each in pods:
        state.upsert_pod(each)


def used(state, name="default"):
    return state.queues.queues[name].used.get("nvidia.com/gpu", 0) // 1000


def test_a_leader_starts_where_its_followers_fit():
    state = world(racks(2, 4), [leader("lead")], groups(3))
    assert rack(start(state)["lead"]) == "r1"
    assert len(kept(state)) == 3
    assert {rack(each) for each in kept(state)} == {"r1"}
    assert used(state) == 4


@pytest.mark.parametrize(("timeout", "by_class", "until"), [(0.0, 0.0, 901.0), (60.0, 300.0, 61.0), (0.0, 300.0, 301.0)])
@pytest.mark.parametrize("restart", [False, True])
def test_followers_that_do_not_come_in_time_have_no_places_any_more(timeout, by_class, until, restart):
    """The time in which the leader's gang is to start, counted from when the leader got its place."""
    lead = leader("lead", service_class="c")
    state = world(racks(2, 4), [], groups(3, start_timeout=timeout))
    state.upsert_class(ServiceClass("c", start_timeout=by_class))
    add(state, [lead])
    where = start(state)["lead"]
    if restart:
        led, others = groups(3, start_timeout=timeout)
        led = msgspec.structs.replace(led, spares=tuple(kept(state)))
        state = world(racks(2, 4), [], [led, others])
        state.upsert_class(ServiceClass("c", start_timeout=by_class))
        add(state, [msgspec.structs.replace(lead, node=where, bound=1.0)])
    add(state, [pod("other", created=5.0, gpus=1, selector={"net/rack": "r1"})])
    assert start(state, until - 1.0) == {}
    assert state.next_due <= until
    assert len(kept(state)) == 3
    assert set(start(state, until)) == {"other"}
    assert (kept(state), used(state)) == ([], 2)
    assert start(state, until + 1.0) == {}
    assert kept(state) == [], "they are not placed again"
    state.remove_pod("uid-other")
    add(state, followers(3, rack="r1"))
    assert len(start(state, until + 9.0)) == 3, "they are served like others"


def test_followers_that_come_once_their_leader_is_ready_are_waited_for():
    led, others = groups(3)
    led = msgspec.structs.replace(led, followers=tuple(msgspec.structs.replace(each, ready=True) for each in led.followers))
    state = world(racks(2, 4), [leader("lead")], [led, others])
    start(state)
    start(state, 1e6)
    assert len(kept(state)) == 3


def test_a_leader_waits_where_no_domain_has_room_for_its_followers():
    state = world(racks(3, 3), [leader("lead")], groups(3))
    reason = refused(run(state))["lead"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "followers" in reason.message
    assert used(state) == 0
    add(state, [])
    state.upsert_node(racks(4)[3])
    assert rack(start(state)["lead"]) == "r0"


def test_followers_get_the_places_and_are_charged_once():
    state = world(racks(2, 4), [leader("lead")], groups(3), queues=[queue("default", quota=4, limit=4)])
    start(state)
    add(state, [pod(f"other-{number}", gpus=1) for number in range(6)])
    start(state, 2.0)
    places = kept(state)
    add(state, followers(2, rack="r1"))
    assert start(state, 3.0) == {}, "one of three is missing"
    add(state, followers(1, rack="r1", first=2))
    assert sorted(start(state, 4.0).values()) == sorted(places)
    assert kept(state) == []
    assert state.gangs["ns/leaders"].spares_of() == []
    assert not state.spares.keys
    assert used(state) == 4


def test_what_is_kept_is_of_the_shape_of_followers():
    worker = pod("like", spec_=spec(gpus=2), labels=(("app", "worker"),))
    nodes = [*racks(4), *[node(f"r1n{i}", labels={"net/rack": "r1"}, gpus=2) for i in range(2)]]
    state = world(nodes, [leader("lead", gpus=0)], groups(2, like=worker))
    assert rack(start(state)["lead"]) == "r1"
    assert kept(state) == ["r1n0", "r1n1"]
    assert used(state) == 4
    add(state, followers(2, rack="r1", gpus=2))
    assert sorted(start(state, 2.0).values()) == ["r1n0", "r1n1"]
    assert used(state) == 4


@pytest.mark.parametrize(("team", "charged"), [("x", {"a": 1, "b": 2}), ("y", {"a": 3})])
def test_a_queue_that_does_not_admit_the_job_is_not_charged(team, charged):
    """The template names the queue, and a template is written by users."""
    of_others = msgspec.structs.replace(queue("b", quota=8), namespaces=(Requirement("team", "In", ("x",)),))
    like = msgspec.structs.replace(pod("like", gpus=1), queue="b")
    state = world(racks(4), [leader("l0", queue="a")], groups(2, like=like), queues=[queue("a", quota=8), of_others])
    state.upsert_namespace(Namespace("ns", (("team", team),)))
    run(state, 1.0)
    assert {name: used(state, name) for name in ("a", "b") if used(state, name)} == charged
    invariants.check(state)


def test_followers_go_where_their_own_template_allows():
    worker = pod("like", spec_=spec(gpus=1, selector={"kind": "gpu"}))
    heads = [node(f"r{rack}head", labels={"net/rack": f"r{rack}", "kind": "cpu"}, gpus=0) for rack in (0, 1)]
    gpus = [node(f"r1n{i}", labels={"net/rack": "r1", "kind": "gpu"}, gpus=1) for i in range(2)]
    first = pod("lead", spec_=spec(gpus=0, selector={"kind": "cpu"}), group="leaders", labels=((INDEX, "0"), (JOB, "a")))
    state = world([*heads, *gpus], [first], groups(2, like=worker))
    assert start(state) == {"lead": "r1head"}
    assert kept(state) == ["r1n0", "r1n1"]


def test_each_of_several_leaders_has_room_in_a_rack_of_its_own():
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    state = world(racks(3, 2, 3), leads, groups(2, leaders=2))
    placed = start(state)
    assert {rack(each) for each in placed.values()} == {"r0", "r2"}
    assert sorted(rack(each) for each in kept(state)) == ["r0", "r0", "r2", "r2"]
    racks_of = {rack(where): name for name, where in placed.items()}
    for where in ("r0", "r2"):
        add(state, followers(2, rack=where, own=racks_of[where].replace("lead", "job")))
    placed = start(state, 2.0)
    assert sorted(rack(each) for each in placed.values()) == ["r0", "r0", "r2", "r2"]
    assert kept(state) == []


def test_several_leaders_wait_together_where_one_has_no_room():
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    state = world(racks(3, 2), leads, groups(2, leaders=2))
    assert start(state) == {}
    assert kept(state) == []


def test_jobs_of_one_set_have_followers_of_their_own_number():
    led = Group("ns", "leaders", 2, followers=(asked(3, job="a"), asked(1, job="b")))
    leads = [leader("la", job="a", own="a"), leader("lb", job="b", own="b")]
    state = world(racks(2, 4), leads, [led, Group("ns", "followers", 4)])
    placed = start(state)
    assert (rack(placed["la"]), rack(placed["lb"])) == ("r1", "r0")
    assert sorted(rack(each) for each in kept(state)) == ["r0", "r1", "r1", "r1"]


def test_two_leaders_do_not_share_the_room_of_one():
    one, two = leader("one", group="g1"), leader("two", group="g2")
    led = [Group("ns", f"g{i}", 1, followers=(asked(2, gang=f"f{i}"),)) for i in (1, 2)]
    state = world(racks(5, 3), [one, two], [*led, Group("ns", "f1", 2), Group("ns", "f2", 2)])
    placed = start(state)
    assert {rack(each) for each in placed.values()} == {"r0", "r1"}


@pytest.mark.parametrize("how", ["deleted", "suspended", "pods gone", "evicted"])
def test_nothing_is_kept_for_followers_that_will_not_come(how):
    state = world(racks(4), [leader("lead")], groups(3))
    start(state)
    if how == "deleted":
        state.remove_group("ns/leaders")
    elif how == "suspended":
        state.upsert_group(msgspec.structs.replace(groups(3)[0], target=Target("Suspended", 1)))
    elif how == "pods gone":
        state.remove_pod("uid-lead")
    else:
        add(state, [msgspec.structs.replace(state.tasks["uid-lead"].pod, terminating=True)])
    start(state, 2.0)
    assert kept(state) == []
    assert not state.spares.keys


def test_a_leader_that_is_made_anew_starts_with_its_followers_places_again():
    state = world(racks(4, 4), [leader("lead")], groups(3))
    start(state)
    state.remove_pod("uid-lead")
    add(state, [pod("other", spec_=spec(gpus=1, selector={"net/rack": "r0"}), priority=5), leader("again")])
    placed = start(state, 2.0)
    assert rack(placed["again"]) == "r1"
    assert {rack(each) for each in kept(state)} == {"r1"}


def test_a_lost_leader_takes_the_places_of_its_own_followers_with_it():
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    state = world(racks(3, 3), leads, groups(2, leaders=2), gang_grace=1e9)
    before = start(state)
    state.remove_pod("uid-lead0")
    add(state, [leader("again", own="job0")])
    placed = start(state, 2.0)
    assert rack(placed["again"]) == rack(before["lead0"])
    assert sorted(rack(each) for each in kept(state)) == ["r0", "r0", "r1", "r1"]


def test_a_scheduler_that_starts_anew_keeps_the_places():
    first = world(racks(4, 4), [leader("lead")], groups(3))
    start(first)
    nodes = tuple(kept(first))
    led, following = groups(3)
    bound = first.tasks["uid-lead"].pod
    others = [pod(f"other-{i}", gpus=1) for i in range(8)]
    state = world(racks(4, 4), [bound, *others], [msgspec.structs.replace(led, spares=nodes), following])
    assert len(start(state, 5.0)) == 4
    assert tuple(kept(state)) == nodes
    add(state, followers(3, rack=rack(nodes[0])))
    assert sorted(start(state, 6.0).values()) == sorted(nodes)


def test_a_scheduler_that_starts_anew_keeps_each_place_as_it_was():
    """Large places and small ones on the same nodes."""
    small, large = (pod("like", spec_=spec(gpus=gpus)) for gpus in (1, 2))
    led = Group("ns", "leaders", 2, followers=(asked(2, job="a", like=small), asked(2, job="b", like=large)))
    leads = [leader("la", job="a", gpus=0), leader("lb", job="b", gpus=0)]
    first = world(racks(2, gpus=4), leads, [led, Group("ns", "followers", 4)])
    assert len(start(first)) == 2
    before = {task.pod.uid: first.nodes.names[task.row] for task in first.spares.kept(first.gangs["ns/leaders"])}
    assert len(before) == 4
    bound = [task.pod for task in first.tasks.values() if not task.pod.spare]
    written = msgspec.structs.replace(led, spares=tuple(kept(first)))
    state = world(racks(2, gpus=4), bound, [written, Group("ns", "followers", 4)])
    start(state, 5.0)
    after = {task.pod.uid: state.nodes.names[task.row] for task in state.spares.kept(state.gangs["ns/leaders"])}
    assert after == before


def test_a_scheduler_that_starts_anew_keeps_nothing_for_followers_that_run():
    first = world(racks(4, 4), [leader("lead")], groups(3))
    start(first)
    nodes = tuple(kept(first))
    add(first, followers(3, rack=rack(nodes[0])))
    start(first, 2.0)
    led, following = groups(3)
    bound = [task.pod for task in first.tasks.values() if not task.pod.spare]
    state = world(racks(4, 4), bound, [msgspec.structs.replace(led, spares=nodes), following])
    start(state, 5.0)
    assert kept(state) == []
    assert used(state) == 4


def test_a_place_on_a_node_that_fails_is_kept_elsewhere():
    state = world(racks(5), [leader("lead")], groups(3))
    start(state)
    lost = kept(state)[0]
    state.remove_node(lost)
    start(state, 2.0)
    assert len(kept(state)) == 3
    assert lost not in kept(state)


def test_a_leader_can_be_preempted_with_what_is_kept_for_its_followers():
    state = world(racks(4), [leader("lead")], groups(3))
    start(state)
    add(state, [pod(f"top-{i}", group="top", gpus=1, priority=10) for i in range(4)])
    state.upsert_group(Group("ns", "top", 4))
    run(state, 2.0)
    assert kept(state) == []
    state.remove_pod("uid-lead")
    assert len(start(state, 3.0)) == 4
    assert used(state) == 4


def test_a_leader_without_followers_is_a_pod_like_others():
    state = world(racks(1), [leader("lead")], groups(0))
    assert start(state) == {"lead": "r0n0"}
    assert kept(state) == []
    invariants.check(state)
