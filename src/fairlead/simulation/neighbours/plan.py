"""What a day has that concerns neighbours: pools that share amounts, classes that isolate or share, and jobs that use them.

All of it is drawn from streams of its own, so that a day without any is what it would be if there were none of this.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.simulated.resources import NODES
from fairlead.simulation.workload import Job
from fairlead.simulation.world import GPU, POOL_LABEL, REPLICAS_LABEL, World

BANDWIDTH, LICENCES = "storage-bandwidth", "licences"
ALL = "everything"
"""The NodePool of all nodes."""
NODE, OWN, SMALL = "alone", "own", "small"
"""Classes: nodes to themselves, GPUs to themselves, two on a GPU."""
KINDS = ("resnet", "bert", "lstm", "gcn")
"""Of jobs that share GPUs: names of pods, by which the scheduler knows kinds."""
_OFTEN, _EACH = 0.5, 0.7  # the part of days that have any of it, and of these that have each
_AGENTS = 3  # nodes of our agent on days with pairs: else hardly two jobs would have to share
_TAKE, _ISOLATE, _PAIR = 0.4, 0.2, 0.5  # the part of jobs
_WRONG = 0.05  # of those that take: a name that no pool has, or more than any
_SWEEP = (1, 4)
_REPLICATED, _OF_NODES, _REPLICAS = 0.4, 0.35, (2, 4)  # the part of such days, the part of nodes then, and of one GPU
_CLASSES: Mapping[str, dict[str, Any]] = {
    NODE: {"isolation": "Node"},
    OWN: {"isolation": "GPU"},
    SMALL: {"sharing": "Pairs"},
}
_SERVICE: Mapping[str, dict[str, Any]] = {
    NODE: {"priorityClassName": "urgent", "preemption": {"mode": "Suspend"}},
    OWN: {"priorityClassName": "batch", "preemption": {"mode": "Requeue"}},
    SMALL: {"priorityClassName": "batch", "preemption": {"mode": "Suspend"}, "checkpointInterval": "10m"},
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a day has. shared: pools that share; isolation, pairs: classes. lasting: every job must come to its end.

    replicas: of one GPU, on some nodes that a device plugin replicates by time-slicing; 0: there are none.
    """

    seed: int
    shared: bool = False
    isolation: bool = False
    pairs: bool = False
    replicas: int = 0
    lasting: bool = False

    @property
    def any(self) -> bool:
        """Whether it has any of it."""
        return self.shared or self.isolation or self.pairs


def drawn(seed: int, *, lasting: bool) -> Plan:
    """The plan of a seed: every other day has some of it."""
    draw = random.Random(f"neighbours {seed}")
    if draw.random() >= _OFTEN:
        return Plan(seed=seed, lasting=lasting)
    shared, isolation, pairs = (draw.random() < _EACH for _ in range(3))
    # From a stream of their own: all else is drawn as it was before there were any.
    apart = random.Random(f"replicas {seed}")
    replicas = apart.choice(_REPLICAS) if apart.random() < _REPLICATED else 0
    shared = shared or not (isolation or pairs)
    return Plan(seed=seed, shared=shared, isolation=isolation, pairs=pairs, replicas=replicas, lasting=lasting)


def classes(plan: Plan) -> dict[str, dict[str, Any]]:
    """The classes of service of a day, by name."""
    wanted = [*((NODE, OWN) if plan.isolation else ()), *((SMALL,) if plan.pairs else ())]
    return {name: {**_CLASSES[name], **(_SERVICE[name] if plan.lasting else {})} for name in wanted}


def declared(plan: Plan, world: World) -> dict[str, dict[str, int]]:
    """What the nodes of which pool share, by name: in thousands of millions of bytes per second, and by number."""
    draw = random.Random(f"amounts {plan.seed}")
    found: dict[str, dict[str, int]] = {}
    for pool, nodes in world.pools.items():
        found[pool] = {BANDWIDTH: max(4, round(len(nodes) * draw.uniform(0.5, 2.0)))}
    count = len(world.manifests)
    found[ALL] = {LICENCES: max(4, round(count * draw.uniform(0.2, 0.8)))}
    if draw.random() < 0.5:
        found[ALL][BANDWIDTH] = max(4, round(count * draw.uniform(0.5, 1.0)))
    return found if plan.shared else {}


def quantity_of(name: str, amount: int) -> str:
    """An amount as a NodePool and a pod write it."""
    return f"{amount}G" if name == BANDWIDTH else str(amount)


