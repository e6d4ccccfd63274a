"""The fake kubelet: bound pods start, run for a while and end; nodes report, go silent and return.

How long a pod runs and how it ends stand in its annotations (`fairlead.dev/simulated-duration`, a span
such as `90s` or `2h`; `fairlead.dev/simulated-outcome`, Succeeded or Failed); without a duration it runs until
it is deleted. Where `fairlead.dev/simulated-start-failure` gives a reason, its containers do not start. Times are those of the
cluster's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.api import names, quantity, spans
from fairlead.api.quantity import QuantityError
from fairlead.cluster import views
from fairlead.cluster.requests import pod_requests
from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.drivers import Drivers
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.preparing import Preparing
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.store import Change, Key, Object

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_ENDED = ("Succeeded", "Failed")


class Timing(msgspec.Struct, frozen=True):
    """Seconds that things take.

    start: from binding to running. stop: from deletion to gone, at most the grace. ready: of a new
    node. heartbeat: without which a node counts as lost. eviction: until a lost node's pods are deleted. retry: until
    a container that could not be started is tried again.
    """

    start: float = 2.0
    stop: float = 1.0
    ready: float = 1.0
    heartbeat: float = 40.0
    eviction: float = 300.0
    retry: float = 10.0


Refusal = Callable[[Object], str]
"""Given a pod that would be admitted: why it is refused all the same, or an empty string."""


class Kubelet:
    """Plays the kubelet of every node, and the controller that watches nodes' health."""

    def __init__(self, api: ApiServer, timing: Timing | None = None) -> None:
        self.api = api
        self.timing = timing or Timing()
        self.refuses: Refusal = lambda _: ""
        self.stalls: Callable[[Object], str] = lambda _: ""  # why a pod's containers do not start now: `REASON: MESSAGE`
        self.fails: Callable[[Object], bool] = lambda _: False
        self.requests: Callable[[Object], tuple[tuple[str, int], ...]] = requests_of  # what a pod holds of its node
        self.silent: set[str] = set()  # nodes whose kubelet does nothing
        self.stuck: set[str] = set()  # uids of pods that do not stop
        self.drivers = Drivers(api)
        self.ended = 0
        self.rejected = 0
        self.stalled = 0
        self._held: dict[str, dict[str, tuple[tuple[str, int], ...]]] = {}  # node -> pod uid -> requests
        self._used: dict[str, dict[str, int]] = {}
        self._known: dict[str, str] = {}  # pod uid -> node that has admitted it
        self._preparing = Preparing(api, self.drivers)
        self._pod_resource = api.served("v1", "pods")
        api.store.listen(PODS, self._pod_changed)
        api.store.listen(NODES, self._node_changed)
        api.deleting.on_pod = self._deleted
        api.logs = self._log

    # -- pods ----------------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.record.object
        uid = pod["metadata"]["uid"]
        if change.kind == "DELETED" or pod.get("status", {}).get("phase") in _ENDED:
            self._release(uid)
            return
        node = pod["spec"].get("nodeName")
        if node and uid not in self._known:
            self._known[uid] = node
            self._later(self.timing.start, lambda: self._admit(change.key, uid))

    def _release(self, uid: str) -> None:
        node = self._known.pop(uid, "")
        self._preparing.vanished(node, uid)
        for resource, amount in self._held.get(node, {}).pop(uid, ()):
            self._used[node][resource] -= amount

    def _admit(self, key: Key, uid: str) -> None:
        """Run the pod, unless the node's free capacity is too small for it."""
        record = self.api.store.get(PODS, key)
        if record is None or record.object["metadata"]["uid"] != uid or record.object["metadata"].get("deletionTimestamp"):
            return
        pod = record.object
        node = self._known.get(uid, "")
        found = self.api.store.get(NODES, ("", node))
        if node in self.silent or found is None:
            # A node that is gone may come back before its pods are collected.
            self._later(self.timing.heartbeat, lambda: self._admit(key, uid))
            return
        reason = self._shortage(pod, uid, node, found.object) or self.refuses(pod)
        now = self.api.clock.text()
        if reason:
            self.rejected += 1
            message = f"Pod was rejected: Node didn't have enough resource: {reason.removeprefix('OutOf')}"
            self._write(key, {"phase": "Failed", "reason": reason, "message": message, "startTime": now})
            return
        self._start(key, uid)

    def _start(self, key: Key, uid: str) -> None:
        """Run the containers of a pod that was admitted, unless something keeps them; that is checked again and again."""
        record = self.api.store.get(PODS, key)
        if record is None or record.object["metadata"]["uid"] != uid or record.object["metadata"].get("deletionTimestamp"):
            return
        pod, now = record.object, self.api.clock.text()
        if pod["spec"]["nodeName"] in self.silent:
            self._later(self.timing.heartbeat, lambda: self._start(key, uid))
            return
        annotations = pod["metadata"].get("annotations") or {}
        why = annotations.get(names.SIMULATED_START_FAILURE_ANNOTATION) or self.stalls(pod)
        if why:
            self._stall(key, uid, pod, why)
            return
        if pod_claims.uses(pod) and not self._preparing.prepare(pod):
            self._stall(key, uid, pod, "ContainerCreating")
            return
        self._write(key, _running(pod, now))
        length = span(annotations.get(names.SIMULATED_DURATION_ANNOTATION, ""))
        if length is not None:
            self._later(length, lambda: self._end(key, uid))

    def _stall(self, key: Key, uid: str, pod: Object, why: str) -> None:
        """A pod's containers do not start now; they are tried again."""
        stalled = _stalled(pod, why, self.api.clock.text())
        if any(pod["status"].get(name) != value for name, value in stalled.items()):
            self.stalled += "startTime" not in pod["status"]
            self._write(key, stalled)
        self._later(self.timing.retry, lambda: self._start(key, uid))

    def _shortage(self, pod: Object, uid: str, node: str, body: Object) -> str:
        held, used = self._held.setdefault(node, {}), self._used.setdefault(node, {})
        requests = self.requests(pod)
        allocatable = amounts((body.get("status") or {}).get("allocatable"))
        for resource, amount in requests:
            if amount and used.get(resource, 0) + amount > allocatable.get(resource, 0):
                return f"OutOf{resource}"
        held[uid] = requests
        for resource, amount in requests:
            used[resource] = used.get(resource, 0) + amount
        return ""

    def _end(self, key: Key, uid: str, *, failed: bool = False) -> None:
        """The pod's containers come to their end."""
        record = self.api.store.get(PODS, key)
        if record is None or record.object["metadata"]["uid"] != uid or record.object["status"].get("phase") != "Running":
            return
        pod = record.object
        if pod["spec"]["nodeName"] in self.silent:
            self._later(self.timing.heartbeat, lambda: self._end(key, uid, failed=failed))
            return
        annotations = pod["metadata"].get("annotations") or {}
        if not self._preparing.release(pod["spec"]["nodeName"], uid):
            self._later(self.timing.retry, lambda: self._end(key, uid, failed=failed))  # its driver is away
            return
        failed = failed or annotations.get(names.SIMULATED_OUTCOME_ANNOTATION) == "Failed" or self.fails(pod)
        self.ended += 1
        self._write(key, _ended(pod, self.api.clock.text(), failed=failed))

    def end(self, key: Key, *, failed: bool = False) -> None:
        """A running pod's containers end now."""
        record = self.api.store.get(PODS, key)
        if record is not None:
            self._end(key, record.object["metadata"]["uid"], failed=failed)

    def _deleted(self, key: Key, pod: Object) -> None:
        """A bound pod shall go: it does, within its grace, if its node is there."""
        uid = pod["metadata"]["uid"]
        wait = min(self.timing.stop, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
        self._later(wait, lambda: self._gone(key, uid))

    def _gone(self, key: Key, uid: str) -> None:
        record = self.api.store.get(PODS, key)
        if record is None or record.object["metadata"]["uid"] != uid:
            return
        node = record.object["spec"].get("nodeName", "")
        if node in self.silent or uid in self.stuck:
            self._later(self.timing.heartbeat, lambda: self._gone(key, uid))
            return
        if not self._preparing.release(node, uid):
            self._later(self.timing.retry, lambda: self._gone(key, uid))
            return
        self._delete(key, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    def _log(self, pod: Object, container: str) -> str:
        status = pod.get("status") or {}
        lines = [f"{status.get('startTime', '')} {container}: started on {pod['spec'].get('nodeName', '')} (simulated)"]
        for each in status.get("containerStatuses") or ():
            ended = (each.get("state") or {}).get("terminated")
            if ended:
                lines.append(f"{ended.get('finishedAt', '')} {container}: ended with exit code {ended.get('exitCode', 0)}")
        return "\n".join(lines) + "\n"

    # -- nodes ---------------------------------------------------------------------------------

    def _node_changed(self, change: Change) -> None:
        name = change.key[1]
        if change.kind == "ADDED":
            self._later(self.timing.ready, lambda: self._report(name, ready=True))
        elif change.kind == "DELETED":
            self._later(self.timing.heartbeat, lambda: self._collect(name))

    def lose(self, name: str) -> None:
        """The node goes silent: no pod starts or stops there; after a while it is tainted, later emptied."""
        self.silent.add(name)
        self._later(self.timing.heartbeat, lambda: self._report(name, ready=False) if name in self.silent else None)
        self._later(self.timing.heartbeat + self.timing.eviction, lambda: self._drain(name))

    def recover(self, name: str) -> None:
        """The node is back."""
        self.silent.discard(name)
        self._report(name, ready=True)

    def _report(self, name: str, *, ready: bool) -> None:
        """What the node controller makes of the heartbeats: the condition and the taints."""
        record = self.api.store.get(NODES, ("", name))
        if record is None:
            return
        node = record.object
        status = {**(node.get("status") or {})}
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "reason": "KubeletReady" if ready else "NodeStatusUnknown",
            "message": "" if ready else "Kubelet stopped posting node status.",
            "lastHeartbeatTime": self.api.clock.text(),
            "lastTransitionTime": self.api.clock.text(),
        }
        status["conditions"] = [each for each in status.get("conditions") or () if each["type"] != "Ready"] + [condition]
        status.setdefault("nodeInfo", {"kubeletVersion": "v1.36.3", "osImage": "simulated"})
        taints = [each for each in node["spec"].get("taints") or () if each["key"] not in (NOT_READY, UNREACHABLE)]
        if not ready:
            taints += [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        spec = {name: value for name, value in node["spec"].items() if name != "taints"}
        if taints:
            spec["taints"] = taints
        self.api.store.put(NODES, ("", name), {**node, "metadata": dict(node["metadata"]), "spec": spec, "status": status})

    def resize(self, name: str, allocatable: dict[str, str]) -> None:
        """The node offers something else than before (a device failed, or came back)."""
        record = self.api.store.get(NODES, ("", name))
        if record is not None:
            node = record.object
            status = {**node["status"], "allocatable": {**node["status"].get("allocatable", {}), **allocatable}}
            self.api.store.put(NODES, ("", name), {**node, "metadata": dict(node["metadata"]), "status": status})

    def _drain(self, name: str) -> None:
        """The pods of a node that stayed silent are deleted; they stay Terminating until it returns."""
        if name in self.silent and self.api.store.get(NODES, ("", name)) is not None:
            for key in self._on(name):
                self._delete(key, {})

    def _collect(self, name: str) -> None:
        """The pods of a node that is gone go with it."""
        if self.api.store.get(NODES, ("", name)) is None:
            for key in self._on(name):
                self._delete(key, {"gracePeriodSeconds": 0})

    def _on(self, node: str) -> list[Key]:
        return sorted(key for key, record in self.api.store.records(PODS) if record.object["spec"].get("nodeName") == node)

    # -- inside --------------------------------------------------------------------------------

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self.api.clock.call_later(seconds, lambda: (call(), None)[1])

    def _delete(self, key: Key, options: Object) -> None:
        try:
            self.api.delete(self._pod_resource, key[0], key[1], options)
        except StatusError:
            return

    def _write(self, key: Key, status: Object) -> None:
        record = self.api.store.get(PODS, key)
        if record is not None:
            pod = record.object
            merged = {**(pod.get("status") or {}), **status}
            self.api.store.put(PODS, key, {**pod, "metadata": dict(pod["metadata"]), "status": merged})


def span(text: str) -> float | None:
    """Seconds of a span such as `1h30m` or `90s`; a bare number is seconds; None if it is neither."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return spans.seconds(text)
    except QuantityError:
        return None


@lru_cache(maxsize=4096)
def _amounts(quantities: tuple[tuple[str, str], ...]) -> tuple[tuple[str, int], ...]:
    return tuple([(resource, _amount(resource, text)) for resource, text in quantities])


def _amount(resource: str, text: str) -> int:
    try:
        return quantity.amount(resource, text)
    except QuantityError:
        return 0


def amounts(quantities: Any) -> dict[str, int]:
    """Base units of a map of quantities; what cannot be read counts nothing."""
    return dict(_amounts(tuple([(resource, str(text)) for resource, text in (quantities or {}).items()])))


def requests_of(pod: Object) -> tuple[tuple[str, int], ...]:
    """What a pod holds of its node, one of `pods` included. What a claim serves is none of the node's device plugins."""
    spec = pod["spec"]
    if (
        len(spec.get("containers") or ()) == 1
        and not spec.get("initContainers")
        and not spec.get("overhead")
        and not spec.get("resources")
    ):
        requests = amounts((spec["containers"][0].get("resources") or {}).get("requests"))
    else:
        try:
            requests = pod_requests(msgspec.convert({"spec": spec}, views.Pod, strict=False))
        except (QuantityError, msgspec.ValidationError):
            requests = {}
    served = pod_claims.served_by_claim(pod)
    return (*(each for each in requests.items() if each[0] not in served), ("pods", 1))


def _stalled(pod: Object, why: str, now: str) -> Object:
    """The status of a pod whose containers do not start. why: `REASON` or `REASON: MESSAGE`, in a kubelet's words."""
    status = pod.get("status") or {}
    reason, _, message = why.partition(": ")
    mounted = reason != "ContainerCreating"  # a volume that cannot be mounted is reported in events only
    kinds = {"PodReadyToStartContainers": mounted, "Initialized": True, "Ready": False, "ContainersReady": False}
    known = {each["type"]: each for each in status.get("conditions") or ()}
    conditions = [each for kind, each in known.items() if kind not in kinds]
    for kind, true in kinds.items():
        condition = {"type": kind, "status": "True" if true else "False", "lastProbeTime": None, "lastTransitionTime": now}
        same = known.get(kind, {}).get("status") == condition["status"]
        conditions.append(known[kind] if same else condition)
    waiting = {"reason": reason, **({"message": message} if message else {})}
    containers = [
        {
            "name": each["name"],
            "image": each.get("image", ""),
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
            "lastState": {},
        }
        for each in pod["spec"]["containers"]
    ]
    started = status.get("startTime") or now
    return {"phase": "Pending", "startTime": started, "conditions": conditions, "containerStatuses": containers}


def _running(pod: Object, now: str) -> Object:
    status = pod.get("status") or {}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    conditions = [each for each in status.get("conditions") or () if each["type"] not in kinds]
    conditions += [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now} for kind in kinds]
    containers = [
        {
            "name": each["name"],
            "image": each.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "lastState": {},
        }
        for each in pod["spec"]["containers"]
    ]
    number = int(pod["metadata"]["uid"][:4], 16)
    address = f"10.{1 + number % 250}.{number // 250 % 250}.{1 + int(pod['metadata']['uid'][4:6], 16) % 250}"
    return {"phase": "Running", "startTime": now, "podIP": address, "conditions": conditions, "containerStatuses": containers}


def _ended(pod: Object, now: str, *, failed: bool) -> Object:
    status = pod["status"]
    conditions = [
        {**each, "status": "False", "reason": "PodFailed" if failed else "PodCompleted"}
        if each["type"] in ("Ready", "ContainersReady")
        else each
        for each in status.get("conditions") or ()
    ]
    containers = []
    for each in status.get("containerStatuses") or ():
        ended = {
            "exitCode": 1 if failed else 0,
            "reason": "Error" if failed else "Completed",
            "startedAt": status.get("startTime"),
            "finishedAt": now,
        }
        containers.append({**each, "ready": False, "started": False, "state": {"terminated": ended}})
    return {"phase": "Failed" if failed else "Succeeded", "conditions": conditions, "containerStatuses": containers}
