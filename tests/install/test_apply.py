"""What is said of an installation that does not run, and of a cluster that does not suit."""

import pytest

from fairlead.cluster.times import timestamp
from fairlead.install.apply import obstacles, rolled_out
from fairlead.install.preflight import of_leases, of_version

NOW = 1.8e9


def deployment(**status):
    return {"metadata": {"name": "fairlead-scheduler", "generation": 2}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("status", "runs"),
    [
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, True),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, False),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}, False),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "readyReplicas": 1}, False),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}, False),
        ({}, False),
    ],
)
def test_a_deployment_runs_once_its_leader_does(status, runs):
    assert rolled_out(deployment(**status)) is runs


def test_why_it_does_not_run_is_what_its_pods_report():
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    pods = [
        {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"state": state}]}},
        {
            "metadata": {"name": "b"},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no CPU"}]
            },
        },
        {"metadata": {"name": "c"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    ]
    assert list(obstacles(deployment(conditions=[condition], readyReplicas=0), pods)) == [
        "fairlead-scheduler: 0 of its 2 pods are ready; one has to be",
        "fairlead-scheduler: ProgressDeadlineExceeded: timed out",
        "pod a: ImagePullBackOff: not found",
        "pod b: Unschedulable: no CPU",
    ]
    assert "no pod exists" in list(obstacles(deployment(), []))[1]


@pytest.mark.parametrize(
    ("minor", "result"),
    [("36", "passed"), ("36+", "passed"), ("40", "passed"), ("35", "failed"), ("9", "failed"), ("", "failed")],
)
def test_old_api_servers_are_refused(minor, result):
    assert of_version({"major": "1", "minor": minor}).result == result


def lease(name, namespace="kube-system", holder="h", age=0.0):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": timestamp(NOW - age)}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_a_scheduler_of_ours_that_was_started_by_hand_has_to_end_first():
    [check] = of_leases([lease("fairlead-scheduler")], NOW, deployed=False)
    assert (check.result, "held by h" in check.message) == ("failed", True)
    assert not list(of_leases([lease("fairlead-scheduler")], NOW, deployed=True))
    assert not list(of_leases([lease("fairlead-scheduler", age=60)], NOW, deployed=False))
    assert not list(of_leases([lease("fairlead-scheduler", holder="")], NOW, deployed=False))


def test_other_schedulers_are_noted_once():
    found = [lease("volcano"), lease("vc-scheduler"), lease("c1f6bfd2.x", "kueue-system"), lease("kube-scheduler")]
    assert [(each.result, each.message.split()[0]) for each in of_leases(found, NOW, deployed=True)] == [
        ("note", "Volcano"),
        ("note", "Kueue"),
    ]
