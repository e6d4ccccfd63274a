"""Which jobs come first, and what becomes of those that wait."""

import msgspec
import pytest

from fairlead.operator.jobs.attempt import Given
from fairlead.operator.jobs.dependencies import State, judge
from fairlead.operator.jobs.neighbours import Neighbours
from fairlead.operator.jobs.plan import plan
from tests.operator import builders

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i"}]}}


def job(name, *first, phase="", created="2026-01-01T00:00:00Z", user="ann", singleton=""):
    labels = {"fairlead.dev/singleton": singleton} if singleton else {}
    comes_after = [dict(zip(("job", "when"), each.split(":"), strict=False)) for each in first]
    about = {"labels": labels, "annotations": {"fairlead.dev/user": user}, "created": created, "phase": phase}
    return builders.job(1, name=name, uid=name, dependsOn=comes_after, **about)


def among(*jobs):
    found = Neighbours()
    for each in jobs:
        found.put(each)
    return found


@pytest.mark.parametrize(
    ("when", "phase", "state"),
    [
        ("afterok", "Running", State.WAITS),
        ("afterok", "Succeeded", State.READY),
        ("afterok", "Failed", State.FAILED),
        ("afternotok", "Succeeded", State.NOT_NEEDED),
        ("afternotok", "Failed", State.READY),
        ("afternotok", "Suspended", State.WAITS),
        ("afterany", "Failed", State.READY),
        ("afterany", "Restarting", State.WAITS),
    ],
)
def test_each_kind(when, phase, state):
    waits = job("second", f"first:{when}")
    found = judge(waits, among(waits, job("first", phase=phase)))
    assert found.state is state
    decided = plan(waits, [], Given(now=0.0, first=found))
    expected = {State.READY: "Pending", State.WAITS: "Pending", State.FAILED: "Failed", State.NOT_NEEDED: "Succeeded"}
    assert decided.status.phase == expected[state]
    assert bool(decided.create) == (state is State.READY)


def test_all_of_them_count_and_what_is_missing_is_said():
    waits = job("third", "first", "second:afterany", "nobody")
    found = judge(waits, among(waits, job("first", phase="Succeeded"), job("second", phase="Running")))
    message = "job 'second' is Running; job 'nobody' does not exist in namespace vision"
    assert found == (State.MISSING, message, ("afterok:first",))


@pytest.mark.parametrize(("when", "phase"), [("afterok", "Succeeded"), ("afternotok", "Failed"), ("afterany", "Failed")])
@pytest.mark.parametrize("held", [False, True])
def test_what_was_met_stays_met_when_its_job_is_deleted(when, phase, held):
    """As after `ttlAfterFinished`, while the job still waits for another one, or its user holds it."""
    waits = job("third", f"first:{when}", "second")
    waits.spec.suspend = held
    jobs = among(waits, job("first", phase=phase), job("second", phase="Running"))
    waits.status = plan(waits, [], Given(now=0.0, first=judge(waits, jobs))).status
    jobs.remove("first")
    found = judge(waits, jobs)
    assert found == (State.WAITS, "job 'second' is Running", (f"{when}:first",))
    waits.status = plan(waits, [], Given(now=0.0, first=found)).status
    jobs.put(job("second", phase="Succeeded"))
    waits.spec.suspend = False
    found = judge(waits, jobs)
    assert found.state is State.READY
    assert plan(waits, [], Given(now=0.0, first=found)).create
    jobs.put(job("first", phase="Running"))
    assert judge(waits, jobs).state is State.WAITS, "while a job of that name exists, it counts"
    waits.spec.depends_on[0].when = "aftercorr"
    jobs.remove("first")
    assert judge(waits, jobs).state is State.MISSING, "that was not what was met"


def test_a_held_job_that_is_not_needed_ends_when_it_is_released():
    waits = job("second", "first:afternotok")
    waits.spec.suspend = True
    jobs = among(waits, job("first", phase="Succeeded"))
    waits.status = plan(waits, [], Given(now=0.0, first=judge(waits, jobs))).status
    assert waits.status.phase == "Suspended"
    waits.spec.suspend = False
    assert plan(waits, [], Given(now=0.0, first=judge(waits, jobs))).status.phase == "Succeeded"


def test_cycles_are_found_and_no_job_in_them_starts():
    jobs = among(job("a", "b"), job("b", "c:afterany"), job("c", "a"), job("d", "a"))
    for name in "abc":
        found = judge(jobs.get(name), jobs)
        assert found.state is State.CYCLE
        decided = plan(jobs.get(name), [], Given(now=0.0, first=found))
        accepted = next(each for each in decided.status.conditions if each.type == "Accepted")
        assert (accepted.reason, decided.create) == ("DependencyCycle", ())
    assert judge(jobs.get("a"), jobs).message == "dependency cycle: a -> b -> c -> a"
    assert judge(jobs.get("d"), jobs).state is State.WAITS, "it only waits for one of them"
    alone = job("self", "self")
    assert judge(alone, among(alone)).state is State.CYCLE


def test_one_at_a_time():
    first = job("run-1", "nightly:singleton", singleton="nightly")
    second = job("run-2", "nightly:singleton", singleton="nightly", created="2026-01-02T00:00:00Z")
    hers = job("run-3", "nightly:singleton", singleton="nightly", created="2026-01-03T00:00:00Z", user="eve")
    jobs = among(first, second, hers)
    assert judge(first, jobs).state is State.READY
    assert judge(second, jobs) == (State.WAITS, "job 'run-1' of the same user must end first", ())
    assert judge(hers, jobs).state is State.READY
    done = among(msgspec.structs.replace(first, status=job("x", phase="Failed").status), second)
    assert judge(second, done).state is State.READY
    assert jobs.dependents("run-1") == ["run-2"]


def test_which_jobs_are_reconciled_for_which():
    jobs = among(job("a"), job("b", "a"), job("c", "b", "a:afterany"), job("d", "c"))
    assert jobs.dependents("a") == ["b", "c"]


def test_once_it_has_begun_those_before_it_are_no_matter():
    waits = job("second", "first", phase="Suspended")
    waits.status.attempt = 1
    decided = plan(waits, [], Given(now=0.0, first=judge(waits, among(waits))))
    assert decided.create
