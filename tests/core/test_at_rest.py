"""A cluster comes to rest, and a scheduler that begins then has nothing to do: whatever jobs waited for was noticed when it came.

Random worlds of two GPU models: quotas and limits of all nodes and of pools, limits of users and of running jobs, gangs, priorities;
jobs come and end at different times. Where something is reserved the scheduler that ran knows more, so such worlds are left out.
"""

import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.transactions import Place, Preempt, Transaction
from fairlead.core.state.cluster import ClusterState
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, run
from tests.core.test_pools import A100, H100, shares

_LATE = 1e5  # whatever may be waited for is over by then: patience, shares, backoffs
_STEP = 2e4
_PASSES = 60


class World:
    """What there is, and what happens; `rnd` decides all of it, so a seed is a history."""

    def __init__(self, seed: int) -> None:
        self.rnd = rnd = random.Random(seed)
        self.pools, self.users, self.shy = rnd.random() < 0.6, rnd.random() < 0.4, rnd.random() < 0.3
        gpus = rnd.choice([2, 4])
        self.nodes = [
            node(f"{name}{number}", gpus=gpus, labels=labels)
            for name, labels in (("h", H100), ("a", A100))
            for number in range(rnd.randint(1, 2))
        ]
        tops = ["top"] if rnd.random() < 0.4 else []
        leaves = ["q0", "q1", "q2"][: rnd.randint(2, 3)]
        self.queues = [self._queue(name) for name in tops] + [self._queue(name, rnd.choice(["", *tops])) for name in leaves]
        self.leaves = leaves
        self.groups = {}
        self.jobs = [self._job(number) for number in range(rnd.randint(3, 9))]

    def _queue(self, name: str, parent: str = "") -> Queue:
        rnd, amounts = self.rnd, {}
        if rnd.random() < 0.7:
            amounts["all"] = rnd.choice([0, 1, 2, 4]), rnd.choice([None, None, 2, 4])
        for pool in ("h100", "a100") if self.pools else ():
            if rnd.random() < 0.5:
                amounts[pool] = rnd.choice([None, 0, 1, 2]), rnd.choice([None, 1, 2, 3])
        made = shares(name, parent, **amounts)
        if self.users and rnd.random() < 0.5:
            most = rnd.choice([(), ((GPU, 2000),), ((GPU, 4000),)])
            made = msgspec.structs.replace(made, per_user=UserLimits(running=rnd.choice([None, 1, 2]), resources=most))
        if self.users and rnd.random() < 0.15:
            made = msgspec.structs.replace(made, jobs=UserLimits(running=rnd.randint(1, 3)))
        return made

    def _job(self, number: int) -> list[Pod]:
        rnd, created = self.rnd, float(number)
        more = {"queue": rnd.choice(self.leaves), "created": created}
        selector, user = rnd.choice([None, None, H100, A100]), rnd.choice("ab") if self.users else ""
        if rnd.random() < 0.2:
            name, size = f"g{number}", rnd.randint(2, 3)
            self.groups[name] = group(name, size)
            made = [
                pod(
                    f"{name}-{i}",
                    group=name,
                    gpus=rnd.choice([1, 1, 2]),
                    priority=rnd.choice([0, 0, 5]),
                    selector=selector,
                    **more,
                )
                for i in range(size)
            ]
        else:
            made = [pod(f"p{number}", gpus=rnd.choice([1, 1, 2, 4]), priority=rnd.choice([0, 0, 5]), selector=selector, **more)]
        return [msgspec.structs.replace(each, user=user, never_preempts=self.shy and rnd.random() < 0.3) for each in made]

    def begin(self, pods: list[Pod] = ()) -> ClusterState:
        """A scheduler that finds these pods."""
        return cluster(self.nodes, self.queues, pods, self.groups.values(), reservations=0)

    def play(self) -> ClusterState:
        """Jobs come, some at once; between, some end. Returns the scheduler that saw it all, long after the last of that."""
        rnd, state, now, left = self.rnd, self.begin(), 0.0, list(self.jobs)
        while left:
            many = rnd.randint(1, len(left))
            for each in [each for job in left[:many] for each in job]:
                state.upsert_pod(each)
            left = left[many:]
            now += rnd.choice([0.0, 1.0, 100.0, 4000.0])
            settled(state, now)
            running = [task.pod for task in state.tasks.values() if task.row >= 0]
            if running and rnd.random() < 0.5:
                ends = rnd.choice(running)
                for each in [task.pod for task in state.tasks.values()]:
                    if each.uid == ends.uid or (ends.group and each.group == ends.group):
                        state.remove_pod(each.uid)
                settled(state, now)
        for number in range(4):
            settled(state, _LATE + _STEP * number)
        return state


def settled(state: ClusterState, now: float) -> list[Transaction]:
    """Passes until one starts and evicts nothing; victims are gone at once, and wait again under other names."""
    found: list[Transaction] = []
    for _ in range(_PASSES):
        decided = confirm(state, run(state, now))
        found += decided
        if not any(isinstance(each, Place | Preempt) for each in decided):
            return found
        gone = [state.tasks[victim.pod.uid].pod for each in decided if isinstance(each, Preempt) for victim in each.victims]
        for old in gone:
            state.remove_pod(old.uid)
        for old in gone:
            state.upsert_pod(msgspec.structs.replace(old, uid=f"{old.uid}+", name=f"{old.name}+", node=""))
    raise AssertionError(f"it does not come to rest: {[preempted(found), placed(found)]}")


def reserves(state: ClusterState) -> bool:
    """Whether nodes, or what is left of a queue, are kept for a job."""
    waiting = state.queues.waiting.unschedulable
    return bool(state.reserved.holds) or any(
        each.unschedulable is not None and each.unschedulable.code is ReasonCode.RESERVATION for each in waiting
    )


