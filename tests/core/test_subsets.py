"""One large victim that would do, where small ones would use up what may be reclaimed from their queue."""

import pytest

from fairlead.core import invariants
from fairlead.core.preemption import victims
from tests.builders import cluster, node, pod, preempted, run
from tests.core.test_reclaim import weighted


def lent(*, ages=(0.0, 1.0, 2.0, 3.0), quota=4, **policy):
    state = cluster([node("n", gpus=8)], [weighted("lender", 1, quota=2), weighted("owner", 1, quota=quota)], **policy)
    for name, size, age in zip(("five", "one", "two", "three"), (5, 1, 1, 1), ages, strict=True):
        state.upsert_pod(pod(name, queue="lender", gpus=size, at="n", created=age))
    state.upsert_pod(pod("mine", queue="owner", gpus=5, created=9.0))
    return state


@pytest.mark.parametrize("ages", [(0.0, 1.0, 2.0, 3.0), (3.0, 2.0, 1.0, 0.0), (1.5, 1.0, 2.0, 3.0)])
def test_the_large_victim_is_chosen_where_small_ones_would_not_do(ages):
    state = lent(ages=ages)
    assert preempted(run(state)) == [["five"]]
    invariants.check(state)


def test_the_lender_keeps_its_share():
    state = lent(quota=1)
    state.upsert_pod(pod("more", queue="owner", gpus=1, created=8.0))
    fallen = {name for names in preempted(run(state)) for name in names}
    assert "five" not in fallen or len(fallen) == 1


def test_how_many_sets_are_tried_is_bounded(monkeypatch):
    monkeypatch.setattr(victims, "STEPS", 0)
    assert preempted(run(lent())) == [], "no set may be tried"
