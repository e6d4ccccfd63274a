"""The device-taint-eviction controller: pods that run with a device with a taint NoExecute are deleted, unless they tolerate it.

Times and conditions are those of kube-controller-manager 1.36 (`pkg/controller/devicetainteviction`), for taints in
ResourceSlices. A result of an allocation carries the tolerations of its request; only those with effect NoExecute count, and
`tolerationSeconds` puts an eviction off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.claims import over
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.recording import Recorder
from fairlead.cluster.simulated.resources import CLAIMS, PODS, SLICES
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.cluster.times import seconds

Pool = tuple[str, str]
"""(driver, name)."""


class DeviceEvictions:
    """Runs beside an API server, on its clock's loop. evicted: pods that it deleted so far."""

    def __init__(self, api: ApiServer) -> None:
        self.evicted = 0
        self._api = api
        self._recorder = Recorder(api, "device-taint-eviction-controller")
        self._pods = api.served("v1", "pods")
        self._slices: dict[Pool, set[Key]] = defaultdict(set)
        self._claims: dict[Pool, set[Key]] = defaultdict(set)  # those that hold devices of a pool
        self._held: dict[Key, set[Pool]] = {}
        api.store.listen(SLICES, self._slice_changed)
        api.store.listen(CLAIMS, self._claim_changed)
        api.store.listen(PODS, self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        """A pod that gets its node may have a device that was tainted before."""
        pod = change.record.object
        before = change.before.object["spec"].get("nodeName") if change.before is not None else None
        if pod_claims.uses(pod) and pod["spec"].get("nodeName") and not before and change.kind != "DELETED":
            for name in pod_claims.used_by(pod):
                if (change.key[0], name) in self._held:
                    self._later(0.0, (change.key[0], name))

    def _slice_changed(self, change: Change) -> None:
        spec = change.record.object["spec"]
        pool = (spec["driver"], spec["pool"]["name"])
        if change.kind == "DELETED":
            self._slices[pool].discard(change.key)
        else:
            self._slices[pool].add(change.key)
        for claim in sorted(self._claims.get(pool, ())):
            self._later(0.0, claim)

    def _claim_changed(self, change: Change) -> None:
        gone = change.kind == "DELETED"
        pools = set() if gone else {(each["driver"], each["pool"]) for each in pod_claims.results_of(change.record.object)}
        for pool in self._held.get(change.key, set()) - pools:
            self._claims[pool].discard(change.key)
        for pool in pools:
            self._claims[pool].add(change.key)
        if pools:
            self._held[change.key] = pools
            self._later(0.0, change.key)
        else:
            self._held.pop(change.key, None)

    def _later(self, wait: float, claim: Key) -> None:
        self._api.clock.call_later(wait, lambda: self._check(claim))

    def _check(self, key: Key) -> None:
        """Evict the pods of a claim if it is time, or check again when it will be."""
        record = self._api.store.get(CLAIMS, key)
        if record is None:
            return
        at = min(self._times(record.object), default=None)
        if at is None:
            return
        wait = at - self._api.clock.now()
        if wait > 0:
            self._later(wait, key)
            return
        for consumer in (record.object.get("status") or {}).get("reservedFor") or ():
            pod = self._api.store.get(PODS, (key[0], consumer["name"]))
            if pod is not None and pod.object["metadata"]["uid"] == consumer["uid"] and key[1] in pod_claims.used_by(pod.object):
                self._evict((key[0], consumer["name"]), pod.object)

    def _times(self, claim: Object) -> Iterator[float]:
        """When pods have to go, for each taint that is not tolerated for good."""
        for result in pod_claims.results_of(claim):
            for taint in self._taints(result):
                if taint["effect"] != "NoExecute":
                    continue
                found = [
                    each
                    for each in result.get("tolerations") or ()
                    if each.get("effect") == "NoExecute" and pod_claims.tolerates(each, taint)
                ]
                if any(each.get("tolerationSeconds") is None for each in found):
                    continue
                since = seconds(taint["timeAdded"])
                yield since + min((max(0, each["tolerationSeconds"]) for each in found), default=0)

    def _taints(self, result: Object) -> list[Object]:
        """The taints of a device, as the newest slices of its pool have them."""
        specs = []
        for key in sorted(self._slices.get((result["driver"], result["pool"]), ())):
            record = self._api.store.get(SLICES, key)
            if record is not None:
                specs.append(record.object["spec"])
        newest = max((spec["pool"]["generation"] for spec in specs), default=0)
        for spec in specs:
            if spec["pool"]["generation"] == newest:
                for device in spec.get("devices") or ():
                    if device["name"] == result["device"]:
                        return list(device.get("taints") or ())
        return []

    def _evict(self, key: Key, pod: Object) -> None:
        metadata, status = pod["metadata"], pod.get("status") or {}
        if metadata.get("deletionTimestamp") or not pod["spec"].get("nodeName") or over(pod):
            return
        self._recorder.normal(pod, "DeviceTaintManagerEviction", "Marking for deletion")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": self._api.clock.text(),
        }
        others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
        changed = {**pod, "metadata": dict(metadata), "status": {**status, "conditions": [*others, condition]}}
        self._api.store.put(PODS, key, changed)
        self.evicted += 1
        try:
            self._api.delete(self._pods, *key, {"preconditions": {"uid": metadata["uid"]}})
        except StatusError:
            return  # it was deleted meanwhile
