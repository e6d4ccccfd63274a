"""Nodes in the history: an interval ends where devices, pool or price change, and no hour is counted twice or lost."""

import msgspec
import pytest

from fairlead.api.kinds.node_pool import NodePoolSpec
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.node_intervals import NodeView
from fairlead.operator.accounting.observations import NodeObserved, PoolObserved


def node(name, at, *, gpus="8", labels=None, uid=""):
    metadata = {"name": name, "uid": uid or f"uid-{name}", "labels": labels or {"model": "h100"}}
    view = msgspec.convert({"metadata": metadata, "status": {"capacity": {"nvidia.com/gpu": gpus, "cpu": "64"}}}, NodeView)
    return NodeObserved(name, view, at)


def pool(name, at, price=None, *, model="h100", kind="OnDemand"):
    spec = {"nodeSelector": {"matchLabels": {"model": model}}}
    if price is not None:
        spec["price"] = {"perNodeHour": price, "kind": kind}
    return PoolObserved(name, msgspec.convert(spec, NodePoolSpec), at)


def intervals(history):
    return [
        (each.node, each.pool, each.gpus, each.price, each.started_at, each.ended_at)
        for each in sorted(history.held(0.0, 1e9)[0], key=lambda stay: (stay.started_at, stay.node))
    ]


def put_down(accounting, *observed, now):
    accounting.apply(observed, now)
    accounting.write(now)


def test_a_price_a_device_and_the_end_each_begin_or_end_a_stay(history):
    accounting = Accounting(history)
    put_down(accounting, node("a", 10.0), now=10.0)
    put_down(accounting, pool("h100", 20.0, 40.0), now=20.0)
    put_down(accounting, node("a", 25.0), now=25.0)  # nothing new
    put_down(accounting, node("a", 30.0, gpus="7"), now=30.0)
    put_down(accounting, NodeObserved("a", None, 40.0), now=41.0)
    assert intervals(history) == [
        ("a", "", 8.0, None, 10.0, 20.0),
        ("a", "h100", 8.0, 40_000_000, 20.0, 30.0),
        ("a", "h100", 7.0, 40_000_000, 30.0, 40.0),
    ]


def test_the_first_pool_with_a_price_pays_and_one_that_goes_pays_no_more(history):
    accounting = Accounting(history)
    put_down(accounting, pool("a-free", 1.0), pool("b-dear", 1.0, 9.0), node("n", 2.0), now=2.0)
    put_down(accounting, PoolObserved("b-dear", None, 5.0), now=5.0)
    assert intervals(history) == [("n", "b-dear", 8.0, 9_000_000, 2.0, 5.0), ("n", "a-free", 8.0, None, 5.0, None)]


def test_a_writer_that_comes_up_again_goes_on_with_what_is_there_and_ends_what_is_not(history):
    accounting = Accounting(history)
    put_down(accounting, pool("h100", 1.0, 8.0), node("stays", 2.0), node("goes", 2.0), now=60.0)
    fresh = Accounting(history)
    fresh.apply([pool("h100", 100.0, 8.0), node("stays", 100.0), node("comes", 100.0)], 100.0)
    fresh.close_others()
    fresh.write(100.0)
    assert intervals(history) == [
        ("goes", "h100", 8.0, 8_000_000, 2.0, 60.0),
        ("stays", "h100", 8.0, 8_000_000, 2.0, None),
        ("comes", "h100", 8.0, 8_000_000, 100.0, None),
    ]


def test_a_node_of_the_same_name_is_another(history):
    accounting = Accounting(history)
    put_down(accounting, node("n", 1.0), now=1.0)
    put_down(accounting, node("n", 9.0, uid="other"), now=9.0)
    assert [(each[0], each[4], each[5]) for each in intervals(history)] == [("n", 1.0, 9.0), ("n", 9.0, None)]


def test_what_could_not_be_written_is_written_later(history, monkeypatch):
    from fairlead.observability.history import HistoryError

    accounting = Accounting(history)
    accounting.apply([node("n", 1.0)], 1.0)
    write = history.write
    monkeypatch.setattr(history, "write", lambda *_, **__: (_ for _ in ()).throw(HistoryError("full")))
    with pytest.raises(HistoryError):
        accounting.write(1.0)
    monkeypatch.setattr(history, "write", write)
    accounting.write(2.0)
    assert intervals(history) == [("n", "", 8.0, None, 1.0, None)]
