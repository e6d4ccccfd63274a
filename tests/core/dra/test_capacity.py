"""What a request consumes of a capacity: rounded up by its policy, never beyond what is allowed."""

from fractions import Fraction

import pytest

from fairlead.core.dra.capacity import consumed, consumption
from fairlead.core.dra.model import Capacity, Policy


@pytest.mark.parametrize(
    ("requested", "policy", "expected"),
    [
        (None, None, 10),
        (None, Policy(default=3), 3),
        (4, None, 4),
        (1, Policy(least=2), 2),
        (5, Policy(least=2, step=2), 6),
        (6, Policy(least=2, step=2), 6),
        (Fraction(5, 2), Policy(least=1, step=Fraction(1, 2)), Fraction(5, 2)),
        (3, Policy(values=(2, 4, 8)), 4),
        (9, Policy(values=(2, 4, 8)), 9),
    ],
)
def test_requests_are_rounded_up(requested, policy, expected):
    assert consumed(requested, Capacity(10, policy)) == expected


@pytest.mark.parametrize(
    ("requested", "policy", "fits"),
    [
        ({"m": 10}, None, True),
        ({"m": 11}, None, False),
        ({"other": 1}, None, False),
        ({"m": 7}, Policy(least=1, most=6), False),
        ({"m": 9}, Policy(values=(2, 4, 8)), False),
        ({}, Policy(default=5, values=(2, 4)), True),
    ],
)
def test_what_a_device_never_has_is_refused(requested, policy, fits):
    assert (consumption(requested, {"m": Capacity(10, policy)}) is not None) == fits


def test_every_rounded_amount_is_allowed_and_the_least_such():
    """For each whole request the consumption is what a search over all amounts finds."""
    for least in range(1, 4):
        for step in range(1, 4):
            for most in range(least, 12):
                policy = Policy(least=least, most=most, step=step)
                allowed = [each for each in range(least, min(most, 10) + 1) if (each - least) % step == 0]
                for requested in range(1, 13):
                    expected = min((each for each in allowed if each >= requested), default=None)
                    found = consumption({"m": requested}, {"m": Capacity(10, policy)})
                    assert (found["m"] if found else None) == expected, (policy, requested)
