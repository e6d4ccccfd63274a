"""Asking whether moves are worth it changes nothing; what a search computed last is stored once, when it is over."""

import random

import pytest

from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt
from fairlead.core.preemption.worth import Worth
from fairlead.core.state.move_budget import MoveBudget
from tests.builders import cluster, node, pod, run
from tests.core.moving import LATE


class Immediate:
    """The budget of moves as it would be if each question were noted at once."""

    def __init__(self, most):
        self.most, self.left, self.at, self.refills_at = float(most), 0.0, None, 0.0

    def ask(self, now, lost, most_lost, count, *, later):
        if lost > most_lost:
            if later:
                self.refills_at = now + 60.0
            return False
        past = 0.0 if self.at is None else max(0.0, now - self.at)
        self.left = self.most if self.at is None else min(self.most, self.left + past * self.most / 60.0)
        self.at = now
        enough = self.most > 0 and self.left >= min(float(count), self.most)
        self.refills_at = 0.0 if enough else now + 60.0
        return enough


def lossy(count, max_loss=0.0, **policy):
    """Pods of which each loses work if it is moved, more from one to the next."""
    state = cluster([node("n", gpus=8)], [Queue("q")], reservations=0, **policy)
    state.upsert_class(ServiceClass("saves", checkpoint_interval=1000.0, max_loss=max_loss))
    for number in range(count):
        state.upsert_pod(pod(f"p{number}", "q", at="n", started=-50.0 * number, service_class="saves"))
    run(state, 0.0)
    return state, [state.tasks[f"uid-p{number}"] for number in range(count)]


def kept(moves):
    return moves.budget.refills_at, moves.budget._left, moves.budget._at


@pytest.mark.parametrize("seed", range(60))
def test_noting_once_leaves_what_noting_each_question_would(seed):
    draw = random.Random(seed)
    most = draw.choice((0, 1, 2, 5))
    max_loss = draw.choice((0.0, 0.0, 30.0, 200.0))
    state, tasks = lossy(6, max_loss, moves_per_minute=most)
    judge, now = Immediate(most), 0.0
    for _ in range(12):
        now += draw.choice((0.0, 7.0, 30.0, 100.0))
        state.services.begin(now)
        later, limit = draw.random() < 0.5, draw.choice((0.0, 400.0, 1e9))
        devices = draw.choice((0, 500, 2000, 8000))
        worth, before = Worth(state, now, limit, devices, later=later), kept(state.moves)
        if max_loss:
            limit = min(limit, devices / 1000 * (max_loss + 60.0))  # what a turn costs at most: the work and the restart
        for _ in range(draw.randrange(4)):
            moved = draw.sample(tasks, draw.randrange(1, 6))
            lost = sum(state.services.lost_with(task) for task in moved)
            assert worth.of(moved) == judge.ask(now, lost, limit, len(moved), later=later)
            assert kept(state.moves) == before
        worth.note()
        assert kept(state.moves) == (judge.refills_at, judge.left, judge.at)
        worth.note()
        assert kept(state.moves) == (judge.refills_at, judge.left, judge.at)
        if draw.random() < 0.5 and judge.at is not None:
            state.moves.budget.spend(1)
            judge.left -= 1


@pytest.mark.parametrize("none", [False, True])
def test_moving_nothing_asks_nothing(none):
    state, _ = lossy(1, moves_per_minute=5)
    worth, before = Worth(state, 3.0, 0.0, 8000, none=none, later=True), kept(state.moves)
    assert worth.of([]) is none
    worth.note()
    assert kept(state.moves) == before


def test_a_search_that_prunes_many_branches_notes_its_result_once(monkeypatch):
    state = cluster([node(f"n{number}", gpus=4) for number in range(3)], [Queue("q")], reservations=0)
    state.upsert_class(ServiceClass("saves", checkpoint_interval=1e9))
    for number in range(3):
        for half in range(2):
            more = {"at": f"n{number}", "started": 0.0, "service_class": "saves"}
            state.upsert_pod(pod(f"p{number}-{half}", "q", milli=500, **more))
            state.upsert_pod(pod(f"beside-{number}-{half}", "q", milli=500, **more))
        state.upsert_pod(pod(f"one-{number}", "q", at=f"n{number}", started=0.0, service_class="saves"))
        for half in range(2):
            state.remove_pod(f"uid-beside-{number}-{half}")
    state.upsert_pod(pod("wide", "q", gpus=3, created=LATE - 200.0))
    noted, asked = [], []
    searched, allowed = MoveBudget.searched, Worth.of

    def note_searched(self: MoveBudget, now: float, *, again: bool) -> None:
        noted.append(again)
        searched(self, now, again=again)

    monkeypatch.setattr(MoveBudget, "searched", note_searched)
    monkeypatch.setattr(Worth, "of", lambda self, moved: (asked.append(len(moved)), allowed(self, moved))[1])
    searches = []
    note = Worth.note
    monkeypatch.setattr(Worth, "note", lambda self: (searches.append(1), note(self))[1])
    run(state, LATE)
    assert len(asked) > 2 * len(searches)
    assert len(searches) >= len(noted) >= 1
    assert all(noted)


SAVES = ServiceClass("saves", mode="Suspend", checkpoint_interval=300.0, max_loss=60.0)


def in_the_way(ages):
    """Two nodes of four; for each, since how many seconds each of its pods of one GPU runs. `wide` needs two GPUs."""
    state = cluster([node(f"n{each}", gpus=4) for each in range(2)], [Queue("q")], reservations=0)
    state.upsert_class(SAVES)
    for number, there in enumerate(ages):
        for each, age in enumerate(there):
            state.upsert_pod(pod(f"p{number}-{each}", "q", at=f"n{number}", started=LATE - age, service_class="saves"))
    state.upsert_pod(pod("wide", "q", gpus=2, created=LATE - 3600.0, service_class="saves"))
    return state


def test_what_has_just_begun_is_not_moved_though_least_is_lost_with_it():
    """A restart takes a minute: a job of seconds would take ten times as long."""
    state = in_the_way([[5.0, 5.0, 890.0], [5.0, 910.0, 1190.0]])
    assert [each.moved for each in run(state, LATE) if isinstance(each, Preempt)] == [("uid-p1-1",)]


def test_what_has_just_begun_is_moved_once_a_restart_takes_little_of_its_time():
    state = in_the_way([[5.0] * 3, [10.0] * 3])
    now, found = LATE, []
    while not found and now < LATE + 1000.0:
        found = [each.moved for each in run(state, now) if isinstance(each, Preempt)]
        at, now = now, state.next_due
    assert (at, found) == (LATE + 590.0, [("uid-p1-0",)])


@pytest.mark.parametrize("seed", range(40))
def test_in_random_clusters_no_move_takes_a_tenth_of_the_time_that_a_job_has_run(seed):
    draw = random.Random(f"young {seed}")
    state = in_the_way(
        [[draw.choice([1.0, 30.0, 300.0, 599.0, 600.0, 601.0, 905.0, 1100.0]) for _ in range(3)] for _ in range(2)]
    )
    moved = [uid for each in run(state, LATE) if isinstance(each, Preempt) for uid in each.moved]
    assert all(LATE - state.tasks[uid].pod.started >= 600.0 for uid in moved)
    old = [task for task in state.tasks.values() if task.pod.started is not None and LATE - task.pod.started >= 600.0]
    assert moved or not any(state.services.lost_with(task) <= 2 * 120.0 for task in old)
