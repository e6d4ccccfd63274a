"""Queues on the real API server: what is lent comes back, who may use what, and what the CRDs refuse."""

import urllib.error
from datetime import UTC, datetime, timedelta

import pytest

from testbed.objects import node, pod, priority_class, queue, reservation, service_class

pytestmark = pytest.mark.e2e


def of(cluster, prefix):
    return sorted(name for name in cluster.placed() if name.startswith(prefix))


def test_what_is_lent_is_taken_back_and_then_nothing_moves(cluster):
    cluster.create(
        node("n", gpus=8),
        service_class("held", preemption={"mode": "Never"}),
        queue("owner", quota=6),
        queue("guest", quota=2),
        *(pod(f"guest-{i}", queue="guest") for i in range(7)),
        pod("kept", queue="guest", labels={"fairlead.dev/service-class": "held"}),
    )
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(8)
    cluster.create(*(pod(f"owner-{i}", queue="owner") for i in range(8)))
    cluster.until(lambda: len(of(cluster, "owner")) == 6)
    assert len(of(cluster, "guest")) == 1
    assert of(cluster, "kept") == ["kept"], "it never falls"
    cluster.until(lambda: cluster.condition("owner-7") or cluster.condition("owner-6"))
    assert not cluster.over_allocated()


def test_queues_and_classes_say_who_may_use_them(cluster):
    closed = queue("closed", quota=4)
    closed["spec"]["namespaceSelector"] = {"matchLabels": {"team": "vision"}}
    cluster.create(node("n", gpus=8), closed, queue("default"), pod("stranger", queue="closed"), pod("plain"))
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: "plain" in cluster.placed())
    cluster.until(lambda: cluster.condition("stranger"))
    assert cluster.condition("stranger")[0] == "NotAllowed"
    assert "may not use queue 'closed'" in cluster.condition("stranger")[1]


@pytest.mark.parametrize(
    "spec",
    [
        {"preemption": {"mode": "Kill"}},
        {"preemption": {"minRuntime": "soon"}},
        {"timeSlicing": {"levels": []}},
        {"timeSlicing": {"levels": [0]}},
        {"timeSlicing": {}},
    ],
)
def test_the_crd_refuses_what_cannot_be_meant(cluster, spec):
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(service_class("bad", **spec))
    refused.value.close()
    assert refused.value.code == 422


def test_a_queues_status_has_what_it_holds_and_its_fair_share(cluster):
    cluster.create(node("n", gpus=4), queue("a", quota=1), queue("b"), *(pod(f"a-{i}", queue="a") for i in range(6)))
    cluster.create(*(pod(f"b-{i}", queue="b", gpus=2) for i in range(3)))
    cluster.scheduler("--no-leader-elect")

    def status(name):
        return (cluster.get(f"/apis/fairlead.dev/v1alpha1/queues/{name}") or {}).get("status") or {}

    def told():
        a, b = status("a"), status("b")
        return (a, b) if a.get("pending") and b.get("pending") else None

    cluster.all_placed(3)
    a, b = cluster.until(told)
    held = {name: int(each["allocated"]["nvidia.com/gpu"]) for name, each in (("a", a), ("b", b))}
    assert sum(held.values()) == 4
    assert (a["pending"], b["pending"]) == (6 - held["a"], 3 - held["b"] // 2)
    assert sum(int(each["fairShare"]["nvidia.com/gpu"]) for each in (a, b)) == 4
    assert "cpu" not in a["fairShare"], "there is enough of it"


def later(**span):
    return (datetime.now(UTC) + timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_nodes_are_reserved_for_maintenance_and_for_a_queue(cluster):
    rack = {"matchLabels": {"rack": "1"}}
    cluster.create(
        node("a", gpus=4, labels={"rack": "1"}),
        node("b", gpus=2),
        queue("school"),
        queue("default"),
        reservation("upgrade", later(hours=2), later(hours=3), nodeSelector=rack),
        reservation(
            "course", later(hours=-1), later(hours=1), purpose="Capacity", queue="school", resources={"nvidia.com/gpu": 2}
        ),
        service_class("short", timeLimit={"default": "1h"}),
        pod("endless", gpus=4),
        pod("brief", gpus=1, labels={"fairlead.dev/service-class": "short"}, queue="school"),
        pod("lesson", gpus=1, queue="school"),
    )
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: set(cluster.placed()) == {"brief", "lesson"})
    cluster.until(lambda: cluster.condition("endless"))
    assert cluster.condition("endless")[0] == "Reservation"

    def stands(name):
        status = (cluster.get(f"/apis/fairlead.dev/v1alpha1/reservations/{name}") or {}).get("status") or {}
        return status.get("phase"), status.get("nodes")

    cluster.until(lambda: stands("upgrade") == ("Pending", ["a"]))
    cluster.until(lambda: stands("course") == ("Active", ["a"]))
    cluster.delete("/apis/fairlead.dev/v1alpha1/reservations/upgrade")
    cluster.delete("/apis/fairlead.dev/v1alpha1/reservations/course")
    for name in ("brief", "lesson"):
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    cluster.until(lambda: "endless" in cluster.placed())


@pytest.mark.parametrize(
    "spec",
    [
        {"start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"},
        {"start": "tomorrow", "end": "2030-01-01T00:00:00Z"},
        {"purpose": "Capacity"},
        {"queue": "q"},
        {"purpose": "Holiday"},
    ],
)
def test_the_crd_refuses_reservations_that_cannot_be_meant(cluster, spec):
    given = {"start": "2030-01-01T00:00:00Z", "end": "2030-01-02T00:00:00Z", **spec}
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(reservation("bad", given.pop("start"), given.pop("end"), **given))
    refused.value.close()
    assert refused.value.code == 422


def test_a_class_gives_its_priority_and_reports_jobs_that_waited_too_long(cluster):
    named = priority_class("urgent", 1000)
    label = {"fairlead.dev/service-class": "urgent"}
    cluster.create(
        node("n", gpus=1),
        named,
        service_class("urgent", priorityClassName="urgent", maxWait="2s", preemption={"mode": "Never"}),
        pod("plain"),
    )
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(1)
    cluster.create(pod("first", labels=label))
    cluster.until(lambda: cluster.placed() == {"first": "n"})
    cluster.create(pod("second", labels=label))

    def told():
        conditions = cluster.pods()["second"]["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "fairlead.dev/MaxWaitExceeded"), None)

    assert "longer than the 2 s" in cluster.until(told)["message"]
    cluster.until(lambda: "MaxWaitExceeded" in {reason for reason, _ in cluster.events("second")})
