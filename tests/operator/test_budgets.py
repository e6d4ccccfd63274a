"""Budgets: a queue pays for itself and those below it, in its currency, within its period."""

import asyncio

import msgspec
import pytest

from fairlead.api.crds import definitions
from fairlead.api.kinds.queue import Budget, QueueSpec
from fairlead.api.names import API_VERSION
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.conditions import apply, condition
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.observability.history import Run, Stay
from fairlead.operator.budgets import Budgets, budget_state, reckon

DAY = 86400.0
QUEUES = f"/apis/{API_VERSION}/queues"
NOW = 100 * DAY


@pytest.fixture
def history(history):
    """Three queues that used two nodes."""
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
    history.write([], [run("a", "vision", "USD", 2), run("b", "language", "USD", 1), run("c", "vision", "EUR", 8)], NOW, stays)
    return history


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


@pytest.mark.parametrize(
    ("spent", "reason", "holds"),
    [(0.0, "WithinBudget", True), (79.9, "WithinBudget", True), (80.0, "BudgetNear", True), (100.1, "OverBudget", False)],
)
def test_a_queue_stands_by_what_it_spent(spent, reason, holds):
    found = budget_state("vision", queue(amount=100.0), {("vision", "USD"): spent, ("vision", "EUR"): 1e9})
    assert (found.reason, found.holds) == (reason, holds)


def test_no_budget_no_condition():
    assert budget_state("vision", queue(), {}) is None


async def test_it_is_told_once_by_a_condition_and_an_event_and_others_conditions_stay(history):
    api = ApiServer(Clock(start=NOW, loop=asyncio.get_running_loop()))
    for each in definitions():
        api.create(api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", each)
    async with Client(Config("http://simulated"), transport=SimulatedTransport(Wire(api)), clock=lambda: NOW) as client:

        async def write(amount):
            spec = {"priority": 1} | ({"budget": {"amount": amount, "period": "30d"}} if amount else {})
            body = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "vision"}, "spec": spec}
            await client.apply(f"{QUEUES}/vision", msgspec.json.encode(body), "admin")

        async def read():
            found = msgspec.json.decode(await client.get(f"{QUEUES}/vision"))
            return {each["type"]: (each["status"], each["reason"]) for each in found["status"].get("conditions", [])}

        async def events():
            found = msgspec.json.decode(await client.get("/apis/events.k8s.io/v1/namespaces/default/events"))
            return sorted((each["reason"], each["type"], each["regarding"]["name"]) for each in found["items"])

        await write(1000.0)
        accepted = condition("Accepted", holds=True, reason="Accepted", message="", since="2026-01-01T00:00:00Z")
        await apply(client, "queues", "vision", [accepted], "fairlead")
        budgets = Budgets(client, history, speed=1000)
        running = asyncio.create_task(budgets.run())
        try:
            await until(read, {"Accepted": ("True", "Accepted"), "WithinBudget": ("False", "OverBudget")})
            await until(events, [("OverBudget", "Warning", "vision")])
            await write(1_000_000.0)
            await until(read, {"Accepted": ("True", "Accepted"), "WithinBudget": ("True", "WithinBudget")})
            await write(None)
            await until(read, {"Accepted": ("True", "Accepted")})
            assert await events() == [("OverBudget", "Warning", "vision"), ("WithinBudget", "Normal", "vision")]
        finally:
            running.cancel()
            await asyncio.wait([running])


async def until(ask, wanted):
    async with asyncio.timeout(20):
        while (found := await ask()) != wanted:
            await asyncio.sleep(0.01)
    return found
