"""What a cell can serve, against all ways to give its devices to classes."""

from fractions import Fraction
from itertools import product
from random import Random

import pytest

from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.vectors import maximal


def serves(uses, free, most, once, chosen):
    """The vector that a choice of a class (or none) for each device serves; None: it is not allowed."""
    left, vector, single = list(free), [0] * len(most), set()
    for local, class_ in enumerate(chosen):
        if class_ is None:
            continue
        for counter, amount in uses[local]:
            left[counter] -= amount
        vector[class_] += 1
        for number in once.get((local, class_), ()):
            if number in single:
                return None
            single.add(number)
    if any(each < 0 for each in left) or any(map(int.__gt__, vector, most)):
        return None
    return tuple(vector)


def draw_cell(draw):
    size, counters, kinds = draw.randint(1, 6), draw.randint(1, 4), draw.randint(1, 3)
    unit = draw.choice((1, Fraction(1, 3), 10**12))
    uses = [
        tuple((at, draw.randint(1, 3) * unit) for at in sorted(draw.sample(range(counters), draw.randint(0, counters))))
        for _ in range(size)
    ]
    free = [draw.randint(-1, 6) * unit for _ in range(counters)]
    classes = [sorted(draw.sample(range(kinds), draw.randint(0, kinds))) for _ in range(size)]
    most = [draw.randint(0, 4) for _ in range(kinds)]
    once = {}
    for local in range(size):
        for class_ in classes[local]:
            if draw.random() < 0.3:
                once[local, class_] = draw.sample(range(3), draw.randint(1, 2))
    return uses, classes, free, most, once


def test_the_vectors_are_the_maximal_ones_and_their_devices_serve_them():
    several = 0
    for seed in range(600):
        uses, classes, free, most, once = draw_cell(Random(seed))
        free = [max(0, each) for each in free] if seed % 2 else free
        found = maximal(uses, classes, free, most, once)
        ways = [
            serves(uses, [max(0, each) for each in free], most, once, each) for each in product(*([None, *of] for of in classes))
        ]
        ways = {each for each in ways if each is not None}
        best = {each for each in ways if not any(each != other and all(map(int.__le__, each, other)) for other in ways)}
        assert set(found) == best, seed
        for vector, picks in found.items():
            chosen = dict(picks)
            assert len(chosen) == len(picks) == sum(vector)
            assert all(class_ in classes[local] for local, class_ in picks)
            assert (
                serves(uses, [max(0, each) for each in free], most, once, [chosen.get(at) for at in range(len(uses))]) == vector
            )
        several += len(found) > 1
    assert several > 100


def test_too_many_states_give_up():
    uses = [((0, 1 << at),) for at in range(40)]
    with pytest.raises(GaveUp):
        maximal(uses, [[0]] * 40, [1 << 39], [40], {})
