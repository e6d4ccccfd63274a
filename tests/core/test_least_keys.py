"""No queue that stands in line by its least key has a head whose key is less, and the next unit is that of a full order."""

import random

import pytest

from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Fault, Place
from fairlead.core.queues.order import QueueOrder
from tests.builders import GPU, cluster, confirm, node, pod, run, spec


def queues(draw):
    """A tree of two levels, some with quotas or weights, some of a higher priority."""
    names = [f"q{number}" for number in range(draw.randint(4, 12))]
    made = [Queue("org", resources=(QueueResource(GPU, 8000),))] if draw.random() < 0.5 else []
    for name in names:
        parent = "org" if made and draw.random() < 0.5 else ""
        weight = draw.choice([None, 1, 3])
        made.append(Queue(name, parent, draw.choice([0, 0, 1]), (QueueResource(GPU, draw.randint(0, 3) * 1000, weight=weight),)))
    return names, made


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(0, 40, 10)])
def test_least_keys_are_no_greater_than_those_of_heads(seeds, monkeypatch):
    compared, wrong = [], []
    known = QueueOrder.enlist_least

    def enlist(order, nodes):
        nodes = list(nodes)
        by_least = [(each, least) for each, least in nodes if not each.listed and not each.below]
        known(order, nodes)
        for each, least in by_least:
            head = order._head_of(each)
            if head is not None:
                compared.append(each)
                if order.key(each, head) < least:
                    wrong.append((each, order.key(each, head), least))
        first = order.next()
        order.enlist_all([each for each, _ in nodes])
        if order.next() is not first:
            wrong.append((first, order.next()))

    monkeypatch.setattr(QueueOrder, "enlist_least", enlist)
    for seed in seeds:
        play(seed)
    assert not wrong
    assert len(compared) > 10


def play(seed):
    """A cluster on which pods come and go."""
    draw = random.Random(seed)
    names, made = queues(draw)
    state = cluster([node(f"n{number}", gpus=8) for number in range(draw.randint(1, 3))], made)
    running = []
    for number in range(150):
        now = 1000.0 + draw.choice([0.1, 1.0, 20.0]) + 20.0 * number
        for each in range(draw.randint(0, 3)):
            wanted = spec(draw.choice([1, 1, 2, 4, 8]), cpu=draw.choice([1000, 2000]))
            user = draw.choice(["", "a", "b"])
            state.upsert_pod(
                pod(f"p{number}-{each}", draw.choice(names), created=now - draw.choice([0, 50]), spec_=wanted, user=user)
            )
        for _ in range(draw.randint(0, 2)):
            if running:
                state.remove_pod(running.pop(draw.randrange(len(running))))
        made = confirm(state, run(state, now))
        assert not any(isinstance(each, Fault) for each in made)
        running += [binding.pod.uid for each in made if isinstance(each, Place) for binding in each.bindings]
