"""Partitions and replicas in the history and in money: a job pays for its part, and a full node is paid for in full."""

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.observability.ledger import ledger
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.node_intervals import NodeView
from fairlead.operator.accounting.observations import NodeObserved, PodObserved
from tests.operator.observed import pod
from tests.operator.test_node_intervals import pool, put_down

A100 = "NVIDIA-A100-SXM4-40GB"


def node(name, at, labels=None, **capacity):
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"model": "h100", **(labels or {})}}
    amounts = {f"nvidia.com/{key.replace('mig_', 'mig-').replace('_', '.')}": value for key, value in capacity.items()}
    return NodeObserved(
        name, msgspec.convert({"metadata": metadata, "status": {"capacity": {"cpu": "64", **amounts}}}, NodeView), at
    )


def asks(name, resource="nvidia.com/gpu", count=1, **more):
    """A pod as observed, with another resource."""
    document = msgspec.to_builtins(pod(name, **more).view)
    document["spec"]["containers"][0]["resources"]["requests"] = {resource: str(count), "cpu": "2"}
    return PodObserved(f"vision/{name}", msgspec.convert(document, views.Pod))


def gpus(history):
    stays, runs = history.held(0.0, 1e9)
    return {stay.node: stay.gpus for stay in stays}, {run.name: run.gpus for run, _ in runs}


@pytest.mark.parametrize(
    ("offers", "resource", "count", "part", "whole"),
    [
        ({"labels": {"nvidia.com/gpu.product": A100}, "mig_1g_5gb": "7"}, "nvidia.com/mig-1g.5gb", 2, 0.284, 0.994),
        ({"labels": {"nvidia.com/gpu.product": f"{A100}-MIG-3g.20gb"}, "gpu": "2"}, "nvidia.com/gpu", 1, 0.5, 1.0),
        (
            {"labels": {"nvidia.com/gpu.product": "L4-SHARED", "nvidia.com/gpu.replicas": "4"}, "gpu": "8"},
            "nvidia.com/gpu",
            3,
            0.75,
            2.0,
        ),
        ({"gpu": "8"}, "nvidia.com/gpu", 1, 1.0, 8.0),
    ],
)
def test_runs_and_stays_are_recorded_in_parts(history, offers, resource, count, part, whole):
    accounting = Accounting(history)
    put_down(accounting, node("n", 1.0, **offers), now=1.0)
    put_down(accounting, asks("p", resource, count, node="n", phase="Running"), now=2.0)
    assert gpus(history) == ({"n": whole}, {"p": part})


def test_a_run_is_corrected_when_its_nodes_labels_are_observed_late(history):
    accounting = Accounting(history)
    put_down(accounting, asks("p", node="n"), now=1.0)
    assert gpus(history)[1] == {"p": 1.0}
    shared = {"nvidia.com/gpu.product": "L4-SHARED", "nvidia.com/gpu.replicas": "4"}
    put_down(accounting, node("n", 2.0, shared, gpu="8"), now=2.0)
    put_down(accounting, asks("p", node="n", phase="Running"), now=3.0)
    assert gpus(history)[1] == {"p": 0.25}
    put_down(accounting, NodeObserved("n", None, 4.0), now=4.0)
    put_down(accounting, asks("p", node="n", phase="Running"), now=5.0)
    assert gpus(history)[1] == {"p": 0.25}, "the node is gone: what was known of it stays"


def test_pods_observed_before_their_nodes_in_the_first_batch_are_counted_by_them(history):
    accounting = Accounting(history)
    shared = {"nvidia.com/gpu.product": "L4-SHARED", "nvidia.com/gpu.replicas": "4"}
    put_down(accounting, asks("p", node="n", phase="Running"), node("n", 2.0, shared, gpu="8"), now=2.0)
    assert gpus(history) == ({"n": 2.0}, {"p": 0.25})


def test_a_full_node_of_unlike_partitions_is_paid_for_in_full(history):
    """4g beside 3g is more than a GPU by the larger of compute and memory, and exactly one price."""
    accounting = Accounting(history)
    put_down(accounting, pool("h100", 0.0, 10.0), now=0.0)
    put_down(accounting, node("n", 0.0, {"nvidia.com/gpu.product": A100}, mig_4g_20gb="1", mig_3g_20gb="1"), now=0.0)
    accounting.close_others()
    put_down(
        accounting,
        asks("four", "nvidia.com/mig-4g.20gb", node="n", phase="Running"),
        asks("three", "nvidia.com/mig-3g.20gb", node="n", phase="Running"),
        now=0.0,
    )
    put_down(
        accounting,
        NodeObserved("n", None, 3600.0),
        PodObserved("vision/four", None),
        PodObserved("vision/three", None),
        now=3600.0,
    )
    stays, runs = history.held(0.0, 3600.0)
    found = ledger(stays, [run for run, _ in runs], 0.0, 3600.0, lambda run: run.name, 3600.0)
    assert {line.name: line.cost["USD"] for line in found.lines} == {
        "four": pytest.approx(10 * 571 / 1071, abs=1e-6),
        "three": pytest.approx(10 * 500 / 1071, abs=1e-6),
    }
    assert sum(line.cost["USD"] for line in found.lines) == pytest.approx(10)
    assert (found.nodes.cost, found.idle.gpu_hours, found.balance) == ({"USD": 10.0}, 0.0, {"USD": 0.0})
