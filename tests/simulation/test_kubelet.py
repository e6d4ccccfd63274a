"""The fake kubelet: what becomes of a pod whose node goes and comes while it is admitted."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.simulation.world import World

NODES = ("v1", "Node")


@pytest.mark.parametrize(("away", "becomes"), [(10.0, "Running"), (60.0, None)])
def test_a_node_that_is_gone_while_a_pod_is_admitted(away, becomes):
    """The pod starts if the node is back before its pods are collected, 40 s later; else it goes with the node."""

    async def story():
        world = World(nodes=1, seed=1)
        (name,) = world.manifests
        await asyncio.sleep(2.0)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one"},
            "spec": {"nodeName": name, "containers": [{"name": "main", "image": "none"}]},
        }
        world.create(pod, "vision")
        await asyncio.sleep(1.0)
        world.api.delete(world.api.catalog.of_kind(*NODES), "", name)
        await asyncio.sleep(away)
        world.add_node(name)
        await asyncio.sleep(60.0)
        record = world.api.store.get("pods", ("vision", "one"))
        return record.object["status"]["phase"] if record is not None else None

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(story()) == becomes
