"""`queue` shows the present: the priority with which a job counts, and why it waits now, whatever was written before."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from fairlead.api import names
from fairlead.cli import nodes
from fairlead.cli.queue import Jobs, _table, age, jobs, with_age
from fairlead.cli.snapshot import Snapshot
from fairlead.cluster import views
from fairlead.scheduler.overview import jobs as overview
from fairlead.scheduler.overview import queues
from testbed import objects

NOW = 100.0


def view(kind, manifest):
    about = {"uid": f"uid-{manifest['metadata']['name']}", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:10Z"}
    return msgspec.convert({**manifest, "metadata": {**about, **manifest["metadata"]}}, kind)


def told(manifest, reason, message):
    """A pod of which the scheduler wrote that once."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return view(views.Pod, manifest | {"status": {"phase": "Pending", "conditions": [condition]}})


def snapshot(*pods, gpus=4, **more):
    found = Snapshot(NOW)
    found.pods = list(pods)
    found.nodes = [view(views.Node, objects.node("n", gpus=gpus))]
    found.queues = [view(views.Queue, objects.queue("q", limit=8))]
    for field, value in more.items():
        setattr(found, field, value)
    return found


def running(name, gpus):
    return view(views.Pod, objects.pod(name, queue="q", gpus=gpus, nodeName="n") | {"status": {"phase": "Running"}})


