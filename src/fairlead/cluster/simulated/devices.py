"""The devices of simulated nodes as ResourceSlices: whole GPUs, GPUs with MIG partitions, GPUs in shares; their DeviceClasses.

All functions are pure: equal arguments give equal objects. Names, attributes, capacities and counter sets follow NVIDIA's driver
(`cmd/gpu-kubelet-plugin/partitions.go`, `deviceinfo.go`): one pool per node, for each GPU a counter set `gpu-N-counter-set` with
the capacities and `memory-slice-0..7`, one device for each MIG profile and start, and the whole GPU, which consumes
everything. Partitions come from `core/mig/geometry`. Numbers of engines and multiprocessors are plausible, not a product's.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from fairlead.cluster.simulated.store import Object
from fairlead.core.mig.geometry import GEOMETRIES, Geometry, Profile

DRIVER, GPU_CLASS, MIG_CLASS = "gpu.nvidia.com", "gpu.nvidia.com", "mig.nvidia.com"
API_VERSION = "resource.k8s.io/v1"
_SETS, _DEVICES, _PLAIN_DEVICES = 8, 64, 128  # in one slice at most: counter sets, devices with counters or taints, others
_PARTS = 1024  # mebibytes of a gibibyte
_DRIVER_VERSION, _CUDA_VERSION = "580.95.5", "13.0.0"
_PRODUCTS = {
    "A30": ("NVIDIA A30", "Ampere", "8.0.0"),
    "A100-40GB": ("NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0"),
    "A100-80GB": ("NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0"),
    "H100-80GB": ("NVIDIA H100 80GB HBM3", "Hopper", "9.0.0"),
    "H100-94GB": ("NVIDIA H100 NVL", "Hopper", "9.0.0"),
    "H100-96GB": ("NVIDIA GH200 480GB", "Hopper", "9.0.0"),
    "H200": ("NVIDIA H200", "Hopper", "9.0.0"),
    "B200": ("NVIDIA B200", "Blackwell", "10.0.0"),
}
"""Model of a geometry -> product name, architecture, CUDA compute capability."""
_MULTIPROCESSORS = {"Ampere": 14, "Hopper": 16, "Blackwell": 18}  # of a compute slice
_CAMEL = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "ofaEngines": "ofa-engines",
    "memory": "memory",
}
"""Capacity -> counter: capacities are identifiers, counters are labels."""


class Model(msgspec.Struct, frozen=True):
    """What a node has. gpus: how many; geometry: a key of `GEOMETRIES`.

    kind: `plain`, whole GPUs; `mig`, whole GPUs and their partitions; `shared`, GPUs that are allocated several times, by memory.
    """

    kind: Literal["plain", "mig", "shared"] = "plain"
    gpus: int = 8
    geometry: str = "A100-80GB"


def gpu_uuid(node: str, number: int) -> str:
    """The UUID of a GPU, always the same for a node's name and a number."""
    digest = hashlib.sha256(f"{node} {number}".encode()).digest()
    return f"GPU-{uuid.UUID(bytes=digest[:16], version=4)}"


def devices(node: str, model: Model) -> list[Object]:
    """All devices of a node, GPU by GPU, the whole GPU first."""
    return [device for number in range(model.gpus) for device in _of_gpu(node, model, number)]


def of_gpu(model: Model, number: int) -> list[str]:
    """The names of a GPU and of its partitions."""
    return [device["name"] for device in _of_gpu("", model, number)]


def counter_sets(model: Model) -> list[Object]:
    """The counters that partitions of a GPU share, a set for each GPU; none where GPUs are not partitioned."""
    if model.kind != "mig":
        return []
    geometry = GEOMETRIES[model.geometry]
    counters = _counters(_capacities(geometry, None), range(geometry.memory))
    return [{"name": _set_name(number), "counters": counters} for number in range(model.gpus)]


def slices(
    node: str,
    model: Model,
    generation: int = 1,
    *,
    lost: Collection[str] = (),
    taints: Mapping[str, Object] | None = None,
    owner: Object | None = None,
) -> list[Object]:
    """The ResourceSlices of a node's pool: those with counters, then those with devices; at least one.

    lost: names of devices that are left out. taints: of devices, by name. owner: an owner reference to the node.
    """
    taints = taints or {}
    present = [
        {**device, "taints": [taints[device["name"]]]} if device["name"] in taints else device
        for device in devices(node, model)
        if device["name"] not in lost
    ]
    used = {each["counterSet"] for device in present for each in device.get("consumesCounters", ())}
    parts: list[Object] = [
        {"sharedCounters": found} for found in _chunks([each for each in counter_sets(model) if each["name"] in used], _SETS)
    ]
    limited = bool(used or taints)
    parts += [{"devices": found} for found in _chunks(present, _DEVICES if limited else _PLAIN_DEVICES)]
    parts = parts or [{"devices": []}]
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{DRIVER}-{index}", **({"ownerReferences": [owner]} if owner else {})},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **part},
        }
        for index, part in enumerate(parts)
    ]


