"""The ledger: all capacity is charged to a job or idle, to the last millionth."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairlead.observability.history import Run, Stay
from fairlead.observability.ledger import ledger

HOUR = 3600.0
FOREVER = 1e9


def stay(node="a", start=0.0, end=None, *, price=8_000_000, gpus=8.0, currency="USD", uid=""):
    return Stay(
        uid=uid or f"{node}/{start}",
        node=node,
        node_uid=node,
        pool="p",
        gpus=gpus,
        cpus=64.0,
        price=price,
        currency=currency,
        kind="OnDemand",
        started_at=start,
        ended_at=end,
    )


def run(uid, node="a", start=0.0, end=None, *, gpus=1.0, cpus=4.0, queue="q"):
    return Run(
        uid=uid,
        job=f"job-{uid}",
        namespace="lab",
        name=uid,
        queue=queue,
        service_class="",
        user="ann",
        node=node,
        gpus=gpus,
        cpus=cpus,
        started_at=start,
        ended_at=end,
    )


def told(stays, runs, since=0.0, until=10 * HOUR, now=FOREVER):
    return ledger(stays, runs, since, until, lambda each: each.queue, now)


def test_a_job_pays_for_its_share_of_the_node_and_the_rest_is_idle():
    found = told([stay(end=10 * HOUR)], [run("x", start=HOUR, end=3 * HOUR, gpus=4.0)])
    [line] = found.lines
    assert (line.gpu_hours, line.cost) == (8.0, {"USD": 8.0})
    assert (found.idle.gpu_hours, found.idle.cost) == (72.0, {"USD": 72.0})
    assert (found.nodes.cost, found.balance) == ({"USD": 80.0}, {"USD": 0.0})


def test_a_new_price_counts_from_then_on():
    stays = [stay(end=2 * HOUR), stay(start=2 * HOUR, end=4 * HOUR, price=16_000_000)]
    found = told(stays, [run("x", end=4 * HOUR, gpus=8.0)])
    assert found.lines[0].cost == {"USD": 16.0 + 32.0}


def test_what_is_outside_the_window_and_what_goes_on_is_cut():
    found = told([stay()], [run("x", gpus=8.0)], since=HOUR, until=5 * HOUR, now=3 * HOUR)
    assert (found.until, found.lines[0].gpu_hours, found.idle.gpu_hours) == (3 * HOUR, 16.0, 0.0)


def test_a_run_pays_only_while_its_node_is_there():
    found = told([stay(end=HOUR)], [run("x", end=9 * HOUR, gpus=8.0)])
    assert found.lines[0].gpu_hours == 8.0


def test_nodes_without_devices_are_shared_by_cpu():
    found = told([stay(end=HOUR, gpus=0.0, price=1_000_000)], [run("x", end=HOUR, gpus=0.0, cpus=16.0)])
    assert (found.lines[0].cost, found.idle.cost) == ({"USD": 0.25}, {"USD": 0.75})


def test_without_a_price_hours_count_and_money_does_not():
    found = told([stay(end=HOUR, price=None)], [run("x", end=HOUR)])
    assert (found.lines[0].unpriced_gpu_hours, found.lines[0].cost, found.nodes.unpriced_gpu_hours) == (1.0, {}, 8.0)


def test_currencies_are_not_added_up():
    stays = [stay(end=HOUR), stay("b", end=HOUR, currency="EUR")]
    found = told(stays, [run("x", end=HOUR), run("y", "b", end=HOUR)])
    assert found.lines[0].cost == {"EUR": 1.0, "USD": 1.0}


def test_more_held_than_there_was_is_told_and_not_hidden():
    found = told([stay(end=HOUR)], [run("x", end=HOUR, gpus=8.0), run("y", end=HOUR, gpus=2.0)])
    assert (found.idle.gpu_hours, found.balance) == (0.0, {"USD": 2.0})


@st.composite
def histories(draw):
    """A node's stays one after the other, and runs that never hold more than there is."""
    times = sorted(draw(st.lists(st.integers(0, 10_000_000), min_size=2, max_size=6, unique=True)))
    prices = draw(st.lists(st.integers(0, 99_999_999), min_size=len(times), max_size=len(times)))
    stays = [stay(start=a / 1000, end=b / 1000, price=price) for a, b, price in zip(times, times[1:], prices, strict=False)]
    runs = []
    for device in range(8):  # each device is held by one after the other, in parts
        moments = sorted(draw(st.lists(st.integers(0, 10_000_000), max_size=6, unique=True)))
        for number, (a, b) in enumerate(zip(moments[::2], moments[1::2], strict=False)):
            part = draw(st.sampled_from([1.0, 0.5, 0.333, 0.001]))
            queue = draw(st.sampled_from("xyz"))
            runs.append(run(f"{device}-{number}", start=a / 1000, end=b / 1000, gpus=part, queue=queue))
    return stays, runs


@given(histories(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_jobs_and_idle_are_the_nodes_exactly(history, one, other):
    stays, runs = history
    since, until = sorted((float(one), float(other)))
    found = told(stays, runs, since, until)
    assert all(left == 0.0 for left in found.balance.values())
    lasted = sum(
        Fraction(
            max(
                0, min(round(each.ended_at * 1000), round(until * 1000)) - max(round(each.started_at * 1000), round(since * 1000))
            )
        )
        * each.price
        for each in stays
    ) / (3_600_000 * 1_000_000)
    assert math.isclose(found.nodes.cost.get("USD", 0.0), lasted, abs_tol=1e-9)
    assert math.isclose(found.idle.gpu_hours + sum(line.gpu_hours for line in found.lines), found.nodes.gpu_hours, abs_tol=1e-9)


@given(histories(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_lines_are_the_shares_of_each_run_added_up(history, one, other):
    stays, runs = history
    since, until = sorted((one * 1000, other * 1000))
    hours, costs = {}, {}
    for node in stays:
        for each in runs:
            begin = max(since, round(node.started_at * 1000), round(each.started_at * 1000))
            end = min(until, round(node.ended_at * 1000), round(each.ended_at * 1000))
            if begin < end:
                share = Fraction(round(each.gpus * 1000) * (end - begin), 1000 * 3_600_000)
                hours[each.queue] = hours.get(each.queue, 0) + share
                costs[each.queue] = costs.get(each.queue, 0) + share * node.price / 8 / 1_000_000
    found = {line.name: (line.gpu_hours, line.cost["USD"]) for line in told(stays, runs, since / 1000, until / 1000).lines}
    assert found == {queue: (float(hours[queue]), float(costs[queue])) for queue in hours}
