"""What an administrator chooses when the policies are printed: schedulers for all GPUs, classes of nodes that tenants may order."""

import pytest

from testbed import tenants
from testbed.kubelet import MERGE
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


def test_a_namespace_names_the_scheduler_of_pods_that_name_none(plane):
    tenants.namespace(plane, "labelled")
    tenants.namespace(plane, "unlabelled")
    label = {"metadata": {"labels": {"fairlead.dev/scheduler-name": "mine"}}}
    plane.request("PATCH", "/api/v1/namespaces/labelled", label, MERGE)
    with tenants.in_force(plane, namespace_defaults=True, require_scheduler=True, schedulers=["mine"]):
        sue = tenants.tenant(plane, "sue", "labelled")

        def scheduler(manifest, group, plural, *path, namespace="labelled"):
            assert sue.create(manifest) == ""
            spec = plane.request("GET", f"/{group}/namespaces/{namespace}/{plural}/{manifest['metadata']['name']}")["spec"]
            for field in path:
                spec = spec[field]
            return spec["schedulerName"]

        assert scheduler(pod("none", scheduler=None), "api/v1", "pods") == "mine"
        assert scheduler(pod("named", gpus=0, scheduler="other"), "api/v1", "pods") == "other"
        template = {"metadata": {}, "spec": {**pod("x", scheduler=None)["spec"], "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template}}
        assert scheduler(job, "apis/batch/v1", "jobs", "template", "spec") == "mine"
        cron = {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
        daily = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "daily"}, "spec": cron}
        assert scheduler(daily, "apis/batch/v1", "cronjobs", "jobTemplate", "spec", "template", "spec") == "mine"
        labels = {"app": "each"}
        each = {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x", gpus=0, scheduler=None)["spec"]},
        }
        per_node = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "each"}, "spec": each}
        assert scheduler(per_node, "apis/apps/v1", "daemonsets", "template", "spec") == "default-scheduler"
        tenants.clear(plane, "labelled")
        joe = tenants.tenant(plane, "joe", "unlabelled")
        assert "must set spec.schedulerName" in joe.create(pod("none", scheduler=None))
