"""Speeds as annotations have them."""

import random

import pytest

from fairlead.api import speeds
from fairlead.api.quantity import QuantityError

AT = "2027-01-31T08:00:00Z"


def test_what_is_written_is_read():
    rnd = random.Random(1)
    for _ in range(300):
        given = rnd.choice([0.0, 1.0, rnd.random(), rnd.random() * 1e6])
        at, found = speeds.read(speeds.written(AT, given))
        assert at == AT
        assert found == pytest.approx(given, abs=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "speed=1",
        "at=,speed=1",
        f"speed=1,at={AT}",
        f"at={AT}",
        *(f"at={AT},{rest}" for rest in ("speed=", "speed=-1", "speed=nan", "speed=1e3", "steps=1", "speed=1,speed=2")),
        f"at={AT},speed={'1' * 200}",
    ],
)
def test_what_is_no_measurement_is_refused(text):
    with pytest.raises(QuantityError, match="is not a measurement such as at="):
        speeds.read(text)
