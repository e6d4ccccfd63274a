"""Rows with enough free of a resource, and how many have too little, follow changes: as a scan of all rows finds."""

import random

import numpy as np
import pytest

from fairlead.core.nodes import free_rows, shortages
from fairlead.core.nodes.row_changes import RowChanges

_MOST = 8  # rows that are named


class Rows:
    """Random amounts of two resources, which change one by one and all at once."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.count = rnd.choice([3, 20, 200])
        self.changes = RowChanges(256)
        self.most = rnd.choice([1, 4, 8])
        self.free = [np.array([self.amount() for _ in range(self.count)], np.int64) for _ in range(2)]

    def amount(self):
        return self.rnd.choice([-1, 0, 0, 0, self.rnd.randint(0, self.most)])

    def change(self):
        rnd = self.rnd
        for _ in range(rnd.choice([0, 1, 1, 3, 20, 100])):
            row = rnd.randrange(self.count)
            self.free[rnd.randrange(2)][row] = self.amount()
            self.changes.touch(row)
        if rnd.random() < 0.05:
            self.changes.renew()


@pytest.mark.parametrize("seed", range(30))
def test_few_rows_with_enough_are_named_and_no_others(seed):
    rows = Rows(random.Random(seed))
    asked, named = free_rows.FreeRows(rows.changes), 0
    for _ in range(200):
        rows.change()
        column, amount = rows.rnd.randrange(2), rows.rnd.randint(1, rows.most)
        enough = np.flatnonzero(rows.free[column] >= amount).tolist()
        found = asked.at_least(column, amount, rows.free[column])
        assert (found if found is None else list(found)) == (enough if len(enough) <= _MOST else None)
        named += found is not None
    assert named or rows.count > _MOST


@pytest.mark.parametrize("seed", range(30))
def test_rows_with_too_little_are_counted(seed):
    rows = Rows(random.Random(seed))
    asked = shortages.Shortages(rows.changes)
    sets = [
        np.array(sorted(rows.rnd.sample(range(rows.count), rows.rnd.randint(0, rows.count))), np.int32)
        for _ in range(rows.rnd.choice([1, 3, 40]))
    ]
    for _ in range(200):
        rows.change()
        among, column, amount = rows.rnd.choice(sets), rows.rnd.randrange(2), rows.rnd.randint(0, rows.most + 1)
        scanned = int(np.count_nonzero(rows.free[column][among] < amount))
        assert asked.count(among, column, amount, rows.free[column]) == scanned
