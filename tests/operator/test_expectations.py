"""Pods that were made and gone again before their watch showed them: a cut watch, and a server that has forgotten."""

import asyncio

import pytest

from fairlead.api import names
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.resources import PODS
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import OperatorProcess, World

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
ROLE = {"name": "worker", "replicas": 1, "template": TEMPLATE}


async def unheard(world, operator, spec):
    """An AIJob is submitted, and its pods are made while the operator observes none."""
    operator.partition.cut_paths = "/api/v1/pods"
    world.create({"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": "job"}, "spec": spec}, "vision")
    await asyncio.sleep(2.0)


def play(story):
    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


def uids(world):
    return {key: record.object["metadata"]["uid"] for key, record in world.api.store.records(PODS)}


@pytest.mark.parametrize("array", [None, {"indexes": "0-1"}], ids=["job", "array"])
def test_they_are_made_again(array):
    async def story():
        world = World(nodes=1, seed=1)
        operator = OperatorProcess(world)
        operator.start()
        await asyncio.sleep(5.0)
        await unheard(world, operator, {"roles": [ROLE], **({"array": array} if array else {})})
        made = [key for key, _ in world.api.store.records(PODS)]
        assert len(made) == (2 if array else 1)
        resource = world.api.catalog.of_kind("v1", "Pod")
        for namespace, name in made:
            world.api.delete(resource, namespace, name, {"gracePeriodSeconds": 0})
        world.api.store.compact()
        await asyncio.sleep(1.0)
        assert not list(world.api.store.records(PODS))
        operator.partition.heal()
        await asyncio.sleep(240.0)
        again = [key for key, _ in world.api.store.records(PODS)]
        await operator.kill()
        return made, again

    made, again = play(story)
    assert again == made


def test_a_quota_counts_them_once():
    """Another reconciliation before the watch shows the pods must neither take a gang back nor make it a second time."""

    async def story():
        world = World(nodes=1, seed=1)
        operator = OperatorProcess(world)
        operator.start()
        hard = {"hard": {"pods": "3"}}
        world.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": hard}, "vision")
        await asyncio.sleep(5.0)
        await unheard(world, operator, {"roles": [{**ROLE, "replicas": 2}]})
        made = uids(world)
        assert len(made) == 2
        resource = world.api.catalog.of_kind(names.API_VERSION, "AIJob")
        for number in range(5):
            note = {"metadata": {"annotations": {"note": str(number)}}}
            world.api.patch(resource, "vision", "job", "application/merge-patch+json", note)
            await asyncio.sleep(1.0)
            assert uids(world) == made
        operator.partition.heal()
        await asyncio.sleep(60.0)
        still = uids(world)
        await operator.kill()
        return made, still

    made, still = play(story)
    assert still == made
