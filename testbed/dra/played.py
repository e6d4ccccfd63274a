"""A DRA driver and the kubelet's side of claims, played on a real API server.

The driver publishes the devices of its nodes (`fairlead.cluster.simulated.devices`). Pods that are bound to them become Running
once all of their claims may be used and are prepared; a prepared claim has `status.devices`. Pods that are deleted or ended give
their claims back first. What the API server has is judged by `fairlead.simulation.device_audit` in every round: `violations`.
"""

from __future__ import annotations

import threading
import time
import urllib.error
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import DRIVER, Model
from fairlead.cluster.simulated.drivers import Node, reported
from fairlead.cluster.simulated.preparing import Refused, usable
from fairlead.cluster.simulated.resources import CLAIMS, PODS, SLICES
from fairlead.cluster.simulated.store import Key, Store
from fairlead.simulation.device_audit import DeviceAuditor
from testbed.controlplane import ControlPlane

_Object = dict[str, Any]
GROUP = f"/apis/{devices.API_VERSION}"
MERGE = "application/merge-patch+json"
_ROUND = 0.1  # seconds between two rounds
_PATHS = {PODS: "/api/v1/pods", CLAIMS: f"{GROUP}/resourceclaims", SLICES: f"{GROUP}/resourceslices"}
"""In the order of reading: a pod that is bound was read before its claims, which it keeps until its kubelet ends it."""