@pytest.mark.parametrize("seed", range(200))
def test_a_scheduler_that_begins_when_the_cluster_is_at_rest_has_nothing_to_do(seed):
    at_rest(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_same_of_many_worlds(part):
    for seed in range(1000 + part * 200, 1200 + part * 200):
        at_rest(seed)


def at_rest(seed: int) -> None:
    world = World(seed)
    state = world.play()
    invariants.check(state)
    if reserves(state):
        return
    anew = world.begin([task.pod for task in state.tasks.values()])
    decided = settled(anew, _LATE + 3 * _STEP)
    assert (placed(decided), preempted(decided)) == ({}, []), seed


def test_a_place_outside_the_pool_whose_limit_blocks_a_job_helps_it():
    """`q` may hold one GPU of the h100s and asks for two anywhere: it starts once another queue's pod leaves the a100s."""
    state = cluster(
        [node("h", gpus=2, labels=H100), node("a", gpus=2, labels=A100)],
        [shares("q", h100=(None, 1)), shares("other")],
        [pod("first", queue="other", gpus=2, selector=A100)],
    )
    settled(state, 0.0)
    state.upsert_pod(pod("second", queue="q", gpus=2, created=1.0))
    assert not placed(settled(state, 1.0))
    state.remove_pod("uid-first")
    assert placed(settled(state, 2.0)) == {"second": "a"}


def test_what_asks_for_no_pool_reclaims_nothing_for_the_share_of_one():
    """Jobs of two queues that may run anywhere would take the same GPU from each other without end."""
    state = cluster(
        [node("h", gpus=4, labels=H100), node("a", gpus=4, labels=A100)],
        [
            shares("top", all=(0, None), h100=(2, 2), a100=(None, 1)),
            shares("q0", "top", a100=(2, 2)),
            shares("q1", "top", all=(1, 4), h100=(1, 2)),
        ],
    )
    for each in (
        pod("any", queue="q0", gpus=2),
        pod("other", queue="q1", gpus=2, priority=5, created=4.0),
        pod("there", queue="q1", priority=5, created=5.0, selector=H100),
    ):
        state.upsert_pod(each)
        settled(state, 4000.0 + each.created)


def test_a_share_is_waited_for_behind_a_limit_too():
    """A limit above both queues is full: the victim that the share is due from after an hour frees it, at that time."""
    state = cluster(
        [node("n", gpus=8)],
        [
            Queue("top", "", 0, (QueueResource(GPU, None, 4000),)),
            shares("lends", "top", all=(1, None)),
            shares("waits", "top", all=(0, None)),
        ],
        [pod("large", queue="lends", gpus=4)],
        share_wait=3600.0,
    )
    settled(state, 0.0)
    state.upsert_pod(pod("small", queue="waits", created=1.0))
    assert not placed(settled(state, 1.0))
    assert "large" not in {name for plan in preempted(settled(state, 3000.0)) for name in plan}
    assert placed(settled(state, 3700.0)) == {"small": "n"}


def test_a_victim_of_ones_own_is_found_once_another_leaves_room_beside_it():
    """A user's limit stops `high`, and no node would hold it: once one would without the user's other job, that gives way."""
    limited = msgspec.structs.replace(shares("q"), per_user=UserLimits(resources=((GPU, 2000),)))
    state = cluster([node("n", gpus=2)], [limited, shares("other")])
    state.upsert_pod(pod("low", queue="q", user="u"))
    state.upsert_pod(pod("beside", queue="other"))
    settled(state, 0.0)
    state.upsert_pod(pod("high", queue="q", gpus=2, priority=5, created=1.0, user="u"))
    assert not placed(settled(state, 1.0))
    state.remove_pod("uid-beside")
    assert placed(settled(state, 500.0)) == {"high": "n"}


def test_a_search_behind_a_limit_that_the_backoff_of_anothers_put_off_is_made_after_it():
    """`u` and `v` hold all they may. The search for `u` is in vain, as `u` runs no lower job; that for `v` only is put off by it."""
    limited = msgspec.structs.replace(shares("q"), per_user=UserLimits(resources=((GPU, 2000),)))
    state = cluster([node("n", gpus=4)], [limited], searches=1)
    state.upsert_pod(pod("first", queue="q", gpus=2, priority=5, user="u"))
    state.upsert_pod(pod("low", queue="q", gpus=2, user="v"))
    settled(state, 0.0)
    state.upsert_pod(pod("in-vain", queue="q", gpus=2, priority=5, created=1.0, user="u"))
    state.upsert_pod(pod("high", queue="q", gpus=2, priority=5, created=2.0, user="v"))
    assert not placed(settled(state, 2.0))
    assert placed(settled(state, 500.0)) == {"high": "n"}


def test_fragments_that_come_free_help_with_an_eviction_elsewhere():
    """`large` needs a whole node: `small` can move off one once `low`, on the other, is evicted for it."""
    state = cluster(
        [node("n0", gpus=4), node("n1", gpus=4)],
        [shares("q")],
        [
            pod("small", at="n0", queue="q", priority=5, controlled=True),
            pod("ends", at="n0", queue="q", gpus=3, priority=5),
            pod("low", at="n1", queue="q", gpus=2),
            pod("stays", at="n1", queue="q", gpus=2, priority=9),
        ],
    )
    settled(state, 0.0)
    state.upsert_pod(pod("large", queue="q", gpus=4, priority=5))
    for now in (1.0, 4000.0, 8000.0):
        assert not preempted(settled(state, now))
    state.remove_pod("uid-ends")
    assert preempted(run(state, 12000.0)) == [["low", "small"]]
    invariants.check(state)
