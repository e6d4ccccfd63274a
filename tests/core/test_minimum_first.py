"""A gang starts with what it needs: no member is bound before, whoever's victims leave first, and whoever goes meanwhile."""

import pytest

from fairlead.core.actions import assume, kept_places
from fairlead.core.pods.tasks import TaskState
from tests.core.test_requeued import Restless


@pytest.mark.parametrize("seeds", [range(first, first + 15) for first in range(0, 90, 15)])
def test_no_member_starts_before_its_gang_has_what_it_needs(seeds, monkeypatch):
    started, early, start = [], [], assume.start

    def noted(state, tasks, now):
        gang = tasks[0].gang
        if gang is not None and not tasks[0].pod.placeholder:
            started.append(gang.key)
            if sum(task.state is not TaskState.HELD for task in gang.placed()) < gang.needed:
                early.append((now, gang.key, [task.pod.name for task in tasks]))
        return start(state, tasks, now)

    for module in (assume, kept_places):
        monkeypatch.setattr(module, "start", noted)
    for seed in seeds:
        world = Restless(seed)
        for _ in range(40):
            for _ in range(world.rnd.randint(0, 3)):
                world.disturb()
            world.step(world.rnd.choice([1.0, 20.0]))
        assert not early, (seed, early)
    assert len(started) > 20
