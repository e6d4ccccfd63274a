"""One pod's claims on one node: what fits, what does not and why, and what the result says."""

import pytest

from fairlead.core.dra.allocator import Options, Preference
from fairlead.core.dra.held import Held
from fairlead.core.dra.model import (
    ALL,
    Allocation,
    Ask,
    Capacity,
    Chosen,
    Claim,
    Config,
    Constraint,
    DeviceClass,
    DeviceId,
    Policy,
    Reach,
    Request,
    Taint,
    Toleration,
)
from fairlead.core.dra.refusals import Kind
from fairlead.core.dra.search import Search
from fairlead.core.model.selectors import NAME_FIELD, Requirement, SelectorTerm
from tests.core.dra.worlds import DRIVER, ask, claim, device, first_available, names, node, partitions, pool, solve, state

PLAIN = [device(f"d{at}", attributes={"model": "a" if at < 2 else "b", "uuid": f"u{at}"}) for at in range(4)]


def held(*devices, pool_name="n0", **fields):
    result = Held()
    result.take([Allocation(tuple(Chosen("r", DeviceId(DRIVER, pool_name, each), **fields) for each in devices))])
    return result


def test_the_first_devices_that_match_are_taken_in_order():
    assert names(solve(state(pool(*PLAIN)), claim(ask("r", 2, "model=b"), ask("s", 1)))) == [["d2", "d3", "d0"]]


def test_a_later_request_makes_an_earlier_one_choose_another_device():
    assert names(solve(state(pool(*PLAIN)), claim(ask("r", 2), ask("s", 2, "model=a")))) == [["d2", "d3", "d0", "d1"]]


def test_refusals_count_each_device_where_it_fails_first():
    tainted = device("d9", attributes={"model": "a"}, taints=(Taint("bad"),))
    here = state(pool(*PLAIN, tainted), held=held("d0"))
    refusal = solve(here, claim(ask("r", 2, "model=a")))
    assert refusal.kind is Kind.DEVICES
    assert (refusal.claim, refusal.request, refusal.wanted, refusal.counts.left) == ("d/c", "r", 2, 1)
    assert refusal.text() == (
        "claim d/c, request r: 2 of the devices needed, 1 can be had: "
        "5 devices, 2 fail selector 0, 1 have a taint that is not tolerated, 1 are allocated"
    )


