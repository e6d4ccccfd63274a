"""A lab that runs for days keeps what a day needs, and the core forgets pods that are gone."""

import asyncio
from collections import Counter

import pytest

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.simulation import endurance
from fairlead.simulation.lab import DAY, Lab

LARGEST_GROWTH = 10.0  # percent, after the first simulated day


def sizes(lab):
    """How much there is of what could grow with every job."""
    store, state, core = lab.world.api.store, lab.state, lab.process.core
    found = Counter({f"table {name}": len(rows.rows) for name, rows in store._tables.items()})
    for name in ("runs", "submitted", "finished", "first_start"):
        found[f"tenants.{name}"] = len(getattr(lab.tenants, name))
    found["owners"] = len(lab.world.api.garbage._owned)
    for owner in (state, state.services, state.runtimes, state.shapes, state.pairs, core._core):
        for name, value in vars(owner).items():
            if isinstance(value, (dict, set, list)):
                found[f"{type(owner).__name__}.{name}"] = len(value)
    return found


def test_the_history_for_watches_is_bounded_and_old_jobs_are_forgotten():
    async def main():
        lab = Lab(nodes=3, jobs=180, seed=1)  # which ask for more than the lab has
        lab.start(endless=True)
        found = []
        for _ in range(3):
            await asyncio.sleep(DAY)
            found.append(sizes(lab))
        assert len(lab.world.api.store.history) <= 10_000
        await lab.process.kill()
        return found

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        first, *_, last = runner.run(main())
    grown = {name: (first[name], count) for name, count in last.items() if count > 2 * first[name] + 200}
    assert not grown


@pytest.mark.slow
def test_the_demo_runs_for_an_hour_in_the_memory_of_its_first_day():
    watched = endurance.run(60, 24)
    assert watched.simulated_days == 25
    assert watched.growth_percent <= LARGEST_GROWTH, watched
