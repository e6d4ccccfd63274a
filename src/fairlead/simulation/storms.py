"""Storms: for a while everything goes wrong with a cluster's nodes, pods and queues, then all of it is repaired."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.store import Key, Object
from fairlead.simulation.audit import Auditor
from fairlead.simulation.users import Strike
from fairlead.simulation.workload import TEAMS
from fairlead.simulation.world import GPU, World

_STALLS = ("ImagePullBackOff: Back-off pulling image", "ErrImagePull: no such host", "ContainerCreating")
_POISONS: tuple[Object, ...] = (
    {"resources": {"requests": {"memory": "10E"}}},
    {"resources": {"requests": {"cpu": str(2**63 - 1)}}},
    {"resources": {"requests": {"memory": "1e1000"}}},
    {"resources": {"limits": {"nvidia.com/gpu": "1000000"}}},
    {"resources": {"requests": {"cpu": "1n"}}},
)


class Storms:
    """faults: how often each kind struck. on: whether one rages. plan: of faults on the way to the API server."""

    def __init__(self, world: World, auditor: Auditor, chances: random.Random, plan: FaultPlan) -> None:
        self.faults: Counter[str] = Counter()
        self.on = False
        self._world = world
        self._auditor = auditor
        self._random = chances
        self._plan = plan
        self._starts = random.Random(f"starts {world.seed}")
        self._repairs: list[Callable[[], object]] = []
        self._stalled: dict[str, str] = {}  # uid -> why its containers do not start while the storm lasts
        world.kubelet.refuses = self._refuses
        world.kubelet.stalls = self._stalls

    def afterwards(self, call: Callable[[], object]) -> None:
        """What is to be done when the storm is over."""
        self._repairs.append(call)

    async def rage(self, seconds: float, others: list[tuple[str, Strike]], until: Callable[[float], Awaitable[None]]) -> None:
        """For so long. others: what else may go wrong; until: lets time pass."""
        kinds = [*self._strikes(), *others]
        self._plan.on = self.on = True
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while now() < end:
            name, strike = self._random.choice(kinds)
            self.faults[name] += 1
            await strike()
            await until(min(end, now() + self._random.uniform(10.0, 150.0)))
        self._plan.on = self.on = False
        for repair in self._repairs:
            repair()
        self._repairs.clear()
        self._stalled.clear()
        self._world.kubelet.stuck.clear()

    def _strikes(self) -> list[tuple[str, Strike]]:
        return [
            ("node_lost", self._lose_node),
            ("node_deleted", self._delete_node),
            ("node_shrunk", self._shrink_node),
            ("node_cordoned", self._cordon_node),
            ("pod_crash", self._crash_pod),
            ("pod_stuck", self._stick_pod),
            ("pod_deleted", self._delete_pod),
            ("foreign_binding", self._bind_outsider),
            ("limit_edited", self._edit_limit),
            ("queue_deleted", self._delete_queue),
            ("poison_object", self._poison),
        ]

    def _refuses(self, _: Object) -> str:
        if self.on and self._random.random() < 0.03:
            self.faults["kubelet_refusal"] += 1
            return "UnexpectedAdmissionError"
        return ""

    def _stalls(self, pod: Object) -> str:
        """Some pods that begin in a storm do not start before it is over."""
        uid = pod["metadata"]["uid"]
        if not self.on:
            self._stalled.pop(uid, None)
            return ""
        if uid not in self._stalled:
            self._stalled[uid] = self._starts.choice(_STALLS) if self._starts.random() < 0.05 else ""
            self.faults["start_failure"] += bool(self._stalled[uid])
        return self._stalled[uid]

    def _some_node(self) -> str:
        present = [name for name in self._world.manifests if self._world.has_node(name)]
        return self._random.choice(present)

    def _some_pod(self, *, bound: bool) -> Key | None:
        found = sorted(
            key
            for key, record in self._world.api.store.records(PODS)
            if bool(record.object["spec"].get("nodeName")) is bound
            and record.object["status"].get("phase") in ("Pending", "Running")
        )
        return self._random.choice(found) if found else None

    async def _lose_node(self) -> None:
        name = self._some_node()
        self._world.kubelet.lose(name)
        self._repairs.append(lambda: self._world.kubelet.recover(name))
        if self._random.random() < 0.5:
            self._world.clock.call_later(self._random.uniform(20, 900), lambda: self._world.kubelet.recover(name))

    async def _delete_node(self) -> None:
        name = self._some_node()

        def again() -> None:
            if not self._world.has_node(name):
                self._world.add_node(name)

        self._quietly(lambda: self._world.api.delete(self._world.api.served("v1", "nodes"), "", name))
        self._repairs.append(again)
        if self._random.random() < 0.5:
            self._world.clock.call_later(self._random.uniform(1, 300), again)

    async def _shrink_node(self) -> None:
        name = self._some_node()
        whole = self._world.allocatable(name)
        self._world.kubelet.resize(name, {GPU: str(max(0, int(whole[GPU]) - self._random.randint(1, 4)))})
        self._auditor.disturbed(name)
        self._repairs.append(lambda: self._world.kubelet.resize(name, whole))

    async def _cordon_node(self) -> None:
        name = self._some_node()

        def cordon(on: bool) -> None:
            patch = {"spec": {"unschedulable": on or None}}
            nodes = self._world.api.served("v1", "nodes")
            self._quietly(lambda: self._world.api.patch(nodes, "", name, "application/merge-patch+json", patch))

        cordon(on=True)
        self._repairs.append(lambda: cordon(on=False))

    async def _crash_pod(self) -> None:
        key = self._some_pod(bound=True)
        if key is not None:
            self._world.kubelet.end(key, failed=True)

    async def _stick_pod(self) -> None:
        key = self._some_pod(bound=True)
        if key is not None:
            record = self._world.api.store.get(PODS, key)
            if record is not None:
                self._world.kubelet.stuck.add(record.object["metadata"]["uid"])
                await self._delete(key)

    async def _delete_pod(self) -> None:
        key = self._some_pod(bound=self._random.random() < 0.5)
        if key is not None:
            await self._delete(key)

    async def _delete(self, key: Key) -> None:
        self._quietly(lambda: self._world.api.delete(self._world.api.served("v1", "pods"), *key))

    async def _bind_outsider(self) -> None:
        """Another scheduler places a pod where ours may be about to."""
        name = f"outsider-{self._random.getrandbits(32):08x}"
        node = self._some_node()
        container = {
            "name": "main",
            "image": "x",
            "resources": {"requests": {"cpu": "8", GPU: "2"}, "limits": {GPU: "2"}},
        }
        pod = {
            "metadata": {"name": name, "annotations": {names.SIMULATED_DURATION_ANNOTATION: "1200s"}},
            "spec": {"containers": [container], "schedulerName": "other", "restartPolicy": "Never"},
        }
        pods = self._world.api.served("v1", "pods")
        self._world.api.create(pods, "default", pod)
        self._world.api.bind("default", name, {"target": {"kind": "Node", "name": node}})
        self._repairs.append(lambda: self._quietly(lambda: self._world.api.delete(pods, "default", name)))

    async def _edit_limit(self) -> None:
        self.set_limit(self._random.choice(TEAMS), max(8, int(self._world.gpus * self._random.uniform(0.1, 0.9))))

    def set_limit(self, team: str, gpus: int) -> None:
        """A queue's limit of GPUs is changed."""
        queues = self._world.api.served(names.API_VERSION, "queues")
        try:
            spec = self._world.api.get(queues, "", team).object["spec"]
        except StatusError:
            return
        resource = {**spec["resources"][0], "limit": gpus}
        patch = {"spec": {"resources": [resource]}}
        self._auditor.edited(team)
        self._world.api.patch(queues, "", team, "application/merge-patch+json", patch)

    async def _delete_queue(self) -> None:
        """A queue's object goes and comes back: what waits in it must neither be lost nor start unlimited."""
        team = self._random.choice(TEAMS)
        queues = self._world.api.served(names.API_VERSION, "queues")
        try:
            queue = self._world.api.get(queues, "", team).object
        except StatusError:
            return
        self._auditor.edited(team)
        self._quietly(lambda: self._world.api.delete(queues, "", team))

        def again() -> None:
            self._auditor.edited(team)
            self._quietly(lambda: self._world.api.create(queues, "", {"metadata": {"name": team}, "spec": queue["spec"]}))

        self._world.clock.call_later(self._random.uniform(1, 120), again)

    async def _poison(self) -> None:
        container = {"name": "main", "image": "x", **self._random.choice(_POISONS)}
        labels = {"fairlead.dev/queue": self._random.choice(("", "no-such-queue", self._random.choice(TEAMS)))}
        annotations = {names.GPU_FRACTION_ANNOTATION: self._random.choice(("0.5", "NaN", "-1", "x" * 5000, "1e-400"))}
        name = f"poison-{self._random.getrandbits(32):08x}"
        pod = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {
                "containers": [container],
                "schedulerName": names.SCHEDULER_NAME,
                "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
            },
        }
        pods = self._world.api.served("v1", "pods")
        self._quietly(lambda: self._world.api.create(pods, "default", pod))
        self._repairs.append(lambda: self._quietly(lambda: self._world.api.delete(pods, "default", name)))

    @staticmethod
    def _quietly(call: Callable[[], object]) -> None:
        try:
            call()
        except StatusError:
            return
