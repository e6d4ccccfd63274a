"""Pressures as annotations have them."""

import random

import pytest

from fairlead.api import pressure
from fairlead.api.quantity import QuantityError


def test_what_is_written_is_read():
    rnd = random.Random(1)
    for _ in range(300):
        given = tuple(rnd.choice([0, rnd.randint(0, 1000)]) for _ in pressure.KINDS)
        text = pressure.written(given)
        assert not any(given) or pressure.read(text) == given


def test_shares():
    assert pressure.read("memoryBandwidth=40%, network=2.5%") == (400, 0, 25, 0)
    assert pressure.read("pcie=100%,disk=0%") == (0, 1000, 0, 0)
    assert pressure.read("disk=0%") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("memory=40%", "'memory' is no kind of pressure: kinds are memoryBandwidth, pcie, network, disk"),
        ("disk=101%", "disk: '101%' is not a percentage from 0% to 100%"),
        ("disk=-1%", "disk: '-1%' is not"),
        ("disk=0.5", "disk: '0.5' is not"),
        ("disk=10.25%", "disk: '10.25%' is not"),
        ("disk", "'disk' is not one kind=value"),
        ("", "'' is not one kind=value"),
        ("disk=1%,disk=2%", "'disk=2%' is not one kind=value, each kind once"),
        ("disk=" + "9" * 600, "characters are more than 512"),
        ("disk=٣%", "is not a percentage"),
    ],
)
def test_what_cannot_be_read(text, why):
    with pytest.raises(QuantityError) as refused:
        pressure.read(text)
    assert why in str(refused.value)


def test_measurements():
    assert pressure.read_measured("at=2027-01-31T08:00:00Z,network=20%") == ("2027-01-31T08:00:00Z", (0, 0, 200, 0))
    found = pressure.read_measured("at=x,cpu=250%,disk=99999%", pressure.LOADS)
    assert found == ("x", (0, 0, 0, pressure.MOST_LOAD, 2500))
    for text, why in [("network=20%", "at= is missing"), ("at=x,cpu=1%", "'cpu' is not measured"), ("at=x,disk=a%", "'a%'")]:
        with pytest.raises(QuantityError) as refused:
            pressure.read_measured(text)
        assert why in str(refused.value)