def test_taints_are_tolerated_by_key_value_and_effect():
    here = state(pool(device("d0", taints=(Taint("bad", "x"), Taint("old", effect="None")))))
    for toleration, fits in (
        (Toleration("bad", "Equal", "x"), True),
        (Toleration("bad", "Equal", "y"), False),
        (Toleration("bad", "Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration("bad", "Unknown"), False),
    ):
        assert isinstance(solve(here, claim(ask("r", 1, tolerations=(toleration,)))), list) == fits, toleration


def test_what_cannot_be_helped_by_other_devices_is_said():
    here = state(pool(*PLAIN))
    missing = solve(here, claim(ask()), classes={})
    assert (missing.kind, missing.message) == (Kind.NO_CLASS, "DeviceClass 'gpu' is not there")
    unread = solve(here, Claim("d", "c", mistake="count is negative"))
    assert (unread.kind, unread.can_change_by_itself) == (Kind.INVALID, False)
    many = solve(here, claim(ask("r", 33)))
    assert many.message == "it asks for at least 33 devices, and a claim can have 32"
    empty = solve(here, Claim("d", "c", (Request("r", ()),)))
    assert "exactly and firstAvailable" in empty.message
    large = solve(here, *(claim(ask("r", 32), name=f"c{at}") for at in range(9)))
    assert (large.kind, large.wanted) == (Kind.INVALID, 288)
    unknown = solve(here, claim(Ask("r", "gpu", "Some")))
    assert unknown.message == "allocation mode 'Some' is not known"


def test_the_first_alternative_that_goes_with_all_others_is_taken():
    slices = partitions(1)
    options = (ask("r/w", 1, "kind=whole"), ask("r/h", 1, "kind=half"))
    alone = Claim("d", "c", (first_available("r", *options),))
    assert names(solve(state(*slices), alone)) == [["gpu-0-whole-0"]]
    both = [Claim("d", f"c{at}", (first_available("r", *options),)) for at in range(2)]
    assert names(solve(state(*slices), *both)) == [["gpu-0-half-0"], ["gpu-0-half-2"]]


def test_counters_are_of_one_driver_and_pool():
    """Two drivers that name their pools alike do not share counters."""
    slices = partitions(1)
    other = [
        pool(device("x", driver="nic", counters=(("gpu-0", (("s0", 1),)),)), driver="nic", slices=2),
        pool(driver="nic", slices=2, part=1, counters=(("gpu-0", {"s0": 1}),)),
    ]
    here = state(*slices, *other)
    assert names(solve(here, claim(ask("r", 1, "kind=whole"), ask("s", 1)))) == [["gpu-0-whole-0", "x"]]
    assert solve(here, claim(ask("r", 2, "kind=half"), ask("s", 1, "kind=quarter"))).kind is Kind.TOGETHER


def test_a_withdrawn_device_goes_on_consuming_its_counters():
    devices, counters = partitions(1)
    gone = next(each for each in devices.devices if each.name == "gpu-0-half-0")
    rest = pool(*(each for each in devices.devices if each is not gone), slices=2)
    known, unknown = Held(), Held()
    holding = [Allocation((Chosen("r", DeviceId(DRIVER, "n0", gone.name)),))]
    known.take(holding, {DeviceId(DRIVER, "n0", gone.name): gone})
    unknown.take(holding)
    assert solve(state(rest, counters, held=known), claim(ask("r", 1, "kind=whole"))).counts.counters == 1
    assert names(solve(state(rest, counters, held=unknown), claim(ask("r", 1, "kind=whole")))) == [["gpu-0-whole-0"]]
    known.release(holding)
    assert isinstance(solve(state(rest, counters, held=known), claim(ask("r", 1, "kind=whole"))), list)


def test_an_overdrawn_pool_gives_nothing_more():
    slices = partitions(2)
    both = held("gpu-0-whole-0", "gpu-0-half-0")
    refusal = solve(state(*slices, held=both), claim(ask("r", 1, "kind=quarter")))
    assert refusal.counts.overdrawn == 8
    assert "overdrawn counters" in refusal.text()


def test_all_devices_or_none():
    request = Ask("r", "gpu", "All", 1, ("model=a",))
    assert names(solve(state(pool(*PLAIN)), claim(request))) == [["d0", "d1"]]
    taken = solve(state(pool(*PLAIN), held=held("d1")), claim(request))
    assert (taken.kind, taken.wanted, taken.counts.left) == (Kind.DEVICES, 2, 1)
    none = solve(state(pool(*PLAIN[2:])), claim(request))
    assert none.kind is Kind.DEVICES
    incomplete = solve(state(pool(*PLAIN), pool(name="other", slices=2)), claim(request))
    assert incomplete.kind is Kind.POOL
    assert incomplete.faults == (f"{DRIVER}/other: 1 of 2 slices of generation 1 are there",)
    erring = Ask("r", "gpu", "All", 1, ("!",))
    assert solve(state(pool(*PLAIN)), claim(erring)).kind is Kind.SELECTOR


def test_a_device_that_makes_a_selector_err_does_not_match():
    refusal = solve(state(pool(*PLAIN)), claim(ask("r", 1, "!")))
    assert refusal.counts.failed == 4
    assert "4 make a selector err (gpu.example.com/n0/d0: it errs)" in refusal.text()


def test_constraints_compare_values_with_their_types():
    devices = [
        device("a", attributes={"x": 1}),
        device("b", attributes={"x": True}),
        device("c", attributes={f"{DRIVER}/x": 1}),
        device("d"),
    ]
    same = Constraint(f"{DRIVER}/x")
    assert names(solve(state(pool(*devices)), claim(ask("r", 2), constraints=[same]))) == [["a", "c"]]
    assert solve(state(pool(*devices)), claim(ask("r", 3), constraints=[same])).kind is Kind.TOGETHER
    other = Constraint(f"{DRIVER}/x", distinct=True)
    assert names(solve(state(pool(*devices)), claim(ask("r", 2), constraints=[other]))) == [["a", "b"]]
    assert solve(state(pool(*devices)), claim(ask("r", 3), constraints=[other])).kind is Kind.TOGETHER
    only = Constraint(f"{DRIVER}/x", requests=("s",))
    assert names(solve(state(pool(*devices)), claim(ask("r", 1), ask("s", 2), constraints=[only]))) == [["b", "a", "c"]]


def test_shares_of_a_device_add_up_to_its_capacity():
    policy = Policy(default=4, least=2, step=2)
    shared = device("d0", multiple=True, capacity={"memory": Capacity(10, policy)})
    some = held("d0", shared=True, consumed=(("memory", 4),))
    here = state(pool(shared), held=some)
    two = [claim(ask("r", 1, capacity=(("memory", amount),)), name=f"c{amount}") for amount in (1, 3)]
    found = solve(here, *two)
    assert [each.devices[0].consumed for each in found] == [(("memory", 2),), (("memory", 4),)]
    assert all(each.devices[0].shared for each in found)
    assert solve(here, *two, claim(ask(), name="third")).kind is Kind.TOGETHER
    assert solve(here, claim(ask("r", 1, capacity=(("memory", 7),)))).counts.shares == 1
    assert solve(here, claim(ask("r", 1, capacity=(("gone", 1),)))).counts.capacity == 1
    assert solve(here, claim(ask("r", 2))).kind is Kind.DEVICES  # one request has a device once


def test_a_device_held_in_shares_that_became_exclusive_is_not_given_again():
    some = held("d0", shared=True)
    assert solve(state(pool(device("d0")), held=some), claim(ask())).counts.allocated == 1


def test_admin_access_ignores_who_holds_a_device_and_holds_nothing():
    slices = partitions(1)
    taken = held("gpu-0-whole-0")
    answer = solve(state(*slices, held=taken), claim(ask("r", 1, "kind=half", admin=True)))
    assert names(answer) == [["gpu-0-half-0"]]
    before = state(*slices, held=taken).free
    taken.take(answer)
    assert state(*slices, held=taken).free == before


def test_the_result_says_where_it_can_be_used_and_with_which_parameters():
    term = SelectorTerm((Requirement("zone", "In", ("a",)),))
    net = pool(device("n0"), name="net", reach=Reach(terms=(term,)), driver="net")
    local = pool(device("g0"), driver="zgpu")
    here = state(net, local, at=node(zone="a"))
    classes = {"gpu": DeviceClass("gpu", configs=('{"a":1}',))}
    configs = [Config('{"b":2}', ("r",)), Config('{"c":3}', ("other",)), Config('{"d":4}')]
    answer = solve(here, claim(ask("r", 1), configs=configs), claim(ask("s", 1), name="e"), classes=classes)
    assert answer[0].terms == (term,)
    assert answer[1].terms == (SelectorTerm(fields=(Requirement(NAME_FIELD, "In", ("n0",)),)),)
    assert answer[0].configs == (("FromClass", ("r",), '{"a":1}'), ("FromClaim", ("r",), '{"b":2}'), ("FromClaim", (), '{"d":4}'))


def test_devices_with_binding_conditions_come_last_and_bind_to_their_node():
    first = pool(
        device("a0", conditions=("ready",), failures=("failed",), binds_to_node=True), name="a", reach=Reach(everywhere=True)
    )
    second = pool(device("b0"), name="b", reach=Reach(everywhere=True))
    answer = solve(state(first, second), claim(ask("r", 2)))
    assert names(answer) == [["b0", "a0"]]
    assert answer[0].devices[1].conditions == ("ready",)
    assert answer[0].terms is not None
    assert solve(state(first, second), claim(ask()))[0].terms is None


def test_beyond_the_budget_the_search_says_that_it_gave_up():
    devices = [device(f"d{at}", attributes={"x": at % 3, "y": at % 2}) for at in range(12)]
    wanted = claim(ask("r", 2), ask("s", 2), constraints=[Constraint(f"{DRIVER}/x"), Constraint(f"{DRIVER}/y", requests=("r",))])
    assert isinstance(solve(state(pool(*devices)), wanted), list)
    gave_up = solve(state(pool(*devices)), wanted, options=Options(budget=3))
    assert gave_up.kind is Kind.GAVE_UP
    assert "search gave up after 3 units of work" in gave_up.text()


@pytest.mark.parametrize("preference", list(Preference))
def test_a_claim_without_requests_needs_nothing(preference):
    assert solve(state(pool(*PLAIN)), claim(), options=Options(preference)) == [Allocation(())]


def test_all_of_too_many_devices_can_change_and_a_count_that_is_too_large_cannot():
    """How many devices `All` means depends on the node's slices; what counts ask for does not."""
    here = state(pool(*[device(f"d{at}") for at in range(40)]))
    every = solve(here, claim(Ask("r", "gpu", ALL)))
    assert (every.kind, every.wanted, every.can_change_by_itself) == (Kind.DEVICES, 40, True)
    counted = solve(here, claim(ask("r", 33), Ask("s", "gpu", ALL)))
    assert (counted.kind, counted.wanted) == (Kind.INVALID, 73)
    either = solve(here, Claim("d", "c", (first_available("r", Ask("r/a", "gpu", ALL), ask("r/b", 33)),)))
    assert either.kind is Kind.DEVICES


def test_a_pod_that_asks_for_too_many_devices_can_change_only_by_all():
    here = state(pool(*[device(f"d{at}") for at in range(32)]))
    counted = solve(here, *[claim(ask("r", 32), name=f"c{at}") for at in range(9)])
    assert (counted.kind, counted.wanted) == (Kind.INVALID, 288)
    every = solve(here, *[claim(Ask("r", "gpu", ALL), name=f"c{at}") for at in range(9)])
    assert (every.kind, every.wanted) == (Kind.DEVICES, 288)


def test_work_counts_what_is_written_down_of_each_state_and_all_phases_share_it(monkeypatch):
    """64 devices whose shares all differ: a state has 64 parts, which cost more than the device that is tried."""
    tried = 0
    taken = Search._try

    def counted(*args):
        nonlocal tried
        tried += 1
        return taken(*args)

    monkeypatch.setattr(Search, "_try", counted)
    devices = [device(f"d{at}", capacity={"m": Capacity(100)}, multiple=True) for at in range(64)]
    sizes = [34, 35] * 65
    parts = [enumerate(sizes[at : at + 32]) for at in range(0, len(sizes), 32)]
    claims = [
        claim(*[ask(f"r{at}", 1, capacity=(("m", size),)) for at, size in part], name=f"c{number}")
        for number, part in enumerate(parts)
    ]
    answer = solve(state(pool(*devices)), *claims, options=Options(budget=5000))
    assert answer.kind is Kind.GAVE_UP
    assert 5000 <= answer.work < 5000 + 100
    assert tried < 1500