def pool_object(name: str, amounts: Mapping[str, int]) -> dict[str, Any]:
    """A NodePool whose nodes share these amounts."""
    spec: dict[str, Any] = {"nodeSelector": {"matchLabels": {POOL_LABEL: name}}} if name != ALL else {}
    shared = {each: quantity_of(each, amount) for each, amount in amounts.items()}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {**spec, "sharedResources": shared},
    }


def class_object(plan: Plan, name: str) -> dict[str, Any]:
    """A ServiceClass of a day."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ServiceClass",
        "metadata": {"name": name},
        "spec": classes(plan)[name],
    }


def install(plan: Plan, world: World) -> None:
    """Create the pools and classes; with pairs only a few nodes are of our agent. Some others have replicas."""
    for name, amounts in declared(plan, world).items():
        world.create(pool_object(name, amounts))
    for name in classes(plan):
        world.create(class_object(plan, name))
    if plan.pairs:
        for name in world.pools["t4"][_AGENTS:]:
            _relabel(world, name, {names.GPU_SHARING_LABEL: ""})
    draw = random.Random(f"replicated {plan.seed}")
    for name, node in sorted(world.manifests.items()) if plan.replicas else ():
        offers = GPU in node["status"]["allocatable"] and names.GPU_SHARING_LABEL not in node["metadata"]["labels"]
        if draw.random() < _OF_NODES and offers:
            _relabel(world, name, {REPLICAS_LABEL: str(plan.replicas)})


def _relabel(world: World, name: str, labels: Mapping[str, str]) -> None:
    """A node has other labels from now on, also when it registers again. Empty: none of that key."""
    metadata = world.manifests[name]["metadata"]
    kept = {**metadata["labels"], **labels}
    metadata["labels"] = {key: value for key, value in kept.items() if value}
    record = world.api.store.get(NODES, ("", name))
    if record is not None:
        node = record.object
        changed = {**node["metadata"], "labels": dict(metadata["labels"])}
        world.api.store.put(NODES, ("", name), {**node, "metadata": changed})


def with_neighbours(jobs: list[Job], plan: Plan, world: World) -> list[Job]:
    """The jobs of a day, some of which take of what is shared, isolate, or share a GPU; these come in sweeps."""
    if not plan.any:
        return jobs
    draw, amounts = random.Random(f"neighbourly {plan.seed}"), declared(plan, world)
    made = []
    for job in jobs:
        taking, isolating, pairing, sweep = (draw.random() for _ in range(4))
        found = [job]
        if plan.isolation and isolating < _ISOLATE:
            found = [_isolating(job, draw, replicas=bool(plan.replicas), lasting=plan.lasting)]
        elif plan.pairs and pairing < _PAIR and job.pods == 1 and job.gpus <= 2 and job.milli == 1000 and not job.claim:
            copies = _SWEEP[0] + round(sweep * (_SWEEP[1] - _SWEEP[0]))
            found = _pairing(job, draw.choice(KINDS), copies)
        if amounts and taking < _TAKE:
            found = [_taking(each, draw, amounts, lasting=plan.lasting) for each in found]
        made += found
    return sorted(made, key=lambda job: (job.submitted, job.name))


def _isolating(job: Job, draw: random.Random, *, replicas: bool, lasting: bool) -> Job:
    """A job that has its nodes, or its GPUs, to itself.

    With a part of a GPU the latter is refused, and too few nodes may be without replicas: not where it must end.
    """
    refused = job.milli != 1000 or replicas
    service = draw.choice((NODE, OWN))
    return msgspec.structs.replace(job, service=NODE if refused and lasting else service)


def _pairing(job: Job, kind: str, copies: int) -> list[Job]:
    """A sweep of jobs of one kind that may share GPUs."""
    number = job.name.rpartition("-")[2]
    alike = msgspec.structs.replace(job, gpus=1, pool="", cpu_milli=2000, service=SMALL, rule="")
    return [
        msgspec.structs.replace(alike, name=f"{kind}-{number}-{copy}", submitted=job.submitted + 0.5 * copy)
        for copy in range(copies)
    ]


def _taking(job: Job, draw: random.Random, amounts: Mapping[str, Mapping[str, int]], *, lasting: bool) -> Job:
    """A job that takes of what is shared; one that must end takes no more than half of it with all of its pods."""
    name = draw.choice((BANDWIDTH, BANDWIDTH, LICENCES))
    wrong, amount = draw.random() < _WRONG, draw.choice((1, 1, 2, 4))
    if lasting:
        least = min(found[name] for found in amounts.values() if name in found)
        amount = min(amount, least // (2 * max(3, job.pods)))
    elif wrong:
        name, amount = draw.choice((("misspelt", 1), (name, 10_000)))
    if not amount:
        return job
    return msgspec.structs.replace(job, shared=f"{name}={quantity_of(name, amount)}")
