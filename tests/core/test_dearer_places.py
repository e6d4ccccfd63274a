"""Nodes with replicas and whole GPUs: no two queues take the dearer places from each other in turn, pass after pass."""

import random

import msgspec
import pytest

from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Evict, Fault, Preempt
from tests.builders import GPU, cluster, confirm, node, pod, run
from tests.core.test_gpu_parts import sliced

_FOUND = (22, 144, 451, 474, 557, 688, 821, 843, 867, 878)
"""Worlds in which they did."""


def world(seed):
    """A few nodes, two or three queues, and jobs that are all there from the start."""
    draw = random.Random(seed)
    nodes = [sliced(f"s{number}", draw.choice([1, 2]), draw.choice([2, 4])) for number in range(draw.randint(1, 2))]
    nodes += [node(f"w{number}", gpus=draw.choice([2, 4])) for number in range(draw.randint(1, 2))]
    queues = [
        Queue(f"q{number}", "", 0, (QueueResource(GPU, draw.randint(0, 4) * 1000, weight=draw.choice([None, 1, 2])),))
        for number in range(draw.randint(2, 3))
    ]
    pods, groups = {}, []
    for number in range(draw.randint(3, 7)):
        queue, members, gpus = draw.choice(queues).name, draw.choice([0, 0, 2, 3]), draw.choice([1, 1, 2, 4])
        if members:
            groups.append(Group("ns", f"g{number}", members))
        for name in [f"g{number}-{index}" for index in range(members)] or [f"p{number}"]:
            pods[name] = pod(name, queue, gpus=gpus, group=f"g{number}" if members else "", created=float(number))
    return cluster(nodes, queues, (), groups, reservations=0, patience=9e9, moves_per_minute=0.0), pods


@pytest.mark.parametrize("seed", [*_FOUND, *range(40)])
def test_what_is_evicted_comes_to_an_end(seed):
    state, pods = world(seed)
    for each in pods.values():
        state.upsert_pod(each)
    evicted = 0
    for number in range(60):
        decided = confirm(state, run(state, 100.0 + 15 * number))
        assert not any(isinstance(each, Fault) for each in decided)
        for victim in [victim for each in decided if isinstance(each, Preempt | Evict) for victim in each.victims]:
            evicted += 1
            state.remove_pod(victim.pod.uid)
            name = victim.pod.name.partition("+")[0]
            state.upsert_pod(msgspec.structs.replace(pods[name], uid=f"uid-{name}+{evicted}", name=f"{name}+{evicted}"))
    assert evicted <= 2 * len(pods)
