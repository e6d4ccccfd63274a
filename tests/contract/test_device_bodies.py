"""Random objects of `resource.k8s.io`, right and wrong: both API servers refuse the same ones, for the same reasons at the same places."""

from __future__ import annotations

import copy
import random

import pytest

from tests.contract.cases.common import PODS
from tests.contract.cases.devices import CLAIMS, CLASSES, DRIVER, SLICES, TEMPLATES, consuming, counters, kind

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("contract")]

TOLERATION = {"key": "example.com/a", "operator": "Equal", "value": "b", "effect": "NoSchedule", "tolerationSeconds": 5}
ASKED = {
    "deviceClassName": DRIVER,
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [TOLERATION],
    "capacity": {"requests": {"memory": "1Gi", "example.com/cores": "2"}},
}
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"kind": "x", "list": [1, 2]}}}
CLAIM_SPEC = {
    "devices": {
        "requests": [
            {"name": "one", "exactly": ASKED},
            {"name": "either", "firstAvailable": [{"name": "a", **ASKED}, {"name": "b", **ASKED}]},
        ],
        "constraints": [
            {"requests": ["one", "either/a"], "matchAttribute": f"{DRIVER}/model"},
            {"requests": ["either"], "distinctAttribute": "resource.kubernetes.io/pcieRoot"},
        ],
        "config": [{"requests": ["one"], **OPAQUE}],
    }
}
POLICY = {"default": "2Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "a"},
        "example.com/index": {"int": 3},
        "driverVersion": {"version": "1.2.3"},
        "ecc": {"bool": True},
    },
    "capacity": {"memory": {"value": "10Gi", "requestPolicy": POLICY}, "cores": {"value": "4"}},
    "allowMultipleAllocations": True,
    "taints": [{"key": "example.com/t", "value": "v", "effect": "NoSchedule"}],
    "consumesCounters": [consuming(2)],
    "bindingConditions": ["example.com/ready"],
    "bindingFailureConditions": ["example.com/failed"],
}
POOL = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
BASES = {
    CLAIMS: kind("ResourceClaim", "random", spec=CLAIM_SPEC),
    TEMPLATES: kind("ResourceClaimTemplate", "random", spec={"spec": CLAIM_SPEC}),
    CLASSES: kind("DeviceClass", "random", spec={"selectors": ASKED["selectors"], "config": [OPAQUE]}),
    SLICES: kind(
        "ResourceSlice",
        "random",
        spec={"driver": DRIVER, "nodeName": "n1", "pool": POOL, "devices": [DEVICE, {**DEVICE, "name": "gpu-1"}]},
    ),
    f"{SLICES}?counters": kind(
        "ResourceSlice",
        "random",
        spec={"driver": DRIVER, "allNodes": True, "pool": POOL, "sharedCounters": [counters(2), counters(1, "gpu-1")]},
    ),
    f"{SLICES}?nodes": kind(
        "ResourceSlice",
        "random",
        spec={
            "driver": DRIVER,
            "perDeviceNodeSelection": True,
            "pool": POOL,
            "devices": [{"name": "a", "nodeSelector": {"nodeSelectorTerms": [TERM]}}, {"name": "b", "nodeName": "n1"}],
        },
    ),
}
TEXTS = (
    "",
    "a",
    "A",
    "a_b",
    "a/b",
    "a/b/c",
    "/a",
    "a/",
    "-",
    "x" * 33,
    "x" * 64,
    "x" * 254,
    "1.2.3",
    "1.2",
    "All",
    "Exists",
    "NoExecute",
    "one",
    "1Gi",
)
NUMBERS = (0, 1, -1, 33, 2**31)
"""What stands in place of a value of the same type."""


