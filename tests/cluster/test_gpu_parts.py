"""What pods and nodes count as in GPUs where there is no core: the same as the core charges."""

import random

import msgspec
import pytest

from fairlead.api import names
from fairlead.cluster import convert, views
from fairlead.cluster.gpu_parts import held_milli, listed, offered_milli, parts_of
from tests.builders import GPU, cluster, pod, queue

A100, H100 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"
LABELS = (
    {},
    {"nvidia.com/gpu.product": A100},
    {"nvidia.com/gpu.product": H100},
    {"nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb"},
    {"nvidia.com/gpu.product": f"{H100}-MIG-3g.40gb-SHARED", "nvidia.com/gpu.replicas": "2"},
    {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "7"},
    {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "7", "nvidia.com/gpu.sharing-strategy": "none"},
    {"nvidia.com/mig-1g.5gb.replicas": "3", "nvidia.com/gpu.product": A100},
)
RESOURCES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/mig-1g.5gb.shared",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/mig-",
    "nvidia.com/mig-9g.9gb",
    "nvidia.com/vgpu",
    "amd.com/gpu",
    "example.com/thing",
)


@pytest.fixture(autouse=True)
def as_before():
    yield
    names.count_parts(())


@pytest.mark.parametrize("seed", range(200))
def test_pods_and_nodes_count_as_the_core_charges(seed):
    rnd = random.Random(seed)
    if rnd.random() < 0.5:
        drawn = {(rnd.choice(RESOURCES[2:9]), rnd.choice(("", A100))): rnd.choice((1, 77, 500)) for _ in range(3)}
        names.count_parts((*key, milli) for key, milli in drawn.items())
    labels = rnd.choice(LABELS)
    offered = {resource: rnd.randint(1, 9) for resource in rnd.sample(RESOURCES, rnd.randint(1, 5))}
    if "nvidia.com/gpu" in offered:
        offered.pop("amd.com/gpu", None)  # a node with devices of two vendors has those of the first
    text = {"cpu": "64", "memory": "512Gi", "pods": "110"} | {name: str(many) for name, many in offered.items()}
    view = msgspec.convert({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": text}}, views.Node)
    node = convert.node(view)
    state = cluster([node], [queue("q")], gpu_parts=listed())
    wanted = {name: rnd.randint(1, many) for name, many in offered.items() if rnd.random() < 0.7}
    requests = {"cpu": "1"} | {name: str(many) for name, many in wanted.items()}
    container = {"name": "c", "resources": {"requests": requests, "limits": requests}}
    manifest = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"fairlead.dev/queue": "q"}},
        "spec": {"schedulerName": "fairlead", "nodeName": "n", "containers": [container]},
        "status": {"phase": "Running"},
    }
    made = convert.pod(msgspec.convert(manifest, views.Pod), "default")
    state.upsert_pod(made)
    tree = state.queues.tree
    charged = sum(state.queues.queues["q"].used.get(resource, 0) for resource in names.GPU_RESOURCES)
    assert tree.parts.on(0) == (offered_milli(node.allocatable, labels), charged)
    kind = tree.parts.varies
    counted = held_milli(made.spec, labels)
    if kind or all(parts_of(made.spec, labels)[at][2] == parts_of(made.spec)[at][2] for at in range(len(parts_of(made.spec)))):
        assert counted == charged


def test_a_fraction_of_a_part_is_a_part_of_it():
    half = pod("p", milli=500).spec
    assert held_milli(half) == 500
    assert held_milli(half, LABELS[3]) == 71
    assert held_milli(half, LABELS[5]) == 71


def test_what_is_less_than_a_gpu_is_listed():
    made = pod("p", gpus=0, extra={"nvidia.com/mig-1g.5gb": 2}).spec
    assert parts_of(made) == [("nvidia.com/mig-1g.5gb", 2, 142)]
    assert parts_of(pod("p").spec) == []
    assert parts_of(pod("p").spec, LABELS[5]) == [(GPU, 1, 142)]


def test_nodes_of_partitions_and_replicas_share_no_fractions():
    def shares(labels):
        own = {"fairlead.dev/gpu-sharing": "fairlead-agent", **labels}
        return convert.node(msgspec.convert({"metadata": {"name": "n", "labels": own}}, views.Node)).shares_gpus

    assert [shares(each) for each in LABELS] == [True, True, True, False, False, False, True, True]
