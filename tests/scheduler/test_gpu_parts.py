"""Partitions and replicas in what people see: jobs, nodes, explanations, shares, metrics; all show the same parts."""

from io import StringIO

import msgspec
from rich.console import Console

from fairlead.cli.nodes import _table
from fairlead.cli.queue import jobs as listed_jobs
from fairlead.cli.snapshot import Snapshot
from fairlead.cluster import views
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.selectors import Requirement
from fairlead.scheduler.explanations import GpuRequest, explained
from fairlead.scheduler.external_metrics import backlog
from fairlead.scheduler.metrics_snapshot import take
from fairlead.scheduler.overview import jobs, nodes, queues
from tests.builders import GPU, pod, queue
from tests.core.test_gpu_parts import A100, SMALL, asks, offers, single, sliced
from tests.scheduler.test_overview import NOW, core, rows


def mixed():
    return offers("mixed", A100, {"fairlead.dev/pool": "slices"}, mig_1g_5gb=7, mig_1g_10gb=2)


def explanation(loop, name):
    task = next(task for task in loop.state.tasks.values() if task.pod.name == name)
    return explained(loop.state, [task], None, f"pod/{name}", NOW, None)


def test_jobs_show_what_they_hold_and_ask_for():
    loop = core(
        queue("q"),
        mixed(),
        single("single", 1),
        sliced("sliced", 8, 4),
        asks("mig", SMALL, 3, queue="q", at="mixed", started=1.0),
        asks("one", GPU, queue="q", at="single", started=1.0),
        asks("two", GPU, 2, queue="q", at="sliced", started=1.0),
        asks("waits", GPU, 7, queue="q"),
        asks("other", SMALL, 9, queue="q"),
    )
    found = {name: each.gpus for name, each in rows(loop).items()}
    assert found == {"mig": 0.426, "one": 0.142, "two": 0.5, "waits": 1.75, "other": 1.278}
    held, wanted = next((each.gpus, each.gpus_wanted) for each in jobs.others(loop.state, "elsewhere"))
    assert (round(held, 3), round(wanted, 3)) == (1.068, 3.028)


def test_explain_names_the_parts():
    loop = core(queue("q"), mixed(), sliced("sliced", 8, 4), asks("a", SMALL, 9, queue="q"), asks("b", GPU, 3, queue="q"))
    found = explanation(loop, "a")
    assert (found.gpus, found.gpu_parts) == (1.278, [GpuRequest(SMALL, 9, 0.142)])
    found = explanation(loop, "b")
    assert (found.gpus, found.gpu_parts) == (0.75, [GpuRequest(GPU, 3, 0.25)])
    loop = core(queue("q"), offers("n", A100, gpu=4), pod("c", queue="q"))
    assert (explanation(loop, "c").gpus, explanation(loop, "c").gpu_parts) == (1.0, [])


def test_nodes_show_parts():
    loop = core(queue("q"), mixed(), offers("whole", A100, gpu=2), asks("a", SMALL, 3, queue="q"), pod("b", queue="q"))
    lines = {line.name: line for line in nodes.lines(loop.state)}
    line = lines["mixed"]
    assert (line.gpus, line.gpus_used, line.state, line.gpu_free_milli) == (1.494, 0.426, "mixed", [])
    assert [(each.resource, each.part_milli, each.offered, each.used) for each in line.gpu_parts] == [
        ("nvidia.com/mig-1g.10gb", 250, 2, 0),
        (SMALL, 142, 7, 3),
    ]
    line = lines["whole"]
    assert (line.gpus, line.gpus_used, line.gpu_parts) == (2, 1.0, [])
    assert isinstance(line.gpus, int)
    console = Console(width=200, file=StringIO())
    console.print(_table(list(lines.values())))
    shown = console.file.getvalue()
    assert "0.426/1.494" in shown
    assert " 1/2 " in shown


def test_a_full_node_of_partitions_is_allocated():
    loop = core(queue("q"), offers("n", A100, mig_1g_5gb=2), asks("a", SMALL, 2, queue="q"))
    assert [line.state for line in nodes.lines(loop.state)] == ["allocated"]


def test_shares_are_of_gpus_where_there_are_partitions_only():
    loop = core(queue("q", quota=4), mixed(), asks("a", SMALL, 3, queue="q"), asks("b", SMALL, 3, ours=False, at="mixed"))
    found = queues.shares(loop.state)
    assert (found.resource, found.outside_queues[GPU]) == (GPU, 0.426)
    amounts = {each.resource: each.allocated for share in found.queues if share.name == "q" for each in share.resources}
    assert (amounts[GPU], amounts[SMALL]) == (0.426, 3.0)
    assert loop.state.queues.fair.offered(GPU) == 7 * 142 + 2 * 250 - 426


def test_metrics_count_parts():
    selected = NodePool("slices", (Requirement("fairlead.dev/pool", "In", ("slices",)),))
    loop = core(selected, queue("q"), mixed(), asks("a", SMALL, 3, queue="q"), asks("b", SMALL, 9, queue="q"))
    found = take(loop.state, NOW)
    mine = next(each for each in found.queues if each.name == "q")
    assert (mine.allocated[GPU], mine.gpus) == (0.426, 1.278)
    pool = next(each for each in found.pools if each.name == "slices")
    assert (round(pool.gpus, 3), round(pool.allocated, 3)) == (1.494, 0.426)
    assert backlog(loop, [loop.state.queues.queues["q"]], NOW).gpus == 1.278


def test_the_list_of_a_cluster_without_a_leader_shows_the_same():
    def view(name, resource, count, node):
        container = {"name": "c", "resources": {"requests": {resource: str(count)}, "limits": {resource: str(count)}}}
        spec = {"schedulerName": "fairlead", "containers": [container], "nodeName": node}
        metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {"fairlead.dev/queue": "q"}}
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, views.Pod)

    snapshot = Snapshot(0.0)
    labels = sliced("sliced", 8, 4).labels
    snapshot.nodes = [msgspec.convert({"metadata": {"name": "sliced", "labels": labels}}, views.Node)]
    snapshot.pods = [view("a", GPU, 3, "sliced"), view("b", SMALL, 2, "gone")]
    assert {job.name: job.gpus for job in listed_jobs(snapshot)} == {"a": 0.75, "b": 0.284}
