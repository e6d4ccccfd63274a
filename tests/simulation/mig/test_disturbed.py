"""Random worlds around the operator's reconfigurations: no running pod is hit, no node stays closed, and what waits gets its turn.

The scheduler is a crude one that decides on views of the past and binds late, as far as the policy's `settle` allows for. The
operator is killed and started, mig-manager fails, hangs and is late, administrators change labels.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections import Counter

import msgspec
import pytest

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.core.mig.parts import PREFIX
from fairlead.simulation.chaos import silence
from fairlead.simulation.mig.manager import Fate, Manager, Result
from fairlead.simulation.mig.reconfigured import Arrival, Stream, layouts, pod, pool
from fairlead.simulation.mig.reconfigured import node as mig_node
from fairlead.simulation.world import OperatorProcess, World

NODES, PODS = "nodes", "pods"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
PHASE = "fairlead.dev/mig-reconfiguration"
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")
STREAM = Stream(settle=30.0, pending_for=20.0, cooldown=120.0, timeout=300.0)
OLD, LATE = 10.0, 15.0  # seconds: how old a view is at most, and how late a binding; together less than `settle`
ENOUGH = 4 * 3600.0


class Life:
    """One world: its nodes, pods, and all who act in it."""

    def __init__(self, seed, stream):
        self.draw = random.Random(seed)
        self.world = World(nodes=1, seed=seed)
        self.world.create(pool(stream))
        self.nodes = [f"mig-{number:03d}" for number in range(self.draw.randint(1, 3))]
        for number in range(len(self.nodes)):
            self.world.create(mig_node(number))
        self.calm = False
        self.kills = self.labels = self.late = 0
        self.made = 0

    # -- what there is -------------------------------------------------------------------------

    def node(self, name):
        return self.world.api.store.get(NODES, ("", name)).object

    def label(self, name, key):
        return self.node(name)["metadata"]["labels"].get(key, "")

    def change(self, name, labels=None, **spec):
        old = self.node(name)
        metadata = {**old["metadata"], "labels": {**old["metadata"]["labels"], **(labels or {})}}
        self.world.api.store.put(NODES, ("", name), {**old, "metadata": metadata, "spec": {**old["spec"], **spec}})

    def pods(self):
        return [record.object for key, record in self.world.api.store.records(PODS) if key[1].startswith("pod-")]

    def idle(self, name):
        return not any(each["spec"].get("nodeName") == name and running(each) for each in self.pods())

    def view(self):
        """The nodes as a scheduler's watch delivers them."""
        found = {}
        for name in self.nodes:
            each = self.node(name)
            is_open = not each["spec"].get("taints") and not each["spec"].get("unschedulable")
            found[name] = (
                is_open,
                {key: int(value) for key, value in each["status"]["allocatable"].items() if key.startswith(PREFIX)},
            )
        return found

    # -- who acts ------------------------------------------------------------------------------

    async def schedule(self):
        """Binds late, on old views; what does not fit is reported as unschedulable."""
        views, flying = [], {}
        while True:
            views = [*views[-int(OLD / 2) :], self.view()]
            seen = views[self.draw.randrange(len(views))]
            held = {name: Counter() for name in self.nodes}
            for each in self.pods():
                node = each["spec"].get("nodeName") or flying.get(each["metadata"]["name"])
                if node and running(each):
                    held[node][asks(each)] += 1
            for each in self.pods():
                name = each["metadata"]["name"]
                if each["spec"].get("nodeName") or name in flying or not running(each):
                    continue
                fits = [n for n, (is_open, offers) in seen.items() if is_open and held[n][asks(each)] < offers.get(asks(each), 0)]
                if fits:
                    flying[name] = node = self.draw.choice(fits)
                    held[node][asks(each)] += 1
                    asyncio.get_running_loop().call_later(self.draw.uniform(0.0, LATE), self.bind, name, node, flying)
                elif not (each["status"].get("conditions") or ()):
                    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
                    status = {**each["status"], "conditions": [{**condition, "lastTransitionTime": self.world.clock.text()}]}
                    self.put(each, status=status)
            await asyncio.sleep(2.0)

    def bind(self, name, node, flying):
        flying.pop(name)
        record = self.world.api.store.get(PODS, ("default", name))
        if record is not None and not record.object["spec"].get("nodeName"):
            self.late += bool(self.node(node)["spec"].get("taints"))
            self.put(record.object, spec={**record.object["spec"], "nodeName": node})

    def put(self, each, **fields):
        made = {**each, "metadata": dict(each["metadata"]), **fields}
        self.world.api.store.put(PODS, ("default", each["metadata"]["name"]), made)

    async def arrive(self, count):
        for number in range(count):
            if number % 6 == 0:  # mostly the same profile for a while
                front = self.draw.choice(PROFILES)
                await asyncio.sleep(self.draw.uniform(0.0, 300.0))
            await asyncio.sleep(self.draw.expovariate(1 / 20.0))
            profile = front if self.draw.random() < 0.8 else self.draw.choice(PROFILES)
            made = Arrival(f"pod-{self.made:03d}", 0.0, profile, self.draw.uniform(20.0, 300.0))
            self.made += 1
            self.world.create(pod(made), "default")
            if self.draw.random() < 0.1:  # some go before they run
                asyncio.get_running_loop().call_later(self.draw.uniform(1.0, 120.0), self.drop, made.name)

    def drop(self, name):
        record = self.world.api.store.get(PODS, ("default", name))
        if record is not None and not record.object["spec"].get("nodeName"):
            self.world.api.store.remove(PODS, ("default", name))

    async def kill(self):
        """The operator: killed at any moment, started again later."""
        process = OperatorProcess(self.world)
        process.start()
        while not self.calm:
            await asyncio.sleep(self.draw.uniform(5.0, 400.0))
            if self.calm:
                break
            await process.kill()
            self.kills += 1
            await asyncio.sleep(self.draw.uniform(0.0, 120.0))
            process = OperatorProcess(self.world)
            process.start()
        self.operator = process

    async def administer(self):
        """Labels that are changed: at once where the node is closed, else after it was drained; repairs."""
        while not self.calm:
            await asyncio.sleep(self.draw.uniform(60.0, 900.0))
            name, config = self.draw.choice(self.nodes), self.draw.choice(sorted(layouts()))
            if self.label(name, PHASE) not in ("", "Settling"):
                self.change(name, {CONFIG: config})
                self.labels += 1
                continue
            self.change(name, unschedulable=True)
            await asyncio.sleep(OLD + LATE + 5.0)
            if self.idle(name):
                self.change(name, {CONFIG: config})
                self.labels += 1
                await asyncio.sleep(30.0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1200.0):
                        while self.label(name, STATE) != "success":
                            await asyncio.sleep(5.0)
            while self.label(name, STATE) not in ("success", "failed"):
                await asyncio.sleep(5.0)
                if self.calm:
                    break
            self.change(name, unschedulable=False)
        for name in self.nodes:  # what failed or hung gets another label
            self.change(name, unschedulable=False)
            if self.label(name, STATE) != "success":
                self.change(name, {CONFIG: "all-1g.5gb" if self.label(name, CONFIG) != "all-1g.5gb" else "all-2g.10gb"})

    def fate(self, _node, _config):
        """Anything, until the world is calm."""
        chance = 1.0 if self.calm else self.draw.random()
        took = self.draw.uniform(5.0, 120.0)
        if chance < 0.15:
            return Fate(Result.FAILED, took)
        if chance < 0.25:
            return Fate(Result.HANGS, took)
        return Fate(Result.SUCCESS, took if chance > 0.35 else 500.0, delay=self.draw.choice([0.1, 5.0, 60.0]))


