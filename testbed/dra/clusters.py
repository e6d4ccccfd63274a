"""Random clusters with devices, as API objects: slices in all states, classes, claims that hold devices, claims of one pod.

Selectors are drawn from a small set (`selectors.py` judges the same texts without CEL). Everything is within the API's limits,
but slices may be missing, old, contradictory or gone.
"""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com")
NUMA = "resource.example.com/numa"
_MODELS = ("a100", "h100")
_EFFECTS = ("NoSchedule", "NoExecute", "None")


def generate(seed: int) -> Json:
    """One case: nodes, slices, classes, allocated claims, and the claims of one pod."""
    draw = Random(seed)
    nodes: list[Json] = [
        {"metadata": {"name": f"n{at}", "labels": {"zone": draw.choice("ab"), "kubernetes.io/hostname": f"n{at}"}}}
        for at in range(draw.choice((1, 2, 2, 3)))
    ]
    slices: list[Json] = []
    drivers = DRIVERS[: draw.choice((1, 2, 2))]
    same_pool_names = draw.random() < 0.5
    for driver in drivers:
        for node in nodes:
            if draw.random() < 0.85:
                name = node["metadata"]["name"]
                slices += _pool(draw, driver, name if same_pool_names else f"{driver[:3]}-{name}", {"nodeName": name})
        if draw.random() < 0.3:
            slices += _pool(draw, driver, "net", _network(draw))
    classes = _classes(draw)
    allocated, seen = _allocated(draw, slices)
    claims = [_claim(draw, at) for at in range(draw.choice((1, 1, 1, 2, 2)))]
    draw.shuffle(slices)
    case = {"id": seed, "nodes": nodes, "slices": slices, "classes": classes, "allocated": allocated, "claims": claims}
    return case | {"seen": seen}


def _network(draw: Random) -> Json:
    kind = draw.randrange(3)
    if kind == 0:
        return {"allNodes": True}
    if kind == 1:
        return {"nodeSelector": _zone(draw)}
    return {"perDeviceNodeSelection": True}


def _zone(draw: Random) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [draw.choice("ab")]}]}]}


