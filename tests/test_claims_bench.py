"""What `fairlead bench dra --api` accepts as a run, and what its figures are of: testbed/claims.py."""

import random

import pytest

from testbed import bench, claims

MATCHED = "claims-matched"


def outcome(draw, kind, nodes, pods):
    """Pods and claims as a scheduler without faults leaves them."""
    made = claims.before(kind, nodes, pods)
    slices = [each for each in made if each["kind"] == "ResourceSlice"]
    wanted = [each for each in made if each["kind"] == "ResourceClaim"]
    free = {each["metadata"]["name"]: [device["name"] for device in each["spec"]["devices"]] for each in slices}
    placed = []
    for number, claim in enumerate(wanted):
        count = claim["spec"]["devices"]["requests"][0]["exactly"]["count"]
        options = [
            (node, found[:count])
            for node, names in free.items()
            for found in (
                [[each for each in names if each.split("-")[1] == numa] for numa in "01"] if kind == MATCHED else [names]
            )
            if len(found) >= count
        ]
        node, chosen = draw.choice(options)
        free[node] = [each for each in free[node] if each not in chosen]
        pod = claims.pod(number, "any")
        pod["metadata"]["uid"], pod["spec"]["nodeName"] = f"uid-{number}", node
        placed.append(pod)
        results = [{"request": "gpu", "driver": claims.DRIVER, "pool": node, "device": each} for each in chosen]
        claim["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": f"uid-{number}"}]}
    return placed, wanted


def spoiled(draw, kind, placed, wanted):
    """One thing made wrong; its name."""
    claim, other = draw.sample(wanted, 2)
    results = claim["status"]["allocation"]["devices"]["results"]
    kinds = [
        "unallocated",
        "short",
        "unreserved",
        "of another pod",
        "elsewhere",
        "twice",
        *(["unmatched"] if kind == MATCHED else []),
    ]
    what = draw.choice(kinds)
    match what:
        case "unallocated":
            del claim["status"]
        case "short":
            results.pop()
        case "unreserved":
            claim["status"]["reservedFor"] = []
        case "of another pod":
            claim["status"]["reservedFor"] = other["status"]["reservedFor"]
        case "elsewhere":
            placed[wanted.index(claim)]["spec"]["nodeName"] = "node-none"
        case "twice":
            results[0] = dict(other["status"]["allocation"]["devices"]["results"][0])
        case "unmatched":
            numa = results[0]["device"].split("-")[1]
            results[0]["device"] = f"gpu-{1 - int(numa)}-99"
    return what


@pytest.mark.parametrize("seed", range(60))
def test_a_run_counts_if_every_claim_has_what_it_asks_for_and_not_otherwise(seed):
    draw = random.Random(seed)
    kind = draw.choice(claims.KINDS)
    nodes = draw.randrange(1, 6)
    placed, wanted = outcome(draw, kind, nodes, draw.randrange(2, 6 * nodes + 2))
    assert claims.problems(kind, placed, wanted) == []
    what = spoiled(draw, kind, placed, wanted)
    assert claims.problems(kind, placed, wanted), what


@pytest.mark.parametrize("kind", claims.KINDS)
def test_nodes_have_devices_for_all_pods(kind):
    for nodes, pods in ((1, 2), (500, 2500), (4, 100), (50, 7)):
        slices = [each for each in claims.before(kind, nodes, pods) if each["kind"] == "ResourceSlice"]
        names = [device["name"] for each in slices for device in each["spec"]["devices"]]
        asked = claims._WANTED[kind] * pods
        assert len(slices) == nodes
        assert len(names) >= asked
        # A node's devices can be taken in pairs of one NUMA node: none is left over.
        assert all(len(each["spec"]["devices"]) % 4 == 0 for each in slices)


def run(rate, writes=4.0, events=1.0):
    return bench.Run(rate, None, bench.Latency(1.0, 2.0), 3.0, 100.0, writes, 0.5, events)


def test_ratios_are_of_rates_in_one_round_and_events_are_no_writes():
    """The machine was slow in the second round for both schedulers."""
    plain = {"fairlead": [run(300), run(150), run(330)], "kube-scheduler": [run(100), run(50), run(100, 4.5)]}
    runs = {(kind, name): made for kind in ("claims", "claims-pair") for name, made in plain.items()}
    runs["claims-matched", "fairlead"] = [run(270), run(150), run(231)]
    runs["claims-matched", "kube-scheduler"] = [run(50), run(25, 6.0, 2.0), run(50)]
    found = claims.summary(10, 20, 3, runs)
    assert found.ratios == {"claims": 3.0, "claims-pair": 3.0, "claims-matched": pytest.approx(5.4)}
    assert found.writes_per_pod == {"fairlead": 3.0, "kube-scheduler": 3.0}
    assert found.match_attribute_cost == {"fairlead": pytest.approx(0.1), "kube-scheduler": 0.5}
    assert found.measured["claims"]["fairlead"].pods_per_second == 300
