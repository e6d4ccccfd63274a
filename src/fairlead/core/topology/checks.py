"""Requests that contradict themselves, or ask for what no node has: refused before any search."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.topology.request import Group, Refusal, Request, Rules, Set
from fairlead.core.topology.tree import Tree

MAX_SLICES = 3


def problem(tree: Tree, request: Request) -> Refusal | None:
    """What is wrong with a request, or None."""
    for text, at in _invalid(tree, request):
        return Refusal("Invalid", text, at=at)
    for level, at in _asked(request):
        if level < tree.depth and not tree.named[level].any():
            return Refusal("NoSuchDomain", f"no node has the labels of level {tree.names[level]}", level=level, at=at)
    return None


def _invalid(tree: Tree, request: Request) -> Iterator[tuple[str, int]]:
    if not request.sets:
        yield "a gang has at least one set of pods", -1
    for number, shape in enumerate(request.shapes):
        if len(shape.fits) != tree.rows:
            yield f"shape {number} has numbers of {len(shape.fits)} rows, the tree has {tree.rows}", -1
        if request.free is not None and len(shape.needs) not in {0, request.free.shape[1]}:
            yield f"shape {number} has {len(shape.needs)} needs of {request.free.shape[1]} resources", -1
    yield from ((text, -1) for text in _levels(tree, request.rules))
    for at, each in enumerate(request.sets):
        yield from ((text, at) for text in _set(tree, request, each))


def _levels(tree: Tree, rules: Rules) -> Iterator[str]:
    for name, level in (("required", rules.required), ("preferred", rules.preferred)):
        if level is not None and not 0 <= level <= tree.depth:
            yield f"{name} level {level} is none of the {tree.depth} levels"
    if rules.required is not None and rules.preferred is not None and rules.preferred < rules.required:
        yield "the preferred level is wider than the required one"


def _set(tree: Tree, request: Request, each: Set) -> Iterator[str]:
    yield from _levels(tree, each.rules)
    if not each.groups or each.copies < 1:
        yield f"a set has at least one group and one copy, not {len(each.groups)} and {each.copies}"
    inner, outer = each.rules.required, request.rules.required
    if inner is not None and outer is not None and inner < outer:
        yield "the required level of a set is wider than that of its gang"
    if each.spares < 0:
        yield f"{each.spares} spares"
    if each.spares and len(each.groups) != 1:
        yield f"a set with spares has one group, not {len(each.groups)}"
    if each.balanced:
        yield from _balanced(tree, request, each)
    for group in each.groups:
        yield from _group(tree, request, each, group)


def _balanced(tree: Tree, request: Request, each: Set) -> Iterator[str]:
    if len(each.groups) != 1:
        yield f"a balanced set has one group, not {len(each.groups)}"
        return
    rules = each.rules.preferred if each.rules.preferred is not None else request.rules.preferred
    target = rules if rules is not None else max(tree.depth - 1, 0)
    outer = [one.level for one in each.groups[0].slices[:1]]
    if each.copies > 1 and each.rules.required is not None:
        outer = [each.rules.required]
    elif each.rules.required is not None and each.rules.required >= target:
        yield "one domain of the required level has no equal parts at a level that is not narrower"
    if request.rules.required is not None and request.rules.required >= target:
        yield "one domain of the required level has no equal parts at a level that is not narrower"
    if each.copies > 1 and (each.rules.required is None or not alike(each)):
        yield "equal parts of copies that are not in one domain each, or whose last slice is incomplete"
    if outer and outer[0] < target:
        yield "slices, or copies, that lie in wider domains than those with equal parts"


def _group(tree: Tree, request: Request, each: Set, group: Group) -> Iterator[str]:
    if not 0 <= group.shape < len(request.shapes):
        yield f"shape {group.shape} is none of {len(request.shapes)}"
    if group.pods < 1:
        yield f"a group has at least one pod, not {group.pods}"
    if len(group.slices) > MAX_SLICES:
        yield f"{len(group.slices)} slices are nested, at most {MAX_SLICES} may be"
    level = max((at for at in (each.rules.required, request.rules.required) if at is not None), default=0)
    size = 0
    for one in group.slices:
        if not 0 <= one.level <= tree.depth:
            yield f"slice level {one.level} is none of the {tree.depth} levels"
        elif one.level < level:
            yield f"a slice of level {tree.names[one.level]} lies in a narrower domain"
        if one.size < 1 or (size and size % one.size):
            yield f"slices of {one.size} pods do not divide slices of {size}" if size else f"a slice of {one.size} pods"
            return
        level, size = one.level, one.size


def alike(each: Set) -> bool:
    """Whether the copies of a set with one group are slices of one group: none has an incomplete slice of its own."""
    group = each.groups[0]
    return not group.slices or (group.pods + each.spares) % group.slices[0].size == 0


def _asked(request: Request) -> Iterator[tuple[int, int]]:
    """Levels at which named domains are needed, and the set that needs them."""
    if request.rules.required is not None:
        yield request.rules.required, -1
    for at, each in enumerate(request.sets):
        if each.rules.required is not None:
            yield each.rules.required, at
        for group in each.groups:
            yield from ((one.level, at) for one in group.slices)