def _pool(draw: Random, driver: str, name: str, reach: Json) -> list[Json]:
    """The slices of one pool: usually complete, sometimes old, incomplete or contradictory."""
    generation = draw.randrange(3)
    partitioned = draw.random() < 0.4
    devices, counters = _partitions(draw) if partitioned else ([_device(draw, f"d{at}") for at in range(draw.randint(2, 8))], [])
    for each in devices:
        if reach.get("perDeviceNodeSelection"):
            each.update(draw.choice(({"allNodes": True}, {"nodeName": "n0"}, {"nodeName": "n1"}, {"nodeSelector": _zone(draw)})))
        if draw.random() < 0.05:
            each["bindingConditions"], each["bindingFailureConditions"] = ["ready"], ["failed"]
        if draw.random() < 0.1:
            each["bindsToNode"] = True
    parts = [devices] if draw.random() < 0.7 else [devices[: len(devices) // 2], devices[len(devices) // 2 :]]
    specs: list[Json] = [{"devices": part} for part in parts]
    if counters:
        specs.append({"sharedCounters": counters})
    slices = []
    for at, spec in enumerate(specs):
        pool = {"name": name, "generation": generation, "resourceSliceCount": len(specs)}
        metadata = {"name": f"{driver[:3]}-{name}-{generation}-{at}"}
        slices.append({"metadata": metadata, "spec": {"driver": driver, "pool": pool, **reach, **spec}})
    trouble = draw.random()
    if trouble < 0.03 and len(slices) > 1:
        slices.pop(draw.randrange(len(slices)))
    elif trouble < 0.05:
        devices.append(dict(devices[0]))
    elif trouble < 0.07 and partitioned:
        devices[0]["consumesCounters"] = [{"counterSet": "gone", "counters": {"memory": {"value": "1"}}}]
    elif trouble < 0.12 and generation:
        old = {"name": name, "generation": generation - 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "pool": old, **reach, "devices": [_reached(reach, _device(draw, "d0"))]}
        slices.append({"metadata": {"name": f"{driver[:3]}-{name}-old"}, "spec": spec})
    return slices


def _reached(reach: Json, device: Json) -> Json:
    if reach.get("perDeviceNodeSelection"):
        device["allNodes"] = True
    return device


def _attributes(draw: Random) -> Json:
    found: Json = {"model": {"string": draw.choice(_MODELS)}}
    if draw.random() < 0.8:
        found["index"] = {"int": draw.randrange(3)}
    if draw.random() < 0.6:
        found[NUMA] = {"int": draw.randrange(2)}
    if draw.random() < 0.5:
        found["healthy"] = {"bool": draw.random() < 0.8}
    if draw.random() < 0.3:
        found["firmware"] = {"version": draw.choice(("1.0.0", "1.2.3"))}
    return found


def _device(draw: Random, name: str) -> Json:
    device: Json = {"name": name, "attributes": _attributes(draw)}
    if draw.random() < 0.3:
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"memory": _shared_capacity(draw)}
        if draw.random() < 0.3:
            device["capacity"]["shares"] = {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2", "4"]}}
        if draw.random() < 0.15:
            del device["capacity"]
    elif draw.random() < 0.5:
        device["capacity"] = {"memory": {"value": draw.choice(("8Gi", "16Gi"))}}
    if draw.random() < 0.1:
        device["taints"] = [{"key": draw.choice(("bad", "worn")), "value": "x", "effect": draw.choice(_EFFECTS)}]
    return device


def _shared_capacity(draw: Random) -> Json:
    policy = draw.choice(
        (
            None,
            {"default": "4Gi", "validRange": {"min": "2Gi", "step": "1Gi"}},
            {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi"}},
            {"default": "4Gi", "validValues": ["4Gi", "8Gi", "16Gi"]},
        )
    )
    return {"value": "16Gi", **({"requestPolicy": policy} if policy else {})}


def _partitions(draw: Random) -> tuple[list[Json], list[Json]]:
    """GPUs that can be a whole, two halves or four quarters: counters keep them apart. Sometimes shared ones among them."""
    devices, counters = [], []
    for gpu in range(draw.randint(1, 3)):
        attributes = _attributes(draw)
        name = f"gpu-{gpu}"
        counters.append({"name": name, "counters": {"memory": {"value": "4"}, **{f"s{at}": {"value": "1"} for at in range(4)}}})
        for kind, size in (("whole", 4), ("half", 2), ("quarter", 1)):
            for start in range(0, 4, size):
                used = {"memory": {"value": str(size)}, **{f"s{at}": {"value": "1"} for at in range(start, start + size)}}
                own = {**attributes, "kind": {"string": kind}, "parent": {"string": name}}
                each: Json = {
                    "name": f"{name}-{kind}-{start}",
                    "attributes": own,
                    "consumesCounters": [{"counterSet": name, "counters": used}],
                }
                if draw.random() < 0.06:
                    each["allowMultipleAllocations"] = True
                    each["capacity"] = {"memory": _shared_capacity(draw)}
                devices.append(each)
    if draw.random() < 0.15:
        devices = devices[: draw.randint(3, len(devices))]
    return devices, counters


def _classes(draw: Random) -> list[Json]:
    classes: list[Json] = [
        {"metadata": {"name": driver[:3]}, "spec": {"selectors": [_cel(f'device.driver == "{driver}"')]}} for driver in DRIVERS
    ]
    classes.append({"metadata": {"name": "any"}, "spec": {}})
    if draw.random() < 0.3:
        classes[0]["spec"]["config"] = [{"opaque": {"driver": DRIVERS[0], "parameters": {"mode": "fast"}}}]
    return classes


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def selector(draw: Random) -> str:
    """One selector: equality of a driver, of a string, a bool, a comparison of an integer; seldom one that errs."""
    domain = draw.choice(DRIVERS) if draw.random() < 0.25 else DRIVERS[0]
    kind = draw.randrange(12)
    if kind < 3:
        return f'device.attributes["{domain}"].?model.orValue("") == "{draw.choice(_MODELS)}"'
    if kind < 6:
        return f'device.attributes["{domain}"].?kind.orValue("") == "{draw.choice(("whole", "half", "quarter"))}"'
    if kind < 8:
        return f'device.attributes["{domain}"].?index.orValue(0) < {draw.randint(1, 2)}'
    if kind == 8:
        return f'device.attributes["{domain}"].?healthy.orValue(false) == true'
    if kind == 9:
        return f'device.driver == "{domain}"'
    if kind == 10 and draw.random() < 0.3:
        return f'device.attributes["{domain}"].index == {draw.randrange(3)}'
    return "device.allowMultipleAllocations == true"


def _allocated(draw: Random, slices: list[Json]) -> tuple[list[Json], list[Json]]:
    """Claims that hold devices; some hold devices that are gone. And what was seen of those before."""
    results: list[Json] = []
    seen: list[Json] = []
    crowded = draw.choice((0.03, 0.1, 0.2))
    for each in slices:
        spec = each["spec"]
        for device in spec.get("devices", ()):
            if draw.random() > crowded:
                continue
            result: Json = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            if device.get("allowMultipleAllocations"):
                result["shareID"] = f"share-{len(results)}"
                amounts = {name: draw.choice(("1", "2")) if name == "shares" else "4Gi" for name in device.get("capacity", ())}
                if amounts:
                    result["consumedCapacity"] = amounts
            elif draw.random() < 0.1:
                result["adminAccess"] = True
            results.append(result)
        if draw.random() < 0.03:
            results.append({"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": "gone"})
            if (devices := spec.get("devices")) and "consumesCounters" in devices[0]:
                gone = {"name": "gone", "consumesCounters": devices[0]["consumesCounters"]}
                seen.append({"driver": spec["driver"], "pool": spec["pool"]["name"], "device": gone})
    claims = [
        {"metadata": {"name": f"held-{at}", "namespace": "d"}, "status": {"allocation": {"devices": {"results": [each]}}}}
        for at, each in enumerate(results)
    ]
    return claims, seen


def _claim(draw: Random, number: int) -> Json:
    requests: list[Json] = []
    for at in range(draw.choice((1, 1, 1, 1, 2, 2, 3))):
        if draw.random() < 0.3:
            options: list[Json] = [{"name": f"s{each}", **_ask(draw, admin=False)} for each in range(draw.randint(2, 3))]
            requests.append({"name": f"r{at}", "firstAvailable": options})
        else:
            requests.append({"name": f"r{at}", "exactly": _ask(draw, admin=True)})
    constraints = []
    while draw.random() < 0.25:
        attribute = draw.choice(
            (NUMA, f"{DRIVERS[0]}/model", f"{DRIVERS[0]}/parent", f"{DRIVERS[0]}/index", f"{DRIVERS[0]}/firmware")
        )
        constraint: Json = {draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if draw.random() < 0.4:
            names = [each["name"] for each in requests]
            names += [f"{each['name']}/{one['name']}" for each in requests for one in each.get("firstAvailable", ())]
            constraint["requests"] = draw.sample(names, draw.randint(1, len(names)))
        constraints.append(constraint)
    devices: Json = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    if draw.random() < 0.2:
        config: Json = {"opaque": {"driver": DRIVERS[0], "parameters": {"size": number}}}
        if draw.random() < 0.5:
            config["requests"] = [requests[0]["name"]]
        devices["config"] = [config]
    return {"metadata": {"name": f"c{number}", "namespace": "d"}, "spec": {"devices": devices}}


def _ask(draw: Random, *, admin: bool) -> Json:
    ask: Json = {
        "deviceClassName": draw.choice(("gpu", "gpu", "gpu", "gpu", "any", "any", "nic")),
        "allocationMode": "ExactCount",
    }
    if draw.random() < 0.004:
        ask["deviceClassName"] = "missing"
    if draw.random() < 0.05:
        ask["allocationMode"] = "All"
    else:
        ask["count"] = draw.choice((1, 1, 1, 1, 2, 2, 3))
    if draw.random() < 0.4:
        ask["selectors"] = [_cel(selector(draw)) for _ in range(draw.choice((1, 1, 1, 2)))]
    if draw.random() < 0.15:
        toleration = draw.choice(({"operator": "Exists"}, {"key": "bad", "operator": "Equal", "value": "x"}))
        ask["tolerations"] = [toleration | ({"effect": "NoSchedule"} if draw.random() < 0.3 else {})]
    if admin and draw.random() < 0.05:
        ask["adminAccess"] = True
    if draw.random() < 0.15:
        ask["capacity"] = {"requests": {"memory": draw.choice(("1Gi", "3Gi", "6Gi", "10Gi"))}}
        if draw.random() < 0.1:
            ask["capacity"]["requests"]["shares"] = "3"
    return ask
