"""In random clusters of several tenants no answer of the leader about one namespace has a text of another's object."""

import msgspec
import pytest

from fairlead.cluster.port import Synced
from fairlead.cluster.translate import first_events
from fairlead.core.model.policy import Policy
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.overview import jobs
from fairlead.scheduler.overview.served import Overview
from tests.simulation.asked_worlds import MARK, OWN, USER, Worlds


def decided(seed):
    objects = Worlds(seed).objects()
    core = CoreLoop(Policy(patience=0.0, reservations=3), lambda outputs: None)
    core.apply([*first_events(objects), Synced()], objects.now)
    for later in (0.0, 30.0, 60.0):
        core.decide(objects.now + later)
    return core, objects.now + 60.0


async def answers(core, now):
    """Everything that a user of the namespace may ask."""

    async def ask(question):
        return question(core)

    overview = Overview(ask)
    own = [task for task in core.state.tasks.values() if task.pod.namespace == OWN]
    yield [explanations.live(core, "pod", OWN, task.pod.name, now) for task in own]
    yield [explanations.live(core, "podgroup", OWN, task.pod.group, now) for task in own if task.pod.group]
    yield explanations.pending(core, OWN)
    yield (await overview.jobs(OWN)).rows
    yield await overview.others(OWN)
    yield (await overview.nodes(OWN)).rows
    yield await overview.queues()
    yield await overview.quotas(lambda name: name == USER)


@pytest.mark.parametrize("seeds", [range(first, first + 40) for first in (0, 40, 80)], ids=str)
async def test_no_answer_has_a_text_of_another_namespace(seeds):
    named = 0
    for seed in seeds:
        core, now = decided(seed)
        async for answer in answers(core, now):
            assert MARK not in msgspec.json.encode(answer).decode(), seed
        rows = jobs.Rows(core.state, core.reports.starts.interval).of(jobs.keys(core.state, OWN))
        named += any(row.reason is not None and MARK in row.reason.message for row in rows)
    assert named > 3, "some reasons name others where the whole cluster is shown"
