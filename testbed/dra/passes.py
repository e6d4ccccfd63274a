"""One pass of the scheduler over nodes with GPUs and pods with a claim each, in one process: what a pod costs the core.

Kinds: all claims ask for the same; each has other parameters for the driver; each has another CEL selector. CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from fairlead.core.dra.model import (
    Ask,
    Capacity,
    Claim,
    Config,
    Device,
    DeviceClaim,
    DeviceClass,
    Reach,
    Request,
    Slice,
    Value,
    Version,
)
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import DeviceUse, Pod, PodSpec
from fairlead.core.model.transactions import Place
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState

DRIVER, GPUS = "gpu.example.com", 8
_CLASS = DeviceClass("gpu", (f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"',))
_SPEC = PodSpec(requests=(("cpu", 1),))


class Measured(msgspec.Struct):
    """ms_per_pod: CPU milliseconds by kind. placed: pods, of all kinds together."""

    nodes: int
    pods: int
    placed: int = 0
    ms_per_pod: dict[str, float] = {}


def _alike(_: int) -> Claim:
    return Claim("", "", (Request("r", (Ask("r", "gpu"),)),))


def _configured(at: int) -> Claim:
    return msgspec.structs.replace(_alike(at), configs=(Config(f'{{"number": {at}}}'),))


def _selecting(at: int) -> Claim:
    return Claim("", "", (Request("r", (Ask("r", "gpu", selectors=(f'device.attributes["{DRIVER}"].index >= {-1 - at}',)),)),))


KINDS: dict[str, Callable[[int], Claim]] = {"same": _alike, "config": _configured, "selectors": _selecting}


def _slice(node: str) -> Slice:
    attributes: dict[str, Value] = {
        "type": "gpu",
        "productName": "H100",
        "architecture": "Hopper",
        "driverVersion": Version("580.1.0"),
    }
    devices = tuple(
        Device(f"gpu-{at}", DRIVER, {**attributes, "uuid": f"{node}-{at}", "index": at}, {"memory": Capacity(80 << 30)})
        for at in range(GPUS)
    )
    return Slice(node, DRIVER, node, 1, 1, Reach(node), devices=devices)


def _cluster(nodes: int, pods: int, asks: Callable[[int], Claim]) -> ClusterState:
    state = ClusterState()
    state.claims.upsert(_CLASS)
    for name in (f"n{at:05}" for at in range(nodes)):
        state.upsert_node(Node(name, {"cpu": 64_000, "memory": 1 << 40, "pods": 110}, {}))
        state.claims.upsert(_slice(name))
    for at in range(pods):
        state.claims.upsert(DeviceClaim(f"ns/c{at}", f"claim-{at}", asks(at)))
    state.claims.all_known()
    for at in range(pods):
        use = DeviceUse("gpu", f"ns/c{at}")
        state.upsert_pod(Pod(f"pod-{at}", "ns", f"p{at}", spec=_SPEC, queue="default", claims=(use,), created=float(at)))
    return state


def run(nodes: int, pods: int, report: Callable[[int, int], object]) -> Measured:
    """Measure each kind once. report: is called with how many kinds are done, and of how many."""
    measured = Measured(nodes, pods)
    for done, (kind, asks) in enumerate(KINDS.items(), 1):
        state = _cluster(nodes, pods, asks)
        start = time.process_time()
        placed = sum(len(each.bindings) for each in schedule(state, 0.0) if isinstance(each, Place))
        measured.ms_per_pod[kind] = round(1000 * (time.process_time() - start) / pods, 3)
        measured.placed += placed
        report(done, len(KINDS))
    return measured