def test_a_reason_that_no_longer_holds_is_not_shown():
    old = "queue q would hold 12 of 2 nvidia.com/gpu"
    job = next(each for each in jobs(snapshot(told(objects.pod("p", queue="q", gpus=8), "LimitExceeded", old))))
    assert (job.reason.code, job.reason.message) == ("Resources", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    (job,) = jobs(snapshot(told(objects.pod("p", queue="q", gpus=1), "LimitExceeded", old)))
    assert job.reason is None, "it would start"
    (job,) = jobs(snapshot(told(objects.pod("p", queue="gone"), "Unschedulable", "0/9 nodes are available.")))
    assert job.reason.code == "UnknownQueue"


def test_numbers_are_those_of_now():
    written = "0/7 nodes are available: 7 Insufficient nvidia.com/gpu."
    found = jobs(snapshot(running("r", 4), told(objects.pod("p", queue="q"), "Unschedulable", written)))
    assert found[-1].reason.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_a_gang_that_would_start_without_its_optional_members_does_not_wait():
    group = view(views.PodGroup, objects.pod_group("g", 1, "q"))
    pods = [told(objects.pod(f"g-{i}", group="g", queue="q", gpus=3), "GangIncomplete", "old") for i in range(2)]
    (job,) = jobs(snapshot(*pods, groups=[group]))
    assert (job.state, job.reason) == ("Pending", None)
    pods[0].spec.node_name = "n"
    (job,) = jobs(snapshot(*pods, groups=[group]))
    assert job.reason.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "the rest of it waits"


@pytest.mark.parametrize("grouped", [False, True])
def test_a_job_whose_queue_was_deleted_is_of_the_queue_that_is_charged(grouped):
    """As `share` shows it, also where no leader answers."""
    pod = objects.pod("r", queue="gone", nodeName="n", **({"group": "g"} if grouped else {})) | {"status": {"phase": "Running"}}
    groups = [view(views.PodGroup, objects.pod_group("g", 1, "gone"))] if grouped else []
    shown = snapshot(view(views.Pod, pod), view(views.Pod, objects.pod("w", queue="gone")), groups=groups)
    runs, waits = jobs(shown)
    charged = {each.name: each.running for each in queues.shares(shown.state).queues if each.running}
    assert ({runs.queue: 1}, waits.queue) == (charged, "gone")


@pytest.mark.parametrize("code", ["WaitingForVictims", "Reservation", "Backoff", "DisruptionBudget", "InternalError"])
def test_what_only_the_scheduler_can_know_stays(code):
    (job,) = jobs(snapshot(told(objects.pod("p", queue="q"), code, "as it said")))
    assert (job.reason.code, job.reason.message) == (code, "as it said")


def test_gangs_of_one_pending_class_are_told_of_by_their_own_names():
    pods, groups = [], []
    for name in ("one", "two"):
        groups.append(view(views.PodGroup, objects.pod_group(name, 2, "q")))
        pods += [told(objects.pod(f"{name}-{i}", group=name, queue="q", gpus=3), "GangIncomplete", "old") for i in range(2)]
    found = {job.name: job.reason.message for job in jobs(snapshot(*pods, groups=groups))}
    assert {name: message.split(" needs ")[0] for name, message in found.items()} == {
        name: f"gang ns/{name}" for name in ("one", "two")
    }


@pytest.mark.parametrize("where", ["pod", "group"])
def test_the_priority_is_that_of_its_class_wherever_that_is_named(where):
    group = objects.pod_group("g", 2, "q")
    labels = {"fairlead.dev/service-class": "gold"} if where == "pod" else {}
    if where == "group":
        group["spec"]["serviceClass"] = "gold"
    pods = [view(views.Pod, objects.pod(f"g-{i}", group="g", queue="q", gpus=3, labels=labels)) for i in range(2)]
    gold = {"metadata": {"name": "gold"}, "spec": {"priorityClassName": "high"}}
    more = {
        "classes": [view(views.ServiceClass, gold)],
        "priorities": [view(views.PriorityClass, {"metadata": {"name": "high"}, "value": 1000})],
        "groups": [view(views.PodGroup, group)],
    }
    shown = snapshot(*pods, **more)
    (job,) = jobs(shown)
    assert job.priority == 1000
    assert {task.pod.priority for task in shown.state.tasks.values()} == {1000}
    assert not any(task.pod.node or task.row >= 0 for task in shown.state.tasks.values()), "nothing is decided on the snapshot"


def test_a_job_is_listed_with_all_fields_and_how_long_it_has_run_or_waited():
    started = {"phase": "Running", "startTime": "1970-01-01T00:01:00Z"}
    runs = view(views.Pod, objects.pod("runs", queue="q", nodeName="n") | {"status": started})
    found = jobs(snapshot(runs, view(views.Pod, objects.pod("waits", queue="q", gpus=8))))
    assert [(job.name, age(job, NOW)) for job in found] == [("runs", 40.0), ("waits", 90.0)]
    assert age(found[0], 50.0) == 0.0, "a clock that is behind"
    listed = msgspec.to_builtins(Jobs([with_age(job, NOW) for job in found]))["jobs"]
    assert [(each["name"], each["started_at"], each["seconds"]) for each in listed] == [
        ("runs", 60.0, 40.0),
        ("waits", None, 90.0),
    ]
    keys = (
        "namespace name kind queue state pods running gpus priority submitted_at started_at seconds nodes reason expected_start"
    )
    assert set(listed[0]) == set(listed[1]) == {*keys.split(), "user", "earliest_start", "latest_start", "spares"}


def drawing(table):
    console = Console(width=200, file=StringIO())
    console.print(table)
    return console.file.getvalue()


def test_places_that_are_kept_for_a_job_are_listed_as_the_leader_lists_them():
    group = objects.pod_group("g", 1, "q")
    group["spec"]["topology"] = {"required": "example.com/rack", "spares": 1}
    group["status"] = {"phase": "Running", "scheduled": 1, "spares": {"wanted": 1, "kept": 1, "nodes": ["n"]}}
    pool = {"metadata": {"name": "p"}, "spec": {"topologyLevels": [{"name": "rack", "label": "example.com/rack"}]}}
    runs = objects.pod("g-0", group="g", queue="q", gpus=2, nodeName="n") | {"status": {"phase": "Running"}}
    found = snapshot(view(views.Pod, runs), groups=[view(views.PodGroup, group)], pools=[view(views.NodePool, pool)])
    found.nodes = [view(views.Node, objects.node(name, gpus=4, labels={"example.com/rack": "r"})) for name in "nm"]
    (job,) = jobs(found)
    rows = overview.Rows(found.state, lambda _: None)
    assert [each.spares for each in rows.of(overview.keys(found.state))] == [job.spares] == [["n"]]
    assert "n, kept: n" in drawing(_table([job], NOW, starts=False))
    lines = nodes.lines(found)
    assert {each.name: (each.gpus_used, each.kept_gpus, each.pods) for each in lines} == {"n": (4.0, 2.0, 1), "m": (0.0, 0.0, 0)}
    assert "KEPT" in drawing(nodes._table(lines))
    assert "KEPT" not in drawing(nodes._table([each for each in lines if not each.kept_gpus]))
    domains = nodes.domains_of(lines)
    assert [(each.name, each.gpus_used, each.kept_gpus) for each in domains.domains] == [("r", 4.0, 2.0)]
    assert "KEPT" in drawing(nodes._domain_table(domains))
    assert "KEPT" not in drawing(nodes._domain_table(nodes.domains_of([each for each in lines if not each.kept_gpus])))


def test_what_pools_share_is_listed_by_pool_as_the_leader_lists_it():
    spec = {"nodeSelector": {"matchLabels": {"disk": "a"}}, "sharedResources": {"storage": "10G", "uplink": 2}}
    pools = [{"metadata": {"name": "p"}, "spec": spec}, {"metadata": {"name": "all"}, "spec": {"sharedResources": {"uplink": 1}}}]
    taken = {names.SHARED_RESOURCES_ANNOTATION: "storage=4G,uplink=2"}
    runs = objects.pod("runs", queue="q", gpus=1, nodeName="n") | {"status": {"phase": "Running"}}
    runs["metadata"]["annotations"] = taken
    found = snapshot(view(views.Pod, runs), pools=[view(views.NodePool, pool) for pool in pools])
    labels = {"n": {"disk": "a"}, "m": {"disk": "a"}, "o": {}}
    found.nodes = [view(views.Node, objects.node(name, gpus=4, labels=each)) for name, each in labels.items()]
    lines = nodes.lines(found)
    assert {each.name: [(one.pool, one.name, one.used) for one in each.shared] for each in lines} == {
        "n": [("all", "uplink", 2), ("p", "storage", 4 * 10**9), ("p", "uplink", 2)],
        "m": [("all", "uplink", 2), ("p", "storage", 4 * 10**9), ("p", "uplink", 2)],
        "o": [("all", "uplink", 2)],
    }
    shared = nodes.shared_of(lines)
    assert [msgspec.structs.astuple(each) for each in shared.shared] == [
        ("all", "uplink", 3, 1, 2, 0),
        ("p", "storage", 2, 10 * 10**9, 4 * 10**9, 6 * 10**9),
        ("p", "uplink", 2, 2, 2, 0),
    ]
    assert [each.split() for each in drawing(nodes._shared_table(shared)).splitlines()] == [
        ["POOL", "RESOURCE", "NODES", "DECLARED", "TAKEN", "FREE"],
        ["all", "uplink", "3", "1", "2", "0"],
        ["p", "storage", "2", "10G", "4G", "6G"],
        ["p", "uplink", "2", "2", "2", "0"],
    ]
