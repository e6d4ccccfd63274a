"""History shows the exit code with which a job failed first, not with which its other pods were ended for that."""

import random

import pytest

from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from tests.databases import on_databases
from tests.operator.observed import at, entries, gone, job, pod

TOLD = {"deletionTimestamp": at(21)}


def member(index, attempt=0, **more):
    labels = {"fairlead.dev/attempt": str(attempt), "fairlead.dev/job": "bert"}
    return pod(f"bert-worker-{index}-{attempt}", owner="AIJob/bert", group="bert", node="a", bound=10, labels=labels, **more)


def code(history, accounting):
    accounting.write(99.0)
    (entry,) = entries(history)
    return entry.job.exit_code


def begun(history, attempt=0, size=3):
    accounting = Accounting(history)
    accounting.apply([job("Running", startedAt=at(11)), *(member(i, attempt, phase="Running") for i in range(size))], 12.0)
    return accounting


@pytest.mark.parametrize("first", [True, False], ids=["in order", "the other way round"])
def test_members_that_are_ended_since_another_failed_are_not_the_cause(history, first):
    accounting = begun(history)
    own = [member(1, phase="Failed", ended=20, exit_code=127)]
    others = [member(i, phase="Failed", ended=22, exit_code=143, **TOLD) for i in (0, 2)]
    accounting.apply(own + others if first else others + own, 23.0)
    accounting.apply([job("Failed", startedAt=at(11), finishedAt=at(23), message="all restarts are used up")], 24.0)
    assert code(history, accounting) == 127


def test_peers_that_fail_for_want_of_the_first_are_not_the_cause_either(history):
    accounting = begun(history)
    accounting.apply([member(0, phase="Failed", ended=25, exit_code=1), member(1, phase="Failed", ended=20, exit_code=127)], 26.0)
    accounting.apply([member(2, phase="Failed", ended=20, exit_code=137)], 26.0)
    assert code(history, accounting) == 127


def test_each_attempt_has_its_own_cause(history):
    accounting = begun(history)
    accounting.apply([member(1, phase="Failed", ended=20, exit_code=127)], 20.0)
    assert code(history, accounting) == 127
    accounting.apply([member(i, 1, phase="Running") for i in range(3)], 30.0)
    assert code(history, accounting) is None, "it runs again"
    accounting.apply([member(0, phase="Failed", ended=31, exit_code=143, **TOLD)], 31.0)
    assert code(history, accounting) is None, "of an attempt that is over"
    accounting.apply([member(2, 1, phase="Failed", ended=40, exit_code=9)], 40.0)
    assert code(history, accounting) == 9


def test_the_cause_outlives_the_operator(history):
    accounting = begun(history)
    accounting.apply([member(1, phase="Failed", ended=20, exit_code=127)], 20.0)
    accounting.write(20.0)
    again = Accounting(history)
    again.apply([job("Restarting", startedAt=at(11)), member(0, phase="Failed", ended=22, exit_code=143, **TOLD)], 30.0)
    assert code(history, again) == 127, "its pod is gone"
    third = Accounting(history)
    third.apply([member(1, phase="Failed", ended=20, exit_code=127), member(2, phase="Failed", ended=25, exit_code=1)], 31.0)
    assert code(history, third) == 127, "its pod is still there"


def test_a_job_of_another_kind_that_fails_again_fails_with_the_latest(history):
    accounting = Accounting(history)
    accounting.apply([pod("j-1", node="a", bound=10, phase="Failed", ended=20, exit_code=3, owner="Job/j")], 20.0)
    accounting.apply([pod("j-2", node="a", bound=30, phase="Running", owner="Job/j")], 30.0)
    accounting.apply([pod("j-2", node="a", bound=30, phase="Failed", ended=40, exit_code=4, owner="Job/j"), gone("j-1")], 40.0)
    assert code(history, accounting) == 4


@on_databases(range(60))
def test_in_whatever_order_failures_are_observed(database, seed):
    rnd = random.Random(seed)
    store = History(database)
    size = rnd.randint(1, 5)
    accounting = begun(store, size=size)
    failures = []
    for index in range(size):
        evicted = index > 0 and rnd.random() < 0.6
        ended, exit_code = rnd.randint(20, 25), rnd.choice([143, 137]) if evicted else rnd.choice([1, 2, 127, 139])
        failures.append((evicted, ended, exit_code > 128, exit_code, index))
    expected = min(failures)[3]
    order = list(failures)
    rnd.shuffle(order)
    while order:
        batch = [order.pop() for _ in range(min(len(order), rnd.randint(1, 3)))]
        observed = [
            member(index, phase="Failed", ended=ended, exit_code=exit_code, **(TOLD if evicted else {}))
            for evicted, ended, _, exit_code, index in batch
        ]
        accounting.apply(observed, 30.0)
        accounting.write(30.0)
        if rnd.random() < 0.3:
            known = [each for each in failures if each not in order]
            accounting = Accounting(store)
            accounting.apply(
                [
                    member(index, phase="Failed", ended=ended, exit_code=exit_code, **(TOLD if evicted else {}))
                    for evicted, ended, _, exit_code, index in known
                ]
                + [member(each[4], phase="Running") for each in order],
                31.0,
            )
    assert code(store, accounting) == expected
    store.close()
