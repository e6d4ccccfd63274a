"""What is learned of pairs survives a restart: what is written and read back answers and goes on to learn as before."""

import random
from itertools import product

import msgspec
import pytest

from fairlead.core.pairs.learned import LearnedKind, LearnedSpeeds
from fairlead.core.pairs.speeds import Speeds

MOST = 96 * 1024


def names(number):
    """The names of a pod, of which images are often the same."""
    return f"name/ns/user/job{number}", f"images/ns/user/registry/image{number % 7}"


def learn(speeds, rng, kinds, count):
    """Measurements as pods report them, and pods that fail beside others."""
    for _ in range(count):
        first, second = names(rng.randrange(kinds)), names(rng.randrange(kinds))
        what = rng.random()
        if what < 0.25:
            speeds.alone(first, rng.uniform(0.0, 20.0))
        elif what < 0.9:
            speeds.together(first, second, (rng.uniform(0.0, 15.0), rng.uniform(0.0, 15.0)))
        else:
            speeds.stop(first, second)


def answers(speeds, kinds):
    """Which pairs may share a GPU, and what that costs, of known and of new kinds."""
    pods = [names(number) for number in range(kinds + 2)]
    losses = [speeds.loss(one, other, urgent=urgent) for one, other in product(pods, pods) for urgent in (False, True)]
    return losses, [(speeds.kind(each), speeds.ran_alone(each), speeds.base(speeds.kind(each))) for each in pods]


def restarted(speeds):
    """A scheduler that begins with what another has written, as text."""
    read = msgspec.json.decode(msgspec.json.encode(speeds.written()), type=LearnedSpeeds)
    assert read.problem() == ""
    found = Speeds()
    found.restore(read)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_next_scheduler_chooses_the_same_partners_and_goes_on_to_learn(seed):
    rng = random.Random(seed)
    kinds = rng.choice((2, 5, 12, 30))
    before = Speeds()
    learn(before, rng, kinds, rng.choice((1, 10, 60, 300)))
    after = restarted(before)
    assert answers(after, kinds) == answers(before, kinds)
    assert after.written() == before.written()
    assert not after.changed, "nothing is news"
    more = rng.random()
    for each in (before, after):
        learn(each, random.Random(more), kinds + 1, 40)
    assert answers(after, kinds + 1) == answers(before, kinds + 1)
    assert after.written() == before.written()


def test_of_very_many_kinds_the_latest_are_written_and_no_more_than_96_KiB():
    speeds, rng = Speeds(), random.Random(1)
    for number in range(4000):
        one, other = (f"name/ns/{'u' * rng.randrange(60)}/old{number + each}" for each in (0, 1))
        speeds.alone((one,), rng.uniform(9.0, 11.0))
        speeds.together((one,), (other,), (rng.uniform(4.0, 6.0), rng.uniform(4.0, 6.0)))
        speeds.stop((one,), (f"name/ns//stopped{number}",))
    latest = [f"name/ns//new{number}" for number in range(12)]
    for one, other in product(latest, latest):
        speeds.together((one,), (other,), (7.0, 8.0))
    written = speeds.written()
    assert MOST * 0.6 < len(msgspec.json.encode(written)) <= MOST
    assert written.problem() == ""
    known = [each.name for each in written.kinds]
    pairs = {(known[first], known[second]) for first, second, _ in written.beside}
    assert set(product(latest, latest)) < pairs
    assert "name/ns//stopped0" not in known
    assert "name/ns//stopped3999" in known
    after = restarted(speeds)
    table = [[each.loss((one,), (other,)) for one, other in product(latest, latest)] for each in (speeds, after)]
    assert table[0] == table[1]


def test_a_name_that_is_too_long_leaves_enough_for_the_others():
    speeds = Speeds()
    speeds.together(("small",), ("other",), (5.0, 5.0))
    speeds.together(("images/" + "x" * 2 * MOST,), ("other",), (5.0, 5.0))
    assert [each.name for each in speeds.written().kinds] == ["other", "small"]


def test_what_a_scheduler_learned_itself_goes_before():
    before, after = Speeds(), Speeds()
    before.together(("a",), ("b",), (1.0, 1.0))
    after.alone(("a",), 3.0)
    own = after.written()
    after.restore(before.written())
    assert after.written() == own


def test_only_what_is_news_is_written():
    speeds = Speeds()
    assert not speeds.changed
    speeds.alone(("a",), 10.0)
    assert speeds.changed
    speeds.changed = False
    speeds.alone(("a",), 10.1)
    assert not speeds.changed, "less than the error of a measurement"
    speeds.alone(("a",), 20.0)
    assert speeds.changed
    speeds.changed = False
    speeds.stop(("a",), ("b",))
    assert speeds.changed


A, B = LearnedKind("a", 1.0, 1.0), LearnedKind("b", None, 2.0)


@pytest.mark.parametrize(
    ("learned", "told"),
    [
        (LearnedSpeeds((A, A)), "a kind is in it twice"),
        (LearnedSpeeds((LearnedKind(""),)), "a kind has no name, or one that is too long"),
        (LearnedSpeeds((LearnedKind("a", -1.0),)), "'a' has a speed that cannot be"),
        (LearnedSpeeds((LearnedKind("a", 0.0),)), "'a' has a speed that cannot be"),
        (LearnedSpeeds((LearnedKind("a", 1e300),)), "'a' has a speed that cannot be"),
        (LearnedSpeeds((LearnedKind("a", None, float("inf")),)), "'a' has a speed that cannot be"),
        (LearnedSpeeds((A, B), ((0, 2, 1.0), (2, 0, 1.0))), "a pair is of none of its 2 kinds"),
        (LearnedSpeeds((A, B), (), ((-1, 0),)), "a pair is of none of its 2 kinds"),
        (LearnedSpeeds((A, B), ((0, 1, 1.0),)), "a pair has a speed of only one of its kinds"),
        (LearnedSpeeds((A, B), ((0, 0, 1.0), (0, 0, 1.0))), "a pair is in it twice"),
        (LearnedSpeeds((A, B), (), ((0, 1), (1, 0))), "a pair is in it twice"),
        (LearnedSpeeds((A, B), ((1, 1, -3.0),)), "'b' has a speed beside another that cannot be"),
        (LearnedSpeeds((LearnedKind("c"),), ((0, 0, 1.0),)), "'c' has a speed beside another that cannot be"),
        (LearnedSpeeds(tuple(LearnedKind(str(number)) for number in range(8193))), "it has more kinds or pairs than are kept"),
        (LearnedSpeeds((A, B), ((0, 1, 1.0), (1, 0, 0.0)), ((0, 1),)), ""),
    ],
)
def test_what_no_scheduler_writes_is_named(learned, told):
    assert learned.problem() == told
