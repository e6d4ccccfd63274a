"""Rows cleared for gangs, compared with a judge that tries every choice of rows."""

import random
from itertools import combinations

from fairlead.core import invariants
from fairlead.core.preemption import search
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victims import victims_of
from tests.builders import GPU, cluster, group, node, pod, run
from tests.core.test_reclaim import weighted


def pieces(seed):
    """A small cluster full of pods of several sizes, of two queues, some of higher priority; a gang of a third queue waits."""
    rng = random.Random(seed)
    devices, queues = (
        rng.choice([2, 4, 8]),
        [weighted(name, rng.randint(1, 4), "", rng.choice([None, 0, 2, 4])) for name in "abc"],
    )
    nodes = rng.randint(3, 7)
    state = cluster([node(f"n{number}", gpus=devices) for number in range(nodes)], queues)
    for number in range(nodes):
        left = devices
        while left:
            size = rng.choice([size for size in (1, 1, 1, 2, 4) if size <= left])
            left -= size
            if rng.random() > 0.12:
                more = {"created": rng.random() * 1000, "priority": rng.choice([0, 0, 0, 5])}
                state.upsert_pod(pod(f"r{number}-{left}", queue=rng.choice("aab"), gpus=size, at=f"n{number}", **more))
    size, members = rng.choice([size for size in (1, 2, 4, 8) if size <= devices]), rng.randint(2, 4)
    state.upsert_group(group("g", members))
    for number in range(members):
        state.upsert_pod(pod(f"g-{number}", queue="c", group="g", gpus=size, created=2000.0))
    return state


def can_be_cleared(preemption, core):
    """Whether some choice of rows, emptied from the smallest pods on, has places for all within what may be reclaimed."""
    state, size = preemption.state, core.tasks[0].shape.device_milli // 1000
    column = state.nodes.free[state.nodes.resources[GPU]]
    return any(
        _clears(preemption, core.need, size, [(int(column[row]), row) for row in rows])
        for count in range(1, core.need + 1)
        for rows in combinations(range(state.nodes.count), count)
    )


def _clears(preemption, need, size, rows):
    planned = PlannedVictims(preemption)
    for free, row in sorted(rows, reverse=True):
        left = free
        falling = [victim for victim in victims_of(preemption.state).on_row(preemption, row) if len(victim[1].tasks) == 1]
        for reason, victim in sorted(falling, key=lambda each: each[1].tasks[0].shape.device_milli):
            if left // size >= need:
                break
            left += victim.tasks[0].shape.device_milli // 1000 if planned.admits(reason, victim) else 0
        need -= min(need, left // size)
    return not need


def test_a_gang_within_its_guarantee_gets_its_places(monkeypatch):
    served, missed = 0, 0
    for_gang = search._for_gang

    def watched(preemption: PreemptionPolicy):
        nonlocal served, missed
        unit = preemption.unit
        possible = preemption.entitled and can_be_cleared(preemption, unit.core())
        plan = for_gang(preemption)
        served += preemption.entitled and plan is not None
        missed += possible and plan is None
        return plan

    monkeypatch.setattr(search, "_for_gang", watched)
    for seed in range(1000):
        state = pieces(seed)
        run(state)
        invariants.check(state)
    assert served > 100
    assert missed * 50 <= served, "offers are taken one by one: now and then a better choice is missed"
