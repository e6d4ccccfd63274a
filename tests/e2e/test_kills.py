"""kill -9 in the middle of a burst: see `testbed/kills.py`."""

import os

import pytest

from testbed import kills
from testbed.controlplane import ControlPlane


@pytest.mark.e2e
def test_three_kills_leave_everything_in_order(tmp_path):
    with ControlPlane() as plane:
        plane.install(kills.USER)
        result = kills.run(plane, 3, seed=1, logs=tmp_path)
    assert result.kills == 3
    assert result.clean, result
    assert any(0 < count < result.pods for count in result.killed_after), "no kill came in the middle of the burst"


@pytest.mark.e2e
@pytest.mark.slow
def test_a_hundred_kills_leave_everything_in_order(tmp_path):
    with ControlPlane() as plane:
        plane.install(kills.USER)
        result = kills.run(plane, int(os.environ.get("FAIRLEAD_KILLS", "100")), seed=2, logs=tmp_path)
    assert result.clean, result
