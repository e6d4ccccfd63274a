"""What starts while pods terminate is not evicted for work that fits once they have left."""

import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, refused, run, settle

QUIET = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0}
LEAVES = 35.0


def part(name, quota, parent="", weight=None):
    return Queue(name, parent, 0, (QueueResource(GPU, quota * 1000, weight=weight),))


def crowded(**leaving):
    """`big` fits `n0` once the terminating pod has left; `small`, beyond its queue's quota, fits beside that pod now."""
    nodes = [node("n0", gpus=4), node("n1", gpus=2)]
    pods = [
        pod("stays", queue="q1", gpus=2, at="n1", started=0.0),
        pod("leaves", queue="q1", gpus=2, at="n0", started=0.0, **leaving),
        pod("big", queue="q0", gpus=4, created=1.0),
        pod("small", queue="q1", gpus=2, created=2.0),
    ]
    return nodes, [part("q0", 4), part("q1", 2)], pods


def test_nothing_starts_that_would_be_evicted_for_a_job_that_waits_for_a_terminating_pod():
    state = cluster(*crowded(terminating=True, leaves=LEAVES), **QUIET)
    decided = settle(state, 5.0)
    assert (placed(decided), preempted(decided), refused(decided)["small"].code) == ({}, [], ReasonCode.FAIR_SHARE)
    for at in (15.0, 25.0):
        assert preempted(settle(state, at)) == []
    state.remove_pod("uid-leaves")
    assert placed(settle(state, LEAVES)) == {"big": "n0"}
    invariants.check(state)


def test_after_a_restart_what_victims_leave_is_not_taken_by_others():
    nodes, queues, pods = crowded()
    state = cluster(nodes, queues, pods, **QUIET)
    assert preempted(settle(state, 5.0)) == [["leaves"]]
    found = [task.pod for task in state.tasks.values()]
    found = [msgspec.structs.replace(each, terminating=True, leaves=LEAVES) if each.name == "leaves" else each for each in found]
    again = cluster(nodes, queues, found, **QUIET)
    decided = settle(again, 10.0)
    assert (placed(decided), preempted(decided)) == ({}, [])
    again.remove_pod("uid-leaves")
    assert placed(settle(again, LEAVES)) == {"big": "n0"}


def test_it_starts_once_the_terminating_pod_is_not_trusted_to_leave_any_more():
    state = cluster(*crowded(terminating=True, leaves=LEAVES), **QUIET)
    settle(state, 5.0)
    due = LEAVES + state.policy.victim_timeout
    assert state.next_due <= due
    assert placed(settle(state, due - 1.0)) == {}
    decided = [each for at in (due, due + 1.0, due + 20.0) for each in settle(state, at)]
    assert placed(decided) == {"small": "n0"}
    assert preempted(decided) == []


def test_it_starts_once_a_pod_that_stayed_on_is_trusted_to_leave():
    """With `small` its queue could lose `m0` to `waits`, until that fits where `long` leaves, which its user gave a long time."""
    pods = [
        *(pod(f"m{each}", queue="lent", gpus=2, at="n", started=0.0) for each in range(2)),
        pod("long", queue="red", gpus=3, at="n", started=0.0, terminating=True, leaves=2000.0),
        pod("waits", queue="owner", gpus=2, created=1.0),
        pod("small", queue="lent", created=2.0),
    ]
    quotas = [part("red", 0, weight=3), part("lent", 0, weight=3), part("owner", 0, weight=2)]
    state = cluster([node("n", gpus=8)], quotas, pods, **QUIET, max_grace=600, recheck=0.0)
    decided = settle(state, 5.0)
    assert (placed(decided), preempted(decided), refused(decided)["small"].code) == ({}, [], ReasonCode.FAIR_SHARE)
    assert state.next_due == 1400.0
    decided = settle(state, 1400.0)
    assert (placed(decided), preempted(decided)) == ({"small": "n"}, [])
    invariants.check(state)


class World:
    """Two or three nodes, two or three queues, below a parent or not; jobs run, some terminate, others wait."""

    def __init__(self, seed):
        rnd = random.Random(seed)
        self.gpus = [rnd.choice([3, 4, 4]) for _ in range(rnd.randint(2, 3))]
        top = ["top"] if rnd.random() < 0.5 else []
        left, weighted = sum(self.gpus), rnd.random() < 0.5
        queues = [part("top", rnd.randint(0, left))] if top else []
        self.leaves = ["q0", "q1", "q2"][: rnd.randint(2, 3)]
        for name in self.leaves:
            quota = rnd.randint(0, left)
            left -= quota
            queues.append(part(name, quota, rnd.choice(["", *top]), rnd.choice([1, 2, 3]) if weighted else None))
        self.pods, self.groups = [], []
        for number in range(rnd.randint(3, 6)):
            self._run(rnd, f"r{number}")
        for number in range(rnd.randint(2, 5)):
            self._wait(rnd, f"w{number}", float(number))
        nodes = [node(f"n{row}", gpus=gpus) for row, gpus in enumerate(self.gpus)]
        self.state = cluster(nodes, queues, self.pods, self.groups, **QUIET)

    def _run(self, rnd, name):
        size = rnd.choice([1, 1, 2, 3])
        rows = [row for row in range(len(self.gpus)) if self._free(row) >= size]
        if not rows:
            return
        going = {"terminating": True, "leaves": LEAVES} if rnd.random() < 0.4 else {}
        at, queue = f"n{rnd.choice(rows)}", rnd.choice(self.leaves)
        self.pods.append(pod(name, queue=queue, gpus=size, at=at, started=0.0, **going))

    def _free(self, row):
        return self.gpus[row] - sum(each.spec.gpus for each in self.pods if each.node == f"n{row}")

    def _wait(self, rnd, name, created):
        members, size, queue = rnd.choice([1, 1, 2, 3]), rnd.choice([1, 2, 3, 4, 4]), rnd.choice(self.leaves)
        if members > 1:
            self.groups.append(group(name, rnd.randint(1, members), queue))
        more = {"queue": queue, "gpus": size, "created": created, "group": name if members > 1 else ""}
        self.pods += [pod(f"{name}-{index}", **more) for index in range(members)]

    def play(self):
        """Passes while pods leave, for less than a minute: what is enforced later for fragments is no matter of this.

        Returns the pods that were started and evicted again, by name.
        """
        started, wrong, gone = set(), set(), {each.uid: LEAVES for each in self.pods if each.terminating}
        for now in (5.0, 15.0, 25.0, 35.0, 36.0, 45.0, 55.0):
            for uid in [uid for uid, at in gone.items() if at <= now]:
                self.state.remove_pod(uid)
                del gone[uid]
            for each in confirm(self.state, run(self.state, now)):
                if isinstance(each, Place):
                    started |= {binding.pod.name for binding in each.bindings}
                elif isinstance(each, Preempt):
                    wrong |= {victim.pod.name for victim in each.victims} & started
                    for victim in each.victims:
                        gone[victim.pod.uid] = now + 30.0
        invariants.check(self.state)
        return wrong


@pytest.mark.parametrize("part_of", range(8))
def test_in_random_worlds_what_starts_is_not_evicted_when_pods_have_left(part_of):
    found = {seed: wrong for seed in range(part_of * 40, part_of * 40 + 40) if (wrong := World(seed).play())}
    assert not found