def classes() -> list[Object]:
    """The DeviceClasses that NVIDIA's driver installs for GPUs and partitions."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": _selector(kind)}}]},
        }
        for name, kind in ((GPU_CLASS, "gpu"), (MIG_CLASS, "mig"))
    ]


def _selector(kind: str) -> str:
    return f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"


def _chunks(items: list[Object], most: int) -> Iterator[list[Object]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


# -- one GPU -----------------------------------------------------------------------------------


def _of_gpu(node: str, model: Model, number: int) -> Iterator[Object]:
    geometry, name = GEOMETRIES[model.geometry], f"gpu-{number}"
    attributes = _attributes(model.geometry, number)
    root = {"resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{16 * (number // 2):02x}"}}
    whole: Object = {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": gpu_uuid(node, number)}, **attributes, **root},
        "capacity": {"memory": {"value": _mebibytes(geometry, geometry.memory)}},
    }
    if model.kind == "shared":
        policy = {"default": _mebibytes(geometry, geometry.memory), "validRange": {"min": "1Gi", "step": "1Mi"}}
        whole["capacity"] = {"memory": {"value": _mebibytes(geometry, geometry.memory), "requestPolicy": policy}}
        whole["allowMultipleAllocations"] = True
    if model.kind != "mig":
        yield whole
        return
    everything = _capacities(geometry, None)
    whole["capacity"] = _shown(everything)
    whole["consumesCounters"] = [{"counterSet": _set_name(number), "counters": _counters(everything, range(geometry.memory))}]
    yield whole
    parent = {"type": {"string": "mig"}, "parentUUID": {"string": gpu_uuid(node, number)}}
    for profile in geometry.profiles:
        capacities = _capacities(geometry, profile)
        short = profile.name.replace(".", "").replace("+", "-")
        for start in profile.starts:
            used = _counters(capacities, range(start, start + profile.memory))
            yield {
                "name": f"{name}-mig-{short}-{start}",
                "attributes": {**parent, "profile": {"string": profile.name}, **attributes},
                "capacity": _shown(capacities),
                "consumesCounters": [{"counterSet": _set_name(number), "counters": used}],
            }


def _set_name(number: int) -> str:
    return f"gpu-{number}-counter-set"


def _attributes(geometry: str, number: int) -> dict[str, Any]:
    """What a GPU and its partitions have in common. Two GPUs are behind one PCIe root."""
    product, architecture, capability = _PRODUCTS[geometry]
    return {
        "productName": {"string": product},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": architecture},
        "cudaComputeCapability": {"version": capability},
        "driverVersion": {"version": _DRIVER_VERSION},
        "cudaDriverVersion": {"version": _CUDA_VERSION},
        "addressingMode": {"string": "HMM"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{16 * (number // 2) + 1 + number % 2:02x}:00.0"},
    }


def _capacities(geometry: Geometry, profile: Profile | None) -> dict[str, int]:
    """What a partition has, or the whole GPU; memory in mebibytes."""
    compute, memory = (geometry.compute, geometry.memory) if profile is None else (profile.compute, profile.memory)
    media = profile is None or profile.media or profile.memory == geometry.memory
    architecture = _PRODUCTS[geometry.model][1]
    return {
        "multiprocessors": compute * _MULTIPROCESSORS[architecture],
        "copyEngines": compute,
        "decoders": compute,
        "encoders": 0,
        "jpegEngines": compute,
        "ofaEngines": int(media),
        "memory": geometry.memory_gb * _PARTS * memory // geometry.memory,
    }


def _mebibytes(geometry: Geometry, memory: int) -> str:
    return f"{geometry.memory_gb * _PARTS * memory // geometry.memory}Mi"


def _quantity(name: str, value: int) -> str:
    return f"{value}Mi" if name == "memory" else str(value)


def _shown(capacities: Mapping[str, int]) -> Object:
    return {name: {"value": _quantity(name, value)} for name, value in capacities.items()}


def _counters(capacities: Mapping[str, int], memory_slices: range) -> Object:
    amounts = {_CAMEL[name]: {"value": _quantity(name, value)} for name, value in capacities.items()}
    return amounts | {f"memory-slice-{number}": {"value": "1"} for number in memory_slices}
