import msgspec
import pytest

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import invariants
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import PodSpec, Toleration
from fairlead.core.model.selectors import Requirement, SelectorTerm, integer
from fairlead.core.model.transactions import PodRef, Unread
from fairlead.core.state.snapshot import snapshot
from fairlead.core.state.unread import MOST_RESOURCES
from tests.builders import GPU, cluster, group, node, placed, pod, queue, refused, run, settle, spec


def test_a_pod_goes_where_it_fits():
    state = cluster([node("small", gpus=1), node("big", gpus=8)], pods=[pod("four", gpus=4)])
    assert placed(run(state)) == {"four": "big"}


def test_nothing_is_given_out_twice():
    state = cluster([node("n", gpus=2)], pods=[pod(f"p{i}") for i in range(3)])
    done = settle(state)
    assert len(placed(done)) == 2
    (reason,) = refused(done).values()
    assert reason.code is ReasonCode.RESOURCES
    assert reason.message == f"0/1 nodes are available: 1 Insufficient {GPU}."
    invariants.check(state)


def test_a_freed_place_requeues_pending_pods():
    state = cluster([node("n", gpus=1)], pods=[pod("first", created=1), pod("second", created=2)])
    assert placed(settle(state)) == {"first": "n"}
    assert run(state) == []
    state.remove_pod("uid-first")
    assert placed(run(state)) == {"second": "n"}


def test_a_new_node_requeues_pending_pods():
    state = cluster(pods=[pod("p")])
    assert "0/0 nodes" in refused(run(state))["p"].message
    state.upsert_node(node("n"))
    assert placed(run(state)) == {"p": "n"}


def test_equal_nodes_tie_by_name():
    state = cluster([node(name) for name in ("c", "a", "b")], pods=[pod("p", gpus=8)])
    assert placed(run(state)) == {"p": "a"}


def test_refusals_are_reported_once():
    state = cluster([node("n", gpus=0)], pods=[pod("p")])
    assert refused(run(state))
    assert run(state) == []
    state.upsert_node(node("m", gpus=0))
    assert run(state) == []


def test_selector_affinity_and_fields():
    nodes = [node("a", labels={"zone": "x", "n": "7"}), node("b", labels={"zone": "y", "n": "3"})]
    terms = (SelectorTerm((Requirement("n", "Gt", ("5",)),)), SelectorTerm((), (Requirement("metadata.name", "In", ("zzz",)),)))
    pods = [
        pod("selector", selector={"zone": "y"}),
        pod("gt", affinity=terms),
        pod("field", affinity=(SelectorTerm((), (Requirement("metadata.name", "In", ("b",)),)),)),
        pod("nothing", affinity=()),
        pod("empty", affinity=(SelectorTerm(),)),
        pod("notin", affinity=(SelectorTerm((Requirement("zone", "NotIn", ("x",)), Requirement("zone", "Exists"))),)),
        pod("unparseable", affinity=(SelectorTerm((Requirement("n", "Gt", ("five",)),)),)),
        pod("named", node_name="a"),
    ]
    done = run(cluster(nodes, pods=pods))
    assert placed(done) == {"selector": "b", "gt": "a", "field": "b", "notin": "b", "named": "a"}
    assert {reason.code for reason in refused(done).values()} == {ReasonCode.NODE_AFFINITY}
    assert refused(done)["empty"].message == "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("0" * 62 + "5", 5),
        ("-" + "0" * 40 + "5", -5),
        ("0" * 40, 0),
        ("9223372036854775807", 2**63 - 1),
        ("0" * 30 + "9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("1" * 5000, None),
        ("", None),
        ("+", None),
        ("1_0", None),
        ("٣", None),
        (None, None),
    ],
)
def test_integers_of_gt_and_lt_are_those_of_go(text, value):
    assert integer(text) == value


