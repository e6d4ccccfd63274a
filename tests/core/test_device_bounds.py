"""Where the bound on devices says that no moves can help, trying all of them finds none either."""

import random

import pytest

from fairlead.core import invariants
from fairlead.core.actions import combine, consolidate
from fairlead.core.preemption.device_bounds import could_be_free
from tests.builders import cluster, group, node, pod, preempted, queue, run
from tests.core.moving import LATE

PARTS = (200, 300, 500, 700, 1000, 1000)


def world(seed):
    """Nodes of two makes that parts and whole devices nearly fill, of which some may not move; a unit of another queue waits."""
    rnd = random.Random(seed)
    nodes, gpus = rnd.randint(1, 4), rnd.randint(1, 3)
    total, held = nodes * gpus, rnd.choice([0.3, 0.7, 1.0])
    state = cluster(
        [node(f"n{i}", gpus=gpus, labels={"make": rnd.choice("ab")}) for i in range(nodes)],
        [queue("q0", rnd.randint(0, total)), queue("q1", rnd.randint(0, total))],
        reservations=rnd.choice([0, 2]),
    )
    free = [[1000] * gpus for _ in range(nodes)]
    for number in range(rnd.randint(2 * total, 6 * total)):
        milli, on = rnd.choice(PARTS), rnd.randrange(nodes)
        device = next((index for index, left in enumerate(free[on]) if left >= milli), None)
        if device is not None:
            free[on][device] -= milli
            stays = {"stays": True} if rnd.random() < held else {}
            state.upsert_pod(pod(f"p{number}", "q0", milli=milli, at=f"n{on}", started=0.0, created=float(number), **stays))
    for number in list(state.tasks)[:: rnd.choice([5, 8, 100])]:  # some have ended since
        state.remove_pod(number)
    members = rnd.choice([1, 1, 1, 2])
    if members > 1:
        state.upsert_group(group("g", members, "q1"))
    where = {"selector": {"make": rnd.choice("ab")}} if rnd.random() < 0.3 else {}
    for i in range(members):
        asks = {"gpus": rnd.randint(1, gpus)} if rnd.random() < 0.6 else {"milli": rnd.choice(PARTS)}
        state.upsert_pod(pod(f"unit-{i}", "q1", group="g" if members > 1 else "", **asks, **where))
    return state


def test_no_search_that_the_bound_saves_finds_moves(monkeypatch):
    saved = tried = 0

    def counted(state, movers, tasks):
        nonlocal saved, tried
        verdict = could_be_free(state, movers, tasks)
        saved += not verdict
        tried += verdict
        return verdict

    for seed in range(300):
        decided = []
        for bound in (counted, lambda *_: True):
            for module in (consolidate, combine):
                monkeypatch.setattr(module, "could_be_free", bound)
            state = world(seed)
            decided.append(repr(run(state, LATE)))
            invariants.check(state)
        assert decided[0] == decided[1], f"seed {seed}"
    assert saved >= 20
    assert tried >= 20


@pytest.mark.parametrize(
    ("more", "tries"),
    [({}, True), ({"controlled": False}, False), ({"stays": True}, False)],
    ids=["parts that move", "without a controller", "asks to stay"],
)
def test_parts_that_may_not_move_free_no_device_and_nothing_is_tried(more, tries):
    # Two nodes, of each of two devices a part is free, and a whole one that is idle in a pool which neither may have.
    nodes = [node(f"n{i}", gpus=2, labels={"pool": "a"}) for i in range(2)] + [node("idle", gpus=2, labels={"pool": "b"})]
    state = cluster(nodes, [queue("q", 6)], reservations=0)
    for i in range(4):  # beside each one that ends
        for name, milli in ((f"part-{i}", 400), (f"ends-{i}", 600)):
            state.upsert_pod(pod(name, "q", milli=milli, at=f"n{i // 2}", selector={"pool": "a"}, started=0.0, **more))
    for i in range(4):
        state.remove_pod(f"uid-ends-{i}")
    state.upsert_pod(pod("wide", "q", selector={"pool": "a"}))
    decided = run(state, LATE)
    assert bool(preempted(decided)) is tries
    assert (state.moves.budget.steps(1 << 60) < 6000) is tries
