"""When what speaks against a node is enough: the annotation, direct evidence, and the test by which failures are compared."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.operator.jobs.evidence import (
    CONDITION,
    DEVICE,
    LOST,
    RAN_ELSEWHERE,
    REFUSED,
    Failure,
    Rules,
    by_job,
    by_place,
    compared,
    direct,
    late,
    noted,
    shown,
)
from fairlead.simulation.blame import Month, _World

T0 = 1_767_225_600.0
RULES = Rules()


def refused(at, job, user=""):
    return Failure(T0 + at, job, user, REFUSED)


def moved(at, job, user, share=0.02):
    return Failure(T0 + at, job, user, RAN_ELSEWHERE, share)


def test_what_is_noted_reads_back():
    failures = [
        Failure(T0, LOST),
        refused(60, "vision/a", "o,ne %2C two"),
        Failure(T0 + 70, DEVICE, "", "GPU 3 reported XID 79: the GPU has dropped off the bus"),
        Failure(T0 + 80, "vision/b", "system:serviceaccount:x:y", RAN_ELSEWHERE, 0.0213, 7),
    ]
    assert noted(shown(failures)) == failures
    assert shown(failures[:1]) == "2026-01-01T00:00:00Z (lost)"
    assert shown(failures[3:]).endswith("vision/b system:serviceaccount:x:y ran-elsewhere 0.0213 7")
    assert noted("rubbish, 2026-01-01T00:00:00Z,,x y") == []
    strange = "2026-01-01T00:00:00Z vision/a u ran-elsewhere nonsense -3"
    assert noted(strange) == [Failure(T0, "vision/a", "u", RAN_ELSEWHERE, 1.0, 0)]
    assert len(noted(shown([refused(at, "vision/a") for at in range(50)]))) == 20, "the latest"


@given(st.lists(st.tuples(st.integers(0, 10**6), st.text(st.characters(codec="utf-8"), max_size=9), st.text(max_size=9))))
def test_any_user_reads_back(lines):
    failures = [Failure(T0 + at, "ns/job", user, how) for at, user, how in lines][-20:]
    kept = [each for each in failures if not set(each.user + each.how) & set("\x1c\x1d\x1e\x1f\x85\u2028\u2029\t\n\r\x0b\x0c")]
    assert noted(shown(kept)) == kept


def test_an_exit_code_as_older_versions_noted_it_is_no_evidence():
    old = noted(",".join(f"2026-01-01T00:0{minute}:00Z vision/j{minute} user-{minute}" for minute in range(9)))
    assert len(old) == 9
    assert late(old, T0 + 600, RULES) == []
    assert direct(old, T0 + 600, RULES) == ""
    assert compared("n", {"n": old}, 0.02, 0, 50, T0 + 600, RULES).why == ""


def test_losses_and_refusals_must_be_several_of_several_users():
    ours = [refused(each, f"vision/j{each}", "mallory") for each in range(9)]
    assert direct(ours, T0 + 10, RULES) == "", "one user's alone never suffice"
    more = [*ours, refused(10, "speech/b", "ann")]
    assert "refused pods of speech/b, vision/j0" in direct(more, T0 + 10, RULES)
    assert direct(more, T0 + 3700, RULES) == "", "only the last is within the window"
    assert direct([Failure(T0, LOST), refused(90, "vision/b")], T0 + 90, RULES) == ""
    assert direct([Failure(T0 + 100 * each, LOST) for each in range(3)], T0 + 300, RULES) == "it was lost 3 times within 3600 s"


@pytest.mark.parametrize("what", [DEVICE, CONDITION])
def test_a_device_or_a_condition_is_enough_at_once(what):
    assert direct([Failure(T0, what, "", "XID 79")], T0 + 60, RULES) == "XID 79"
    assert direct([Failure(T0, what, "", "XID 79")], T0 + 3700, RULES) == ""


def test_work_of_several_users_that_ran_elsewhere_is_enough_and_one_users_never():
    others = [f"user-{number}" for number in range(4)]
    enough = [moved(number, f"ns/{number}", user) for number, user in enumerate(others)]
    verdict = compared("n", {"n": enough}, 0.02, 0, 50, T0 + 60, RULES)
    assert verdict.why
    assert verdict.value > verdict.needed == math.log(50 / 0.001)
    assert compared("n", {"n": enough[:2]}, 0.02, 0, 50, T0 + 60, RULES).why == "", "two may be chance"
    mallory = [moved(number, f"ns/{number}", "mallory") for number in range(20)]
    alone = compared("n", {"n": mallory}, 0.02, 0, 50, T0 + 60, RULES)
    assert (alone.why, alone.value > alone.needed) == ("", True)
    assert compared("n", {"n": enough}, 0.02, 0, 50, T0 + 8 * 86400, RULES).why == "", "it was long ago"


def test_what_fails_as_often_elsewhere_says_nothing():
    everywhere = {f"n{node}": [moved(each, f"ns/{node}-{each}", f"user-{each}") for each in range(4)] for node in range(50)}
    assert compared("n7", everywhere, 0.02, 9, 50, T0 + 60, RULES).why == ""
    everywhere["n7"] = [moved(each, f"ns/7-{each}", f"user-{each}") for each in range(40)]
    assert compared("n7", everywhere, 0.02, 9, 50, T0 + 60, RULES).why


def test_a_laptop_has_nothing_to_compare_with():
    many = [moved(each, f"ns/{each}", f"user-{each % 9}", share=1.0) for each in range(5)]
    assert compared("n", {"n": many}, 1.0, 0, 1, T0 + 60, RULES).why == ""


@given(st.lists(st.floats(1e-6, 1.0), max_size=30), st.integers(0, 60), st.floats(0.0, 1.0))
def test_more_failures_on_the_node_speak_against_it_and_more_elsewhere_for_it(here, elsewhere, share):
    value = by_place(here, elsewhere, share)
    assert math.isfinite(value)
    assert by_place([*here, 0.5], elsewhere, share) >= value - 1e-9
    assert by_place(here, elsewhere + 1, share) <= value + 1e-9
    assert by_place([*here, 1.0], elsewhere, share) == pytest.approx(value), "where all runs are, none is an outlier"


def crossings(worlds, steps, alpha, walk):
    """In how many worlds a ratio ever exceeds 1 / alpha. walk: yields its logarithm after each step."""
    found = 0
    for world in range(worlds):
        values = walk(random.Random(world))
        found += any(value >= math.log(1 / alpha) for value, _ in zip(values, range(steps), strict=False))
    return found


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("alpha", [0.3, 0.05])
def test_by_place_errs_no_oftener_than_it_says_however_often_one_looks(share, alpha):
    def walk(draw):
        here, elsewhere = [], 0
        while True:
            if draw.random() < share:
                here.append(share)
            else:
                elsewhere += 1
            yield by_place(here, elsewhere, share)

    worlds = 300
    most = alpha * worlds + 3 * math.sqrt(worlds * alpha * (1 - alpha))
    assert crossings(worlds, 150, alpha, walk) <= most


@pytest.mark.parametrize("fails", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("alpha", [0.3, 0.05])
def test_by_job_errs_no_oftener_than_it_says_however_flaky_jobs_are(fails, alpha):
    def walk(draw):
        failed = passed = 0
        while True:
            if draw.random() >= fails:
                passed += 1
            elif draw.random() >= fails:
                failed += 1  # and then it ran elsewhere; what fails there as well is no evidence
            yield by_job(failed, passed)

    worlds = 300
    most = alpha * worlds + 3 * math.sqrt(worlds * alpha * (1 - alpha))
    assert crossings(worlds, 200, alpha, walk) <= most


@pytest.mark.parametrize(
    "month",
    [
        Month(nodes=5, users=6, jobs=40, days=4, bad=0, buggy=0.2, flaky=0.7),
        Month(nodes=3, users=3, jobs=30, days=4, bad=0, buggy=0.0, flaky=1.0, packed=True),
        Month(nodes=6, users=4, jobs=40, days=4, bad=0, buggy=0.3, flaky=0.4, debug=True),
        Month(nodes=20, users=8, jobs=60, days=4, bad=0, buggy=0.3, flaky=0.3, pinned=0.5),
    ],
    ids=["flaky", "packed", "debug", "pinned"],
)
def test_whole_worlds_without_a_bad_node_err_no_oftener_than_the_rules_say(month):
    alpha, worlds = 0.2, 25
    rules = msgspec.structs.replace(RULES, false_alarm=alpha, users=1, without_one=1e9)
    blamed = sum(bool(_World(seed, month, rules).play().falsely_blamed) for seed in range(worlds))
    assert blamed <= alpha * worlds + 3 * math.sqrt(worlds * alpha * (1 - alpha))


@pytest.mark.parametrize("seed", range(4))
def test_a_bad_node_is_found_by_its_fifth_failure_and_no_other_is_blamed(seed):
    found = _World(seed, Month(days=3), RULES).play()
    assert (found.found, found.falsely_blamed) == (1, 0)
    assert found.failures[0] <= 5
