"""Who is counted: an event costs the jobs of those whom it concerns, and the verdicts are those of counting all jobs each time."""

import random
from operator import attrgetter

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.queues import Queue, UserLimits
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import cluster, confirm, node, pod, run

USERS = ("ann", "bob", "eve", "joe")


def limits(draw, most):
    return UserLimits(submitted=draw.choice((None, 1, 2, 4)), running=draw.choice((None, None, most)))


def policies(draw):
    """Queues in a tree, some of which limit jobs of each user, some of all together, some neither."""
    teams = (Requirement("team", "In", ("a",)),)
    made = [Queue("top"), Queue("left", "top"), Queue("right", "top", namespaces=teams), Queue("leaf", "left"), Queue("free")]
    return {each.name: limited(draw, each) for each in made}


def limited(draw, queue):
    together = UserLimits(submitted=draw.choice((3, 6, 9))) if draw.random() < 0.3 else None
    return msgspec.structs.replace(queue, per_user=limits(draw, 2) if draw.random() < 0.6 else None, jobs=together)


class Twins:
    """Two states to which the same happens. In the other, all jobs are counted whenever any are."""

    def __init__(self, queues):
        self.states = [cluster([node("n", gpus=4), node("m", gpus=2)], queues.values()) for _ in range(2)]
        census = self.states[1].tables.census
        tasks = self.states[1].tables.tasks
        census.due = lambda: (list(tasks.values()), [])

    def both(self, event, *given):
        for state in self.states:
            attrgetter(event)(state)(*given)

    def decide(self, now):
        decided = [run(state, now) for state in self.states]
        assert repr(decided[0]) == repr(decided[1])
        for state, made in zip(self.states, decided, strict=True):
            found = [each for each in made if isinstance(each, Place | Preempt)]
            confirm(state, found)
            for each in found:
                for victim in each.victims if isinstance(each, Preempt) else ():
                    state.remove_pod(victim.pod.uid)
        self.compare()

    def compare(self):
        mine, plain = self.states
        assert list(mine.tasks) == list(plain.tasks)
        for uid, task in mine.tasks.items():
            other = plain.tasks[uid]
            assert (task.state, task.queue, task.row, task.unit is None) == (
                other.state,
                other.queue,
                other.row,
                other.unit is None,
            ), uid
            assert (uid in mine.tables.census.applicants) == (uid in plain.tables.census.applicants), uid
        assert mine.tables.census.problems() == []


@pytest.mark.parametrize("seed", range(60))
def test_verdicts_are_those_of_counting_all_jobs(seed):
    draw, shared = random.Random(seed), seed % 3 == 0  # a gang of several users runs for whichever came first
    queues = policies(draw)
    twins = Twins(queues)
    twins.both("upsert_class", ServiceClass("vip"))
    names = list(queues)
    for step in range(70):
        what = draw.random()
        uids = sorted(twins.states[0].tasks)
        uid = draw.choice(uids) if uids else ""
        group = draw.choice(("", "", "g1", "g2"))
        user = draw.choice(USERS) if shared or not group else USERS[int(group[1])]
        if what < 0.5 or not uids:
            fresh = pod(
                f"p{step}",
                queue=draw.choice(names),
                user=user,
                gpus=draw.choice((1, 1, 2)),
                group=group,
                created=float(draw.randrange(50)),
                service_class=draw.choice(("", "", "vip")),
                priority=draw.choice((0, 0, 5)),
                gated=draw.random() < 0.1,
                at=draw.choice(("", "", "", "", "n", "gone")),
                terminating=draw.random() < 0.05,
            )
            twins.both("upsert_pod", fresh)
        elif what < 0.65:
            twins.both("remove_pod", uid)
        elif what < 0.75:
            known = twins.states[0].tasks[uid].pod
            changed = msgspec.structs.replace(
                known,
                queue=draw.choice((known.queue, draw.choice(names))),
                user=known.user if known.group and not shared else draw.choice((known.user, draw.choice(USERS))),
                terminating=known.terminating or draw.random() < 0.3,
                gated=draw.random() < 0.1,
            )
            twins.both("upsert_pod", changed)
        elif what < 0.82:
            group = Group("ns", draw.choice(("g1", "g2")), draw.choice((1, 2)), queue=draw.choice(("", *names)))
            twins.both("upsert_group", group)
        elif what < 0.87:
            name = draw.choice(names)
            queues[name] = limited(draw, queues[name])
            if draw.random() < 0.3 and name in ("right", "leaf"):
                queues[name] = msgspec.structs.replace(queues[name], parent=draw.choice(("", "top", "free")))
            twins.both("upsert_queue", queues[name])
        elif what < 0.9:
            name = draw.choice(names)
            twins.both("remove_queue", name)
        elif what < 0.93:
            twins.both("bind_failed", uid, float(step))
        elif what < 0.95:
            twins.both(*(("remove_node", "m") if step % 2 else ("upsert_node", node("m", gpus=2))))
        elif what < 0.96:
            twins.both("isolation.half_applied", uid)
        else:
            labels = {"team": draw.choice("ab")}
            twins.both("upsert_namespace", Namespace("ns", labels))
        if draw.random() < 0.7:
            twins.decide(1000.0 + 10 * step)
            if not shared:
                invariants.check(twins.states[0])


def test_others_are_not_counted_when_a_pod_comes():
    state = cluster([node("n", gpus=2)], [Queue("q", per_user=UserLimits(submitted=3))])
    for number in range(9):
        state.upsert_pod(pod(f"many-{number}", queue="q", user="ann", created=float(number)))
    run(state)
    state.upsert_pod(pod("few-0", queue="q", user="bob"))
    run(state)
    counted = []
    beyond = state.admission.beyond
    state.admission.beyond = lambda tasks: counted.append(len(tasks)) or beyond(tasks)
    state.upsert_pod(pod("few-1", queue="q", user="bob"))
    run(state)
    assert counted == [0], "bob is within the limit, and nothing of ann's has changed"
    state.remove_pod("uid-many-8")
    run(state)
    assert counted == [0, 8]
