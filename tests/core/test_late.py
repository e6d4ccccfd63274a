"""Modules that are loaded with their first use: a cluster without devices goes without their allocator."""

import subprocess
import sys

import pytest

from fairlead.core.model.late import late

_PLAIN = """
import sys
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import DeviceUse, Pod, PodSpec
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.core.dra.model import Ask, Claim, Device, DeviceClaim, DeviceClass, Reach, Request, Slice

loaded = lambda: sorted(name for name in sys.modules if name.startswith(("fairlead.core.dra.", "fairlead.expressions")))
state = ClusterState()
state.upsert_node(Node("a", {"cpu": 1000, "memory": 1 << 30, "pods": 10}, {}))
state.upsert_pod(Pod("uid-p", "ns", "p", spec=PodSpec(requests=(("cpu", 1),)), queue="default"))
print([type(each).__name__ for each in schedule(state, 0.0)])
print(loaded())
state.claims.upsert(DeviceClass("gpu"))
state.claims.upsert(Slice("a", "gpu.example.com", "a", 1, 1, Reach("a"), devices=(Device("gpu-0", "gpu.example.com"),)))
state.claims.upsert(DeviceClaim("ns/c", "uid-c", Claim("", "", (Request("r", (Ask("r", "gpu"),)),))))
state.claims.all_known()
state.upsert_pod(Pod("uid-q", "ns", "q", spec=PodSpec(requests=(("cpu", 1),)), queue="default", claims=(DeviceUse("c", "ns/c"),)))
print([type(each).__name__ for each in schedule(state, 1.0)])
print("fairlead.core.dra.allocator" in loaded())
"""


def test_a_pass_without_claims_loads_no_allocator():
    done = subprocess.run([sys.executable, "-c", _PLAIN], capture_output=True, text=True, check=True)
    placed, light, with_claims, allocator = done.stdout.splitlines()
    assert (placed, with_claims, allocator) == ("['Place']", "['Place']", "True")
    assert "dra.model" in light
    for heavy in ("allocator", "inventory", "pools", "gangs", "evaluation", "expressions"):
        assert heavy not in light


def test_a_late_module_is_the_module_and_what_is_not_there_is_an_error():
    found = late("fairlead.core.model.backoff")
    assert found.backoff(1.0, 3, 10.0) == 4.0
    from fairlead.core.model import backoff

    assert found.backoff is backoff.backoff
    with pytest.raises(AttributeError):
        _ = found.nothing
    with pytest.raises(ModuleNotFoundError):
        _ = late("fairlead.core.nowhere").anything
