"""What an ordinary tenant is in these tests: `edit` in a namespace, AIJobs and PodGroups, the policies in force."""

import pytest

from testbed.objects import pod, pod_group

pytestmark = pytest.mark.e2e


def test_a_tenant_writes_in_its_namespace_and_nowhere_else(mallory):
    forged = pod("forged", annotations={"fairlead.dev/user": "ann"})
    assert mallory.create(forged) == ""
    assert mallory.get("pod", "forged")["metadata"]["annotations"]["fairlead.dev/user"] == "mallory"
    assert "cannot be changed" in mallory.patch("pod", "forged", {"metadata": {"annotations": {"fairlead.dev/user": "ann"}}})
    assert mallory.create(pod_group("gang", 2)) == ""
    status = {"status": {"phase": "Running"}}
    assert "podgroups/status" in mallory.patch("podgroup", "gang", status, "--subresource", "status")
    assert "forbidden" in mallory.create(pod("elsewhere"), "--namespace", "default")
