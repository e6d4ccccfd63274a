"""A node that the operator takes for lost, and the scheduler does not: what is bound there meanwhile is not restarted at once."""

import asyncio

import pytest

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.operator.jobs.hardware import Hardware


class Clocked:
    """A client of which only the clock is asked."""

    def clock(self):
        return 1000.0 + asyncio.get_running_loop().time()


@pytest.mark.parametrize("back", [False, True], ids=["stays away", "comes back"])
def test_a_pod_that_was_bound_there_since_is_given_time(back):
    async def story():
        lost = []
        hardware = Hardware(Clocked(), lost.append, lambda: None)
        hardware._down["n"] = 1000.0
        assert hardware.is_lost("n", 999.0)
        await asyncio.sleep(5.0)
        assert not hardware.is_lost("n", 1004.0), "whoever bound it had heard of the node"
        assert not hardware.is_lost("other", 999.0)
        if back:
            hardware._down.pop("n")
        await asyncio.sleep(119.0 + 2.0)
        return lost, hardware.is_lost("n", 1004.0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        lost, gone = runner.run(story())
    assert (lost, gone) == (([], False) if back else (["n"], True))
