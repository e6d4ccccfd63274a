"""Small objects for tests of the core."""

from __future__ import annotations

import msgspec

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec, Toleration
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import SelectorTerm
from fairlead.core.model.transactions import Evict, Place, Preempt, Refuse
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState

GPU = "nvidia.com/gpu"
GIB = 1 << 30


def node(name, gpus=8, cpu=64_000, memory=512 * GIB, pods=110, shares=True, **more):
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus:
        allocatable[GPU] = gpus
    return Node(name, allocatable, shares_gpus=shares, **more)


def spec(gpus=1, milli=1000, cpu=1000, memory=GIB, selector=None, tolerations=(), affinity=None, node_name="", extra=None):
    requests = {"cpu": cpu, "memory": memory, "pods": 1, **(extra or {})}
    if gpus and milli == 1000:
        requests[GPU] = gpus
    return PodSpec(
        tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
        gpus=gpus,
        gpu_milli=milli,
        node_name=node_name,
        node_selector=tuple(sorted((selector or {}).items())),
        affinity=affinity,
        tolerations=tuple(tolerations),
    )


_NAMED = {"uid", "namespace", "name", "spec", "queue", "priority", "group", "created", "node"}
_MORE = set(Pod.__struct_fields__) - _NAMED
"""The fields of a pod that `pod` takes as they are; what else it is given is the spec's."""


def pod(name, queue="default", priority=0, group="", created=0.0, at="", spec_=None, **more):
    passed = {key: more.pop(key) for key in list(more) if key in _MORE}
    return Pod(
        uid=f"uid-{name}",
        namespace="ns",
        name=name,
        spec=spec_ or spec(**more),
        queue=queue,
        priority=priority,
        group=group,
        created=created,
        node=at,
        **passed,
    )


def group(name, min_member, queue=""):
    return Group("ns", name, min_member, queue)


def queue(name, quota=None, limit=None, priority=0, parent=""):
    return Queue(name, parent, priority, (QueueResource(GPU, quota and quota * 1000, None if limit is None else limit * 1000),))


def cluster(nodes=(), queues=(), pods=(), groups=(), **policy):
    state = ClusterState(Policy(**policy))
    for each in nodes:
        state.upsert_node(each)
    for each in queues:
        state.upsert_queue(each)
    for each in groups:
        state.upsert_group(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def run(state, now=0.0, budget=None):
    return list(schedule(state, now, budget))


def confirm(state, transactions):
    """Play the cluster: every binding is written."""
    for each in transactions:
        if isinstance(each, Place):
            for binding in each.bindings:
                state.pods.bound(binding.pod.uid)
    return transactions


def play(state, now=0.0, rounds=50):
    """Victims leave at once and wait again, until nothing moves. Returns how many passes did something."""
    for passes in range(rounds):
        decided = [each for each in run(state, now) if isinstance(each, Place | Preempt)]
        if not decided:
            return passes
        confirm(state, decided)
        gone = [state.tasks[victim.pod.uid].pod for each in decided if isinstance(each, Preempt) for victim in each.victims]
        for old in gone:
            state.remove_pod(old.uid)
        for old in gone:
            state.upsert_pod(msgspec.structs.replace(old, uid=f"{old.uid}+", name=f"{old.name}+", node=""))
    raise AssertionError("it never comes to rest")


def held(state, name):
    """The devices that a queue holds."""
    return state.queues.queues[name].used.get(GPU, 0) // 1000


def start(state, now=1.0):
    """One pass whose bindings are written; returns what was placed where."""
    decided = settle(state, now)
    invariants.check(state)
    return placed(decided)


def settle(state, now=0.0):
    return confirm(state, run(state, now))


def first(state, now=0.0):
    """The unit that is served next, as a pass begins."""
    state.begin(now)
    state.settle(now)
    state.queues.settle(now)
    return state.queues.waiting.next()


def placed(transactions):
    return {b.pod.name: b.node for each in transactions if isinstance(each, Place) for b in each.bindings}


def refused(transactions):
    return {ref.name: each.reason for each in transactions if isinstance(each, Refuse) for ref in each.pods}


def preempted(transactions):
    return [sorted(v.pod.name for v in each.victims) for each in transactions if isinstance(each, Preempt)]


__all__ = [
    "GIB",
    "GPU",
    "Evict",
    "SelectorTerm",
    "Toleration",
    "cluster",
    "confirm",
    "first",
    "group",
    "held",
    "node",
    "placed",
    "play",
    "pod",
    "preempted",
    "queue",
    "refused",
    "run",
    "settle",
    "spec",
    "start",
]
