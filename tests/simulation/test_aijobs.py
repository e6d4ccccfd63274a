"""AIJobs on the simulated cluster: what a killed operator changes (nothing), and what elastic jobs and arrays make of a cluster."""

import asyncio
import time

from fairlead.simulation import aijobs
from fairlead.simulation.charged import ChargedLoop, at_the_expense_of


def test_every_job_comes_to_the_end_that_it_would_have_come_to():
    found = aijobs.kills(5, seed=7)
    assert found.differences == []
    assert (found.kills, found.jobs) == (5, 12)


def test_an_elastic_job_uses_what_is_free_and_changes_its_size_no_oftener_than_it_must():
    found = aijobs.elastic(minutes=5.0, seed=3)
    assert found.used >= 0.95
    assert found.resizes <= found.changes
    assert (found.restarts, found.lost_units, found.phase) == (0, 0, "Running")


def test_an_array_works_itself_off():
    with asyncio.Runner(loop_factory=ChargedLoop) as runner:
        found = runner.run(aijobs.work_off(100, 16, 1.0))
    assert found.ideal == 7.0
    assert found.makespan >= 7.0


def test_who_is_charged_pays_with_everybodys_time():
    loops = []

    async def story():
        loop = asyncio.get_running_loop()
        loops.append(loop)
        done = asyncio.Event()

        async def work():
            sum(range(300_000))
            loop.free(lambda: sum(range(3_000_000)))()
            done.set()

        begun = loop.time()
        at_the_expense_of("worker", lambda: loops.append(asyncio.create_task(work())))
        await done.wait()
        return loop.time() - begun

    begun = time.thread_time()
    with asyncio.Runner(loop_factory=ChargedLoop) as runner:
        taken = runner.run(story())
    charged = loops[0].charged
    assert set(charged) == {"worker"}
    assert 0 < charged["worker"] <= taken + 1e-9
    assert charged["worker"] < (time.thread_time() - begun) / 2, "what the world does is free"
