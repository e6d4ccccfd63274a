"""Ranking: for each class of identical pods the score of every node.

A shape holds one integer key per node, score and name in one number, -1 where the node cannot
hold it, and the maximum of every block of 64 rows. A node that changes is entered into the
table's ring; a shape that is asked for its best node repairs just the rows entered since it was
last asked. So the cost of a decision follows what changed, not how many nodes there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.units import NOT_REQUESTED, WHOLE
from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from fairlead.core.pods.filters import beside, devices, relations, resources
from fairlead.core.pods.filters.base import Relation, Surroundings
from fairlead.core.pods.node_terms import NodeTerms
from fairlead.core.pods.scores.base import Strategy
from fairlead.core.pods.scores.numa import aligned
from fairlead.core.pods.scores.upstream import Preferences
from fairlead.core.pods.shapes import Shape

BLOCK = 64
_NONE = -1
_NAME_RANK_MASK = (1 << NAME_RANK_BITS) - 1
_FEW = 3
_FEW_DIFFERING = 8  # so many rows at most are scored one by one, in half the time of some twenty calls of numpy
_FEW_COUNTED = 8  # so many changed rows are counted one by one, which costs as much as some hundred at once


class Ranking:
    """The score of every node for a shape. Made by `ShapeTable`; pods of one shape share it.

    gpus: (column, amount) of the GPUs that a pod asks for, if any.
    """

    def __init__(self, shape: Shape, terms: NodeTerms, around: Surroundings, strategy: Strategy) -> None:
        self.shape = shape
        self.terms = terms
        self.nodes = nodes = around.nodes
        self.around = around
        self.strategy = strategy
        self._changes, self._classes, self._name_ranks = nodes.changes, nodes.classes, nodes.name_ranks
        # Upstream's scores always count what is preferred; ours put it first, where a pod prefers anything at all.
        self._wishes = shape.profile == KUBERNETES_PROFILE or shape.wants_company or bool(shape.spec.preferred_nodes)
        gpu_columns = nodes.gpu_columns() if shape.gpus else ()
        self.gpus = next((each for each in shape.demand if each[0] in gpu_columns), None)
        self._need: Ints = np.zeros((0, 1), np.int64)
        self._most = (-1, -1, 0)  # how many nodes hold at most, and of which nodes that was found
        self._rows_for_one = (-1, -1, 0)  # how many rows hold one, likewise
        self._key: Ints = np.zeros(0, np.int64)
        self._blocks: Ints = np.zeros(0, np.int64)
        self._cursor = 0
        self._held: Ints | None = None  # what `counts` found, and when
        self._held_at = (-1, -1)
        self._generation = -1
        self._epoch = -1
        self._relations: tuple[Relation, ...] = ()
        self._pairs_epoch = (-1, -1)
        self._preferences: Preferences | None = None
        self._preferences_epoch = (-1, -1)

    @property
    def nbytes(self) -> int:
        """Memory held by the scores."""
        return self._key.nbytes + self._blocks.nbytes

    def forget(self) -> None:
        """Give the memory back; the next question rebuilds."""
        self._key = self._blocks = np.zeros(0, np.int64)
        self._generation = -1

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What must be judged of this shape beyond nodes by themselves."""
        epoch = self._epoch_of_pairs()
        if self._pairs_epoch != epoch:
            stale, self._relations = self._relations, relations(self.shape, self.around)
            self._pairs_epoch = epoch
            for each in stale:
                each.close()
        return self._relations

    @property
    def preferences(self) -> Preferences:
        """What this shape prefers among feasible nodes."""
        epoch = self._epoch_of_pairs()
        if self._preferences is None or self._preferences_epoch != epoch:
            stale, self._preferences = self._preferences, Preferences(self.shape, self.around)
            self._preferences_epoch = epoch
            if stale is not None:
                stale.close()
        return self._preferences

    def prepare(self) -> None:
        """Begin to count what this shape asks about, before anything is tried with it."""
        _ = self.relations
        if self._wishes:
            _ = self.preferences

    def surroundings(self) -> int:
        """Changes when something elsewhere may have opened a place for this shape."""
        return hash((self._epoch_of_pairs(), *(each.version() for each in self.relations)))

    def _epoch_of_pairs(self) -> tuple[int, int]:
        """Changes when other pods' terms, or namespaces, may match this shape differently."""
        labels = self.shape.labels
        return self.around.pairs.epoch + self.around.numa.epoch, labels.epoch if labels is not None else 0

    def close(self) -> None:
        """The shape is forgotten."""
        for each in self._relations:
            each.close()
        self._relations = ()
        if self._preferences is not None:
            self._preferences.close()
            self._preferences = None
        shape, pairs = self.shape, self.around.pairs
        if shape.labels is not None:
            pairs.drop(shape.number)
            pairs.leave(shape.labels)

    # -- questions -----------------------------------------------------------------------------

    def best(self) -> int:
        """The row where a pod of this shape is placed best, or -1."""
        few = self.few_rows() if self.gpus is not None else None
        if few is not None and (not few or not (self.relations or self._prefers())):
            return self._best_of(few)
        self._repair()
        if self.relations or self._prefers():
            keys = self.ranked()
            row = int(keys.argmax()) if len(keys) else -1
            return row if row >= 0 and keys.item(row) >= 0 else -1
        blocks = self._blocks
        block = int(blocks.argmax())
        key = blocks.item(block)
        return -1 if key < 0 else self._name_ranks.rows[key & _NAME_RANK_MASK]

    def few_rows(self) -> Sequence[int] | None:
        """The only rows with as many free GPUs as a pod asks for, if they are few; None: any row may do."""
        if self.gpus is None:
            return None
        nodes, (column, amount) = self.nodes, self.gpus
        return nodes.free_rows.at_least(column, amount, nodes.free[column][: nodes.count])

    def _best_of(self, rows: Sequence[int]) -> int:
        """The best of a few rows, by what is there now; -1: none fits."""
        if rows and self._name_ranks.unranked:
            self._name_ranks.settle()
        keys = [(self._key_of(row), row) for row in rows if self.fits_alone(row)]
        return max(keys)[1] if keys else -1

    def _prefers(self) -> bool:
        return self._wishes and self.preferences.any

    def ranked(self) -> Ints:
        """The keys with what the shape prefers among feasible rows; do not write to them."""
        keys = self.preferences.ordered(self.keys()) if self._prefers() else self.keys()
        return aligned(keys, self.relations) if self.around.numa.any else keys

    def keys(self) -> Ints:
        """The score key of every row, greater is better, -1 infeasible; shape (rows,)."""
        self._repair()
        keys = self._key[: self.nodes.count]
        refused = self.refused() if self.relations else None
        return keys if refused is None else np.where(refused, _NONE, keys)

    def alone(self) -> npt.NDArray[np.bool_]:
        """For each row whether it fits there, whatever is around."""
        self._repair()
        fits: npt.NDArray[np.bool_] = self._key[: self.nodes.count] >= 0
        return fits

    def scores_alone(self) -> Ints:
        """The score key of every row, whatever is around it; do not write to them."""
        self._repair()
        return self._key[: self.nodes.count]

    def refused(self) -> npt.NDArray[np.bool_] | None:
        """For each row whether a relation rules it out; None where none does."""
        together: npt.NDArray[np.bool_] | None = None
        for each in self.relations:
            if each.stop() is not None:
                return np.ones(self.nodes.count, np.bool_)
            refused = each.refused() if each.applies() else None
            if refused is not None:
                together = refused if together is None else together | refused
        return together

    def fits_row(self, row: int) -> bool:
        """Whether a pod of this shape fits a row now, asked of the columns themselves."""
        if not self.fits_alone(row):
            return False
        return all(each.stop() is None and (not each.applies() or each.refuses(row) is None) for each in self.relations)

    def fits_alone(self, row: int) -> bool:
        """Whether it fits a row, whatever is around."""
        nodes, shape = self.nodes, self.shape
        if not self.admits(row) or not resources.fits_one(nodes, shape.demand, row):
            return False
        if shape.minds_neighbours and not beside.fits_one(nodes, shape, row):
            return False
        return not shape.asks_devices or devices.fits_one(nodes, shape, row)

    def counts(self) -> Ints:
        """How many pods of this shape each row holds one after the other; shape (rows,), not to be written to."""
        changes = self._changes
        if self._name_ranks.unranked:
            self._name_ranks.settle()
        held = self._counted_since()
        if held is None:
            held = self._count()
        held.flags.writeable = False
        self._held, self._held_at = held, (changes.generation, changes.end)
        return held

    def _counted_since(self) -> Ints | None:
        """What `counts` found last, with the few rows counted anew that changed since then; None if that does not do."""
        changes, held, (generation, place) = self._changes, self._held, self._held_at
        end = changes.end
        if held is None or generation != changes.generation or end - place > _FEW_COUNTED or len(held) != self.nodes.count:
            return None
        if place != end:
            held = held.copy()
            for row in set(changes.ring[place:end].tolist()):
                held[row] = self.count_on(row)
        return held

    def _count(self) -> Ints:
        nodes, shape = self.nodes, self.shape
        rows = slice(0, nodes.count)
        held = resources.counts(nodes.free, shape.demand, rows)
        held[~(nodes.open[rows] & self.admitted(rows))] = 0
        if shape.asks_devices:
            states = nodes.device[rows]
            held[~devices.fits(nodes, shape, rows, shape.fit.costs(states))] = 0
            held = np.minimum(held, shape.fit.counts(states))
        if shape.minds_neighbours:
            held = beside.counts(nodes, shape, rows, held)
        return held

    def count_on(self, row: int) -> int:
        """How many pods of this shape one row holds one after the other."""
        nodes, shape = self.nodes, self.shape
        if not nodes.open.item(row) or not self.admits(row):
            return 0
        held = min((max(0, nodes.free[column].item(row)) // amount for column, amount in shape.demand), default=0)
        if held and shape.asks_devices:
            held = min(held, shape.fit.count(nodes.device.item(row))) if devices.fits_one(nodes, shape, row) else 0
        if held and shape.minds_neighbours:
            held = beside.counts(nodes, shape, slice(row, row + 1), np.array([held])).item(0)
        return held

    def ceiling(self) -> int:
        """How many pods of this shape the cluster would hold if nothing else ran; exact by resource."""
        nodes, shape = self.nodes, self.shape
        rows = slice(0, nodes.count)
        held = self.ceilings()
        held[~(nodes.open[rows] & self.admitted(rows))] = 0
        if shape.asks_devices and shape.gpu_milli < WHOLE:
            held[~nodes.shares[rows]] = 0
        return int(held.sum())

    def most(self) -> int:
        """A bound of `ceiling`, found anew only when nodes have changed: of parts of several devices it may be too large."""
        nodes, shape = self.nodes, self.shape
        if self._most[:2] != (nodes.described, self._classes.epoch):
            rows = slice(0, nodes.count)
            held = resources.counts(nodes.alloc, shape.demand, rows)
            held[~(nodes.open[rows] & self.admitted(rows))] = 0
            if shape.asks_devices and shape.gpu_milli < WHOLE:
                there = nodes.devices.total[nodes.devices.whole[nodes.device[rows]]] // WHOLE
                held = np.minimum(held, np.where(there >= shape.gpus, there * (WHOLE // shape.gpu_milli) // shape.gpus, 0))
                held[~nodes.shares[rows]] = 0
            self._most = nodes.described, self._classes.epoch, int(held.sum())
        return self._most[2]

    def holds(self, count: int) -> bool:
        """Whether `most` is at least `count`. Mostly the rows that hold one suffice, found without a division."""
        nodes, known = self.nodes, (self.nodes.described, self._classes.epoch)
        if self._rows_for_one[:2] != known:
            one = devices.holds_one(nodes, self.shape, slice(0, nodes.count)) & self.admitted(slice(0, nodes.count))
            self._rows_for_one = *known, int(np.count_nonzero(one))
        return self._rows_for_one[2] >= count or self.most() >= count

    def ceilings(self) -> Ints:
        """How many pods of this shape the amounts of each row hold, were it empty and open to them; shape (rows,)."""
        nodes, shape = self.nodes, self.shape
        held = resources.counts(nodes.alloc, shape.demand, slice(0, nodes.count))
        if shape.asks_devices:
            held = np.minimum(held, shape.fit.counts(nodes.devices.whole[nodes.device[: nodes.count]]))
        return held

    def admitted(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """For each row whether the static filters admit this shape; not to be written to."""
        result: npt.NDArray[np.bool_] = self.terms.admitted()[rows]
        return result

    def admits(self, row: int) -> bool:
        """Whether the static filters admit this shape to one row."""
        return self.terms.admits(row)

    # -- upkeep --------------------------------------------------------------------------------

    def _repair(self) -> None:
        changes, strategy = self._changes, self.strategy
        if self._name_ranks.unranked:
            self._name_ranks.settle()
        if self._generation != changes.generation or self._epoch != strategy.epoch:
            self._rebuild()
            return
        start, end = self._cursor, changes.end
        behind = end - start
        if not behind:
            return
        self._cursor = end
        rows = changes.ring[start:end] if behind <= _FEW else changes.since(start)
        if len(rows) <= _FEW_DIFFERING:
            for row in rows.tolist():
                self._repair_row(row)
        elif len(rows) * 2 > self.nodes.count:
            self._rebuild()
        else:
            self._repair_rows(rows)

    def _rebuild(self) -> None:
        nodes = self.nodes
        size = -(-max(nodes.count, 1) // BLOCK) * BLOCK
        if len(self._key) != size:
            self._key = np.full(size, _NONE, np.int64)
        self._score_all(nodes.count)
        self._key[nodes.count :] = _NONE
        self._blocks = self._key.reshape(-1, BLOCK).max(axis=1)
        self._cursor = self._changes.end
        self._generation = self._changes.generation
        self._epoch = self.strategy.epoch

    @property
    def need(self) -> Ints:
        """The demand as one amount per line of the nodes' matrix, shape (resources, 1)."""
        if len(self._need) != len(self.nodes.matrix):
            self._need = np.full((len(self.nodes.matrix), 1), NOT_REQUESTED, np.int64)
            for column, amount in self.shape.demand:
                self._need[column, 0] = amount
        return self._need

    def _score_all(self, count: int) -> None:
        """The keys of all rows, in place, without gathering anything: the same as `_scores` of each."""
        nodes, shape = self.nodes, self.shape
        rows = slice(0, count)
        ok = self.admitted(rows).copy()
        for column, amount in shape.demand:
            ok &= nodes.free[column][rows] >= amount
        states = nodes.device[rows]
        costs = shape.fit.costs(states) if shape.asks_devices else None
        if costs is not None:
            ok &= devices.fits(nodes, shape, rows, costs)
        if shape.minds_neighbours:
            ok &= beside.fits(nodes, shape, rows)
        if np.count_nonzero(ok) * 2 < count:
            self._key[rows] = _NONE
            fitting = np.flatnonzero(ok).astype(np.int32)
            if len(fitting):
                self._key[fitting] = self._scores(fitting)
            return
        scores = self.strategy.rows(shape, rows, states, costs)
        scores <<= NAME_RANK_BITS
        scores |= self._name_ranks.column[rows]
        scores[~ok] = _NONE
        self._key[rows] = scores

    def _scores(self, rows: npt.NDArray[np.int32]) -> Ints:
        """The keys of the given rows. Only those that fit are scored: of what changed, most is full."""
        nodes, shape = self.nodes, self.shape
        ok = resources.fits(nodes, self.need, rows)
        ok &= self.admitted(rows)
        keys = np.full(len(rows), _NONE, np.int64)
        if shape.asks_devices:
            ok &= devices.fits(nodes, shape, rows, shape.fit.costs(nodes.device[rows]))
        if shape.minds_neighbours:
            ok &= beside.fits(nodes, shape, rows)
        places = np.flatnonzero(ok)
        if len(places) <= _FEW:
            for place in places.tolist():
                keys[place] = self._key_of(rows.item(place))
            return keys
        fitting = rows[places]
        states = nodes.device[fitting]
        scores = self.strategy.rows(shape, fitting, states, shape.fit.costs(states) if shape.asks_devices else None)
        scores <<= NAME_RANK_BITS
        scores |= self._name_ranks.column[fitting]
        keys[places] = scores
        return keys

    def _key_of(self, row: int) -> int:
        return (self.strategy.row(self.shape, row) << NAME_RANK_BITS) | self._name_ranks.column.item(row)

    def _repair_rows(self, rows: npt.NDArray[np.int32]) -> None:
        if self.nodes.count > len(self._key):
            self._rebuild()
            return
        self._key[rows] = self._scores(rows)
        grid = self._key.reshape(-1, BLOCK)
        if len(rows) * 2 > len(self._blocks):
            self._blocks = grid.max(axis=1)
        else:
            blocks = rows // BLOCK
            self._blocks[blocks] = grid[blocks].max(axis=1)

    def _repair_row(self, row: int) -> None:
        key = self._key
        if row >= len(key):
            self._rebuild()
            return
        new = self._key_of(row) if self.fits_alone(row) else _NONE
        old = key.item(row)
        key[row] = new
        block = row // BLOCK
        top = self._blocks.item(block)
        if new >= top:
            self._blocks[block] = new
        elif old == top:
            self._blocks[block] = key[block * BLOCK : (block + 1) * BLOCK].max()