def running(each):
    return (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def asks(each):
    return next(iter(each["spec"]["containers"][0]["resources"]["limits"]))


async def live(seed, stream):
    life = Life(seed, stream)
    transport = SimulatedTransport(life.world.wire)
    async with (
        Client(Config("http://simulated"), transport=transport, clock=life.world.clock.now) as client,
        asyncio.TaskGroup() as group,
    ):
        manager = Manager(client, layouts(), life.fate)
        acting = [group.create_task(each) for each in (manager.run(), life.schedule(), life.kill(), life.administer())]
        await asyncio.sleep(5.0)
        await life.arrive(60)
        life.calm = True
        await asyncio.sleep(1300.0)
        # From now on nothing fails: all that waits has its turn.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENOUGH):
                while any(running(each) for each in life.pods()):
                    await asyncio.sleep(60.0)
        await asyncio.sleep(STREAM.timeout + 120.0)
        for task in acting:
            task.cancel()
        await life.operator.kill()
    return life, manager


@functools.cache
def play(seed, settle=30.0):
    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(live(seed, msgspec.structs.replace(STREAM, settle=settle)))


SEEDS = (1, 2, 6, 8, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_pod_is_hit_no_node_stays_closed_and_all_that_waits_runs(seed):
    life, manager = play(seed)
    assert manager.hits == []
    assert [each["metadata"]["name"] for each in life.pods() if running(each)] == []
    for name in life.nodes:
        assert life.label(name, PHASE) == "", "it is open"
        assert not life.node(name)["spec"].get("taints")


def test_the_worlds_have_what_they_are_for():
    lives = [play(seed) for seed in SEEDS]
    assert min(life.kills for life, _ in lives) > 3
    assert sum(life.labels for life, _ in lives) > 5
    assert sum(life.late for life, _ in lives) > 2, "bindings arrive on nodes that are closed already"
    results = Counter(result for _, manager in lives for _, _, result in manager.results)
    assert all(results[each] for each in Result)


def test_a_settling_time_that_is_too_short_is_seen():
    """The worlds would show a pod that is hit: bindings come up to 25 s late here."""
    _, manager = play(9, settle=1.0)
    assert manager.hits
