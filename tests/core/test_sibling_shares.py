"""Shares that were divided again only where something changed are those of a division of everything, after every event."""

import random

import pytest

from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource
from tests.builders import GPU, cluster, confirm, node, pod, run, spec

LEAVES = ["a", "b", "c", "d", "e", "f"]


def policy(draw, name, *, plain):
    """A queue with a quota, and perhaps a weight, or anything else that shares depend on."""
    parent = draw.choice(["", "top", "mid"]) if name in LEAVES else ("top" if name == "mid" and draw.random() < 0.5 else "")
    resources = []
    for resource, unit in ((GPU, 1000), ("cpu", 1000)):
        if draw.random() < (0.9 if resource == GPU else 0.3):
            weight = draw.choice([None, 1, 2, 5]) if plain == "some" else draw.randint(1, 3)
            percent = 20_000 if not plain and draw.random() < 0.2 else None
            limit = draw.randint(4, 20) * unit if not plain and draw.random() < 0.2 else None
            resources.append(
                QueueResource(
                    resource, draw.randint(0, 6) * unit, limit, weight=None if percent else weight, weight_percent=percent
                )
            )
    return Queue(name, parent, draw.choice([0, 0, 0, 1]), tuple(resources))


@pytest.mark.parametrize("seed", range(60))
def test_shares_are_those_of_a_division_of_everything(seed):
    draw = random.Random(seed)
    plain = draw.choice(["all", "all", "some", ""])  # "": limits and percentages, too; "some": not all have a weight
    guests = draw.choice([0.0, 0.1, 0.5])  # of other schedulers
    queues = [policy(draw, name, plain=plain) for name in ["top", "mid", *LEAVES]]
    state = cluster([node(f"n{number}", gpus=draw.choice([4, 8])) for number in range(3)], queues)
    fair, known, divided = state.queues.fair, [], 0
    for number in range(90):
        now, chance, where = 1000.0 + 7.0 * number, draw.random(), draw.choice([*LEAVES, "top"])
        if chance < 0.5:
            known.append(f"p{number}")
            wanted = spec(draw.choice([0, 1, 1, 2, 4, 32]), cpu=draw.choice([1000, 8000, 30_000]))
            foreign = draw.random() < guests
            at = f"n{draw.randrange(3)}" if foreign else ""
            state.upsert_pod(pod(f"p{number}", where, draw.choice([0, 0, 5]), created=now, spec_=wanted, at=at, ours=not foreign))
        elif chance < 0.58:
            state.upsert_group(Group("ns", f"g{number}", 2, created=now))
            for member in range(draw.choice([2, 4])):
                known.append(f"g{number}-{member}")
                state.upsert_pod(pod(f"g{number}-{member}", where, group=f"g{number}", created=now))
        elif chance < 0.85 and known:
            state.remove_pod(f"uid-{known.pop(draw.randrange(len(known)))}")
        elif chance < 0.92:
            state.upsert_node(node(f"n{draw.randrange(4)}", gpus=draw.choice([4, 8]), unschedulable=draw.random() < 0.2))
        elif chance < 0.96:
            state.upsert_queue(policy(draw, where, plain=plain))
        if draw.random() < 0.8:
            confirm(state, run(state, now))
        before = fair.share, {name: dict(scarce) for name, scarce in fair.share.items()}
        state.settle(now)
        fair.touch()
        state.queues.settle(now)
        wanted = fair._divided(now)
        assert (fair.share, fair.entitled, fair.disputed) == wanted, number
        assert before[0] == before[1], "shares that were made before are as they were"
        divided += bool(fair.share)
    assert divided
