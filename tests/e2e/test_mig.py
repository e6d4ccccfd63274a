"""Nodes reconfigured through a played mig-manager on the real API server: see `testbed/mig.py`."""

import pytest

from fairlead.simulation.mig.reconfigured import Stream
from testbed import mig

STREAM = Stream(
    nodes=1,
    pods=12,
    phase=6,
    run=2.0,
    apply=1.0,
    settle=3.0,
    pending_for=1.0,
    cooldown=2.0,
    timeout=60.0,
    fails=0.0,
    hangs=0.0,
)


@pytest.mark.e2e
def test_pods_get_the_partitions_that_they_wait_for_and_none_is_hit():
    found = mig.run(STREAM, print)
    assert found.placed == found.pods == 12
    assert found.running_pods_hit == 0
    assert found.reconfigurations >= 1
    assert found.outcomes["Succeeded"] == found.reconfigurations
    assert found.cordoned == 0