class PlayedDriver:
    """Plays while the context is open. models: what each node has; the nodes are on the API server already.

    violations: what the judge found; refused: pod -> why its claims are not prepared.
    """

    def __init__(self, plane: ControlPlane, models: Mapping[str, Model]) -> None:
        self.plane = plane
        self.nodes = {name: Node(name, model) for name, model in models.items()}
        self.violations: list[str] = []
        self.refused: dict[str, str] = {}
        self.rounds = 0
        self._store = Store(1000)
        self._versions: dict[tuple[str, Key], str] = {}  # as read: the store gives its own
        self.auditor = DeviceAuditor(self._store, time.monotonic, self.violations.append, late=60.0)
        self._prepared: dict[str, set[str]] = {}  # UID of a pod -> UIDs of its claims
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        for each in devices.classes():
            self.plane.ensure(each)
        for name in self.nodes:
            self.publish(name)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    # -- slices --------------------------------------------------------------------------------

    def publish(self, name: str) -> None:
        """Write a node's slices with the next generation, and remove those that are too many."""
        with self._lock:
            node = self.nodes[name]
            node.generation += 1
            node.registered = True
            uid = self.plane.request("GET", f"/api/v1/nodes/{name}")["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
            wanted = devices.slices(name, node.model, node.generation, lost=node.lost, taints=node.taints, owner=owner)
            for each in wanted:
                path = f"{GROUP}/resourceslices/{each['metadata']['name']}"
                live = self.plane.find(path)
                if live is None:
                    self.plane.request("POST", f"{GROUP}/resourceslices", each)
                else:
                    self.plane.request("PUT", path, {**each, "metadata": live["metadata"]})
            names = {each["metadata"]["name"] for each in wanted}
            self._delete(each["metadata"]["name"] for each in self._slices(name) if each["metadata"]["name"] not in names)

    def withdraw(self, name: str) -> None:
        """The driver of a node ends: its slices are deleted, and nothing is prepared there before it publishes again."""
        with self._lock:
            self.nodes[name].registered = False
            self._delete(each["metadata"]["name"] for each in self._slices(name))

    def lose(self, name: str, *lost: str) -> None:
        """Devices vanish from a node's slices."""
        self.nodes[name].lost |= set(lost)
        self.publish(name)

    def taint(self, name: str, effect: str, *tainted: str) -> None:
        """Devices get a taint."""
        added = {"key": f"{DRIVER}/unhealthy", "value": "true", "effect": effect}
        self.nodes[name].taints |= dict.fromkeys(tainted, added)
        self.publish(name)

    def _slices(self, name: str) -> list[_Object]:
        listed = self.plane.request("GET", f"{GROUP}/resourceslices?fieldSelector=spec.nodeName={name},spec.driver={DRIVER}")
        found: list[_Object] = listed["items"]
        return found

    def _delete(self, names: Iterable[str]) -> None:
        for each in list(names):
            self.plane.request("DELETE", f"{GROUP}/resourceslices/{each}")

    # -- pods ----------------------------------------------------------------------------------

    def _play(self) -> None:
        try:
            while not self._ends.wait(_ROUND):
                with self._lock:
                    self._round()
        except BaseException as error:  # noqa: BLE001 - raised where the context ends
            self._failure = error

    def _round(self) -> None:
        """Read everything, judge it, and do what kubelets would do."""
        listed = {table: self.plane.request("GET", path)["items"] for table, path in _PATHS.items()}
        for table in (SLICES, CLAIMS, PODS):
            self._mirror(table, {_key(each): each for each in listed[table]})
        claims = {_key(each): each for each in listed[CLAIMS]}
        present = set()
        for pod in listed[PODS]:
            present.add(pod["metadata"]["uid"])
            if pod["spec"].get("nodeName") in self.nodes:
                self._sync(pod, claims)
        for uid in self._prepared.keys() - present:
            self._unprepare(uid)  # deleted by force
        self.rounds += 1

    def _mirror(self, table: str, found: dict[Key, _Object]) -> None:
        """Bring the judge's store to what was read."""
        for key, record in list(self._store.records(table)):
            if key not in found or record.object["metadata"]["uid"] != found[key]["metadata"]["uid"]:
                self._store.remove(table, key)
                self._versions.pop((table, key), None)
        for key, obj in found.items():
            version = obj["metadata"]["resourceVersion"]
            if self._versions.get((table, key)) != version:
                self._versions[table, key] = version
                self._store.put(table, key, {**obj, "metadata": dict(obj["metadata"])})

    def _sync(self, pod: _Object, claims: dict[Key, _Object]) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if metadata.get("deletionTimestamp"):
            self._unprepare(metadata["uid"])
            self._request("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        elif phase == "Pending":
            self._start(pod, claims)

    def end(self, namespace: str, name: str, *, failed: bool = False) -> None:
        """A pod's containers end: its claims are given back, then its phase is written."""
        with self._lock:
            pod = self.plane.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
            self._unprepare(pod["metadata"]["uid"])
            self._patch(pod, {"phase": "Failed" if failed else "Succeeded"})

    def _start(self, pod: _Object, claims: dict[Key, _Object]) -> None:
        metadata, node = pod["metadata"], self.nodes[pod["spec"]["nodeName"]]
        shown = f"{metadata['namespace']}/{metadata['name']}"
        present = {DRIVER} if node.registered else set()

        def away(drivers: list[str]) -> str:
            return next((each for each in sorted(set(drivers)) if each not in present), "")

        try:
            for claim in usable(pod, lambda name: claims.get((metadata["namespace"], name)), away):
                self._prepare(node, pod, claim)
        except Refused as error:
            self.refused[shown] = str(error)
            return
        self.refused.pop(shown, None)
        conditions = [{"type": each, "status": "True"} for each in ("Ready", "ContainersReady", "Initialized")]
        self._patch(pod, {"phase": "Running", "startTime": _now(), "conditions": conditions})

    def _prepare(self, node: Node, pod: _Object, claim: _Object) -> None:
        metadata = claim["metadata"]
        if metadata["uid"] not in node.prepared:
            why = node.prepare(claim)
            if why:
                raise Refused(f"NodePrepareResources failed for ResourceClaim {metadata['name']}: {why}")
        self._prepared.setdefault(pod["metadata"]["uid"], set()).add(metadata["uid"])
        if not claim["status"].get("devices"):
            changed = {
                **claim,
                "status": {**claim["status"], "devices": reported(claim, node.prepared[metadata["uid"]][1], _now())},
            }
            path = f"{GROUP}/namespaces/{metadata['namespace']}/resourceclaims/{metadata['name']}/status"
            if not self._request("PUT", path, changed):
                raise Refused(f"ResourceClaim {metadata['name']} changed while its devices were reported")

    def _unprepare(self, pod: str) -> None:
        for claim in self._prepared.pop(pod, ()):
            if not any(claim in others for others in self._prepared.values()):
                for node in self.nodes.values():
                    node.prepared.pop(claim, None)

    def _patch(self, pod: _Object, status: _Object) -> None:
        self._request("PATCH", f"{_path(pod)}/status", {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}, MERGE)

    def _request(self, method: str, path: str, body: _Object, content_type: str = "application/json") -> bool:
        """Whether it was done: what was read may have changed meanwhile, and the next round reads it again."""
        try:
            self.plane.request(method, path, body, content_type)
        except urllib.error.HTTPError as error:
            if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            return False
        return True


def _key(obj: _Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _path(pod: _Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
