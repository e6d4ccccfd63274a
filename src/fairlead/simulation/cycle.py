"""How long one decision takes on a full cluster of 8-GPU nodes: whole passes, verdicts, reclaim.

The state is fed as by a first list; each scenario then lets one thing happen and times the pass that answers it.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.transactions import Place, Preempt, Refuse, Transaction
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation import machines
from fairlead.simulation.machines import GIB, GPU, GPUS_PER_NODE

Scenario = Literal["mixed", "verdict", "reclaim", "hero", "consolidate"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)

_QUEUES = 10
_GANG = 10
_WIDE = 4  # GPUs of a pod that waits for consolidation
_GANGS_PER_NODE = 41 / 500


class CycleBench(msgspec.Struct):
    """One scenario. decision_seconds: the pass that answers what happened; victims: pods that are to be evicted, or moved.

    placed: pods that got a place at once, beneficiaries: once the victims are gone.
    """

    scenario: str
    nodes: int
    running: int
    pending: int
    decision_seconds: float
    placed: int
    beneficiaries: int
    victims: int
    refused: int
    verdict: str


def run(scenario: Scenario, nodes: int) -> CycleBench:
    """Time one scenario.

    `mixed`: twenty queues with quota, half of them over it and the others with as much waiting as runs, in singles and gangs;
    the first pass after a start. `verdict`: a gang of 10 x 8 GPUs that cannot fit. `reclaim`: a queue below its share asks
    for one GPU. `hero`: it asks for half of the cluster in one gang of 8-GPU pods. `consolidate`: half of the one-GPU pods of
    a full cluster ended at random, and 41 gangs of ten 4-GPU pods (for 500 nodes; in proportion) ask for four fifths of the
    free GPUs, which are fragmented.
    """
    return _SCENARIOS[scenario](nodes)


def _cluster(nodes: int, policy: Policy | None = None) -> ClusterState:
    state = ClusterState(policy)
    for number in range(nodes):
        state.upsert_node(machines.node(number))
    return state


def _pod(name: str, queue: str, gpus: int = 1, *, group: str = "", node: str = "", created: float = 0.0) -> Pod:
    requests = (("cpu", 4000 * gpus), ("memory", 16 * GIB * gpus), (GPU, gpus), ("pods", 1))
    spec = PodSpec(requests, gpus=gpus)
    started = created if node else None
    return Pod(name, "bench", name, spec, queue=queue, group=group, node=node, created=created, started=started)


def _fill(state: ClusterState, nodes: int, queues: list[str]) -> int:
    """One-GPU pods on every GPU, their queues in turn."""
    count = nodes * GPUS_PER_NODE
    for number in range(count):
        node = f"node-{number // GPUS_PER_NODE:06d}"
        state.upsert_pod(_pod(f"run-{number:06d}", queues[number % len(queues)], node=node, created=float(number)))
    return count


def _timed(scenario: str, state: ClusterState, nodes: int, running: int, pending: int) -> CycleBench:
    gc.collect()
    gc.freeze()  # as the scheduler does once everything has been observed
    start = time.perf_counter()
    decided = list(schedule(state, 1e6))
    seconds = time.perf_counter() - start
    gc.unfreeze()
    invariants.check(state)

    def count(kind: type, of: Callable[[Transaction], int]) -> int:
        return sum(of(each) for each in decided if isinstance(each, kind))

    return CycleBench(
        scenario=scenario,
        nodes=nodes,
        running=running,
        pending=pending,
        decision_seconds=seconds,
        placed=count(Place, lambda each: len(each.bindings) if isinstance(each, Place) else 0),
        beneficiaries=count(Preempt, lambda each: len(each.beneficiaries) if isinstance(each, Preempt) else 0),
        victims=count(Preempt, lambda each: len(each.victims) if isinstance(each, Preempt) else 0),
        refused=count(Refuse, lambda each: len(each.pods) if isinstance(each, Refuse) else 0),
        verdict=next((each.reason.message for each in decided if isinstance(each, Refuse)), ""),
    )


def _mixed(nodes: int) -> CycleBench:
    state = _cluster(nodes)
    queues = [f"queue-{number:02d}" for number in range(2 * _QUEUES)]
    for name in queues:
        state.upsert_queue(machines.queue(name, nodes * GPUS_PER_NODE // len(queues)))
    running = _fill(state, nodes, queues[:_QUEUES])
    number = 0
    while number < running:
        queue = queues[_QUEUES + (number // _GANG) % _QUEUES] if (number // _GANG) % 4 else queues[(number // _GANG) % _QUEUES]
        gang = f"gang-{number:06d}" if (number // _GANG) % 2 else ""
        if gang:
            state.upsert_group(Group("bench", gang, min_member=_GANG, created=1e5 + number))
        for member in range(_GANG):
            state.upsert_pod(_pod(f"wait-{number + member:06d}", queue, group=gang, created=1e5 + number))
        number += _GANG
    return _timed("mixed", state, nodes, running, number)


def _full(nodes: int) -> tuple[ClusterState, int]:
    """A queue that holds everything beside one whose deserved share is half."""
    state = _cluster(nodes)
    half = nodes * GPUS_PER_NODE // 2
    state.upsert_queue(machines.queue("guest", half))
    state.upsert_queue(machines.queue("owner", half))
    running = _fill(state, nodes, ["guest"])
    for _ in schedule(state, 1e6):
        pass
    return state, running


def _gang(state: ClusterState, queue: str, members: int) -> int:
    state.upsert_group(Group("bench", "hero", min_member=members, created=1e6))
    for member in range(members):
        state.upsert_pod(_pod(f"hero-{member:04d}", queue, GPUS_PER_NODE, group="hero", created=1e6))
    return members


def _verdict(nodes: int) -> CycleBench:
    state, running = _full(nodes)
    # Of the queue that holds everything, at equal priority: no job may be preempted for it.
    return _timed("verdict", state, nodes, running, _gang(state, "guest", _GANG))


def _reclaim(nodes: int) -> CycleBench:
    state, running = _full(nodes)
    state.upsert_pod(_pod("owner", "owner", created=1e6))
    return _timed("reclaim", state, nodes, running, 1)


def _hero(nodes: int) -> CycleBench:
    state, running = _full(nodes)
    return _timed("hero", state, nodes, running, _gang(state, "owner", max(1, nodes // 2)))


def _consolidate(nodes: int) -> CycleBench:
    state = _cluster(nodes, Policy(moves_per_minute=1e6))
    state.upsert_queue(Queue("all"))
    running = _fill(state, nodes, ["all"])
    draw = random.Random(nodes)
    ended = draw.sample(range(running), running // 2)
    for number in ended:
        state.remove_pod(f"run-{number:06d}")
    gangs = max(1, round(nodes * _GANGS_PER_NODE))
    for number in range(gangs):
        state.upsert_group(Group("bench", f"gang-{number:03d}", min_member=_GANG, created=1e5 + number))
        for member in range(_GANG):
            name = f"gang-{number:03d}-{member}"
            state.upsert_pod(_pod(name, "all", _WIDE, group=f"gang-{number:03d}", created=1e5 + number))
    return _timed("consolidate", state, nodes, running - len(ended), gangs * _GANG)


_SCENARIOS: dict[str, Callable[[int], CycleBench]] = {
    "mixed": _mixed,
    "verdict": _verdict,
    "reclaim": _reclaim,
    "hero": _hero,
    "consolidate": _consolidate,
}
