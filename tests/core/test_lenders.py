"""Lenders that are remembered are those that a scan of all queues finds, whatever was charged, taken back, moved or edited."""

import random

import pytest

from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.queues.entitlement import beyond_quota
from fairlead.core.queues.queue_node import QueueNode
from tests.builders import GPU, cluster, node, pod, run


def found_by_scan(state):
    """(queue, lender) for every queue that may reclaim from another, by what that and those above it hold."""
    fair, queues = state.queues.fair, list(state.queues.queues.values())
    names = {*fair.disputed, *(name for each in queues for name, quota in each.quota.items() if quota)}
    found = set()
    for queue in queues:
        for other in queues:
            rivals = queue.rivals(other)
            if rivals is None or not other.placed:
                continue
            path = other.up_to(rivals[1])
            if all(fair.over(each) for each in path) or beyond_quota(path, names, QueueNode.stays):
                found.add((queue.name, other.name))
    return found


def remembered(state):
    return {
        (queue.name, other.name)
        for queue in state.queues.queues.values()
        for mine in queue.path
        for by_quota in (False, True)
        for _, lenders in state.queues.lenders.beside(mine, by_quota=by_quota)
        for other in lenders
    }


class Changes:
    """Random events, and trials that are taken back."""

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        self.number = 0
        self.queues = [self.queue(f"q{number}", number) for number in range(rnd.randint(2, 8))]
        self.state = cluster([node(f"n{number}", gpus=8) for number in range(rnd.randint(1, 3))], self.queues, reservations=0)

    def queue(self, name, below):
        rnd = self.rnd
        quota = rnd.choice([None, 0, 1000, 4000])
        resources = (QueueResource(GPU, quota=quota),) if quota is not None else ()
        return Queue(name, rnd.choice(["", *(f"q{number}" for number in range(below))]), 0, resources)

    def happens(self):
        rnd, state, chance = self.rnd, self.state, self.rnd.random()
        tasks = sorted(state.tasks)
        if chance < 0.5:
            self.number += 1
            at = f"n{rnd.randrange(state.nodes.count)}" if rnd.random() < 0.5 else ""
            state.upsert_pod(pod(f"p{self.number}", f"q{rnd.randrange(len(self.queues))}", at=at, gpus=rnd.choice([1, 1, 2])))
        elif chance < 0.7 and tasks:
            state.remove_pod(rnd.choice(tasks))
        elif chance < 0.8:
            number = rnd.randrange(len(self.queues))
            self.queues[number] = self.queue(f"q{number}", number)
            state.upsert_queue(self.queues[number])
        elif chance < 0.9:
            run(state, float(self.number))
        else:
            self.tries()

    def tries(self):
        """What is tried, and taken back, shows while it is tried only."""
        state, log = self.state, self.state.log
        mark = log.mark()
        for task in [task for task in state.tasks.values() if task.row >= 0][:3]:
            state.placement.unassign(task)
            assert remembered(state) == found_by_scan(state)
        log.rollback(mark)
        assert remembered(state) == found_by_scan(state)


@pytest.mark.parametrize("seed", range(20))
def test_lenders_are_those_that_a_scan_finds(seed):
    changes, known = Changes(seed), 0
    for _ in range(60):
        changes.happens()
        found = found_by_scan(changes.state)
        assert remembered(changes.state) == found
        lenders = changes.state.queues.lenders
        assert lenders.any() == any(siblings for rule in lenders.follow().rules for siblings in rule.below.values())
        assert lenders.any() or not found
        known += len(found)
    assert known, "otherwise this shows nothing"
