"""Places for a gang whose roles have slices, equal parts or a domain of their own: which member gets which row.

Members of slices that have places already are put beside those; whole slices that are new are one question to the search of
`core.topology`, which is exact for them. Where members of one role are of several shapes, and where rules on top of amounts keep
members off the rows chosen, slices are placed one after the other. See docs/design/topology-levels.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.pods import Near, Part, PodSpec
from fairlead.core.nodes.network import Level, rows_in, unknown_levels, widest_first
from fairlead.core.pods.members import index_of, leads
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.state.cluster import ClusterState
from fairlead.core.topology.choose import choices, choose
from fairlead.core.topology.request import Group, Placement, Refusal, Request, Rules, Set, Shape, Slice
from fairlead.core.topology.tree import Tree

Closed = Callable[[Task], Mask | None]
"""For each row whether it is closed to a task, None: none is."""

Laid = list[tuple[Task, int]]
"""Tasks and their rows."""


_NO_RULES = Rules()


class Question(NamedTuple):
    """A gang as the search knows it. members: for each set and group its tasks, in the order of ranks."""

    tree: Tree
    request: Request
    members: list[list[list[Task]]]


def divided(unit: Unit) -> bool:
    """Whether members of a unit belong to roles or slices with rules of their own."""
    return any(task.shape.spec.near is not None and task.shape.spec.near.team for task in unit.tasks)


def by_index(task: Task) -> tuple[object, ...]:
    """The order of ranks."""
    return not leads(task.pod), index_of(task.pod), task.pod.key


def plans(state: ClusterState, unit: Unit, closed: Closed) -> Iterator[Laid]:
    """Rows for all needed members of a gang, the best first."""
    for question in questions(state, unit, closed):
        for placement in choices(question.tree, question.request):
            yield _rows(question, placement)


def refusal(state: ClusterState, unit: Unit, closed: Closed) -> Refusal | None:
    """Why the search finds no places; None: it finds some, so that another rule is in the way."""
    found: Refusal | None = None
    for question in questions(state, unit, closed):
        answer = choose(question.tree, question.request)
        if isinstance(answer, Placement):
            return None
        found = answer
    return found


def _rows(question: Question, placement: Placement) -> Laid:
    laid: Laid = []
    for members, places in zip(question.members, placement.sets, strict=True):
        left = [iter(each) for each in members]
        for place in places:
            if not place.spare:
                laid += [(next(left[place.group]), place.row) for _ in range(place.pods)]
    return laid


def questions(state: ClusterState, unit: Unit, closed: Closed) -> Iterator[Question]:
    """The gang with its largest slices first, then with smaller ones where these are given."""
    network = state.network
    tasks = unit.tasks[: unit.need]
    nears = [near for task in {task.shape.number: task for task in tasks}.values() if (near := task.shape.spec.near) is not None]
    if any(near.wrong or unknown_levels(network, near) for near in nears):
        return
    most = max((len(sizes) for near in nears for sizes in near.sizes), default=1)
    asker = _Asker(state, unit, closed, nears)
    for at in range(most):
        if (question := asker.question(at)) is not None:
            yield from _with_preferred(question)


def _with_preferred(question: Question) -> Iterator[Question]:
    """A question; before it, where all are preferred to be in a domain wider than that of each part, whether one holds them."""
    wish = question.request.rules.preferred
    parts = [own for each in question.request.sets if (own := each.rules.required) is not None]
    if wish is not None and parts and wish < min(parts):
        yield question._replace(request=question.request._replace(rules=Rules(wish)))
    yield question


class _Asker:
    """Makes the questions about one gang as things stand."""

    def __init__(self, state: ClusterState, unit: Unit, closed: Closed, nears: list[Near]) -> None:
        self.state, self.network, self.closed = state, state.network, closed
        self.tasks = sorted(unit.tasks[: unit.need], key=by_index)
        first = next((near for near in nears if near.required), nears[0])
        self.required = self.network.level(*first.required) if first.required else None
        wishes = [each.preferred for each in nears if each.preferred and self.network.knows(each.preferred)]
        narrower = [
            *wishes,
            *(near.even for near in nears if near.even),
            *(part.level for near in nears for part in near.parts),
        ]
        self.names = widest_first(self.network, narrower)
        levels = [] if self.required is None else [self.required]
        for name in self.names:
            level = self.network.level(name)
            if not any(level.levels == each.levels for each in levels):
                levels.append(level)
        self.levels: list[Level] = levels
        self.tree = self.network.tree(levels)
        self.wish = self.number(first.preferred)
        self._shapes: list[Shape] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._kinds: dict[int, tuple[object, ...]] = {}

    def number(self, name: str) -> int | None:
        """The number of a level in the tree; None: it is not there."""
        if not name or not self.network.knows(name):
            return None
        level = self.network.level(name)
        return next((at for at, each in enumerate(self.levels) if each.levels == level.levels), None)

    def question(self, at: int) -> Question | None:
        """The gang with the size number `at` of slices, or the last where there are fewer; None: no equal parts can be had."""
        self._shapes, self._numbers = [], {}
        sets: list[Set] = []
        members: list[list[list[Task]]] = []
        by_team: dict[str, list[Task]] = {}
        for task in self.tasks:
            near = task.shape.spec.near
            by_team.setdefault(near.team if near is not None else "", []).append(task)
        for tasks in by_team.values():
            near = tasks[0].shape.spec.near
            for one, groups in self._team(tasks, near, at) if near is not None and near.team else [self._free(tasks)]:
                sets.append(one)
                members.append(groups)
        rules = Rules(None if self.required is None else 0, self.wish)
        return Question(self.tree, Request(tuple(self._shapes), tuple(sets), rules), members)

    def _free(self, tasks: list[Task], rules: Rules = _NO_RULES) -> tuple[Set, list[list[Task]]]:
        """Members without slices of their own."""
        groups = self._by_kind(tasks)
        return Set(tuple(Group(self._shape(each[0]), len(each)) for each in groups), rules), groups

    def _by_kind(self, tasks: list[Task]) -> list[list[Task]]:
        found: dict[object, list[Task]] = {}
        for task in tasks:
            found.setdefault(self._kind(task), []).append(task)
        return list(found.values())

    def _kind(self, task: Task) -> tuple[object, ...]:
        """Equal for members that differ in their slices alone."""
        known = self._kinds.get(task.shape.number)
        if known is None:
            shape = task.shape
            known = self._kinds[shape.number] = (_without(shape.spec), shape.labels, shape.profile)
        return known

    def _shape(self, task: Task, only: Mask | None = None, key: object = None) -> int:
        """What each row holds of members like one. only: rows that they may have; key: what these are called."""
        near = task.shape.spec.near
        homes = (
            [(part.key, home) for part in near.parts if (home := self.network.home(part.key, self.network.level(part.level)))]
            if near is not None
            else []
        )
        known = (self._kind(task), tuple(homes), key)
        number = self._numbers.get(known)
        if number is None:
            held: Ints = task.ranking.counts().copy()
            for relation in task.ranking.relations:
                if (most := relation.most()) is not None:
                    np.minimum(held, most, out=held)
            held[task.ranking.ranked() < 0] = 0
            shut = self.closed(task)
            if shut is not None:
                held[shut] = 0
            if only is not None:
                held[~only] = 0
            number = self._numbers[known] = len(self._shapes)
            self._shapes.append(Shape(held))
        return number

    # -- one role --------------------------------------------------------------------------------

    def _team(self, tasks: list[Task], near: Near, at: int) -> list[tuple[Set, list[list[Task]]]]:
        own = max((number for part in near.own if (number := self.number(part.level)) is not None), default=None)
        wish = self.number(near.even) if near.even else self.number(near.preferred)
        if own is not None and wish is not None and wish < own:
            wish = None  # it has one domain of that level in any case
        if not near.slices:
            if near.even and any(self.network.rows_of(near.team).values()):
                return self._even_parts(near, [[task] for task in tasks]) or []
            return [self._whole_role(tasks, near, Rules(own, wish))]
        found: list[tuple[Set, list[list[Task]]]] = []
        new: list[list[Task]] = []
        for _, one in groupby(tasks, key=lambda task: _slices_of(task)[0].key):
            block = list(one)
            if self._home(_slices_of(block[0])[0]):
                found += self._begun(block, 0, wish)
            else:
                new.append(block)
        return found + self._new(new, near, Rules(own, wish), at)

    def _whole_role(self, tasks: list[Task], near: Near, rules: Rules) -> tuple[Set, list[list[Task]]]:
        groups = self._by_kind(tasks)
        made = tuple(Group(self._shape(each[0]), len(each)) for each in groups)
        fresh = not any(self.network.rows_of(near.team).values())
        even = bool(near.even) and len(groups) == 1 and fresh
        return Set(made, rules, balanced=even), groups

    def _home(self, part: Part) -> int:
        return self.network.home(part.key, self.network.level(part.level))

    def _begun(self, tasks: list[Task], depth: int, wish: int | None) -> list[tuple[Set, list[list[Task]]]]:
        """Members of a slice that has places: in its domain, those of slices inside of it together."""
        found: list[tuple[Set, list[list[Task]]]] = []
        if depth + 1 == len(_slices_of(tasks[0])):
            return [self._free(tasks, Rules(None, wish))]
        for _, one in groupby(tasks, key=lambda task: _slices_of(task)[depth + 1].key):
            block = list(one)
            inner = _slices_of(block[0])[depth + 1]
            if self._home(inner):
                found += self._begun(block, depth + 1, wish)
            else:
                found.append(self._free(block, Rules(self.number(inner.level), wish)))
        return found

    def _new(self, blocks: list[list[Task]], near: Near, rules: Rules, at: int) -> list[tuple[Set, list[list[Task]]]]:
        """Slices of which no member has a place: whole ones are one group, the last of them may have fewer members."""
        if not blocks:
            return []
        least = near.sizes[0][-1]
        sizes = [each[min(at, len(each) - 1)] for each in near.sizes]
        whole = [block for block in blocks if len(block) == least]
        odd = [block for block in blocks if len(block) != least]
        consecutive = not odd or (len(odd) == 1 and odd[0] is blocks[-1])
        if consecutive:
            whole, odd = blocks, []
        numbers = [self.number(part.level) for part in near.slices]
        chain = tuple(Slice(number, size) for number, size in zip(numbers, sizes, strict=True) if number is not None)
        found: list[tuple[Set, list[list[Task]]]] = []
        fresh = not any(self.network.rows_of(near.team).values())
        together = [task for block in whole for task in block]
        if near.even and not fresh:
            parts = self._even_parts(near, blocks)
            return [] if parts is None else parts
        if together and len(self._by_kind(together)) == 1:
            group = Group(self._shape(together[0]), len(together), chain)
            found.append((Set((group,), rules, balanced=bool(near.even)), [together]))
        else:
            odd = blocks
        for block in odd:
            groups = self._by_kind(block)
            made = tuple(Group(self._shape(each[0]), len(each), chain[1:]) for each in groups)
            found.append((Set(made, Rules(chain[0].level, rules.preferred)), groups))
        return found

    def _even_parts(self, near: Near, blocks: list[list[Task]]) -> list[tuple[Set, list[list[Task]]]] | None:
        """New slices, or members, laid so that all domains have equal parts with those that have places."""
        level = self.network.level(near.even)
        capacity = self._capacity(blocks[0][0], level, near.sizes[0][-1] if near.slices else 1)
        more = even_parts(dict(self.network.units(near)), capacity, len(blocks))
        if more is None:
            return None
        left = iter(blocks)
        inside = {domain: [next(left) for _ in range(count)] for domain, count in more.items()}
        numbers = [self.number(part.level) for part in near.slices]
        found: list[tuple[Set, list[list[Task]]]] = []
        for domain, these in inside.items():
            only = rows_in(level, domain, self.state.nodes.count)
            for block in these if near.slices else [[task for one in these for task in one]]:
                groups = self._by_kind(block)
                made = tuple(Group(self._shape(each[0], only, domain), len(each)) for each in groups)
                found.append((Set(made, Rules(numbers[0] if numbers else None)), groups))
        return found

    def _capacity(self, task: Task, level: Level, size: int) -> dict[int, int]:
        """How many slices each domain holds by the members that its rows hold."""
        number = self._shape(task)
        held = self._shapes[number].fits
        sums = np.bincount(level.domain[: len(held)], weights=held, minlength=len(level.values)).astype(np.int64)
        return {domain: int(count) // size for domain, count in enumerate(sums.tolist()) if domain}


def blocks(state: ClusterState, unit: Unit) -> list[list[Task]]:
    """The needed members by the narrowest that they have a domain of: slice, role, or nothing; those begun come first."""
    found: dict[str, list[Task]] = {}
    for task in sorted(unit.tasks[: unit.need], key=by_index):
        near = task.shape.spec.near
        found.setdefault(near.parts[-1].key if near is not None and near.parts else "", []).append(task)
    return sorted(found.values(), key=lambda block: not _begun(state, block[0]))


def counted_as(block: list[Task]) -> list[str]:
    """The gangs as which members of a block count on the network."""
    return sorted({near.gang for task in block if (near := task.shape.spec.near) is not None})


def _begun(state: ClusterState, task: Task) -> bool:
    near = task.shape.spec.near
    return near is not None and any(any(state.network.rows_of(part.key).values()) for part in near.parts)


def domains_for(state: ClusterState, block: list[Task]) -> Iterator[Mask]:
    """The rows of each domain that holds a slice by amounts, the tightest first; of members without a slice, all rows."""
    near, count = block[0].shape.spec.near, state.nodes.count
    if near is None or not near.parts or not state.network.knows(near.parts[-1].level):
        yield np.ones(count, np.bool_)
        return
    level = state.network.level(near.parts[-1].level)
    sums = _sums(block[0], level)
    for domain in sorted((each for each in sums if sums[each] >= len(block)), key=lambda each: (sums[each], each)):
        yield rows_in(level, domain, count)


def _sums(task: Task, level: Level) -> dict[int, int]:
    """How many members like one each domain holds by amounts, on rows that are not closed to it by its gang."""
    held = np.where(task.ranking.ranked() < 0, 0, task.ranking.counts())
    sums = np.bincount(level.domain[: len(held)], weights=held, minlength=len(level.values)).astype(np.int64)
    return {domain: int(each) for domain, each in enumerate(sums.tolist()) if domain and each}


def kept_off(state: ClusterState, task: Task) -> Mask | None:
    """The rows that a single member had better not have: its slice or role is new, and the domain too small for all of it."""
    near, gang = task.shape.spec.near, task.gang
    if near is None or gang is None or near.wrong:
        return None
    new = next((part for part in near.parts if not any(state.network.rows_of(part.key).values())), None)
    if new is None or not state.network.knows(new.level):
        return None
    mates = sum(
        each.row < 0 and (other := each.shape.spec.near) is not None and new in other.parts for each in gang.tasks.values()
    )
    level = state.network.level(new.level)
    sums = _sums(task, level)
    if not sums:
        return None
    best = min(sums, key=lambda each: (sums[each] < mates, sums[each] if sums[each] >= mates else -sums[each], each))
    return ~rows_in(level, best, state.nodes.count)


def even_parts(held: dict[int, int], capacity: dict[int, int], more: int) -> dict[int, int] | None:
    """How many further units each domain gets so that all that are used have equal parts, up to one; None: there is no way.

    held: units that domains have; capacity: how many further ones each could take. The fewest domains, the tightest of new ones.
    """
    total = sum(held.values()) + more
    for count in range(max(1, len(held)), len(held) + more + 1):
        part, larger = divmod(total, count)
        found = _parts_of(held, capacity, count, part, larger)
        if found is not None:
            return found
    return None


def _parts_of(held: dict[int, int], capacity: dict[int, int], count: int, part: int, larger: int) -> dict[int, int] | None:
    """The same with so many domains, of which `larger` get one more than the others."""
    most = {domain: held[domain] + capacity.get(domain, 0) for domain in held}
    if any(each > part + bool(larger) for each in held.values()) or any(each < part for each in most.values()):
        return None
    large = [domain for domain in held if held[domain] > part]
    able = [domain for domain in held if domain not in large and most[domain] > part]
    fresh = sorted(
        (each for each in capacity if each not in held and capacity[each] >= part), key=lambda each: (capacity[each], each)
    )
    wanted = count - len(held)
    if len(large) > larger or len(fresh) < wanted:
        return None
    large += able[: larger - len(large)]
    lacking = larger - len(large)
    wide = [each for each in fresh if capacity[each] > part][:lacking]
    if len(wide) < lacking or lacking > wanted:
        return None
    chosen = wide + [each for each in fresh if each not in wide][: wanted - lacking]
    parts = {domain: part + (domain in large) - held[domain] for domain in held}
    parts |= {domain: part + (domain in wide) for domain in chosen}
    return {domain: each for domain, each in parts.items() if each}


def _slices_of(task: Task) -> tuple[Part, ...]:
    near = task.shape.spec.near
    return near.slices if near is not None else ()


def _without(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, near=None)