def test_taints_and_cordons():
    gpu_only = Taint("gpu", "yes", "NoSchedule")
    nodes = [node("tainted", taints=(gpu_only, Taint("soft", "", "PreferNoSchedule"))), node("cordoned", unschedulable=True)]
    pods = [
        pod("plain"),
        pod("exact", tolerations=[Toleration("gpu", "Equal", "yes")]),
        pod("wrong-value", tolerations=[Toleration("gpu", "Equal", "no")]),
        pod("everything", gpus=8, tolerations=[Toleration("", "Exists")]),
    ]
    done = run(cluster(nodes, pods=pods))
    assert placed(done)["exact"] == "tainted"
    assert placed(done)["everything"] == "cordoned"
    message = refused(done)["plain"].message
    assert message == "0/2 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 1 node(s) were unschedulable."
    assert refused(done)["plain"].code is ReasonCode.TAINTS


def test_label_and_taint_changes_are_seen():
    state = cluster([node("n", labels={"zone": "x"})], pods=[pod("p", selector={"zone": "y"})])
    assert not placed(run(state))
    state.upsert_node(node("n", labels={"zone": "y"}))
    assert placed(run(state)) == {"p": "n"}


def test_fractions_share_a_device_but_never_exceed_it():
    pods = [pod(f"half-{i}", milli=500) for i in range(4)] + [pod("more", milli=600)]
    state = cluster([node("n", gpus=2)], pods=pods)
    done = settle(state)
    assert len([name for name in placed(done) if name.startswith("half")]) + ("more" in placed(done)) == len(placed(done))
    invariants.check(state)
    free = state.nodes.devices.states[state.nodes.device.item(0)]
    assert all(left >= 0 for left in free)


def test_fractions_need_a_node_that_shares():
    done = run(cluster([node("n", shares=False)], pods=[pod("half", milli=500)]))
    assert refused(done)["half"].code is ReasonCode.DEVICES


def test_whole_devices_want_untouched_ones():
    state = cluster([node("n", gpus=2)], pods=[pod("half", milli=500, created=0), pod("two", gpus=2, created=1)])
    done = run(state)
    assert "two" not in placed(done)
    assert "no device with enough free capacity" in refused(done)["two"].message


def test_pods_count_even_when_they_ask_for_nothing():
    empty = spec(gpus=0, cpu=0, memory=0)
    state = cluster([node("n", pods=2)], pods=[pod(f"p{i}", spec_=empty) for i in range(3)])
    done = run(state)
    assert len(placed(done)) == 2
    assert "Too many pods" in next(iter(refused(done).values())).message


def test_amounts_beyond_any_machine_never_wrap():
    huge = (1 << 60) - 1
    state = cluster(
        [node("n", cpu=huge, memory=1 << 62)], pods=[pod("p", cpu=huge), pod("q", memory=huge), pod("r", memory=huge)]
    )
    done = settle(state)
    assert placed(done) == {"q": "n"}, "of CPU no node counts more than 2**50 milli"
    assert {name: reason.message for name, reason in refused(done).items()} == {
        "p": "0/1 nodes are available: 1 Insufficient cpu.",
        "r": "0/1 nodes are available: 1 Insufficient memory.",
    }
    invariants.check(state)


def test_pods_on_absent_nodes_wait_for_the_node():
    state = cluster(pods=[pod("stray", at="ghost", gpus=8)])
    assert "'ghost', which the pod names, does not exist" in refused(run(state))["stray"].message
    state.upsert_node(node("ghost"))
    state.upsert_pod(pod("late", gpus=1))
    assert "late" in refused(run(state))
    invariants.check(state)
    state.remove_pod("uid-stray")
    assert placed(run(state)) == {"late": "ghost"}


def test_a_lost_node_forgets_its_bound_pods_and_requeues_assumed_ones():
    state = cluster([node("n")], pods=[pod("p")])
    run(state)
    state.remove_node("n")
    invariants.check(state)
    state.upsert_node(node("m"))
    assert placed(run(state)) == {"p": "m"}


