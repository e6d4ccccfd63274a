"""When what waits is expected to start."""

import msgspec
import pytest

from fairlead.core.forecast import forecast
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.state.snapshot import snapshot
from tests.builders import GPU, cluster, confirm, node, pod, queue, run

HOUR = 3600.0


def expected(state, now=0.0):
    return {job.removeprefix("uid-"): round(start, 3) for job, start in forecast(state, now).items()}


def test_line_by_line_as_what_runs_ends():
    state = cluster([node("n", gpus=2)], [Queue("q")])
    for i, hours in enumerate((1, 2)):
        state.upsert_pod(pod(f"runs-{i}", queue="q", at="n", expected=hours * HOUR, started=0.0))
    for i in range(3):
        state.upsert_pod(pod(f"waits-{i}", queue="q", expected=3 * HOUR, created=1.0 + i))
    run(state)
    assert expected(state) == {"waits-0": HOUR, "waits-1": 2 * HOUR, "waits-2": 4 * HOUR}


def test_gangs_wait_for_all_their_places_and_what_will_never_fit_is_left_out():
    state = cluster([node("n", gpus=4), node("m", gpus=4)], [Queue("q")], groups=[Group("ns", "g", 2, "q")])
    state.upsert_pod(pod("a", queue="q", gpus=4, at="n", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("b", queue="q", gpus=4, at="m", time_limit=3 * HOUR, started=0.0))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", queue="q", group="g", gpus=4, created=1.0))
    state.upsert_pod(pod("huge", queue="q", gpus=5))
    state.upsert_pod(pod("nowhere", queue="q", selector={"zone": "x"}))
    run(state)
    assert expected(state) == {"ns/g": 3 * HOUR}


@pytest.mark.parametrize(("isolation", "starts"), [("Node", HOUR), ("None", 0.0)])
def test_jobs_that_isolate_nodes_wait_for_nodes_without_others(isolation, starts):
    """By amounts all of it fits now; the two pods of one job may be on one node."""
    state = cluster([node("n", gpus=8)], [Queue("q")], groups=[Group("ns", "apart", 2, "q", service_class="alone")])
    state.upsert_class(ServiceClass("alone", isolation=isolation))
    state.upsert_pod(pod("runs", queue="q", at="n", expected=HOUR, started=0.0))
    for i in range(2):
        state.upsert_pod(pod(f"apart-{i}", queue="q", group="apart", gpus=2, created=1.0, expected=2 * HOUR))
    state.settle(0.0)
    assert expected(state) == {"ns/apart": starts}


@pytest.mark.parametrize(("isolation", "starts"), [("Node", HOUR), ("None", 0.0)])
def test_others_with_gpus_wait_for_nodes_of_jobs_that_isolate_them(isolation, starts):
    state = cluster([node("n", gpus=8)], [Queue("q")])
    state.upsert_class(ServiceClass("alone", isolation=isolation))
    state.upsert_pod(pod("runs", queue="q", at="n", expected=HOUR, started=0.0, service_class="alone"))
    state.upsert_pod(pod("gpu", queue="q", created=1.0))
    state.upsert_pod(pod("daemon", queue="q", gpus=0, created=2.0))
    assert expected(state) == {"gpu": starts, "daemon": 0.0}


def test_limits_and_shares_decide_who_is_next():
    state = cluster([node("n", gpus=4)], [queue("mine", quota=2), queue("capped", limit=1), queue("guest")])
    for i in range(4):
        state.upsert_pod(pod(f"guest-{i}", queue="guest", at="n", expected=(i + 1) * HOUR, started=0.0, never_preempts=True))
    for name in ("capped", "mine"):
        for i in range(2):
            state.upsert_pod(pod(f"{name}-{i}", queue=name, expected=10 * HOUR, created=5.0, never_preempts=True))
    run(state)
    found = expected(state)
    assert sorted([found["mine-0"], found["capped-0"]]) == [HOUR, 2 * HOUR]
    assert found["mine-1"] == 3 * HOUR, "the guest is last: it holds more than its due"
    assert found["capped-1"] >= found["capped-0"] + 10 * HOUR, "one at a time"


@pytest.mark.parametrize("wait", [0.0, 600.0])
def test_what_stays_within_its_queues_share_starts_when_its_wait_for_it_is_over(wait):
    queues = [Queue(name, "", 0, (QueueResource(GPU, 2000, weight=part),)) for name, part in (("lender", 1), ("owner", 2))]
    state = cluster([node("n", gpus=10)], queues, share_wait=wait, reservations=0)
    state.upsert_pod(pod("large", queue="lender", gpus=8, at="n", expected=10 * HOUR, started=0.0))
    state.upsert_pod(pod("fair", queue="owner", gpus=6, created=60.0))
    state.upsert_pod(pod("beyond", queue="owner", gpus=3, created=90.0))
    run(state, 100.0)
    found = expected(state, 100.0)
    assert found["fair"] == (660.0 if wait else 10 * HOUR)
    assert found["beyond"] >= 10 * HOUR, "beside the other it is not within the share"
    if wait:
        confirm(state, run(state, 661.0))
        assert state.tasks["uid-fair"].row >= 0 or "uid-large" in state.queues.accounts.debts


@pytest.mark.parametrize("known", [True, False])
def test_it_is_never_blank_for_what_can_start(known):
    state = cluster([node("n", gpus=4)], [Queue("q", per_user=UserLimits(running=3))])
    for i in range(4):
        state.upsert_pod(pod(f"runs-{i}", queue="q", at="n", started=0.0, **({"expected": HOUR} if known else {})))
    for i in range(20):
        state.upsert_pod(pod(f"waits-{i}", queue="q", milli=500 if i % 2 else 1000, created=1.0 + i))
    confirm(state, run(state, 100.0))
    found = expected(state, 100.0)
    assert len(found) == 20
    assert all(start >= 100.0 for start in found.values())
    assert sorted(found.values()) != [100.0] * 20


def test_it_changes_nothing():
    state = cluster([node("n", gpus=2)], [Queue("q")])
    for i in range(5):
        state.upsert_pod(pod(f"p-{i}", queue="q", created=float(i)))
    confirm(state, run(state))
    before = snapshot(state)
    assert len(forecast(state, 10.0)) == 3
    assert snapshot(state) == before
    assert run(state, 10.0) == []


SLICED = ServiceClass("sliced", mode="Suspend", checkpoint_interval=1800, levels=(600.0, 4 * HOUR), express=1, max_loss=60.0)


def sliced(name, queue="q", expected=10 * HOUR, **more):
    return pod(name, queue=queue, service_class="sliced", expected=expected, **more)


def whoever_starts(state, now):
    """Who starts when, as the pass decides it: a victim is gone at once and does not come back."""
    starts = {}
    while now < 20 * HOUR:
        decided = run(state, now)
        for each in decided:
            if isinstance(each, Preempt):
                for victim in each.victims:
                    state.remove_pod(victim.pod.uid)
            for binding in each.bindings if isinstance(each, Place) else ():
                starts[binding.pod.name] = now
                state.pods.bound(binding.pod.uid)
        if any(isinstance(each, Preempt) for each in decided):
            continue
        due = state.next_due
        if due is None:
            break
        now = max(now + 0.001, due)
    return {name: round(at, 1) for name, at in starts.items()}


@pytest.mark.parametrize(
    ("service", "runs", "waits", "told"),
    [
        pytest.param(SLICED, [{}], [{}], {"w0": 1800.0}, id="the next checkpoint"),
        pytest.param(SLICED, [{"attained": HOUR}], [{}], {"w0": 1860.0}, id="who came back began to work a minute later"),
        pytest.param(msgspec.structs.replace(SLICED, max_loss=0.0), [{}], [{}], {"w0": 600.0}, id="the next level"),
        pytest.param(
            msgspec.structs.replace(SLICED, max_loss=0.0, min_runtime=900.0), [{}], [{}], {"w0": 900.0}, id="its least run time"
        ),
        pytest.param(SLICED, [{}], [{"attained": 700.0}], {"w0": 4 * HOUR}, id="not from equals"),
        pytest.param(SLICED, [{"priority": 1}], [{}], {}, id="not from higher priority"),
        pytest.param(SLICED, [{"priority": 1, "queue": "other"}], [{}], {}, id="nor elsewhere"),
        pytest.param(SLICED, [{"queue": "other"}], [{}], {"w0": 1800.0}, id="express from any queue"),
        pytest.param(SLICED, [{"queue": "other"}], [{"attained": 700.0}], {}, id="what is not express from its own"),
        pytest.param(
            msgspec.structs.replace(SLICED, scope="Cluster"),
            *([{"queue": "other"}], [{"attained": 700.0}], {"w0": 4 * HOUR}),
            id="from wherever its class reaches",
        ),
        pytest.param(SLICED, [{}, {"started": 30.0}], [{"gpus": 2}], {"w0": 1830.0}, id="two at once"),
        pytest.param(SLICED, [{}, {"started": 300.0}], [{}, {}], {"w0": 1800.0, "w1": 2100.0}, id="one after the other"),
        pytest.param(msgspec.structs.replace(SLICED, mode="Never"), [{}], [{}], {}, id="not from who never falls"),
    ],
)
def test_work_with_less_attained_service_starts_when_it_is_forecast(service, runs, waits, told):
    state = cluster([node("n", gpus=len(runs))], [Queue("q"), Queue("other")])
    state.upsert_class(service)
    for i, more in enumerate(runs):
        state.upsert_pod(sliced(f"r{i}", at="n", **{"started": 0.0, "expected": 15 * HOUR, **more}))
    for i, more in enumerate(waits):
        state.upsert_pod(sliced(f"w{i}", created=400.0 + i, **more))
    run(state, 500.0)
    ends = {f"w{i}": 15 * HOUR for i in range(len(waits))}
    found = expected(state, 500.0)
    assert found == ends | told
    assert whoever_starts(state, 500.0) == pytest.approx(told, abs=0.2)
