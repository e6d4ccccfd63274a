"""Times of any size, as the API server writes them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cluster.times import seconds, timestamp


@given(st.floats(-62_135_596_800, 253_402_300_799))
def test_what_can_be_written_is_read_again(at):
    text = timestamp(at)
    assert len(text) == len("2026-01-01T00:00:00Z")
    assert text.startswith("0001-01-01T00:00:00") or seconds(text) == pytest.approx(at, abs=1.001)


@given(st.floats())
def test_whatever_is_added_to_a_time_can_be_written(at):
    assert len(timestamp(at)) == len("2026-01-01T00:00:00Z")


def test_beyond_the_year_9999_it_is_its_last_second():
    assert timestamp(1e18) == timestamp(math.inf) == "9999-12-31T23:59:59Z"