def test_a_pod_of_unknown_size_closes_its_node_only_and_both_are_named():
    poison = Reason(ReasonCode.TOO_LARGE, "10E")
    unknown = {"error": poison, "unsized": True}
    state = cluster(
        [node("a"), node("b")],
        pods=[pod("bad", at="a", **unknown), pod("good"), pod("waiting-bad", **unknown), pod("late", node_name="a")],
    )
    done = run(state)
    assert placed(done) == {"good": "b"}
    assert refused(done)["waiting-bad"] is poison
    assert [each for each in done if isinstance(each, Unread)] == [
        Unread(PodRef("uid-bad", "ns", "bad"), "a", poison, closes=True)
    ]
    assert "pod ns/bad on a" in refused(done)["late"].message
    assert state.bound.unread.closers(state.nodes, "a") == ["pod ns/bad on a"]
    assert state.bound.unread.closers(state.nodes, "b") == []
    state.upsert_pod(pod("bad", at="a", **unknown, labels=(("new", "label"),)))
    assert not [each for each in run(state) if isinstance(each, Unread)], "told once"
    state.remove_pod("uid-late")
    state.remove_pod("uid-bad")
    state.upsert_pod(pod("next", node_name="a"))
    assert placed(run(state)) == {"next": "a"}


def test_what_was_read_of_a_pod_counts_on_when_it_can_be_read_no_longer():
    """By its size when it was read, else by its requests; neither closes its node."""
    wrong = Reason(ReasonCode.INVALID_SPEC, "gpu-fraction")
    whole, part = spec(gpus=2), spec(gpus=1, milli=500, cpu=10)
    state = cluster(
        [node("n")], pods=[pod("read", at="n", spec_=part, time_limit=60.0), pod("new", at="n", spec_=whole, error=wrong)]
    )
    done = run(state)
    assert [(each.pod.name, each.closes) for each in done if isinstance(each, Unread)] == [("new", False)]

    state.upsert_pod(pod("read", at="n", spec_=spec(gpus=0, cpu=10), error=wrong))
    assert [each.pod.name for each in run(state) if isinstance(each, Unread)] == ["read"]
    assert (state.tasks["uid-read"].pod.spec, state.tasks["uid-read"].pod.time_limit) == (part, 60.0)
    assert sum(state.nodes.devices.states[state.nodes.device.item(0)]) == 5500
    state.upsert_pod(pod("other", spec_=spec(gpus=5)))
    assert placed(run(state)) == {"other": "n"}
    # Its size cannot be known at all, or nothing of it can be read: it was known, and goes on to count.
    for lost in (pod("read", at="n", spec_=PodSpec(), error=wrong, unsized=True), pod("read", error=wrong, unsized=True)):
        state.upsert_pod(lost)
        run(state)
        assert state.tasks["uid-read"].pod.spec == part
        assert state.tasks["uid-read"].pod.node == "n"
        assert state.nodes.open[0]
    invariants.check(state)
    state.upsert_pod(pod("read", at="n", spec_=part))
    assert state.tasks["uid-read"].pod.error is None


def test_pods_that_together_ask_for_more_than_can_be_counted_close_their_node():
    """Eight pods of 2^60 bytes each, put on one node by another scheduler, are beyond 64 bits together."""
    most = spec(gpus=0, memory=1 << 60)
    state = cluster([node("n"), node("other")])
    for number in range(12):
        state.upsert_pod(pod(f"p{number}", at="n", spec_=most, ours=False))
    early = [pod(f"e{number}", at="late", spec_=most, ours=False) for number in range(12)]
    for each in early:
        state.upsert_pod(each)
    state.upsert_node(node("late"))
    invariants.check(state)
    closing = [each for each in run(state) if isinstance(each, Unread)]
    assert {each.node for each in closing} == {"n", "late"}
    assert all(each.closes and "more than can be counted" in each.reason.message for each in closing)
    state.upsert_pod(pod("p11", at="n", spec_=most, ours=False, labels=(("a", "b"),)))
    invariants.check(state)
    for number in range(12):
        state.remove_pod(f"uid-p{number}")
    invariants.check(state)
    state.upsert_pod(pod("fits", node_name="n"))
    assert placed(run(state)) == {"fits": "n"}


