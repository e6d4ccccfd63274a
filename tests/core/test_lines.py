"""The order of what waits in a queue: the structure that keeps it, against the plain rule, in random worlds."""

import random

import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.waiting import Waiting
from tests.builders import GPU, cluster, confirm, node, pod, run

USERS = "abcdefghijkl"


def first_of(pending_class):
    """The first of a class, by asking each unit for its key."""
    units = [unit for unit in pending_class.units if unit.user not in pending_class.limited]
    return min(units, key=pending_class.queue.unit_key, default=None)


def first_of_queue(queue, waiting):
    """The first of a queue."""
    tried = [each for each in queue.pending_classes.values() if not waiting.is_refused(each)]
    first = min((unit for each in tried if (unit := first_of(each)) is not None), key=queue.unit_key, default=None)
    head = queue.blocked
    if head is None or not head.alive or head is first or first is None:
        return first
    return None if queue.unit_key(head) < queue.unit_key(first) else first


def agree(waiting, rnd):
    """The kept order is that of the plain rule, wherever it is asked."""
    for queue in waiting.tree.queues.values():
        classes = list(queue.pending_classes.values())
        for each in rnd.sample(classes, rnd.randint(0, len(classes))):
            assert each.first() is first_of(each), each.composition
        if rnd.random() < 0.5:
            assert waiting._first(queue) is first_of_queue(queue, waiting), queue
        if queue.listed and not queue.touched:
            heap = queue.parent.below if queue.parent is not None else waiting.order._top
            (key,) = [entry[0] for entry in heap if entry[1] == queue.listed]
            assert queue.head is waiting.order._head_of(queue), f"{queue} has another head than is remembered"
            assert key == waiting.order.key(queue, queue.head), f"the key of {queue} is not as it is remembered"


def stopped_rightly(state):
    """Whoever a limit stops is still beyond it, unless the next pass tries it again."""
    if state.queues.accounts.freed:
        return
    for queue in state.queues.queues.values():
        for each in queue.pending_classes.values():
            for user in each.limited if each.unschedulable is None else ():
                line = each.lines.get(user)
                unit = line.first() if line is not None else None
                if unit is not None and len(unit.tasks) == 1:
                    assert state.queues.limits.over_limit(unit.tasks[0]) is not None, unit.key


@pytest.mark.parametrize("seed", range(40))
def test_the_kept_order_is_the_plain_one_after_every_event_and_decision(seed, monkeypatch):
    rnd = random.Random(seed)
    served = Waiting.next
    asked = QueueNode.holds_of  # asked in trials, too

    def checked(waiting):
        agree(waiting, rnd)
        return served(waiting)

    def checked_in_trials(queue, resource):
        for each in list(queue.pending_classes.values())[:3]:
            assert each.first() is first_of(each)
        return asked(queue, resource)

    monkeypatch.setattr(Waiting, "next", checked)
    monkeypatch.setattr(QueueNode, "holds_of", checked_in_trials)
    monkeypatch.setattr(
        QueueNode, "stays", lambda queue, resource: checked_in_trials(queue, resource) - queue.leaving.get(resource, 0)
    )
    per_user = UserLimits(running=rnd.choice([None, 2, 4]), resources=((GPU, rnd.choice([2000, 4000])),))
    queues = [
        Queue("top"),
        Queue("q", "top", resources=(QueueResource(GPU, quota=4000),), per_user=per_user if rnd.random() < 0.6 else None),
        Queue("r", "top", resources=(QueueResource(GPU, quota=2000),), users_reclaim=rnd.random() < 0.5),
    ]
    half_life = rnd.choice([0.0, 0.0, 600.0])
    blocks = rnd.random() < 0.2
    state = cluster(
        [node(f"n{number}", gpus=4) for number in range(rnd.randint(1, 3))], queues, usage_half_life=half_life, head_blocks=blocks
    )
    state.upsert_class(ServiceClass("prompt", max_wait=400.0))
    state.upsert_class(ServiceClass("turns", levels=(100.0, 1000.0), checkpoint_interval=10.0, max_loss=10.0))
    now = 0.0
    for number in range(120):
        now += rnd.choice([0.0, 1.0, 30.0])
        for _ in range(rnd.choice([0, 1, 1, 8])):
            happens(state, rnd, now, number)
        decided = run(state, now)
        agree(state.queues.waiting, rnd)
        stopped_rightly(state)
        if rnd.random() < 0.8:
            confirm(state, decided)
        if rnd.random() < 0.1:
            state.isolation.mend()
        agree(state.queues.waiting, rnd)
    invariants.check(state)


def happens(state, rnd, now, number):
    """One event."""
    what = rnd.choice(["come", "come", "come", "gang", "end", "withdraw", "node", "limit"])
    uids = sorted(state.tasks)
    if what == "come":
        state.upsert_pod(
            pod(
                f"p{len(uids)}-{number}-{rnd.random()}",
                queue=rnd.choice("qr"),
                user=rnd.choice(USERS),
                gpus=rnd.choice([1, 1, 1, 2, 3]),
                priority=rnd.choice([0, 0, 0, 5]),
                created=now - rnd.choice([0.0, 0.0, 50.0]),
                service_class=rnd.choice(["", "", "", "prompt", "turns"]),
            )
        )
    elif what == "gang":
        name, size, user = f"g{number}-{rnd.random()}", rnd.randint(2, 3), rnd.choice(USERS)
        state.upsert_group(Group("ns", name, size, created=now))
        for member in range(size + rnd.choice([0, 1])):
            state.upsert_pod(pod(f"{name}-{member}", queue="q", user=user, group=name, created=now))
    elif what in ("end", "withdraw"):
        found = [uid for uid in uids if (state.tasks[uid].row >= 0) == (what == "end")]
        if found:
            state.remove_pod(rnd.choice(found))
    elif what == "node":
        state.upsert_node(node(f"n{rnd.randint(0, 3)}", gpus=rnd.choice([2, 4])))
    else:
        running = rnd.choice([None, 1, 3])
        state.upsert_queue(Queue("q", "top", resources=(QueueResource(GPU, quota=4000),), per_user=UserLimits(running=running)))
