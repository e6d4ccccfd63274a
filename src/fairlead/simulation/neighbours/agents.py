"""Nodes of Fairlead's own agent as pods meet them: which GPU a pod gets by the agent's rule, and how fast it is beside another.

The rule is that of `fairlead agent` (`agent/devices`). What pods report stands in their annotations, as the operator would write
it. Pods that do not run beside each other fail soon after they met.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.agent.devices import Devices
from fairlead.api import names, speeds
from fairlead.cluster.simulated.kubelet import amounts, requests_of
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.world import GPU, World

HALF = 500
ENDED = ("Succeeded", "Failed")
_REPORTS, _FAILS = (100.0, 170.0), 30.0  # seconds after two have met
_ERROR = 0.05
_STEPS = 10.0  # per second, of a kind that runs alone


def partner_of(pod: Object) -> str:
    """What the binding of a pod that shares its GPU names; empty: it does not."""
    found: str = (pod["metadata"].get("annotations") or {}).get(names.GPU_PARTNER_ANNOTATION, "")
    return found if pod["spec"].get("nodeName") else ""


def held_by(pod: Object) -> tuple[tuple[str, int], ...]:
    """What a pod holds of its node as amounts; a GPU that it shares is counted by the agent."""
    requests = requests_of(pod)
    return tuple(each for each in requests if each[0] != GPU) if partner_of(pod) else requests


def kind_of(pod: Object) -> str:
    """The kind of a job, by its name."""
    name: str = pod["metadata"]["name"]
    return name.partition("-")[0]


class Agents:
    """Play the agents of a world. wrong: called with what they refuse a pod though its node was not disturbed of late."""

    def __init__(self, world: World, seed: int, wrong: Callable[[str], None], calm: Callable[[str], bool]) -> None:
        self.pairs = 0
        self._world = world
        self._wrong = wrong
        self._calm = calm
        self._random = random.Random(f"agents {seed}")
        self._speeds: dict[tuple[str, str], float] = {}
        self._nodes: dict[str, Devices] = {}
        self._running: dict[str, tuple[Key, str, str]] = {}  # UID -> its key, kind and node, of pods that share GPUs
        self._on: dict[str, str] = {}  # UID -> node, of all that have GPUs
        self._met: dict[str, int] = {}  # UID -> how often who is beside it changed
        refuses = world.kubelet.refuses
        world.kubelet.requests = held_by
        world.kubelet.refuses = lambda pod: self._refuses(pod) or refuses(pod)
        world.api.store.listen(PODS, self._changed)

    def speed(self, first: str, second: str) -> float:
        """How fast a kind is beside another, as a part of its speed alone; 0: they do not run together."""
        if (first, second) not in self._speeds:
            draw = random.Random(f"speed {self._world.seed} {first} {second}")
            runs = random.Random(f"runs {self._world.seed} {sorted((first, second))}").random() < 0.85
            self._speeds[first, second] = draw.uniform(0.3, 1.0) if runs else 0.0
        return self._speeds[first, second]

    def settled(self, state: ClusterState) -> Iterator[str]:
        """Pairs in the scheduler's state are those that the agents made of pods."""
        for name, devices in sorted(self._nodes.items()):
            row = state.nodes.rows.get(name)
            if row is None:
                continue
            here = [uid for uid, node in self._on.items() if node == name and uid in self._running]
            expected = _together((uid, devices.take(uid, 1) or ()) for uid in here)
            # Others were bound to a node that has been silent.
            tasks = [task for uid, task in state.nodes.pods[row].items() if uid in here]
            known = _together((task.pod.uid, task.devices) for task in tasks)
            if known != expected:
                yield f"on {name} the scheduler believes in pairs {known}, the agent has {expected}"

    # -- GPUs ----------------------------------------------------------------------------------

    def _refuses(self, pod: Object) -> str:
        """Give a pod its GPUs, or state why it has none."""
        node = pod["spec"]["nodeName"]
        asked = dict(requests_of(pod)).get(GPU, 0)
        record = self._world.api.store.get(NODES, ("", node))
        if not asked or record is None:
            return ""
        if (record.object["metadata"].get("labels") or {}).get(names.GPU_SHARING_LABEL) != names.OWN_AGENT:
            if partner_of(pod):
                self._wrong(f"pod {_key(pod)} is to share a GPU of {node}, which is not of fairlead agent")
            return ""
        devices = self._nodes.setdefault(node, Devices(int(self._world.allocatable(node)[GPU])))
        uid, partner = pod["metadata"]["uid"], partner_of(pod)
        taken = devices.take_half(uid, partner) if partner else devices.take(uid, asked)
        used = sum(free < 2 * HALF for free in devices.free)
        if taken is None or used > amounts(record.object["status"].get("allocatable")).get(GPU, 0):
            devices.give_back(uid)
            if self._calm(node):
                self._wrong(f"pod {_key(pod)} has no GPU on {node}, partner {partner!r}: free there {devices.free}")
            return f"OutOf{GPU}"
        self._on[uid] = node
        if partner:
            self._running[uid] = _key(pod), kind_of(pod), node
            mate = self._mate(uid)
            self.pairs += bool(mate)
            there = partner in self._on and self._on[partner] == node
            if there and mate != partner and self._calm(node):
                self._wrong(f"pod {_key(pod)} is bound to {node} beside {partner}, whose GPU is shared already")
        return ""

    def _mate(self, uid: str) -> str:
        """The pod on the same GPU, by UID."""
        devices = self._nodes[self._on[uid]]
        mine = devices.take(uid, 1)
        return next((each for each in self._on if each != uid and each in self._running and self._beside(each, uid, mine)), "")

    def _beside(self, other: str, uid: str, mine: list[int] | None) -> bool:
        return self._on[other] == self._on[uid] and self._nodes[self._on[other]].take(other, 1) == mine

    def _changed(self, change: Change) -> None:
        pod = change.record.object
        uid = pod["metadata"]["uid"]
        if uid not in self._on:
            return
        if change.kind == "DELETED" or pod["status"].get("phase") in ENDED:
            mate = self._mate(uid) if uid in self._running else ""
            self._nodes[self._on.pop(uid)].give_back(uid)
            self._running.pop(uid, None)
            self._met.pop(uid, None)
            if mate:
                self._meets(mate)
        elif pod["status"].get("phase") == "Running" and uid in self._running and uid not in self._met:
            self._meets(uid)
            if (mate := self._mate(uid)) in self._met:
                self._meets(mate)

    # -- speeds --------------------------------------------------------------------------------

    def _meets(self, uid: str) -> None:
        """Who is beside a pod is another, or it begins: its speed is measured anew."""
        times = self._met[uid] = self._met.get(uid, 0) + 1
        for seconds in _REPORTS:
            self._world.clock.call_later(seconds, lambda: self._report(uid, times))
        mate = self._mate(uid)
        if mate in self._running and not self.speed(self._running[uid][1], self._running[mate][1]):
            self._world.clock.call_later(_FAILS, lambda: self._fail(uid, times))

    def _report(self, uid: str, times: int) -> None:
        if self._met.get(uid) != times:
            return
        (key, kind, _), mate = self._running[uid], self._mate(uid)
        part = self.speed(kind, self._running[mate][1]) if mate in self._running else 1.0
        steps = _STEPS * part * self._random.uniform(1 - _ERROR, 1 + _ERROR)
        record = self._world.api.store.get(PODS, key)
        if record is not None and record.object["metadata"]["uid"] == uid:
            pod = record.object
            annotations = pod["metadata"].get("annotations") or {}
            annotations = {**annotations, names.MEASURED_SPEED_ANNOTATION: speeds.written(self._world.clock.text(), steps)}
            self._world.api.store.put(PODS, key, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    def _fail(self, uid: str, times: int) -> None:
        """What does not fit beside the other fails; the other is alone then."""
        if self._met.get(uid) == times and self._mate(uid):
            self._world.kubelet.end(self._running[uid][0], failed=True)


def _together(having: Iterable[tuple[str, Sequence[int]]]) -> list[list[str]]:
    """Who has the same GPU, of pods that have one each."""
    found: dict[tuple[int, ...], list[str]] = {}
    for uid, devices in having:
        found.setdefault(tuple(devices), []).append(uid)
    return sorted(sorted(each) for each in found.values())


def _key(pod: Object) -> Key:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
