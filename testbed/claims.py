"""Pods with ResourceClaims for schedulers side by side: objects, what must hold after a run, and `fairlead bench dra --api`.

Every node has a ResourceSlice like those of NVIDIA's driver (whole GPUs, two NUMA nodes); every pod has a claim of its own,
created before it. Workloads: `claims`, one GPU for each; `claims-pair`, two; `claims-matched`, two of one NUMA node, by
`matchAttribute`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from testbed import objects

KINDS = ("claims", "claims-pair", "claims-matched")
DRIVER, CLASS = "gpu.example.com", "gpu.example.com"
NUMA = "resource.kubernetes.io/numaNode"

_VERSION = "resource.k8s.io/v1"
_WANTED = {"claims": 1, "claims-pair": 2, "claims-matched": 2}
_PAIR, _MATCHED = "claims-pair", "claims-matched"
_SCHEDULERS = ("fairlead", "kube-scheduler")
_NUMA_NODES = 2
_SLACK = 1.25


def devices(kind: str, nodes: int, pods: int) -> int:
    """GPUs of a node: eight, or as many as the pods need with a quarter to spare, the same on both NUMA nodes in pairs."""
    least = -(-int(_SLACK * pods * _WANTED[kind]) // nodes)
    return max(8, -(-least // 4) * 4)


def before(kind: str, nodes: int, pods: int) -> list[dict[str, Any]]:
    """The class, a slice for every node, and a claim for every pod."""
    selector = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    device_class = _object("DeviceClass", CLASS, {"selectors": [{"cel": {"expression": selector}}]})
    gpus = devices(kind, nodes, pods)
    slices = [_slice(f"node-{number:05d}", gpus) for number in range(nodes)]
    return [device_class, *slices, *(_claim(kind, f"pod-{number:06d}") for number in range(pods))]


def pod(number: int, scheduler: str) -> dict[str, Any]:
    """One pod, which names its claim."""
    name = f"pod-{number:06d}"
    made = objects.pod(name, scheduler=scheduler, gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def problems(kind: str, pods: Iterable[dict[str, Any]], claims: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong after all pods were bound: claims without their devices or their pod, devices elsewhere or of two claims."""
    nodes = {each["metadata"]["name"]: (each["spec"].get("nodeName"), each["metadata"]["uid"]) for each in pods}
    holders: dict[tuple[str, str], str] = {}
    wrong = []
    for claim in claims:
        name, status = claim["metadata"]["name"], claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        node, uid = nodes.get(name, (None, ""))
        if len(results) != _WANTED[kind]:
            wrong.append(f"claim {name} has {len(results)} devices")
        if [each["uid"] for each in status.get("reservedFor") or ()] != [uid]:
            wrong.append(f"claim {name} is not reserved for its pod alone")
        if any(each["pool"] != node for each in results):
            wrong.append(f"claim {name} has devices of another node than {node}")
        if kind == _MATCHED and len({_numa(each["device"]) for each in results}) > 1:
            wrong.append(f"claim {name} has devices of several NUMA nodes")
        for each in results:
            other = holders.setdefault((each["pool"], each["device"]), name)
            if other != name:
                wrong.append(f"device {each['pool']}/{each['device']} is of {other} and of {name}")
    if len(nodes) * _WANTED[kind] != len(holders):
        wrong.append(f"{len(nodes)} pods hold {len(holders)} devices")
    return wrong


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _slice(node: str, gpus: int) -> dict[str, Any]:
    found = [
        {
            "name": f"gpu-{numa}-{number:02d}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "architecture": {"string": "Hopper"},
                "driverVersion": {"version": "580.65.6"},
                "uuid": {"string": f"GPU-{node}-{numa}-{number:02d}"},
                NUMA: {"int": numa},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for numa in range(_NUMA_NODES)
        for number in range(gpus // _NUMA_NODES)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return _object("ResourceSlice", node, {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": found})


def _claim(kind: str, name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": _WANTED[kind]}}
    matched = {"constraints": [{"requests": ["gpu"], "matchAttribute": NUMA}]} if kind == _MATCHED else {}
    return _object("ResourceClaim", name, {"devices": {"requests": [request], **matched}})


def _numa(device: str) -> str:
    return device.split("-")[1]


# -- the bench -----------------------------------------------------------------------------------


class Measured(msgspec.Struct):
    """Medians of one scheduler with one workload. writes_per_pod: as the API server counts them, events not counted."""

    pods_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float
    writes_per_pod: float


class ApiBench(msgspec.Struct):
    """ratios: by workload, the median of Fairlead's rate to kube-scheduler's in the same round. writes_per_pod: by scheduler,
    the most of any workload. match_attribute_cost: by scheduler, by what part `matchAttribute` lowers the rate (below 0: it
    does not). measured: by workload and scheduler.
    """

    nodes: int
    pods: int
    rounds: int
    ratios: dict[str, float]
    writes_per_pod: dict[str, float]
    match_attribute_cost: dict[str, float]
    measured: dict[str, dict[str, Measured]]


def run(nodes: int, pods: int, rounds: int, report: Callable[[int, int], None]) -> ApiBench:
    """Every round has every workload with one scheduler after the other, on a control plane of its own. Raises `BenchError`."""
    from testbed import bench  # noqa: PLC0415 - it takes its workloads from here

    runs: dict[tuple[str, str], list[bench.Run]] = {(kind, name): [] for kind in KINDS for name in _SCHEDULERS}
    done, total = 0, rounds * len(runs)
    report(done, total)
    for _ in range(rounds):
        for (kind, name), made in runs.items():
            made.append(bench.one_run(bench.Workload(nodes=nodes, pods=pods, kind=kind), name))
            done += 1
            report(done, total)
    return summary(nodes, pods, rounds, runs)


def summary(nodes: int, pods: int, rounds: int, runs: dict[tuple[str, str], list[Any]]) -> ApiBench:
    """What runs by workload and scheduler come to; rates are compared within a round, and the median is taken of that."""
    measured: dict[str, dict[str, Measured]] = {}
    for (kind, name), made in runs.items():
        measured.setdefault(kind, {})[name] = Measured(
            pods_per_second=statistics.median(each.pods_per_second for each in made),
            p50_ms=statistics.median(each.latency_ms.p50 for each in made),
            p99_ms=statistics.median(each.latency_ms.p99 for each in made),
            cpu_seconds=statistics.median(each.cpu_seconds for each in made),
            writes_per_pod=statistics.median(each.api_writes_per_pod - each.event_writes_per_pod for each in made),
        )

    def paired(above: tuple[str, str], below: tuple[str, str]) -> float:
        pairs = zip(runs[above], runs[below], strict=True)
        return float(statistics.median(one.pods_per_second / other.pods_per_second for one, other in pairs))

    return ApiBench(
        nodes=nodes,
        pods=pods,
        rounds=rounds,
        ratios={kind: paired((kind, _SCHEDULERS[0]), (kind, _SCHEDULERS[1])) for kind in KINDS},
        writes_per_pod={name: max(measured[kind][name].writes_per_pod for kind in KINDS) for name in _SCHEDULERS},
        match_attribute_cost={name: 1 - paired((_MATCHED, name), (_PAIR, name)) for name in _SCHEDULERS},
        measured=measured,
    )
