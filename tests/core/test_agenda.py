"""The agenda against a plain dictionary of times."""

import random

from fairlead.core.model.agenda import Agenda


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
