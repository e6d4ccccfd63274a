"""Agendas against plain dictionaries of times; timers; backoffs."""

import random

from fairlead.core.model.agenda import Agenda, Timers
from fairlead.core.model.backoff import backoff
from fairlead.core.model.undo import UndoLog


def test_it_says_what_a_dictionary_would_say_and_takes_no_more_memory():
    for seed in range(20):
        draw = random.Random(seed)
        agenda, judge, now = Agenda(), {}, 0.0
        for _ in range(2000):
            key = str(draw.randrange(40))
            match draw.choice(("put", "put", "put", "drop", "due")):
                case "put":
                    judge[key] = now + draw.randrange(1, 500)
                    agenda.put(key, judge[key])
                case "drop":
                    judge.pop(key, None)
                    agenda.drop(key)
                case "due":
                    now += draw.randrange(20)
                    assert agenda.passed(now) == sorted(each for each, at in judge.items() if at <= now)
                    expected = [each for _, each in sorted((at, each) for each, at in judge.items() if at <= now)]
                    assert list(agenda.due(now)) == expected
                    judge = {each: at for each, at in judge.items() if at > now}
            assert agenda.next == min(judge.values(), default=None)
            assert len(agenda) == len(judge)
            assert agenda.entries <= 2 * len(judge) + 65


def test_what_is_put_again_while_it_is_read_comes_at_its_new_time():
    agenda = Agenda()
    agenda.put("a", 1.0)
    agenda.put("b", 2.0)
    seen = []
    for key in agenda.due(3.0):
        seen.append(key)
        if key == "a" and seen.count("a") < 3:
            agenda.put("a", 2.5)
    assert seen == ["a", "b", "a", "a"]


def test_a_trial_leaves_the_times_as_they_were():
    agenda, log = Agenda(), UndoLog()
    agenda.put("old", 5.0)
    mark = log.mark()
    for key in ("old", "new"):
        log.call(agenda.restore, (key, agenda.at(key)))
        agenda.put(key, 1.0)
    log.rollback(mark)
    assert agenda.at("old") == agenda.next == 5.0
    assert "new" not in agenda


def test_the_next_pass_is_due_for_the_first_timer():
    timers, derived = Timers(), [None]
    assert timers.next is None
    starts, limits = timers.agenda("starts"), timers.agenda("limits")
    timers.derive("derived", lambda: derived[0])
    assert timers.next is None
    starts.put("a", 7.0)
    limits.put("b", 5.0)
    assert timers.next == 5.0
    derived[0] = 3.0
    assert timers.next == timers.of("derived") == 3.0
    derived[0] = None
    limits.drop("b")
    assert timers.next == timers.of("starts") == 7.0
    assert timers.of("limits") is None


def test_a_backoff_doubles_up_to_its_limit():
    assert [backoff(10.0, times, 60.0) for times in (1, 2, 3, 4, 5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert backoff(1.0, 5000, 1e9) == 2.0**16, "a float holds no more than a thousand doublings"
