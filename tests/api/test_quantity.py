from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.quantity import SANE_MAXIMUM, QuantityError, amount, parse, show


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "500m", 500),
        ("cpu", "0.5m", 1),
        ("cpu", "2", 2000),
        ("cpu", 2, 2000),
        ("memory", "100m", 1),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "1e3", 1000),
        ("memory", "12E2", 1200),
        ("memory", "1n", 1),
        ("memory", "1e-1000", 1),
        ("memory", "0e999", 0),
        ("memory", "+.5k", 500),
        ("nvidia.com/gpu", "8", 8),
        ("memory", "-0", 0),
    ],
)
def test_amounts_are_exact_and_round_up(resource, text, expected):
    assert amount(resource, text) == expected


@pytest.mark.parametrize(
    "text", ["", "abc", "1 Gi", "1GiB", "--1", "1e", "0x10", "1,5", "٣", "NaN", "inf", "1" * 80, "\x00", "1Kii"]
)
def test_what_is_no_quantity_is_said_so(text):
    with pytest.raises(QuantityError) as error:
        amount("memory", text)
    assert not error.value.too_large


@pytest.mark.parametrize("text", ["-1", "-5Gi", "-1e10"])
def test_negative_amounts_are_refused(text):
    with pytest.raises(QuantityError, match="negative"):
        amount("memory", text)


@pytest.mark.parametrize("text", ["10E", "9223372036854775807", "1e1000", "1e30", "1e99999999999999999"])
def test_absurd_amounts_are_too_large_and_never_wrap(text):
    with pytest.raises(QuantityError) as error:
        amount("cpu", text)
    assert error.value.too_large


@given(st.integers(0, SANE_MAXIMUM // 1000), st.sampled_from(["", "m", "u", "k", "Ki"]))
def test_agrees_with_fractions(number, suffix):
    scale = {"": 1, "m": Fraction(1, 1000), "u": Fraction(1, 10**6), "k": 1000, "Ki": 1024}[suffix]
    assert parse(f"{number}{suffix}") == number * scale


def test_shows_amounts_as_people_write_them():
    assert show("cpu", 1500) == "1.5"
    assert show("memory", 1536 << 20) == "1.5Gi"
    assert show("nvidia.com/gpu", 8) == "8"
