"""Gangs whose members end at different times: those that succeeded count towards the minimum."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Completed
from fairlead.core.model.transactions import Evict
from fairlead.core.pods.completions import Completions
from tests.builders import cluster, group, node, placed, pod, queue, run


def ended(state, name, at, owner="", attempt=0, group_="g", on="", **more):
    """A member succeeds at a time."""
    more = {"created": 0.0, **more}
    more |= {"succeeded": at, "owner": owner, "attempt": attempt}
    state.upsert_pod(pod(name, "q", group=group_, finished=True, at=on, **more))


def gang(state, names, needed=3, owner="", attempt=0, at="", created=0.0):
    state.upsert_group(group("g", needed, "q"))
    for name in names:
        state.upsert_pod(pod(name, "q", group="g", owner=owner, attempt=attempt, at=at, created=created))


def evictions(decisions):
    return [each for each in decisions if isinstance(each, Evict)]


def world():
    return cluster([node("n")], [queue("q", quota=8)])


def later(state, now, seconds):
    """Passes until quiet, at each time at which something is due."""
    found, until = [], now + seconds
    while now < until:
        found += run(state, now)
        now = min(until, max(now + 1.0, state.next_due or until))
    return found


def test_a_gang_runs_on_when_its_members_end_one_by_one():
    state = world()
    gang(state, ["a", "b", "c"])
    assert set(placed(run(state, 0.0))) == {"a", "b", "c"}
    for name, at in (("a", 30.0), ("b", 300.0), ("c", 3000.0)):
        for uid in ("uid-a", "uid-b", "uid-c"):
            state.pods.bound(uid)
        ended(state, name, at, created=0.0)
        assert not evictions(later(state, at, 250.0))
        assert state.gangs["ns/g"].fault_at is None
    assert state.gangs["ns/g"].succeeded == 3


def test_a_member_that_failed_breaks_the_gang_as_before():
    state = world()
    gang(state, ["a", "b", "c"], at="n")
    run(state, 0.0)
    state.upsert_pod(pod("a", "q", group="g", at="n", finished=True))
    (taken,) = evictions(later(state, 30.0, 70.0))
    assert {each.pod.name for each in taken.victims} == {"b", "c"}


def test_a_member_that_fails_after_another_succeeded_is_replaced_alone():
    state = world()
    gang(state, ["a", "b", "c"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a", 30.0, "job", on="n")
    state.upsert_pod(pod("b", "q", group="g", at="n", finished=True, owner="job"))
    state.upsert_pod(pod("b2", "q", group="g", owner="job", created=40.0))
    assert placed(run(state, 40.0)) == {"b2": "n"}


def test_all_start_together_after_the_last_failed_by_itself():
    state = world()
    gang(state, ["a", "b", "c"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a", 30.0, "job", on="n")
    ended(state, "b", 31.0, "job", on="n")
    state.upsert_pod(pod("c", "q", group="g", at="n", finished=True, owner="job"))
    state.upsert_pod(pod("c2", "q", group="g", owner="job", created=40.0))
    assert placed(run(state, 40.0)) == {"c2": "n"}


def test_an_attempt_after_the_first_needs_all_members_again():
    state = world()
    gang(state, ["a0", "b0", "c0"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a0", 30.0, "job", on="n")
    for name in ("b0", "c0"):
        state.upsert_pod(pod(name, "q", group="g", at="n", finished=True, owner="job"))
    for name in ("b1", "c1"):
        state.upsert_pod(pod(name, "q", group="g", owner="job", attempt=1, created=40.0))
    assert not placed(run(state, 40.0))
    state.upsert_pod(pod("a1", "q", group="g", owner="job", attempt=1, created=40.0))
    assert set(placed(run(state, 41.0))) == {"a1", "b1", "c1"}
    ended(state, "late", 42.0, "job", attempt=0)
    assert state.gangs["ns/g"].succeeded == 0


def test_members_that_are_all_made_anew_by_their_owner_start_together_again():
    state = world()
    gang(state, ["a", "b", "c"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a", 30.0, "job", on="n")
    ended(state, "b", 31.0, "job", on="n")
    for name in "abc":
        state.remove_pod(f"uid-{name}")
    gang(state, ["d", "e"], owner="job", created=40.0)
    assert state.gangs["ns/g"].succeeded == 2, "one that failed may have been replaced"
    gang(state, ["f"], owner="job", created=41.0)
    assert state.gangs["ns/g"].succeeded == 0
    assert state.gangs["ns/g"].completions.record == Completed(0, since=40.0)
    assert set(placed(run(state, 41.0))) == {"d", "e", "f"}


def test_members_made_anew_do_not_make_those_forgotten_whose_pods_are_there():
    state = world()
    gang(state, ["a", "b", "c"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a", 30.0, "job", on="n")
    for name in "bc":
        state.remove_pod(f"uid-{name}")
    gang(state, ["d", "e", "f"], owner="job", created=40.0)
    assert state.gangs["ns/g"].succeeded == 1


def test_a_pod_group_that_is_used_again_needs_all_members_again():
    state = world()
    gang(state, ["a", "b", "c"], owner="monday", at="n")
    run(state, 0.0)
    for name in ("a", "b", "c"):
        ended(state, name, 30.0, "monday", on="n")
    state.upsert_pod(pod("d", "q", group="g", owner="tuesday", created=90_000.0))
    state.upsert_pod(pod("e", "q", group="g", owner="tuesday", created=90_000.0))
    assert not placed(run(state, 90_000.0))
    state.upsert_pod(pod("f", "q", group="g", owner="tuesday", created=90_001.0))
    assert set(placed(run(state, 90_001.0))) == {"d", "e", "f"}
    ended(state, "a", 30.0, "monday", on="n", labels=(("new", "label"),))
    assert state.gangs["ns/g"].succeeded == 0


def test_a_new_run_that_cannot_even_wait_breaks_the_gang_whose_old_members_run():
    """The queue's object is gone as the job starts over: members of the run before are too few, and are taken down in time."""
    state = world()
    gang(state, ["a0", "b0", "c0"], owner="job", at="n")
    run(state, 0.0)
    ended(state, "a0", 30.0, "job", on="n")
    run(state, 30.0)
    state.upsert_queue(queue("other"))
    state.remove_queue("q")
    for name in ("a1", "b1", "c1"):
        state.upsert_pod(pod(name, "q", group="g", owner="job", attempt=1, created=40.0))
    run(state, 40.0)
    invariants.check(state)
    (taken,) = evictions(later(state, 41.0, 70.0))
    assert {each.pod.name for each in taken.victims} == {"b0", "c0"}


