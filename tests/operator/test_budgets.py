"""Budgets: a queue pays for itself and those below it, in its currency, within its period."""

import pytest

from fairlead.api.objects import Budget, QueueSpec
from fairlead.observability.history import Run, Stay
from fairlead.observability.store import History
from fairlead.operator.budgets import reckon

DAY = 86400.0
NOW = 100 * DAY


@pytest.fixture
def history(tmp_path):
    store = History(f"sqlite:///{tmp_path}/history.db")
    stays = [
        Stay(
            uid=currency,
            node=currency,
            node_uid=currency,
            pool="p",
            gpus=8.0,
            cpus=1.0,
            price=8_000_000,
            currency=currency,
            kind="OnDemand",
            started_at=0.0,
        )
        for currency in ("USD", "EUR")
    ]
    store.write([], [run("a", "vision", "USD", 2), run("b", "language", "USD", 1), run("c", "vision", "EUR", 8)], NOW, stays)
    yield store
    store.close()


def run(uid, queue, node, gpus):
    return Run(
        uid=uid,
        job=uid,
        namespace="lab",
        name=uid,
        queue=queue,
        service_class="",
        user="ann",
        node=node,
        gpus=float(gpus),
        cpus=0.0,
        started_at=0.0,
    )


def queue(parent=None, amount=None, **more):
    return QueueSpec(parent=parent, budget=Budget(amount=amount, **more) if amount is not None else None)


def test_a_queue_pays_for_those_below_it(history):
    queues = {"lab": queue(amount=5000.0), "vision": queue("lab"), "language": queue("lab", 700.0, warn_percent=50)}
    spent, given, warned = reckon(history, queues, NOW)
    hours = 30 * 24
    assert spent == {("lab", "USD"): pytest.approx(3 * hours), ("language", "USD"): pytest.approx(hours)}
    assert given == {("lab", "USD"): 5000.0, ("language", "USD"): 700.0}
    assert warned == {("lab", "USD"): 4000.0, ("language", "USD"): 350.0}


def test_only_its_period_and_its_currency_count(history):
    spent, _, _ = reckon(history, {"vision": queue(amount=1.0, currency="EUR", period="7d")}, NOW)
    assert spent == {("vision", "EUR"): pytest.approx(8 * 7 * 24)}


def test_a_cycle_of_parents_ends(history):
    queues = {"a": queue("b", 1.0), "b": queue("a"), "vision": queue("a")}
    assert reckon(history, queues, NOW)[0] == {("a", "USD"): pytest.approx(2 * 30 * 24)}
