"""A DRA driver on simulated nodes: it publishes devices, prepares claims, restarts, and loses devices on request.

Each node's pool has its own generation: a driver that starts publishes its slices anew with the next one, slice by slice. What a
driver has prepared survives its restart, and that its node's object is deleted, as a checkpoint would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fractions import Fraction

from fairlead.cluster.simulated import devices, pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.device_values import number
from fairlead.cluster.simulated.devices import DRIVER, Model
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import NODES, SLICES
from fairlead.cluster.simulated.store import Change, Key, Object

_BETWEEN = 0.05  # seconds between the writes of two slices


class Node:
    """A driver on one node. prepared: claims by UID, with their results, as they were prepared."""

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.model = model
        self.generation = 0
        self.registered = False
        self.lost: set[str] = set()
        self.taints: dict[str, Object] = {}
        self.prepared: dict[str, tuple[str, list[Object]]] = {}
        self.devices = {each["name"]: each for each in devices.devices(name, model)}
        self.totals = {each["name"]: each["counters"] for each in devices.counter_sets(model)}

    def prepare(self, claim: Object) -> str:
        """Prepare what a claim holds of this driver. Returns why not."""
        metadata = claim["metadata"]
        results = [dict(each) for each in pod_claims.results_of(claim) if each["driver"] == DRIVER]
        elsewhere = next((each["pool"] for each in results if each["pool"] != self.name), "")
        why = f"pool {elsewhere} is not on node {self.name}" if elsewhere else self.refusal(metadata["uid"], results)
        if not why:
            self.prepared[metadata["uid"]] = (f"{metadata['namespace']}/{metadata['name']}", results)
        return why

    def refusal(self, uid: str, results: list[Object]) -> str:
        """Why a claim cannot be prepared; empty if it can."""
        held = [one for other, (_, found) in self.prepared.items() if other != uid for one in found]
        owners = {one["device"]: name for other, (name, found) in self.prepared.items() if other != uid for one in found}
        for result in results:
            name = result["device"]
            if name not in self.devices or name in self.lost:
                return f"device {name} is not there"
            if result.get("adminAccess"):
                continue
            same = [each for each in held if each["device"] == name]
            if same and not (result.get("shareID") and all(each.get("shareID") for each in same)):
                return f"device {name} is prepared for claim {owners[name]}"
        return self._overdrawn([*held, *(each for each in results if not each.get("adminAccess"))])

    def _overdrawn(self, results: list[Object]) -> str:
        """Which capacity or counter these results need more of than there is."""
        for name in sorted({each["device"] for each in results if each.get("shareID")}):
            for capacity, given in self.devices[name].get("capacity", {}).items():
                taken = sum(
                    (number(each.get("consumedCapacity", {}).get(capacity, "0")) for each in results if each["device"] == name),
                    Fraction(0),
                )
                if taken > number(given["value"]):
                    return f"shares of device {name} need {taken} of {number(given['value'])} {capacity}"
        used: dict[tuple[str, str], Fraction] = {}
        for name in sorted({each["device"] for each in results}):
            for each in self.devices[name].get("consumesCounters", ()):
                for counter, amount in each["counters"].items():
                    key = each["counterSet"], counter
                    used[key] = used.get(key, Fraction(0)) + number(amount["value"])
        for (counters, counter), amount in used.items():
            if amount > number(self.totals[counters][counter]["value"]):
                return f"partitions overlap in {counter} of {counters}"
        return ""


def reported(claim: Object, results: list[Object], now: str) -> list[Object]:
    """`status.devices` of a claim whose results are prepared; what other drivers reported stays."""
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": now}
    same = ("driver", "pool", "device", "shareID")
    kept = [each for each in claim["status"].get("devices") or () if each["driver"] != DRIVER]
    return [*kept, *({**{field: each[field] for field in same if each.get(field)}, "conditions": [ready]} for each in results)]


class Drivers:
    """The driver on every node that has devices.

    start: seconds from a node's registration to its slices. restarts: how often one started again. refusals: what was refused to
    be prepared, in words; each is a claim that must not have been allocated so.
    """

    def __init__(self, api: ApiServer, *, start: float = 1.0) -> None:
        self.start = start
        self.restarts = 0
        self.refusals: list[str] = []
        self.nodes: dict[str, Node] = {}
        self.ready: Callable[[str], None] = lambda _: None  # a driver is there again
        self._api = api
        self._slices = api.served(devices.API_VERSION, "resourceslices")
        self._claims = api.served(devices.API_VERSION, "resourceclaims")
        api.store.listen(NODES, self._node_changed)

    def install(self, models: dict[str, Model]) -> None:
        """Nodes have devices from now on: their classes are made, and nodes that are there publish them."""
        for each in devices.classes():
            name = each["metadata"]["name"]
            if self._api.store.get("resource.k8s.io/deviceclasses", ("", name)) is None:
                self._api.create(self._api.served(devices.API_VERSION, "deviceclasses"), "", each)
        for name, model in sorted(models.items()):
            self.nodes[name] = Node(name, model)
            if self._api.store.get(NODES, ("", name)) is not None:
                self._later(self.start, name)

    # -- slices --------------------------------------------------------------------------------

    def _node_changed(self, change: Change) -> None:
        node = self.nodes.get(change.key[1])
        if node is None:
            return
        if change.kind == "ADDED":
            self._later(self.start, node.name)
        elif change.kind == "DELETED":
            node.registered = False

    def _later(self, wait: float, name: str) -> None:
        self._api.clock.call_later(wait, lambda: self.publish(name))

    def publish(self, name: str) -> None:
        """The driver of a node starts, or its devices changed: its slices are written with the next generation, one by one."""
        node, found = self.nodes[name], self._api.store.get(NODES, ("", name))
        if found is None:
            return
        node.generation += 1
        node.registered = True
        metadata = found.object["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": metadata["uid"], "controller": True}
        wanted = devices.slices(name, node.model, node.generation, lost=node.lost, taints=node.taints, owner=owner)
        generation = node.generation
        for index, each in enumerate(wanted):
            self._api.clock.call_later(index * _BETWEEN, lambda each=each: self._write(node, generation, each))  # type: ignore[misc]
        names = {each["metadata"]["name"] for each in wanted}
        self._api.clock.call_later(len(wanted) * _BETWEEN, lambda: self._remove_others(node, generation, names))
        self.ready(name)

    def _write(self, node: Node, generation: int, wanted: Object) -> None:
        """Make or replace one slice, unless the driver has gone, or goes on with another generation."""
        if not node.registered or node.generation != generation:
            return
        name = wanted["metadata"]["name"]
        record = self._api.store.get(SLICES, ("", name))
        try:
            if record is None:
                self._api.create(self._slices, "", {**wanted, "metadata": dict(wanted["metadata"])})
            else:
                self._api.update(self._slices, "", name, {**wanted, "metadata": dict(record.object["metadata"])})
        except StatusError:
            return  # the next generation writes it

    def _remove_others(self, node: Node, generation: int, names: Collection[str]) -> None:
        if node.registered and node.generation == generation:
            self._delete(key for key in self._of(node.name) if key[1] not in names)

    def _of(self, name: str) -> list[Key]:
        return [key for key, record in self._api.store.sorted(SLICES) if record.object["spec"].get("nodeName") == name]

    def _delete(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._api.delete(self._slices, *key)

    def withdraw(self, name: str) -> None:
        """The driver of a node ends: nothing is prepared there, and its slices are deleted."""
        self.nodes[name].registered = False
        self._delete(self._of(name))

    def restart(self, name: str, away: float) -> None:
        """The driver of a node ends, and starts again after so many seconds."""
        self.withdraw(name)
        self.restarts += 1
        self._later(away, name)

    def lose(self, name: str, lost: Collection[str]) -> None:
        """Devices vanish from a node's slices; what holds them goes on holding them."""
        self.nodes[name].lost |= set(lost)
        self._republish(name)

    def taint(self, name: str, tainted: Collection[str], effect: str) -> None:
        """Devices get a taint `unhealthy`. effect: NoSchedule, NoExecute or None."""
        added = {"key": f"{DRIVER}/unhealthy", "value": "true", "effect": effect, "timeAdded": self._api.clock.text()}
        self.nodes[name].taints |= dict.fromkeys(tainted, added)
        self._republish(name)

    def repair(self, name: str) -> None:
        """All devices of a node are there again, without taints."""
        node = self.nodes[name]
        if node.lost or node.taints:
            node.lost.clear()
            node.taints.clear()
            self._republish(name)

    def _republish(self, name: str) -> None:
        if self.nodes[name].registered:
            self.publish(name)

    # -- claims --------------------------------------------------------------------------------

    def away(self, name: str, drivers: Iterable[str]) -> str:
        """The first of these drivers that is not on a node; empty if all are."""
        node = self.nodes.get(name)
        present = {DRIVER} if node is not None and node.registered else set()
        return next((each for each in sorted(set(drivers)) if each not in present), "")

    def prepare(self, name: str, claim: Object) -> str:
        """Prepare what a claim holds on a node; the driver must be there. Returns why not."""
        node, metadata = self.nodes[name], claim["metadata"]
        if metadata["uid"] in node.prepared:
            return ""
        why = node.prepare(claim)
        if why:
            self.refusals.append(f"claim {metadata['namespace']}/{metadata['name']} on {name}: {why}")
            return why
        self._report(claim, node.prepared[metadata["uid"]][1])
        return ""

    def _report(self, claim: Object, results: list[Object]) -> None:
        """Write into a claim's status that its devices are ready."""
        metadata, status = claim["metadata"], claim["status"]
        reports = reported(claim, results, self._api.clock.text())
        changed = {**claim, "metadata": dict(metadata), "status": {**status, "devices": reports}}
        try:
            self._api.update(self._claims, metadata["namespace"], metadata["name"], changed, subresource="status")
        except StatusError:
            return  # the claim changed meanwhile: a report is no condition of anything

    def unprepare(self, name: str, uid: str) -> None:
        """Nothing on a node uses a claim any more."""
        node = self.nodes.get(name)
        if node is not None:
            node.prepared.pop(uid, None)
