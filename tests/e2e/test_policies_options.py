"""What an administrator chooses when the policies are printed: schedulers for all GPUs, classes of nodes that tenants may order."""

import pytest

from testbed import tenants
from testbed.objects import pod, pod_group

pytestmark = pytest.mark.e2e


def test_schedulers_are_required_and_classes_allowed(plane):
    tenants.namespace(plane, "strict")
    with tenants.in_force(plane, provisioning_classes=["small"], require_scheduler=True, schedulers=["fairlead", "mine"]):
        sue = tenants.tenant(plane, "sue", "strict")
        refused = sue.create(pod("other", scheduler="default-scheduler"))
        assert "must set spec.schedulerName to one of fairlead, mine" in refused
        assert sue.create(pod("ours")) == ""
        assert sue.create(pod("no-gpus", gpus=0, scheduler="default-scheduler")) == ""
        assert "system-*" in sue.create(pod("critical", scheduler="mine", priorityClassName="system-node-critical"))
        group = pod_group("orders", 2)
        group["metadata"]["annotations"] = {"fairlead.dev/provisioning-class": "small"}
        assert sue.create(group) == ""
        tenants.clear(plane, "strict")
