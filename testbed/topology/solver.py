"""The fewest domains for a gang with one set of one group, by integer programming (HiGHS); None: there are no places.

One integer variable for the pods of each innermost slice on each row, one binary variable for each slice in each domain of its
level, one for each domain of the preferred level that is used. Equal parts: one program for each number of domains.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import highspy

from fairlead.core.topology.request import Request
from testbed.topology.checker import Domain, Labels, any_domain, domain_of, target_of, unit_of

_SECONDS = 60.0


class Undecided(Exception):
    """The solver did not decide in time."""


def fewest(labels: Labels, request: Request) -> int | None:
    """The fewest domains of the preferred level, or None; raises `Undecided`."""
    with _quiet():
        return _fewest(labels, request)


@contextmanager
def _quiet() -> Iterator[None]:
    """The solver greets on standard output, which is for results: let it greet on standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _fewest(labels: Labels, request: Request) -> int | None:
    each = request.sets[0]
    if not each.balanced:
        return _Program(labels, request).solve()
    units = -(-(each.groups[0].pods + each.spares) * each.copies // unit_of(each))
    for k in range(1, units + 1):
        found = _Program(labels, request, parts=k).solve()
        if found is not None:
            return found
    return None


class _Program:
    """A program in the making. parts: so many domains are used, each with an equal part."""

    def __init__(self, labels: Labels, request: Request, parts: int = 0) -> None:
        self.solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (("output_flag", False), ("threads", 1), ("time_limit", _SECONDS)):
            self.solver.setOptionValue(name, value)
        self.columns = 0
        self.labels = labels
        self.each = request.sets[0]
        self.group = self.each.groups[0]
        self.fits = [int(fit) for fit in request.shapes[self.group.shape].fits]
        self.target = target_of(labels, request, self.each)
        self.pods = (self.group.pods + self.each.spares) * self.each.copies
        self.rows = range(len(self.fits))
        self.used: dict[Domain, int] = {}
        self._build(request, parts)

    def _integer(self, most: float, cost: float = 0.0) -> int:
        self.solver.addVar(0, most)
        self.solver.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.solver.changeColCost(self.columns, cost)
        self.columns += 1
        return self.columns - 1

    def _row(self, terms: dict[int, float], low: float, high: float) -> None:
        self.solver.addRow(low, high, len(terms), list(terms), list(terms.values()))

    def _build(self, request: Request, parts: int) -> None:
        copy = self.group.pods + self.each.spares
        pieces = self._pieces(copy)
        x = [[self._integer(min(size, self.fits[row])) for row in self.rows] for _, size in pieces]
        for (_, size), columns in zip(pieces, x, strict=True):
            self._row(dict.fromkeys(columns, 1.0), size, size)
        for row in self.rows:
            self._row({columns[row]: 1.0 for columns in x}, 0, self.fits[row])
        bounds: list[tuple[int | None, int | None]] = [(None, request.rules.required)]
        if self.each.rules.required is not None:
            bounds += [(copy, self.each.rules.required)]
        bounds += [(one.size, one.level) for one in self.group.slices]
        for length, level in bounds:
            if level is not None:
                self._together(pieces, x, length, level, copy)
        self._count(pieces, x, parts)
        if parts:
            self._equal(pieces, x, parts)

    def _pieces(self, copy: int) -> list[tuple[int, int]]:
        """First rank and size of the smallest runs of pods that all rules divide the gang into."""
        cuts = {0, self.pods}
        for start in range(0, self.pods, copy):
            cuts.add(start)
            cuts |= {start + at for one in self.group.slices for at in range(0, copy, one.size)}
        if self.each.balanced:
            cuts |= set(range(0, self.pods, unit_of(self.each)))
        ordered = sorted(cuts)
        return [(low, high - low) for low, high in pairwise(ordered)]

    def _together(self, pieces: list[tuple[int, int]], x: list[list[int]], size: int | None, level: int, copy: int) -> None:
        runs: dict[Any, list[int]] = defaultdict(list)
        for at, (start, _) in enumerate(pieces):
            if size is None:
                runs[0].append(at)
            else:
                runs[start // copy, start % copy // size].append(at)
        domains = {domain for row in self.rows if (domain := domain_of(self.labels, level, row)) is not None}
        for run in runs.values():
            chosen = {domain: self._integer(1) for domain in sorted(domains, key=str)}
            self._row(dict.fromkeys(chosen.values(), 1.0), 1, 1)
            for at in run:
                for row in self.rows:
                    domain = domain_of(self.labels, level, row)
                    if domain is None:
                        self._row({x[at][row]: 1.0}, 0, 0)
                    else:
                        self._row({x[at][row]: 1.0, chosen[domain]: -float(pieces[at][1])}, -highspy.kHighsInf, 0)

    def _count(self, pieces: list[tuple[int, int]], x: list[list[int]], parts: int) -> None:
        for row in self.rows:
            domain = any_domain(self.labels, self.target, row)
            if domain not in self.used:
                self.used[domain] = self._integer(1, 1.0)
            for (_, size), columns in zip(pieces, x, strict=True):
                self._row({columns[row]: 1.0, self.used[domain]: -float(size)}, -highspy.kHighsInf, 0)
        if parts:
            self._row(dict.fromkeys(self.used.values(), 1.0), parts, parts)

    def _equal(self, pieces: list[tuple[int, int]], x: list[list[int]], parts: int) -> None:
        size = unit_of(self.each)
        units: dict[int, list[int]] = defaultdict(list)
        for at, (start, _) in enumerate(pieces):
            units[start // size].append(at)
        small = len(units) // parts
        most = small + (1 if len(units) % parts else 0)
        per_domain: dict[Domain, dict[int, float]] = {domain: {} for domain in self.used}
        for run in units.values():
            chosen = {domain: self._integer(1) for domain in self.used}
            self._row(dict.fromkeys(chosen.values(), 1.0), 1, 1)
            for domain, column in chosen.items():
                per_domain[domain][column] = 1.0
                for at in run:
                    for row in self.rows:
                        if any_domain(self.labels, self.target, row) == domain:
                            self._row({x[at][row]: 1.0, column: -float(pieces[at][1])}, -highspy.kHighsInf, 0)
        for domain, terms in per_domain.items():
            self._row({**terms, self.used[domain]: -float(most)}, -highspy.kHighsInf, 0)
            self._row({**terms, self.used[domain]: -float(small)}, 0, highspy.kHighsInf)

    def solve(self) -> int | None:
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return round(self.solver.getObjectiveValue())
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        raise Undecided
