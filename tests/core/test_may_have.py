"""Where all rows that a unit could have are reserved for others, a search for victims is left out: it would find nothing."""

import pytest

from fairlead.core.preemption import search
from tests.core.worlds import World

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_out_would_find_nothing(seed, monkeypatch):
    world, known, rules = World(seed, reservations=2, share_wait=600.0), search.may_have_any, search._by_rules
    left_out, found = [], []

    def asked(state, core):
        if not known(state, core):
            left_out.append(core)
        return True  # and it is searched all the same

    def by_rules(preemption):
        before = len(left_out)
        plan = rules(preemption)
        if plan is not None and len(left_out) > before:
            found.append(plan)
        return plan

    monkeypatch.setattr(search, "may_have_any", asked)
    monkeypatch.setattr(search, "_by_rules", by_rules)
    for _ in range(60):
        for _ in range(2):
            world.arrive()
        world.step(60.0)
        world.disturb()
    assert not found
    _LEFT_OUT[seed] = len(left_out)


def test_some_were_left_out():
    if len(_LEFT_OUT) == len(SEEDS):  # else another process played some of the worlds
        assert sum(_LEFT_OUT.values()) > len(SEEDS)


_LEFT_OUT: dict[int, int] = {}
