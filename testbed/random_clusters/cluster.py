"""One random cluster in Kubernetes JSON, in the form that `fairlead feasibility --cases` and the oracle read.

Most objects are sane; a few are what a user might really get wrong (selectors that do not parse, claims that do not exist).
"""

from __future__ import annotations

from random import Random

from testbed.random_clusters.draw import NAMESPACES, Draw, Object
from testbed.random_clusters.nodes import node
from testbed.random_clusters.pods import Pods
from testbed.random_clusters.storage import Storage
from testbed.random_clusters.workloads import Workloads, budget

NODES = 6


def generate(seed: int, nodes: int = NODES) -> Object:
    """One cluster; the same for the same seed, whatever was generated before."""
    draw = Draw(Random(seed), nodes)
    workloads, storage = Workloads(draw), Storage(draw)
    pods = Pods(draw, storage, workloads)
    case: Object = {
        "id": f"seed-{seed}",
        "nodes": [node(draw, name) for name in draw.node_names],
        "namespaces": _namespaces(draw),
    }
    if draw.often("defaults", 0.9, 0.2):
        case |= workloads.made()
    if draw.dwells["volumes"]:
        case |= storage.made()
    running = [pods.pod(number, draw.pick(draw.node_names)) for number in range(draw.random.randint(3, 14))]
    waiting = [pods.pod(100 + number) for number in range(draw.random.randint(2, 6))]
    case["pods"] = running + waiting
    draw.random.shuffle(case["pods"])
    if draw.often("preemption", 0.6, 0.1):
        case["podDisruptionBudgets"] = [budget(draw, number) for number in range(draw.random.randint(1, 3))]
    return case


def _namespaces(draw: Draw) -> list[Object]:
    # `green` may be missing: pods can be judged before their namespace is heard of.
    return [
        {"metadata": {"name": name, "labels": {"team": draw.pick(("a", "b")), "kubernetes.io/metadata.name": name}}}
        for name in NAMESPACES
        if name != "green" or draw.chance(0.7)
    ]
