"""Whether a placement keeps every rule of its request, decided from the labels: nothing of the search is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from fairlead.core.topology.request import Placement, Request, Set

Labels = Sequence[Sequence[str | None]]
Domain = tuple[str | int | None, ...]


def domain_of(labels: Labels, level: int, row: int) -> Domain | None:
    """The named domain of a row at a level; None: a label is missing. The level below all labels is the row."""
    found = tuple(column[row] for column in labels[: level + 1])
    if level >= len(labels):
        return (row,)
    return None if None in found else found


def any_domain(labels: Labels, level: int, row: int) -> Domain:
    """The domain of a row at a level; a row without the label is a domain of its own."""
    return domain_of(labels, level, row) or (None, row)


def broken(labels: Labels, request: Request, placement: Placement) -> Iterator[str]:
    """The rules that a placement does not keep."""
    rows: list[int] = []
    held: Counter[tuple[int, int]] = Counter()
    for each, places in zip(request.sets, placement.sets, strict=True):
        for place in places:
            rows.append(place.row)
            held[place.row, each.groups[place.group].shape] += place.pods
            if place.pods < 1:
                yield f"{place.pods} pods on a row"
        yield from _set(labels, request, each, placement, placement.sets.index(places))
    if request.rules.required is not None:
        yield from _together(labels, request.rules.required, rows, "the gang")
    for row in {row for row, _ in held}:
        if request.free is not None:
            for resource, free in enumerate(request.free[row].tolist()):
                used = sum(pods * request.shapes[s].needs[resource] for (at, s), pods in held.items() if at == row)
                if used > free:
                    yield f"row {row} has {free} of resource {resource}, not {used}"
        else:
            parts = [(pods, int(request.shapes[s].fits[row])) for (at, s), pods in held.items() if at == row]
            if any(pods > fits for pods, fits in parts) or sum(Fraction(pods, fits) for pods, fits in parts) > 1:
                yield f"row {row} does not take {parts}"


def _together(labels: Labels, level: int, rows: Sequence[int], what: str) -> Iterator[str]:
    domains = {domain_of(labels, level, row) for row in rows}
    if len(domains) > 1 or None in domains:
        yield f"{what} lies in {sorted(map(str, domains))} of level {level}"


def _set(labels: Labels, request: Request, each: Set, placement: Placement, at: int) -> Iterator[str]:
    ranks: dict[tuple[int, int], list[int]] = {}
    for place in placement.sets[at]:
        ranks.setdefault((place.copy, place.group), []).extend([place.row] * place.pods)
    expected = {(copy, group) for copy in range(each.copies) for group in range(len(each.groups))}
    if set(ranks) != expected:
        yield f"set {at} has places of {sorted(ranks)}"
        return
    for (copy, number), rows in ranks.items():
        group = each.groups[number]
        if len(rows) != group.pods + each.spares:
            yield f"set {at} has {len(rows)} places of {group.pods} pods and {each.spares} spares"
        for one in group.slices:
            for start in range(0, len(rows), one.size):
                yield from _together(labels, one.level, rows[start : start + one.size], f"slice {start} of set {at} copy {copy}")
    if each.rules.required is not None:
        for copy in range(each.copies):
            rows = [row for (of, _), some in ranks.items() if of == copy for row in some]
            yield from _together(labels, each.rules.required, rows, f"copy {copy} of set {at}")
    if sum(place.pods for place in placement.sets[at] if place.spare) != each.spares * each.copies:
        yield f"set {at} has other spares than {each.spares} of each copy"
    if each.balanced:
        yield from _balanced(labels, request, each, [row for copy in range(each.copies) for row in ranks[copy, 0]], at)


def _balanced(labels: Labels, request: Request, each: Set, rows: list[int], at: int) -> Iterator[str]:
    target = target_of(labels, request, each)
    size = unit_of(each)
    units: Counter[Domain] = Counter()
    for start in range(0, len(rows), size):
        domains = {any_domain(labels, target, row) for row in rows[start : start + size]}
        if len(domains) > 1:
            yield f"a unit of set {at} lies in {domains}"
        units[any_domain(labels, target, rows[start])] += 1
    if max(units.values()) - min(units.values()) > 1:
        yield f"set {at} has unequal parts {sorted(units.values())}"


def target_of(labels: Labels, request: Request, each: Set) -> int:
    """The level at which a set uses the fewest domains."""
    preferred = each.rules.preferred if each.rules.preferred is not None else request.rules.preferred
    return preferred if preferred is not None else len(labels) - 1


def unit_of(each: Set) -> int:
    """The pods of which parts are counted."""
    if each.copies > 1 and each.rules.required is not None:
        return each.groups[0].pods + each.spares
    return each.groups[0].slices[0].size if each.groups[0].slices else 1


def count(labels: Labels, level: int, placement: Placement) -> int:
    """The domains of a level that are used."""
    return len({any_domain(labels, level, place.row) for places in placement.sets for place in places})
