"""What waits is tried in a trial in the order in which it is served, in trees of any shape."""

import random

import pytest

from fairlead.core import allocation
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.preemption.claimants import claimants
from fairlead.core.preemption.trial import Trial
from fairlead.simulation.judged import evictions
from tests.builders import GPU, cluster, node, placed, pod, run

USERS = "abc"


def tree(rnd):
    """Queues of one to five levels: inner ones may have jobs, too."""
    made = []
    for number in range(rnd.choice([2, 4, 8, 12])):
        parent = rnd.choice(["", *(each.name for each in made[-4:])])
        given = QueueResource(GPU, quota=rnd.choice([0, 1000, 4000, 9000]), weight=rnd.choice([None, 1, 2, 3]))
        made.append(Queue(f"q{number}", parent, rnd.choice([0, 0, 0, 1]), (given,)))
    return made


def world(seed, gpus):
    """A cluster with work that waits in all queues but one, `own`."""
    rnd = random.Random(seed)
    queues = [*tree(rnd), Queue("own", "", 0, (QueueResource(GPU, quota=0),))]
    state = cluster([node(f"n{number}", gpus=gpus, cpu=4_000_000, pods=1000) for number in range(20)], queues, reservations=0)
    for number in range(rnd.randint(2, 40)):
        state.upsert_pod(
            pod(
                f"p{number}",
                queue=rnd.choice(queues[:-1]).name,
                priority=rnd.choice([0, 0, 5]),
                user=rnd.choice(USERS),
                gpus=rnd.choice([1, 1, 2, 4, 8]),
                created=float(rnd.randint(0, 20)),
            )
        )
    return state


def tried(state):
    """Pods in the order of a trial in which each gets its place; the state is left as it was."""
    state.begin(0.0)
    state.settle(0.0)
    state.queues.settle(0.0)
    mark, order = state.log.mark(), []
    trial = Trial(state, state.queues.queues["own"], within=False, all_queues=True, borrowing=True)
    for unit in claimants(trial):
        assert isinstance(allocation.allocate(state, unit), list)
        order += [task.pod.name for task in unit.tasks]
    state.log.rollback(mark)
    return order


@pytest.mark.parametrize("seed", range(60))
def test_what_waits_is_tried_in_the_order_in_which_it_is_served(seed):
    expected = placed(run(world(seed, 16)))
    assert tried(world(seed, 16)) == list(expected)
    assert len(expected) > 1


@pytest.mark.parametrize(("variety", "seed"), [("deep 1/2/4", 1452), ("deep 1/2/4", 1523), ("fractions 1", 867)])
def test_nothing_is_evicted_where_quotas_add_up_to_the_cluster(variety, seed):
    """A trial that took queues in another order, or gave places to what is held back, let one start that was then evicted."""
    assert evictions.play(variety, seed).evictions == 0
