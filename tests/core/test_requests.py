"""What queues ask for is what a sum over all that they hold and all that waits in them gives, after every event of random worlds."""

import random

import pytest

from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue
from fairlead.core.queues.requests import is_hopeless
from tests.builders import cluster, confirm, node, pod, run, spec


def plainly(state):
    """The same, counted anew."""
    tree = state.queues.tree
    found = {name: {resource: held for resource, held in each.used.items() if held} for name, each in tree.queues.items()}

    def add(queue, charge, times=1):
        for above in queue.path:
            for resource, amount in charge:
                found[above.name][resource] = found[above.name].get(resource, 0) + amount * times

    for queue in tree.queues.values():
        for each in queue.pending_classes.values():
            too_large = any(amount > tree.usable(resource) for resource, amount in each.core.items())
            if not each.waiting or is_hopeless(each) or too_large:
                continue
            add(queue, each.demand, each.waiting)
            for task in each.later if each.elastic else ():
                asked = tree.asked(task.ranking)
                if task.ranking.most() and not any(amount > tree.usable(resource) for resource, amount in asked):
                    add(tree.queues[task.queue], asked)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_requests_are_those_of_a_sum_over_everything(seed):
    rnd = random.Random(seed)
    queues = [Queue("top"), *(Queue(name, rnd.choice(["", "top"])) for name in "abc")]
    state = cluster([node(f"n{number}", gpus=rnd.choice([0, 4, 8])) for number in range(3)], queues)
    known, bound = [], []
    for number in range(80):
        now, chance = 1000.0 + 10.0 * number, rnd.random()
        where = rnd.choice("abc")
        if chance < 0.45:
            gpus = rnd.choice([0, 1, 1, 2, 8, 16, 64])
            known.append(f"p{number}")
            labels = {"zone": "a"} if rnd.random() < 0.2 else None
            state.upsert_pod(
                pod(f"p{number}", where, created=now, spec_=spec(gpus, cpu=rnd.choice([1000, 4000]), selector=labels))
            )
        elif chance < 0.55:
            state.upsert_group(Group("ns", f"g{number}", 2, created=now))
            for member in range(rnd.choice([2, 3, 4])):
                known.append(f"g{number}-{member}")
                state.upsert_pod(pod(f"g{number}-{member}", where, group=f"g{number}", created=now, gpus=rnd.choice([1, 2])))
        elif chance < 0.75 and known:
            state.remove_pod(f"uid-{known.pop(rnd.randrange(len(known)))}")
        elif chance < 0.9:
            labels = {"zone": rnd.choice("ab")}
            state.upsert_node(
                node(f"n{rnd.randrange(4)}", gpus=rnd.choice([0, 4, 8]), unschedulable=rnd.random() < 0.3, labels=labels)
            )
        else:
            state.upsert_queue(Queue(where, rnd.choice(["", "top"])))
        asked = state.queues.fair._requests
        if rnd.random() < 0.8:
            bound = confirm(state, run(state, now))
        assert asked.by_queue() == plainly(state), f"{number}: {bound}"


@pytest.mark.parametrize("seed", range(20))
def test_whether_the_nodes_hold_so_many_is_what_the_most_that_they_hold_says(seed):
    draw = random.Random(seed)
    nodes = [
        node(f"n{number}", gpus=draw.choice((0, 1, 4)), cpu=draw.choice((500, 4000)), shares=draw.random() < 0.6)
        for number in range(draw.randint(1, 6))
    ]
    state, seen = cluster(nodes, [], []), set()
    for number in range(30):
        gpus, milli = draw.choice((0, 1, 2, 5)), draw.choice((1000, 1000, 300, 600))
        state.upsert_pod(pod(f"p{number}", gpus=gpus, milli=milli, cpu=draw.choice((100, 900, 5000)), created=float(number)))
        if draw.random() < 0.3:
            run(state, float(number))
        if draw.random() < 0.2:
            state.upsert_node(node(draw.choice(nodes).name, gpus=draw.choice((0, 2)), shares=draw.random() < 0.5))
        for task in state.tasks.values():
            for count in (1, 2, 4, 9, 40):
                said = task.ranking.holds(count)
                assert said == (task.ranking.most() >= count)
                seen.add(said)
    assert seen == {True, False}
