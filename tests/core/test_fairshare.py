"""The division of one amount among siblings."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.queues.division import Claim, divide


@pytest.mark.parametrize(
    ("total", "claims", "wanted"),
    [
        # guarantees first; over-quota capacity by weight
        (10, [Claim("a", 10, quota=2), Claim("b", 10, quota=4)], {"a": 4, "b": 6}),
        (12, [Claim("a", 99, weight=1), Claim("b", 99, weight=2), Claim("c", 99, weight=3)], {"a": 2, "b": 4, "c": 6}),
        # a queue that requests less leaves it to the others
        (12, [Claim("a", 1), Claim("b", 99), Claim("c", 99)], {"a": 1, "b": 6, "c": 5}),
        # no more than the limit
        (10, [Claim("a", 99, limit=3), Claim("b", 99)], {"a": 3, "b": 7}),
        # guarantees may add up to more than there is
        (4, [Claim("a", 9, quota=3), Claim("b", 9, quota=3)], {"a": 3, "b": 3}),
        # an unused guarantee is lent
        (10, [Claim("a", 0, quota=8), Claim("b", 99)], {"a": 0, "b": 10}),
        # a lower priority gets what the higher one left
        (10, [Claim("a", 8, priority=1), Claim("b", 99)], {"a": 8, "b": 2}),
        (10, [Claim("a", 99, priority=1), Claim("b", 99, quota=2)], {"a": 8, "b": 2}),
        # weight 0 gets only what is guaranteed
        (10, [Claim("a", 99, quota=1, weight=0), Claim("b", 5)], {"a": 1, "b": 5}),
        # the remainder of rounding goes to the largest fraction, then to the larger guarantee, then by name
        (5, [Claim("a", 99), Claim("b", 99)], {"a": 3, "b": 2}),
        (6, [Claim("a", 99), Claim("b", 99, quota=1)], {"a": 2, "b": 4}),
        (7, [Claim("a", 99, weight=1), Claim("b", 99, weight=2)], {"a": 2, "b": 5}),
    ],
)
def test_divisions(total, claims, wanted):
    assert divide(total, claims) == wanted
    assert divide(total, list(reversed(claims))) == wanted, "the order of siblings does not matter"


def test_past_use_shifts_the_over_quota_capacity():
    light, heavy = Claim("light", 99, usage=0.1), Claim("heavy", 99, usage=0.9)
    assert divide(100, [light, heavy], usage_weight=0) == {"light": 50, "heavy": 50}
    assert divide(100, [light, heavy]) == {"light": 90, "heavy": 10}
    assert divide(100, [light, Claim("heavy", 99, quota=40, usage=1.0)]) == {"light": 60, "heavy": 40}, "a guarantee is kept"


def test_devices_are_given_whole_unless_less_is_asked():
    assert divide(5000, [Claim("a", 9000), Claim("b", 9000)], unit=1000) == {"a": 3000, "b": 2000}
    assert divide(5000, [Claim("a", 1500), Claim("b", 9000)], unit=1000) == {"a": 1500, "b": 3500}


CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.uuids().map(str),
        request=st.integers(0, 200),
        quota=st.none() | st.integers(0, 50),
        limit=st.none() | st.integers(0, 100),
        weight=st.integers(0, 9),
        priority=st.integers(0, 2),
        usage=st.floats(0, 1),
    ),
    max_size=9,
    unique_by=lambda claim: claim.name,
)


@given(st.integers(0, 300), CLAIMS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_names_decide_only_between_equal_guarantees(total, claims, unit, rnd):
    claims = [msgspec.structs.replace(claim, quota=(claim.quota or 0) * 16 + number) for number, claim in enumerate(claims)]
    others = rnd.sample(range(100), len(claims))
    renamed = [msgspec.structs.replace(claim, name=f"{other}") for claim, other in zip(claims, others, strict=True)]
    shares, same = divide(total, claims, unit), divide(total, renamed, unit)
    assert [shares[claim.name] for claim in claims] == [same[claim.name] for claim in renamed]


@given(st.integers(0, 300), CLAIMS, st.integers(1, 8))
def test_no_claim_gets_more_than_requested_nor_less_than_guaranteed_and_nothing_is_left_while_one_wants(total, claims, unit):
    shares = divide(total, claims, unit)
    for claim in claims:
        assert min(claim.quota or 0, claim.demand) <= shares[claim.name] <= claim.demand
    guaranteed = sum(min(claim.quota or 0, claim.demand) for claim in claims)
    assert sum(shares.values()) <= max(total, guaranteed)
    even = [Claim(each.name, each.request, each.quota, each.limit, each.weight, each.priority) for each in claims]
    fair = divide(total, even)
    wanting = [claim for claim in even if claim.weight and claim.demand > fair[claim.name]]
    if wanting:
        assert sum(fair.values()) >= total, "something is left although somebody wants it"
    for one in wanting:
        for other in wanting:
            if one.priority == other.priority and not one.quota and not other.quota:
                assert abs(fair[one.name] * other.weight - fair[other.name] * one.weight) <= 2 * one.weight * other.weight + 18