def test_names_of_resources_that_no_node_offers_fill_no_memory():
    state = cluster([node("n")])
    for number in range(3000):
        state.upsert_pod(pod(f"p{number}", spec_=spec(gpus=0, extra={f"example.com/r{number}": 1})))
        state.remove_pod(f"uid-p{number}")
    assert len(state.nodes.resources) <= MOST_RESOURCES
    state.upsert_pod(pod("new", spec_=spec(gpus=0, extra={"example.com/new": 1})))
    state.upsert_pod(pod("runs", at="n", spec_=spec(gpus=0, cpu=5000, extra={"example.com/other": 1})))
    state.upsert_pod(pod("fine"))
    done = run(state)
    assert placed(done) == {"fine": "n"}
    assert "no node offers example.com/new" in refused(done)["new"].message
    assert state.nodes.open[0]
    assert state.nodes.free[0].item(0) == 64_000 - 6000, "what runs counts by what is counted"
    offers = node("m")
    state.upsert_node(msgspec.structs.replace(offers, allocatable={**offers.allocatable, "example.com/new": 2}))
    state.upsert_pod(pod("new", spec_=spec(gpus=0, extra={"example.com/new": 1})))
    assert placed(run(state)) == {"new": "m"}
    invariants.check(state)


def test_a_node_that_cannot_be_read_names_itself():
    wrong = Reason(ReasonCode.INVALID_SPEC, "cpu: 'many' is not a quantity")
    state = cluster([node("n", error=wrong)], pods=[pod("p")])
    done = run(state)
    assert [each for each in done if isinstance(each, Unread)] == [Unread(None, "n", wrong, closes=True)]
    assert refused(done)["p"].code is ReasonCode.NODE_CLOSED
    assert "node n itself: cpu: 'many' is not a quantity" in refused(done)["p"].message
    state.upsert_node(node("n", error=wrong, labels={"a": "b"}))
    assert not [each for each in run(state) if isinstance(each, Unread)]


def test_unknown_queue_gates_and_return():
    state = cluster([node("n")], pods=[pod("lost", queue="nowhere"), pod("gated", gated=True), pod("fine")])
    done = run(state)
    assert placed(done) == {"fine": "n"}
    assert {name: reason.code for name, reason in refused(done).items()} == {
        "lost": ReasonCode.UNKNOWN_QUEUE,
        "gated": ReasonCode.GATED,
    }
    state.upsert_queue(queue("default"))
    state.upsert_queue(queue("nowhere"))
    state.upsert_pod(pod("gated"))
    assert placed(run(state)) == {"lost": "n", "gated": "n"}


def test_a_failed_binding_backs_off_and_comes_again():
    state = cluster([node("n")], pods=[pod("p")])
    run(state, now=100.0)
    state.bind_failed("uid-p", 100.0)
    invariants.check(state)
    assert run(state, now=100.5) == []
    assert state.next_due == 101.0
    assert placed(run(state, now=101.0)) == {"p": "n"}
    state.bind_failed("uid-p", 101.0)
    assert state.next_due == 103.0


def test_the_watch_overrules_what_was_assumed():
    state = cluster([node("a"), node("b")], pods=[pod("p", gpus=8)])
    assert placed(run(state)) == {"p": "a"}
    state.upsert_pod(pod("p", gpus=8, at="b"))
    invariants.check(state)
    assert {name: dict(each["pods"]) for name, each in snapshot(state)["nodes"].items()}["a"] == {}


def test_a_stale_view_does_not_undo_a_decision():
    state = cluster([node("a")], pods=[pod("p")])
    run(state)
    state.upsert_pod(pod("p", created=0.0))
    assert state.tasks["uid-p"].row >= 0


def test_budget_cuts_a_pass_short_and_the_next_goes_on():
    state = cluster([node("n")], pods=[pod(f"p{i}") for i in range(6)])
    assert len(placed(run(state, budget=4))) == 4
    assert len(placed(run(state, budget=4))) == 2


def test_a_gang_and_its_queue_from_the_group():
    state = cluster([node("n")], [queue("team", limit=2)], [pod(f"m{i}", group="g") for i in range(3)], [group("g", 3, "team")])
    reason = refused(run(state))["m0"]
    assert reason.code is ReasonCode.LIMIT_EXCEEDED


def test_resizing_a_node_keeps_the_accounts():
    state = cluster([node("n", gpus=8)], pods=[pod(f"p{i}") for i in range(8)])
    settle(state)
    state.upsert_node(node("n", gpus=4))
    state.upsert_node(node("n", gpus=10))
    invariants.check(state)
