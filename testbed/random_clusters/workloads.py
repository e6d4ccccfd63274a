"""What pods belong to, and budgets that protect them."""

from __future__ import annotations

from testbed.random_clusters.affinity import selector
from testbed.random_clusters.draw import APPS, Draw, Object


class Workloads:
    """Services and controllers. owners: the controllers that pods may have."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.owners: list[Object] = []

    def made(self) -> Object:
        """Services and controllers, by the field of the case."""
        draw = self._draw

        def one(kind: str, number: int, spec: Object) -> Object:
            namespace = draw.pick(("default", "red"))
            metadata = {"name": f"{kind.lower()}-{number}", "namespace": namespace, "uid": f"uid-{kind}-{number}"}
            if kind != "Service":
                api = "v1" if kind == "ReplicationController" else "apps/v1"
                self.owners.append({"apiVersion": api, "kind": kind, "namespace": namespace, **metadata})
            return {"metadata": metadata, "spec": spec}

        return {
            "services": [
                one(
                    "Service",
                    number,
                    {"selector": draw.pick(({"app": draw.pick(APPS)}, {"app": "web", "tier": "front"}, {}))},
                )
                for number in range(draw.random.randint(1, 3))
            ],
            "replicationControllers": [
                one("ReplicationController", number, {"selector": {"app": draw.pick(APPS)}})
                for number in range(draw.random.randint(0, 1))
            ],
            "replicaSets": [
                one("ReplicaSet", number, {"selector": selector(draw) or {}}) for number in range(draw.random.randint(0, 2))
            ],
            "statefulSets": [
                one("StatefulSet", number, {"selector": selector(draw) or {}}) for number in range(draw.random.randint(0, 2))
            ],
        }

    def give_owner(self, metadata: Object) -> None:
        """One of them makes a pod."""
        draw = self._draw
        owner = draw.pick(self.owners)
        if draw.chance(0.8):
            metadata["namespace"] = owner["namespace"]
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["name"],
                "uid": owner["uid"],
                "controller": True,
            }
        ]


def budget(draw: Draw, number: int) -> Object:
    """A PodDisruptionBudget."""
    made: Object = {
        "metadata": {"name": f"budget-{number}", "namespace": draw.pick(("default", "red"))},
        "spec": {"selector": selector(draw)},
        "status": {"disruptionsAllowed": draw.pick((0, 0, 1, 2))},
    }
    if draw.chance(0.2):
        made["status"]["disruptedPods"] = {f"pod-{draw.random.randrange(14)}": "2026-01-01T00:00:00Z"}
    return made
