"""What has a place stays what it was admitted as: labels, annotations and specs cannot be changed by its tenant."""

import pytest

from testbed.objects import ai_job, pod, pod_group, queue

pytestmark = pytest.mark.e2e

LABELS = ("queue", "service-class", "pod-group", "elastic-replica")


def labelled(**labels):
    return {"metadata": {"labels": {f"fairlead.dev/{name.replace('_', '-')}": value for name, value in labels.items()}}}


def annotated(**annotations):
    return {"metadata": {"annotations": {f"fairlead.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}}}


def phase(plane, plural, name, phase):
    """As the scheduler or the operator writes it."""
    path = f"/apis/fairlead.dev/v1alpha1/namespaces/mal/{plural}/{name}/status"
    plane.request("PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json")


def test_a_placed_pod_keeps_what_it_was_admitted_with(plane, mallory):
    given = {"fairlead.dev/gpu-fraction": "0.9", "fairlead.dev/time-limit": "1h", "fairlead.dev/expected-duration": "30m"}
    labels = {"fairlead.dev/queue": "mine", "fairlead.dev/pod-group": "g1", "fairlead.dev/service-class": "batch"}
    assert mallory.create(pod("held", gpus=0, annotations=given, labels=labels)) == ""
    assert mallory.patch("pod", "held", labelled(queue="other")) == "", "it waits, and may change its queue"
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "held"}, "target": target}
    plane.request("POST", "/api/v1/namespaces/mal/pods/held/binding", binding)
    for name in LABELS:
        for value in ("true", None):
            if value or name != "elastic-replica":  # there is none to take away
                refused = mallory.patch("pod", "held", labelled(**{name: value}))
                assert f"fairlead.dev/{name} cannot be changed" in refused, (name, value)
    for name, text in (("gpu_fraction", "0.001"), ("gpu_fraction", None), ("expected_duration", "1m")):
        assert "cannot be changed" in mallory.patch("pod", "held", annotated(**{name: text})), name
    for text in ("1000h", "61m", None):
        assert "can only become shorter" in mallory.patch("pod", "held", annotated(time_limit=text))
    assert mallory.patch("pod", "held", annotated(time_limit="59m59s")) == ""
    assert mallory.patch("pod", "held", labelled(colour="red")) == ""


@pytest.mark.parametrize(("plural", "make"), [("podgroups", pod_group), ("aijobs", ai_job)])
def test_a_started_job_keeps_its_queue_class_and_limit(plane, mallory, plural, make):
    job = make("held", 2) if make is pod_group else make("held", workers=2)
    job["spec"] |= {"queue": "mine", "timeLimit": "1h"}
    assert mallory.create(job) == ""

    def told(**spec):
        return mallory.patch(plural, "held", {"spec": spec})

    assert told(timeLimit="2h") == "", "it waits"
    phase(plane, plural, "held", "Running")
    assert "spec.queue cannot be changed" in told(queue="other")
    assert "spec.queue cannot be changed" in told(queue=None)
    assert "spec.serviceClass cannot be changed" in told(serviceClass="gold")
    for text in ("1000h", "121m", None):
        assert "spec.timeLimit can only become shorter" in told(timeLimit=text)
    assert told(timeLimit="90m") == ""
    if plural == "podgroups":
        assert "spec.minMember cannot be changed" in told(minMember=1)
    phase(plane, plural, "held", "Suspended")
    assert told(queue="other", timeLimit="3h") == "", "suspended work is admitted anew"


def test_an_update_is_admitted_as_a_creation_is(cluster, mallory):
    closed = queue("closed")
    closed["spec"]["namespaceSelector"] = {"matchLabels": {"team": "vision"}}
    gold = queue("gold")
    gold["spec"]["serviceClasses"] = ["batch"]
    cluster.create(closed, gold)
    cluster.until(lambda: "may not use queue closed" in mallory.create(pod("refused", queue="closed"), "--dry-run=server"))
    for kind, manifest in (("pod", pod("moves")), ("podgroup", pod_group("moves", 2)), ("aijob", ai_job("moves"))):
        assert mallory.create(manifest) == ""
        change = labelled(queue="closed") if kind == "pod" else {"spec": {"queue": "closed"}}
        assert "namespace mal may not use queue closed" in mallory.patch(kind, "moves", change)
    refused = mallory.create(pod("classless", queue="gold"))
    assert 'queue gold does not admit ServiceClass ""' in refused
    for member in ("fairlead.dev/pod-group", "jobset.sigs.k8s.io/jobset-name"):
        assert mallory.create(pod("member", queue="gold", labels={member: "g"}), "--dry-run=server") == "", "its gang may say"
    assert 'ServiceClass "best"' in mallory.create(pod("best", queue="gold", labels={"fairlead.dev/service-class": "best"}))
    batch = pod("classy", queue="gold", labels={"fairlead.dev/service-class": "batch"})
    assert mallory.create(batch) == ""
    # A queue that closes later leaves alone what it admitted.
    gold["spec"]["namespaceSelector"] = {"matchLabels": {"team": "vision"}}
    path = "/apis/fairlead.dev/v1alpha1/queues/gold"
    cluster.plane.request("PATCH", path, {"spec": gold["spec"]}, "application/merge-patch+json")
    cluster.until(
        lambda: "may not use queue gold" in mallory.create({**batch, "metadata": {**batch["metadata"], "name": "late"}})
    )
    assert mallory.patch("pod", "classy", labelled(colour="red")) == ""
