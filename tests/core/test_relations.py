"""Pods whose place depends on others: affinity, spread, ports, and what requeues those that wait."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.pods import AffinityTerm, HostPort, Mistake, SpreadConstraint
from fairlead.core.model.selectors import Requirement
from tests.builders import cluster, group, node, placed, pod, preempted, refused, run, spec

ZONE = "zone"


def selects(**labels):
    return tuple(Requirement(key, "In", (value,)) for key, value in labels.items())


def term(key=ZONE, namespaces=("ns",), namespace_selector=None, **labels):
    return AffinityTerm(key, selects(**labels), namespaces, namespace_selector)


def related(name, labels=None, at="", priority=0, gang="", created=0.0, terminating=False, **fields):
    made = pod(name, at=at, priority=priority, group=gang, created=created, spec_=msgspec.structs.replace(spec(gpus=0), **fields))
    return msgspec.structs.replace(made, labels=tuple(sorted((labels or {}).items())), terminating=terminating)


def zoned(count=6, zones=3, **more):
    return [node(f"n{number}", gpus=0, labels={ZONE: f"z{number % zones}"}, **more) for number in range(count)]


def zone_of(name):
    return int(name[1:]) % 3


def test_anti_affinity_among_the_members_of_a_gang():
    members = [related(f"p{i}", {"app": "a"}, gang="g", pod_anti_affinity=(term(app="a"),)) for i in range(3)]
    state = cluster(zoned(), groups=[group("g", 3)], pods=members)
    where = placed(run(state))
    assert sorted(zone_of(name) for name in where.values()) == [0, 1, 2]


def test_a_gang_larger_than_its_rules_allow_waits_as_a_whole():
    members = [related(f"p{i}", {"app": "a"}, gang="g", pod_anti_affinity=(term(app="a"),)) for i in range(4)]
    state = cluster(zoned(), groups=[group("g", 4)], pods=members)
    transactions = run(state)
    assert not placed(transactions)
    assert "affinity" in next(iter(refused(transactions).values())).message


def test_existing_anti_affinity_binds_newcomers():
    keeps_away = related("first", at="n0", pod_anti_affinity=(term(app="b"),))
    state = cluster(zoned(), pods=[keeps_away, related("b", {"app": "b"}), related("c", {"app": "c"})])
    where = placed(run(state))
    assert zone_of(where["b"]) != 0
    assert "c" in where


def test_a_pod_with_affinity_waits_for_its_match_and_is_requeued_by_it():
    wants = related("wants", pod_affinity=(term(app="db"),))
    state = cluster(zoned(), pods=[wants])
    transactions = run(state)
    assert not placed(transactions)
    assert refused(transactions)["wants"].code is ReasonCode.NODE_AFFINITY
    state.upsert_pod(related("db", {"app": "db"}, created=1.0))
    where = placed([*run(state), *run(state)])
    assert zone_of(where["wants"]) == zone_of(where["db"])


def test_the_first_of_its_kind_may_go_anywhere():
    pods = [related(f"p{i}", {"app": "a"}, created=i, pod_affinity=(term(app="a"),)) for i in range(4)]
    state = cluster(zoned(), pods=pods)
    assert len({zone_of(name) for name in placed(run(state)).values()}) == 1


def together(name, labels=None, near="a", **more):
    return related(name, labels or {"app": "a"}, gang="g", pod_affinity=(term(app=near),), **more)


@pytest.mark.parametrize("narrow", [0, 1, 2])
def test_a_gang_that_must_stay_together_goes_where_all_of_it_fits(narrow):
    """Wherever the best row for its first member is: in one zone of three there is no capacity for the other."""
    filled = related("filled", {"app": "x"}, at=f"n{narrow + 3}")
    state = cluster(zoned(6, pods=1), groups=[group("g", 2)], pods=[filled, *(together(f"p{i}") for i in range(2))])
    other = related("other", {"app": "x"}, at=f"n{(narrow + 1) % 3 + 3}")
    state.upsert_pod(other)
    where = placed(run(state))
    assert [zone_of(name) for name in where.values()] == [(narrow + 2) % 3] * 2


def test_the_reason_of_a_colocated_gang_has_the_capacity_that_there_is():
    state = cluster(zoned(6, pods=1), groups=[group("g", 3)], pods=[together(f"p{i}") for i in range(3)])
    reason = refused(run(state))["p0"]
    assert reason.code is ReasonCode.RESOURCES
    assert reason.message.endswith(f"but 3 of them must share one {ZONE}, and at most 2 fit in one now")


def test_members_that_follow_others_of_their_gang_come_after_them():
    """Workers require their launcher, which requires none."""
    members = [together(f"a{i}", {"app": "w"}, near="l") for i in range(2)]
    members.append(related("launcher", {"app": "l"}, gang="g"))
    busy = [related(f"b{i}", {"app": "x"}, at=f"n{i}") for i in (0, 3, 1)]
    state = cluster(zoned(9, pods=1), groups=[group("g", 3)], pods=[*busy, *members])
    assert [zone_of(name) for name in placed(run(state)).values()] == [2, 2, 2]


def test_a_gang_finds_the_zone_for_each_of_its_parts():
    """Two kinds of members, each of which stays together, and one of which the other keeps away."""
    away = (term(app="b"),)
    members = [together(f"a{i}", pod_anti_affinity=away) for i in range(2)]
    members += [together(f"b{i}", {"app": "b"}, near="b") for i in range(3)]
    busy = [related("x", {"app": "x"}, at="n0"), related("y", {"app": "x"}, at="n1")]
    state = cluster(zoned(9, pods=1), groups=[group("g", 5)], pods=[*busy, *members])
    where = placed(run(state))
    assert {zone_of(where[f"b{i}"]) for i in range(3)} == {2}
    assert {zone_of(where[f"a{i}"]) for i in range(2)} in ({0}, {1})


def test_spread_keeps_zones_even_and_is_requeued_by_a_leaving_pod():
    rule = SpreadConstraint(ZONE, 1, selects(app="a"))
    pods = [related(f"p{i}", {"app": "a"}, created=i, spread=(rule,)) for i in range(7)]
    state = cluster(zoned(6, pods=1), pods=pods)
    transactions = run(state)
    zones = [zone_of(name) for name in placed(transactions).values()]
    assert sorted(zones) == [0, 0, 1, 1, 2, 2]
    assert list(refused(transactions)) == ["p6"]
    gone = next(uid for uid, task in state.tasks.items() if task.row >= 0)
    freed = state.nodes.names[state.tasks[gone].row]
    state.remove_pod(gone)
    assert placed(run(state)) == {"p6": freed}


def test_fewer_domains_than_are_asked_for_count_as_one_more_that_is_empty():
    for wanted, count in ((1, 4), (2, 4), (3, 2)):
        rule = SpreadConstraint(ZONE, 1, selects(app="a"), min_domains=wanted)
        pods = [related(f"p{i}", {"app": "a"}, created=i, spread=(rule,)) for i in range(4)]
        assert len(placed(run(cluster(zoned(4, zones=2), pods=pods)))) == count, wanted


def test_a_pod_that_its_own_rule_does_not_select_adds_nothing_to_a_domain():
    rule = SpreadConstraint(ZONE, 1, selects(app="a"))
    there = related("there", {"app": "a"}, at="n0")
    for labels, fits in (({"app": "b"}, True), ({"app": "a"}, False)):
        only = [*zoned(1), *(node(f"n{i}", gpus=0, cpu=10, labels={ZONE: f"z{i}"}) for i in (1, 2))]
        assert bool(placed(run(cluster(only, pods=[there, related("new", labels, spread=(rule,))])))) == fits


def test_terminating_pods_do_not_count_towards_spread():
    rule = SpreadConstraint(ZONE, 1, selects(app="a"))
    leaving = related("leaving", {"app": "a"}, at="n0", terminating=True)
    staying = [related(f"s{i}", {"app": "a"}, at=f"n{i}") for i in (1, 2)]
    state = cluster(zoned(), pods=[leaving, *staying, related("new", {"app": "a"}, spread=(rule,))])
    assert zone_of(placed(run(state))["new"]) == 0


def test_a_running_pod_that_changes_its_labels_counts_by_its_new_ones():
    away = related("away", pod_anti_affinity=(term(app="a"),))
    runs = related("runs", {"app": "b"}, at="n0")
    state = cluster(zoned(1), pods=[runs])
    state.upsert_pod(msgspec.structs.replace(runs, labels=(("app", "a"),)))
    state.upsert_pod(away)
    assert not placed(run(state))
    state.upsert_pod(runs)
    assert placed(run(state)) == {"away": "n0"}


def test_a_namespace_that_gets_the_label_counts_from_then_on():
    away = related("away", pod_anti_affinity=(term(namespaces=(), namespace_selector=selects(team="x"), app="a"),))
    state = cluster(zoned(1), pods=[related("runs", {"app": "a"}, at="n0")])
    state.upsert_namespace(Namespace("ns", (("team", "x"),)))
    state.upsert_pod(away)
    assert not placed(run(state))
    state.upsert_namespace(Namespace("ns", (("team", "y"),)))
    assert placed(run(state)) == {"away": "n0"}


@pytest.mark.parametrize(
    ("held", "address", "fits"),
    [
        ("127.0.0.1", "0.0.0.0", False),  # noqa: S104
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "10.0.0.1", True),
        ("0.0.0.0", "10.0.0.1", False),  # noqa: S104
        ("0.0.0.0", "0.0.0.0", False),  # noqa: S104
    ],
)
def test_a_port_of_the_node_goes_to_one_pod(held, address, fits):
    runs = related("runs", at="n0", ports=(HostPort(held, "TCP", 80),))
    wants = related("wants", ports=(HostPort(address, "TCP", 80), HostPort("127.0.0.1", "UDP", 80)))
    state = cluster(zoned(1), pods=[runs, wants])
    assert bool(placed(run(state))) is fits
    state.remove_pod(runs.uid)
    assert fits or placed(run(state)) == {"wants": "n0"}


def test_a_gang_that_wants_the_same_port_spans_nodes():
    members = [related(f"p{i}", gang="g", ports=(HostPort("0.0.0.0", "TCP", 80),)) for i in range(3)]  # noqa: S104
    state = cluster(zoned(3), groups=[group("g", 3)], pods=members)
    assert len(set(placed(run(state)).values())) == 3


def test_preemption_sees_what_would_be_around():
    """Only the pod that the newcomer keeps away from must go, although another is cheaper."""
    pods = [related("kin", {"app": "a"}, at="n0", priority=5), related("other", {"app": "b"}, at="n0", priority=1)]
    state = cluster(zoned(1), pods=[*pods, related("high", priority=9, pod_anti_affinity=(term(app="a"),))])
    assert preempted(run(state)) == [["kin"]]


def test_what_cannot_be_parsed_stops_its_own_pod():
    broken = related("broken", mistakes=(Mistake("InterPodAffinity", "'Near' is not an operator"),))
    transactions = run(cluster(zoned(), pods=[broken, related("fine")]))
    assert list(placed(transactions)) == ["fine"]
    assert refused(transactions)["broken"].code is ReasonCode.INVALID_SPEC