def test_what_is_recorded_survives_the_scheduler_and_the_pods():
    state = world()
    recorded = msgspec.structs.replace(group("g", 3, "q"), completed=Completed(2, until=31.0))
    ended(state, "b", 31.0, "job", on="n")  # it is in the record; so is one whose pod is gone
    state.upsert_group(recorded)
    state.upsert_pod(pod("c", "q", group="g", owner="job", at="n"))
    assert state.gangs["ns/g"].succeeded == 2
    assert not evictions(later(state, 60.0, 200.0))
    ended(state, "c", 300.0, "job", on="n")
    assert state.gangs["ns/g"].completions.record == Completed(3, until=300.0)


def test_nothing_is_kept_of_pods_whose_pod_group_is_gone():
    state = world()
    ended(state, "orphan", 5.0, group_="none")
    assert "ns/none" in state.gangs
    state.remove_pod("uid-orphan")
    assert "ns/none" not in state.gangs
    gang(state, ["a", "b", "c"], at="n")
    ended(state, "a", 30.0, on="n")
    for name in ("b", "c"):
        state.remove_pod(f"uid-{name}")
    state.remove_group("ns/g")
    assert "uid-a" not in state.pods.finished
    state.remove_pod("uid-a")
    assert not state.gangs


def judged(history):
    """How many members count, by all that happened. A pod that is made again under its name supersedes the one before."""
    attempt, since, until, alive, there, done, nameless, owners = 0, 0.0, 0.0, {}, {}, set(), 0, set()
    for what, each in history:
        if what == "comes":
            enough = len(done) + nameless >= 3
            if each.attempt > attempt or (not alive and enough and each.owner not in owners):
                attempt, since, until, done, nameless, owners = each.attempt, each.created, 0.0, set(), 0, set()
                there.clear()
            done.discard(each.name)
            alive[each.uid] = each
            owners.add(each.owner)
            new = [pod for pod in alive.values() if pod.attempt == attempt and pod.created >= until]
            if len(done) + nameless and len(new) >= 3 and not there:
                since, done, nameless, owners = min(pod.created for pod in new), set(), 0, {pod.owner for pod in new}
        elif what == "restart":  # the names of pods that are gone are known no more, nor the owners
            nameless += len(done - {pod.name for pod in each})
            done &= {pod.name for pod in each}
        elif what == "deleted":
            there.pop(each, None)
        else:
            alive.pop(each.uid, None)
            if what == "succeeds" and each.created >= since and each.attempt == attempt:
                done.add(each.name)
                until = max(until, each.succeeded)
                there[each.uid] = each
    return len(done) + nameless


@pytest.mark.parametrize("seed", range(500))
def test_random_histories_agree_with_a_judge_also_after_restarts(seed):
    chance = random.Random(seed)
    found, history, alive, there = Completions(), [], {}, {}
    clock, number, attempt, owner = 0.0, 0, 0, 0
    for _ in range(chance.randint(5, 60)):
        clock += chance.choice([1.0, 7.0])
        act = chance.random()
        if act < 0.4:
            if not alive and chance.random() < 0.3:
                owner += 1
            elif not alive and chance.random() < 0.3:
                attempt += 1
            number += 1
            name = f"m{chance.randint(0, 4)}"
            if any(each.name == name for each in [*alive.values(), *there.values()]):
                continue
            each = msgspec.structs.replace(pod(name), uid=f"u{number}", owner=f"o{owner}", attempt=attempt, created=clock)
            found.comes(each, others=bool(alive), least=3)
            if found.may_start_over(3):
                found.start_over([each, *alive.values()], 3)
            history.append(("comes", each))
            alive[each.uid] = each
        elif act < 0.75 and alive:
            each = alive.pop(chance.choice(sorted(alive)))
            if chance.random() < 0.7:
                each = msgspec.structs.replace(each, succeeded=clock, finished=True)
                there[each.uid] = each
                found.add(each, watched=True)
                history.append(("succeeds", each))
            else:
                history.append(("fails", each))
        elif act < 0.85 and there:
            uid = chance.choice(sorted(there))
            del there[uid]
            found.remove(uid)
            history.append(("deleted", uid))
        elif act < 0.95 and alive:
            # A scheduler that begins finds members that run, pods that ended, and the record, in any order.
            anew, record = Completions(), found.record
            things = [*alive.values(), *there.values(), *([record] if record else [])]
            chance.shuffle(things)
            for each in things:
                if isinstance(each, Completed):
                    anew.read(each)
                elif each.finished:
                    anew.add(each, watched=False)
                else:
                    anew.comes(msgspec.structs.replace(each, node="n"), others=True, least=3)
            assert anew.total == found.total, (record, things)
            found = anew
            history.append(("restart", list(there.values())))
        assert found.total == judged(history)
