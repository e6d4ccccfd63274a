"""Row changes: which rows changed since a place in the ring, however many changes there were."""

import random

import pytest

from fairlead.core.nodes.row_changes import RowChanges


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_changed_since_a_place_are_those_that_were_touched(seed):
    rnd = random.Random(seed)
    rows = rnd.choice([1, 10, 100, 1000])
    changes, touched, generation = RowChanges(rows), [], 0
    for _ in range(rnd.choice([10, 1000])):
        for _ in range(rnd.choice([1, 5, 200])):
            row = rnd.randrange(rnd.choice([1, rows]))
            changes.touch(row)
            if changes.generation != generation:
                generation, touched = changes.generation, []
            touched.append(row)
        place = rnd.randint(max(0, changes.end - 300), changes.end)
        found = changes.since(place).tolist()
        assert len(found) == len(set(found))
        assert set(found) == set(touched[place:])
        if rnd.random() < 0.01:
            changes.renew()
            generation, touched = changes.generation, []
            assert not len(changes.since(changes.end))
