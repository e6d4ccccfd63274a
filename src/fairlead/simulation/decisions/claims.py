"""A small random cluster whose pods have GPUs by ResourceClaims; nodes fail between the allocation and the binding."""

from __future__ import annotations

import msgspec

from fairlead.cluster.port import BindFailed, ClusterEvent, DevicesKnown, Gone, Upsert
from fairlead.core.dra.model import Ask, Claim, Device, DeviceClaim, DeviceClass, Reach, Request, Slice
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import DeviceUse, Pod, PodSpec
from fairlead.core.model.transactions import Binding, Deallocate, Place
from fairlead.scheduler.outputs import Output
from fairlead.simulation.decisions.cluster import GPU, Cluster, Job, Theme

_CLASS = "gpu"
_DRIVER = "gpu.example.com"
_LOST = 0.25
"""Chance that a node fails once the claims of a pod are allocated there, and before it is bound."""
_DOWN = 900.0
"""Seconds for which it does."""

CLAIMS = Theme(
    gpus=(4, 4, 4, 2),
    queues=(("red", "", 4, 1, None), ("green", "", 8, 1, None)),
    sizes=((1, 1), (2, 1), (4, 1), (1, 3), (2, 2)),
    load=1.5,
    hours=6.0,
)


class ClaimsCluster(Cluster):
    """Every pod has a claim of its own, which is made with it and goes with it. Claims are written before pods are bound."""

    claims: dict[str, DeviceClaim]

    def _set_up(self) -> None:
        self.claims = {}
        self.slices = {f"node-{number:03d}": _slice(f"node-{number:03d}", gpus) for number, gpus in enumerate(self.theme.gpus)}
        self._observe(Upsert(DeviceClass(_CLASS)), *map(Upsert, self.slices.values()), DevicesKnown())
        super()._set_up()

    def _node(self, number: int, gpus: int) -> Node:
        node = super()._node(number, gpus)
        others = {name: amount for name, amount in node.allocatable.items() if name != GPU}
        return msgspec.structs.replace(node, allocatable=others)

    def _with(self, name: str) -> list[ClusterEvent]:
        return [*super()._with(name), Upsert(self.slices[name])]

    def _without(self, name: str) -> list[ClusterEvent]:
        return [*super()._without(name), Gone("resourceslice", name)]

    def _pod(self, job: Job, index: int, uid: str) -> Pod:
        pod = super()._pod(job, index, uid)
        requests = tuple((name, amount) for name, amount in job.spec.requests if name != GPU)
        key = f"ns/{pod.name}-gpus"
        asks = Claim("", "", (Request("gpus", (Ask("gpus", _CLASS, count=job.spec.gpus),)),))
        self._write(DeviceClaim(key, f"claim-{uid}", asks, owner=uid))
        return msgspec.structs.replace(pod, spec=PodSpec(requests), claims=(DeviceUse("gpus", key),))

    def _take(self, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.queue.push(self.now + 0.5, lambda binding=binding: self._allocate(binding))  # type: ignore[misc]
            elif isinstance(each, Deallocate):
                for binding in each.bindings:
                    self.queue.push(self.now + 1.0, lambda binding=binding: self._give_back(binding))  # type: ignore[misc]
        super()._take(outputs)

    def _allocate(self, binding: Binding) -> None:
        """The devices that were decided are written to the claim's status."""
        for each in binding.claims:
            claim = self.claims.get(each.claim)
            if each.decided and claim is not None and claim.uid == each.uid:
                self._write(msgspec.structs.replace(claim, allocation=each.allocation, users=(binding.pod.uid,)))

    def _give_back(self, binding: Binding) -> None:
        for each in binding.claims:
            claim = self.claims.get(each.claim)
            if claim is not None and claim.allocation == each.allocation and not self.pods[claim.owner].node:
                self._write(msgspec.structs.replace(claim, allocation=None, users=()))

    def _write(self, claim: DeviceClaim) -> None:
        self.claims[claim.key] = claim
        self._observe(Upsert(claim))

    def _bind(self, uid: str, node: str) -> None:
        if uid in self.pods and self.rnd.random() < _LOST:
            self._fail(node, _DOWN)
            self._observe(BindFailed(uid, "the server does not answer"))
            return
        super()._bind(uid, node)

    def _gone(self, uid: str, *, back: bool) -> None:
        for use in self.pods[uid].claims if uid in self.pods else ():
            del self.claims[use.key]
            self._observe(Gone("resourceclaim", use.key))
        super()._gone(uid, back=back)


def _slice(node: str, gpus: int) -> Slice:
    devices = tuple(Device(f"gpu-{number}", _DRIVER, {"index": number}) for number in range(gpus))
    return Slice(node, _DRIVER, node, reach=Reach(node), devices=devices)
