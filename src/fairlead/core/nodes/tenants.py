"""Tenants: whose pods are on which nodes, as far as some job has nodes to itself.

A job of a class with `isolation: Node` shares no node with another job's pods that have GPUs. For each row two numbers decide:
how many pods with GPUs are there, and how many pods of such jobs; less those of the job that asks. Pods whose place is given
away count until they are gone. Nothing is counted before the first such job is known. `filters/node_isolation` judges by it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fairlead.core.model.arrays import Ints, Mask, Rows
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.undo import UndoLog

_NOTHING: dict[int, int] = {}


class Shape(Protocol):
    """What is counted of a shape. counted_milli: its GPUs and parts of GPUs."""

    spec: PodSpec
    counted_milli: int


class Tenants:
    """gpus: pods with GPUs of each row; isolated: pods of jobs that have their nodes to themselves. active: pods are counted."""

    def __init__(self, log: UndoLog, capacity: int) -> None:
        self._log = log
        self.active = False
        self.gpus: Ints = np.zeros(capacity, np.int64)
        self.isolated: Ints = np.zeros(capacity, np.int64)
        self._gpus_of: dict[str, dict[int, int]] = {}  # of such jobs; rows that once counted may remain with 0
        self._isolated_of: dict[str, dict[int, int]] = {}

    def grow(self) -> None:
        """There are twice as many rows."""
        self.gpus = np.concatenate([self.gpus, np.zeros_like(self.gpus)])
        self.isolated = np.concatenate([self.isolated, np.zeros_like(self.isolated)])

    def clear(self, row: int) -> None:
        """A row is vacant."""
        self.gpus[row] = self.isolated[row] = 0
        for rows in (*self._gpus_of.values(), *self._isolated_of.values()):
            rows.pop(row, None)

    def forget(self) -> None:
        """Count anew from nothing."""
        self.gpus[:] = 0
        self.isolated[:] = 0
        self._gpus_of.clear()
        self._isolated_of.clear()

    def add(self, shape: Shape, row: int, by: int) -> None:
        """A pod came to a row (1) or left it (-1)."""
        log, job = self._log, shape.spec.isolated
        if shape.counted_milli:
            log.put(self.gpus, row, self.gpus.item(row) + by)
            if job:
                self._count(self._gpus_of, job, row, by)
        if job:
            log.put(self.isolated, row, self.isolated.item(row) + by)
            self._count(self._isolated_of, job, row, by)

    def _count(self, counts: dict[str, dict[int, int]], job: str, row: int, by: int) -> None:
        rows = counts.get(job)
        if rows is None:
            rows = counts[job] = {}
        self._log.add(rows, row, by)
        if not self._log.depth and not rows[row]:
            del rows[row]
            if not rows:
                del counts[job]

    def refuses(self, shape: Shape, row: int) -> bool:
        """Whether pods of other jobs keep a pod of a shape off a row."""
        job, asks = shape.spec.isolated, shape.counted_milli
        if not job:
            return bool(asks) and self.isolated.item(row) > 0
        if self.gpus.item(row) > self._gpus_of.get(job, _NOTHING).get(row, 0):
            return True
        return bool(asks) and self.isolated.item(row) > self._isolated_of.get(job, _NOTHING).get(row, 0)

    def refused(self, shape: Shape, rows: Rows) -> Mask:
        """The same of some rows, shape (rows,)."""
        job = shape.spec.isolated
        if not job:
            mask: Mask = self.isolated[rows] > 0
            return mask if shape.counted_milli else np.zeros_like(mask)
        shut: Mask = self.gpus > 0
        if shape.counted_milli:
            shut |= self.isolated > 0
        for row in {**self._gpus_of.get(job, _NOTHING), **self._isolated_of.get(job, _NOTHING)}:
            shut[row] = self.refuses(shape, row)
        found: Mask = shut[rows]
        return found

    def concerns(self, shape: Shape) -> bool:
        """Whether other jobs' pods may keep pods of a shape off nodes."""
        return self.active and bool(shape.spec.isolated or shape.counted_milli)

    def counted(self) -> dict[int, tuple[int, int]]:
        """(pods with GPUs, pods of jobs that have nodes to themselves) of rows with any; for invariants."""
        rows = np.flatnonzero((self.gpus != 0) | (self.isolated != 0)).tolist()
        return {row: (self.gpus.item(row), self.isolated.item(row)) for row in rows}

    def counted_of(self, job: str) -> dict[int, tuple[int, int]]:
        """The same of one such job's own pods."""
        gpus, isolated = self._gpus_of.get(job, _NOTHING), self._isolated_of.get(job, _NOTHING)
        return {
            row: (gpus.get(row, 0), isolated.get(row, 0))
            for row in sorted({*gpus, *isolated})
            if gpus.get(row, 0) or isolated.get(row, 0)
        }