def places(value, path=()):
    """Every place in an object below its spec."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*path, index))


def mutated(draw, base):
    """One or two changes of an object: another value, nothing, a list with an item twice or far too often, a key with another name."""
    made = copy.deepcopy(base)
    for _ in range(draw.choice((1, 1, 2))):
        paths = [path for path in places(made["spec"]) if path]
        if not paths:
            break
        path = draw.choice(paths)
        inner = made["spec"]
        for step in path[:-1]:
            inner = inner[step]
        key, value = path[-1], inner[path[-1]]
        change = draw.random()
        if change < 0.2:
            del inner[key]
        elif isinstance(value, list) and value:
            item = draw.choice(value)
            inner[key] = draw.choice(([*value, item], [], [item] * draw.choice((5, 10, 17, 33, 65, 129))))
        elif isinstance(value, dict) and value and change < 0.6:
            name = draw.choice(sorted(value))
            value[draw.choice(TEXTS)] = value.pop(name) if draw.random() < 0.5 else value[name]
        elif isinstance(value, str):
            inner[key] = draw.choice(TEXTS)
        elif isinstance(value, bool):
            inner[key] = not value
        elif isinstance(value, int):
            inner[key] = draw.choice(NUMBERS)
    return made


RESULT = {
    "request": "either/a",
    "driver": DRIVER,
    "pool": "n1",
    "device": "gpu-0",
    "shareID": "00000000-0000-4000-8000-000000000001",
    "consumedCapacity": {"memory": "1Gi"},
    "tolerations": [TOLERATION],
    "bindingConditions": ["example.com/ready"],
    "bindingFailureConditions": ["example.com/failed"],
}
CONDITION = {"type": "Ready", "status": "True", "reason": "Done", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
IDENTITY = {name: RESULT[name] for name in ("driver", "pool", "device", "shareID")}
STATUS = {
    "allocation": {
        "devices": {
            "results": [RESULT, {**IDENTITY, "request": "one", "device": "gpu-1"}],
            "config": [{"source": "FromClass", "requests": ["one"], **OPAQUE}],
        },
        "nodeSelector": {"nodeSelectorTerms": [TERM]},
    },
    "reservedFor": [{"apiGroup": "example.com", "resource": "things", "name": "a", "uid": f"uid-{number}"} for number in (1, 2)],
    "devices": [{**IDENTITY, "data": {"a": 1}, "conditions": [CONDITION]}],
}
POD_SPEC = {
    "resourceClaims": [{"name": "one", "resourceClaimName": "a"}, {"name": "two", "resourceClaimTemplateName": "b"}],
    "containers": [
        {
            "name": "main",
            "image": "x:1",
            "resources": {"claims": [{"name": "one"}, {"name": "two", "request": "a"}, {"name": "two", "request": "b"}]},
        }
    ],
}


def verdict(api, path, body):
    """Status, and of each cause its reason and place; the order of maps is Go's own."""
    path = path.partition("?")[0]
    return judged(api.post(f"{path}?dryRun=All", body))


def judged(found):
    causes = found.body.get("details", {}).get("causes", []) if found.status == 422 else []
    return found.status, sorted({(each["reason"], each["field"]) for each in causes}), found.text


@pytest.mark.parametrize("seed", range(3))
def test_both_servers_refuse_the_same_for_the_same_reasons(real_api, simulated_api, seed):
    draw = random.Random(f"bodies {seed}")
    statuses = set()
    for number in range(120):
        path = sorted(BASES)[number % len(BASES)]
        body = mutated(draw, BASES[path]) if number >= len(BASES) else BASES[path]
        real, simulated = verdict(real_api, path, body), verdict(simulated_api, path, body)
        assert simulated[:2] == real[:2], (body["spec"], real[2][:1500], simulated[2][:1500])
        statuses.add(real[0])
    assert {201, 422} <= statuses


@pytest.mark.parametrize("seed", range(2))
def test_both_servers_refuse_the_same_statuses_of_claims(real_api, simulated_api, seed):
    draw = random.Random(f"statuses {seed}")
    statuses = set()
    lives = {}
    for api in (real_api, simulated_api):
        api.begin(f"random-status-{seed}")
        lives[api] = api.post(CLAIMS, {**BASES[CLAIMS], "metadata": {"name": api.name}}).ok(201)
    for number in range(120):
        status = mutated(draw, {"spec": STATUS})["spec"] if number else STATUS
        found = []
        for api, live in lives.items():
            path = f"{CLAIMS}/{live['metadata']['name']}/status?dryRun=All"
            found.append(judged(api.put(path, {**live, "status": status})))
        assert found[1][:2] == found[0][:2], (status, found[0][2][:1500], found[1][2][:1500])
        statuses.add(found[0][0])
    assert {200, 422} <= statuses


def test_both_servers_refuse_the_same_claims_of_pods(real_api, simulated_api):
    draw = random.Random("pods")
    statuses = set()
    for number in range(120):
        part = {"claims": POD_SPEC["resourceClaims"], "used": POD_SPEC["containers"][0]["resources"]["claims"]}
        changed = mutated(draw, {"spec": part})["spec"] if number else part
        container = {**POD_SPEC["containers"][0], "resources": {"claims": changed.get("used", [])}}
        body = {"metadata": {"name": "random"}, "spec": {"resourceClaims": changed.get("claims", []), "containers": [container]}}
        real, simulated = verdict(real_api, PODS, body), verdict(simulated_api, PODS, body)
        assert simulated[:2] == real[:2], (body["spec"], real[2][:1500], simulated[2][:1500])
        statuses.add(real[0])
    assert {201, 422} <= statuses
