"""Workload `racks` of `fairlead bench topology`: gangs that must each be in one rack, as both schedulers understand it.

Fairlead reads a PodGroup and a NodePool of its own; kube-scheduler reads the PodGroup of `scheduling.k8s.io/v1alpha2`, an alpha
API that feature gates open. Nodes, pods and gangs are the same. After a run the racks of every gang are read back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fairlead.api import names
from testbed import objects

RACKS = 50
LABEL = "example.com/rack"
GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
SERVER_FLAGS = (f"--feature-gates={GATES}", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
SCHEDULER_FLAGS = (f"--feature-gates={GATES}",)

_CPU = "32"  # of a node; each pod asks for one


def node(number: int, nodes: int) -> dict[str, Any]:
    """A node in one of 50 racks, neighbours by number in the same one."""
    return objects.node(f"node-{number:05d}", gpus=0, cpu=_CPU, labels={LABEL: f"rack-{number * RACKS // nodes:02d}"})


def before(scheduler: str) -> list[dict[str, Any]]:
    """What a scheduler must know of the network beside the labels of nodes."""
    if scheduler != names.SCHEDULER_NAME:
        return []
    spec = {"topologyLevels": [{"name": "rack", "label": LABEL}]}
    return [{"apiVersion": names.API_VERSION, "kind": "NodePool", "metadata": {"name": "all"}, "spec": spec}]


def group(name: str, members: int, scheduler: str) -> dict[str, Any]:
    """A gang whose members must all be in one rack."""
    if scheduler == names.SCHEDULER_NAME:
        made = objects.pod_group(name, members)
        made["spec"]["topology"] = {"required": "rack"}
        return made
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": members}},
            "schedulingConstraints": {"topology": [{"key": LABEL}]},
        },
    }


def pod(number: int, scheduler: str, gang: str) -> dict[str, Any]:
    """A member of a gang, of one CPU."""
    name = f"pod-{number:06d}"
    if scheduler == names.SCHEDULER_NAME:
        return objects.pod(name, scheduler=scheduler, gpus=0, group=gang)
    return objects.pod(name, scheduler=scheduler, gpus=0, schedulingGroup={"podGroupName": gang})


def problems(pods: Iterable[dict[str, Any]], gang: int, nodes: int) -> list[str]:
    """Gangs that are not in one rack, by where the API server says that pods are, and by nothing that a scheduler wrote."""
    racks: dict[int, set[int]] = defaultdict(set)
    for each in pods:
        number, node_number = int(each["metadata"]["name"][4:]), int(each["spec"]["nodeName"][5:])
        racks[number // gang].add(node_number * RACKS // nodes)
    return [f"gang {number} is in racks {sorted(found)}" for number, found in sorted(racks.items()) if len(found) != 1]
