"""Random pods: the devices that their extended resources ask for are as many as a device plugin would count, and every container
has what it requests, from containers that run beside it or after it."""

import random

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.extended_resources import extended_requests, is_extended
from fairlead.cluster.requests import pod_requests
from fairlead.core.nodes.extended_resources import asked_for

RESOURCES = ("example.com/gpu", "example.com/nic", "deviceclass.resource.kubernetes.io/gpu")
OTHERS = ("cpu", "memory", "hugepages-2Mi", "example.kubernetes.io/native")


def drawn(rnd):
    def container(name, **more):
        asked = {each: str(rnd.randint(0, 4)) for each in (*RESOURCES, *OTHERS) if rnd.random() < 0.6}
        return {"name": name, "resources": {"requests": asked}, **more}

    first = [
        container(f"i{each}", **({"restartPolicy": "Always"} if rnd.random() < 0.4 else {})) for each in range(rnd.randint(0, 4))
    ]
    return first, [container(f"c{each}") for each in range(rnd.randint(1, 3))]


@pytest.mark.parametrize("seed", range(300))
def test_as_many_devices_as_a_plugin_counts_and_enough_for_each_container(seed):
    rnd = random.Random(seed)
    first, main = drawn(rnd)
    spec = {"initContainers": first, "containers": main}
    view = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}, views.Pod)
    found, totals = extended_requests(view), pod_requests(view)
    names = set()
    for resource in RESOURCES:
        asks, mappings = asked_for(found, resource)
        amounts = dict(asks)
        assert len(amounts) == len(asks)
        assert not names & amounts.keys(), "a request is of one resource"
        names |= amounts.keys()
        assert sum(amounts.values()) == totals.get(resource, 0)
        assert len(set(mappings)) == len(mappings), "the API server refuses a mapping that is there twice"
        position = {each["name"]: at for at, each in enumerate((*first, *main))}
        for at, each in enumerate((*first, *main)):
            wanted = int(each["resources"]["requests"].get(resource, 0))
            mapped = [mapping.request for mapping in mappings if mapping.container == each["name"]]
            brief = at < len(first) and each.get("restartPolicy") != "Always"
            had = sum(amounts[name] for name in mapped)
            assert bool(mapped) == bool(wanted)
            assert had >= wanted if brief else had == wanted
            owners = {int(name.split("-")[1]) for name in mapped}
            if brief:
                ordinary = {position[mapping.container] for mapping in mappings if mapping.container not in briefs(first)}
                assert all(owner >= at for owner in owners & ordinary), "devices of a container that is running"
            else:
                assert owners <= {at}


def briefs(first):
    return {each["name"] for each in first if each.get("restartPolicy") != "Always"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("example.com/gpu", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/x", False),
        ("example.kubernetes.io/native", False),
        ("requests.example.com/gpu", False),
    ],
)
def test_which_names_are_extended_resources(name, expected):
    assert is_extended(name) is expected
