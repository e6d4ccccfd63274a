"""Sets of items in the order of their sums: all of them, each once, as listing and sorting gives them."""

import random
from itertools import combinations, islice

from fairlead.core.preemption.ascending import ascending


def test_as_listing_all_sets_gives_them():
    for seed in range(60):
        rnd = random.Random(seed)
        weights = sorted((rnd.randint(0, 5), rnd.randint(0, 3)) for _ in range(rnd.randint(0, 8)))
        found = list(ascending(weights))
        listed = [some for size in range(1, len(weights) + 1) for some in combinations(range(len(weights)), size)]
        assert sorted(found) == sorted(listed)
        sums = [tuple(map(sum, zip(*(weights[at] for at in some), strict=True))) for some in found]
        assert sums == sorted(sums)


def test_the_first_of_very_many_come_without_the_rest():
    assert list(islice(ascending([(at,) for at in range(1, 200)]), 4)) == [(0,), (1,), (0, 1), (2,)]
