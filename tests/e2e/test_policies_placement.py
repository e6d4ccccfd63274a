"""GPUs are given out by schedulers, nodes are ordered from an administrator's list, the system's names are the system's."""

import pytest

from testbed import tenants
from testbed.objects import ai_job, job, pod, pod_group

pytestmark = pytest.mark.e2e


def test_gpu_pods_do_not_name_their_node(mallory):
    for refused in (
        pod("takes", nodeName="n1", scheduler="default-scheduler"),
        pod("takes", nodeName="n1", scheduler="nobody"),
        pod("takes", gpus=0, nodeName="n1", annotations={"fairlead.dev/gpu-fraction": "0.5"}),
        pod("takes", gpus=0, nodeName="n1", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
    ):
        assert "may not set spec.nodeName" in mallory.create(refused)
    early = pod("early", gpus=0, nodeName="n1")
    limits = {"limits": {"nvidia.com/mig-1g.5gb": "1"}}
    early["spec"]["initContainers"] = [{"name": "first", "image": "x", "resources": limits}]
    assert "may not set spec.nodeName" in mallory.create(early)
    made = job("takes")
    made["spec"]["template"]["spec"]["nodeName"] = "n1"
    assert "may not set spec.nodeName" in mallory.create(made), "the template says it before its pods do"
    assert mallory.create(pod("small", gpus=0, nodeName="n1")) == "", "no GPUs"
    assert mallory.create(pod("asks", nodeSelector={"kubernetes.io/hostname": "n1"})) == ""


def test_controllers_and_operators_are_no_way_round(plane, mallory):
    """What they make is what a tenant's template says."""
    trainer = tenants.tenant(plane, "trainer", "mal")
    assert "may not set spec.nodeName" in trainer.create(pod("made", nodeName="n1"))
    controller = tenants.tenant(plane, "system:kube-controller-manager", "mal")
    assert "may not set spec.nodeName" in controller.create(pod("made", nodeName="n1"))


def test_the_systems_priorities_are_not_for_tenants(mallory):
    for scheduler in ("fairlead", "fairlead-kubernetes"):
        refused = mallory.create(pod("first", gpus=0, scheduler=scheduler, priorityClassName="system-node-critical"))
        assert "system-* are the cluster's own" in refused
    add_on = pod("add-on", gpus=0, scheduler="default-scheduler", priorityClassName="system-cluster-critical")
    assert mallory.create(add_on) == "", "other schedulers' pods are theirs"


def test_tenants_order_no_nodes_unless_allowed(mallory):
    ordered = {"fairlead.dev/provisioning-class": "big-machines"}
    for manifest in (pod_group("orders", 2), ai_job("orders"), job("orders")):
        plain = {**manifest, "metadata": {"name": "orders"}}
        assert mallory.create(plain) == ""
        assert "big-machines is not a class that tenants may name: none" in mallory.create(
            {**manifest, "metadata": {"name": "orders-2", "annotations": ordered}}
        )
        refused = mallory.patch(manifest["kind"].lower(), "orders", {"metadata": {"annotations": ordered}})
        assert "is not a class that tenants may name" in refused


def test_nothing_of_tenants_lies_in_the_system_namespaces(plane, mallory):
    guest = tenants.tenant(plane, "guest", "kube-system")
    for manifest in (ai_job("inside"), pod_group("inside", 1)):
        assert "not for namespace kube-system" in guest.create(manifest)
