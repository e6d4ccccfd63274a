"""A small random cluster whose pods share GPUs two by two and report how fast they are."""

from __future__ import annotations

import msgspec

from fairlead.api.names import GPU_SHARING_LABEL, OWN_AGENT
from fairlead.cluster.port import Upsert
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place
from fairlead.core.nodes.partners import HALF
from fairlead.core.pairs.speeds import SETTLED
from fairlead.scheduler.outputs import Output
from fairlead.simulation.decisions.cluster import GPU, Cluster, Job, Theme

_KINDS = ("bert", "gcn", "lstm", "resnet")
_EVERY = 300.0  # seconds between two reports of a pod

PAIRS = Theme(
    gpus=(4, 2, 2),
    queues=(("red", "", 4, 1, None), ("green", "", 8, 1, None)),
    classes=(ServiceClass("small", sharing="Pairs"),),
    sizes=((1, 1),),
    load=2.5,
    mean_hours=0.5,
    hours=6.0,
)


class PairsCluster(Cluster):
    """Every pod may share its GPU. What it reports does not depend on who is beside it."""

    partners: dict[str, str]  # by UID, as bindings name them

    def _set_up(self) -> None:
        self.partners = {}
        super()._set_up()

    def _node(self, number: int, gpus: int) -> Node:
        node = super()._node(number, gpus)
        return msgspec.structs.replace(node, labels={**node.labels, GPU_SHARING_LABEL: OWN_AGENT}, shares_gpus=True)

    def _pod(self, job: Job, index: int, uid: str) -> Pod:
        pod = super()._pod(job, index, uid)
        kind = _KINDS[int(job.name.rpartition("-")[2]) % len(_KINDS)]
        return msgspec.structs.replace(pod, name=f"{kind}-{pod.name}")

    def _take(self, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Place):
                self.partners |= {binding.pod.uid: binding.partner for binding in each.bindings}
        super()._take(outputs)

    def _bind(self, uid: str, node: str) -> None:
        pod = self.pods.get(uid)
        if pod is not None:
            requests = tuple((name, amount) for name, amount in pod.spec.requests if name != GPU)
            half = PodSpec(requests, gpus=1, gpu_milli=HALF)
            self.pods[uid] = msgspec.structs.replace(pod, partner=self.partners[uid], spec=half)
        super()._bind(uid, node)
        self.queue.push(self.now + SETTLED + 10.0, lambda: self._report(uid))

    def _report(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is not None and pod.node and not pod.terminating:
            self.pods[uid] = msgspec.structs.replace(pod, speed=self.rnd.uniform(3.0, 10.0), speed_at=self.now)
            self._observe(Upsert(self.pods[uid]))
            self.queue.push(self.now + _EVERY, lambda: self._report(uid))
