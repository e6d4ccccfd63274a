"""What is drawn: choices from small pools, so that selectors meet what they select, and on what a cluster dwells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

Object = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
NAMESPACES = ("default", "red", "blue", "green")
APPS = ("web", "db", "cache")
TIERS = ("front", "back")
DRIVERS = ("disk.csi.example", "fast.csi.example")
IMAGES = ("web", "db:v1", "registry.example/ai/train:v2", "registry.example/ai/serve")
_SUBJECTS = (
    ("affinity", 0.35),
    ("spread", 0.35),
    ("volumes", 0.3),
    ("preemption", 0.4),
    ("ports", 0.15),
    ("resources", 0.3),
    ("nominated", 0.2),
    ("taints", 0.3),
    ("images", 0.2),
    ("resize", 0.15),
    ("features", 0.1),
    ("defaults", 0.3),
    ("nodes", 0.3),
    ("mistakes", 0.1),
)
"""On what a cluster may dwell, and how many do."""


class Draw:
    """The dice of one cluster. roomy: whether its nodes are large."""

    def __init__(self, random: Random, nodes: int) -> None:
        self.random = random
        self.node_names = [f"node-{number}" for number in range(nodes)]
        # A cluster dwells on some subjects, so that what is rare meets its like.
        self.dwells = {subject: random.random() < share for subject, share in _SUBJECTS}
        self.roomy = random.random() < (0.3 if self.dwells["preemption"] else 0.6)

    def chance(self, share: float) -> bool:
        """So often."""
        return self.random.random() < share

    def often(self, subject: str, dwelling: float, otherwise: float) -> bool:
        """How often depends on whether the cluster dwells on a subject."""
        return self.chance(dwelling if self.dwells[subject] else otherwise)

    def pick(self, pool: Iterable[Any]) -> Any:
        """One of a pool."""
        return self.random.choice(list(pool))

    def some(self, pool: Iterable[Any], least: int, most: int) -> list[Any]:
        """Some of a pool, each once."""
        options = list(pool)
        return self.random.sample(options, min(len(options), self.random.randint(least, most)))

    def several(self, make: Callable[[Draw], Any], least: int, most: int) -> list[Any]:
        """So many, each made anew."""
        return [make(self) for _ in range(self.random.randint(least, most))]
