"""The place of a gang on the network: which domains could hold all of its members, and the order in which they are tried.

Members are counted by domain as nodes hold them now; what counting does not see (affinity, devices, limits) is found out as
they are placed, and the next choice is tried. The search itself is `core.topology`: the fewest domains of the preferred level,
those whose remainder is the least loss, so that large free domains stay whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.pods import Near
from fairlead.core.nodes.network import Level, rows_in
from fairlead.core.pods.members import index_of, leads
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.state.cluster import ClusterState
from fairlead.core.topology.choose import choices
from fairlead.core.topology.request import Group, Request, Rules, Set, Shape

ATTEMPTS = 64
"""So many choices are tried; each costs as much as placing the gang. More are only there where rules on top of amounts keep a
gang out of domains with enough capacity."""

Closed = Callable[[Task], Mask | None]
"""For each row whether it is closed to a task, None: none is."""


class _Kind(NamedTuple):
    """Members that are alike. wanted: how many there are. held: how many each row holds now, shape (rows,)."""

    wanted: int
    held: Ints


class Held(NamedTuple):
    """What the domain of the required level that holds most of a gang's members holds of them.

    held: how many of the members that have no place yet, of: how many of them there are. home: whether others are there already.
    domains: how many there are. ceiling: the most that one would hold, were it empty.
    """

    level: str
    domain: str
    held: int
    of: int
    domains: int
    ceiling: int
    home: bool


def near_of(state: ClusterState, unit: Unit) -> Near | None:
    """What a unit's members ask of the network; None: nothing. Of different levels, the first that is required."""
    if not state.network.asked:
        return None
    found = [near for task in unit.tasks if (near := task.shape.spec.near) is not None]
    return next((near for near in found if near.required), found[0] if found else None)


def _members(unit: Unit, near: Near) -> Iterator[tuple[int, Task]]:
    """The needed members that ask for the same of the network, by shape: how many, and one of them."""
    concerned = [
        task
        for task in unit.tasks[: unit.need]
        if task.shape.spec.near is not None and task.shape.spec.near.required == near.required
    ]
    counts = Counter(task.shape.number for task in concerned)
    for task in {task.shape.number: task for task in concerned}.values():
        yield counts[task.shape.number], task


def _at_most(task: Task, held: Ints, *, empty: bool = False) -> Ints:
    """How many pods like one each row holds by amounts, and by the devices of their claims; a copy, shape (rows,)."""
    found = held.copy()
    for relation in task.ranking.relations:
        if (most := relation.most(empty=empty)) is not None:
            np.minimum(found, most, out=found)
    return found


def _kinds(unit: Unit, near: Near, closed: Closed | None) -> list[_Kind]:
    """Those members by shape, and how many of each every row holds."""
    found = []
    for count, task in _members(unit, near):
        held = _at_most(task, task.ranking.counts())
        held[task.ranking.ranked() < 0] = 0
        shut = closed(task) if closed is not None else None
        if shut is not None:
            held[shut] = 0
        found.append(_Kind(count, held))
    return found


def _by_domain(kinds: list[_Kind], level: Level, rows: Mask | None = None) -> list[Ints]:
    """For each kind how many pods each domain holds, shape (domains,), none those without a domain."""
    size, found = len(level.values), []
    for kind in kinds:
        held = kind.held if rows is None else np.where(rows, kind.held, 0)
        sums = np.bincount(level.domain[: len(held)], weights=np.minimum(held, kind.wanted), minlength=size).astype(np.int64)
        sums[0] = 0
        found.append(sums)
    return found


def neighbourhoods(state: ClusterState, unit: Unit, near: Near, closed: Closed) -> Iterator[Mask]:
    """The rows within which a gang is to be placed, the best choice first; shape (rows,)."""
    yield from islice(_neighbourhoods(state, unit, near, closed), ATTEMPTS)


def _neighbourhoods(state: ClusterState, unit: Unit, near: Near, closed: Closed) -> Iterator[Mask]:
    network, count = state.network, state.nodes.count
    if not all(network.knows(each) for each in near.required):
        return
    kinds = _kinds(unit, near, closed)
    level = network.level(*near.required) if near.required else None
    preferred = network.level(near.preferred) if near.preferred and network.knows(near.preferred) else None
    everywhere: Mask = np.ones(count, np.bool_)
    if preferred is not None and (beside := network.home(near.gang, preferred)):
        # Some members have places: the others come as close to these as they can.
        chosen = _fewest(beside, kinds, preferred, everywhere)
        if chosen is not None:
            yield chosen
    for rows in _chosen(state, kinds, level, preferred):
        yield rows
        if level is not None:
            yield rows_in(level, level.domain.item(int(rows.argmax())), count)
    if level is None:
        yield everywhere
        return
    # Where pods of several kinds share nodes the search may count too little.
    for domain in np.flatnonzero(_enough(kinds, level)).tolist():
        yield rows_in(level, domain, count)


def domains_of_all(state: ClusterState, unit: Unit, near: Near, closed: Closed) -> Iterator[Mask]:
    """The rows within which all members are tried, shape (rows,): domains of what is preferred, then of what is required."""
    for levels in dict.fromkeys(((near.preferred,) if near.preferred else (), near.required)):
        if not levels:
            yield np.ones(state.nodes.count, np.bool_)
        elif all(map(state.network.knows, levels)):
            yield from islice(_holding(state, unit, near, state.network.level(*levels), closed), ATTEMPTS)


def _holding(state: ClusterState, unit: Unit, near: Near, level: Level, closed: Closed) -> Iterator[Mask]:
    """The rows of each domain of a level that could hold a gang now, kind by kind, the tightest first; shape (rows,)."""
    kinds = _kinds(unit, near, closed)
    held = np.add.reduce(_by_domain(kinds, level))
    domains = np.flatnonzero(_enough(kinds, level)).tolist()
    for domain in sorted(domains, key=lambda each: (int(held[each]), level.name(each))):
        yield rows_in(level, domain, state.nodes.count)


def _enough(kinds: list[_Kind], level: Level) -> Mask:
    """For each domain whether it could hold all, kind by kind; shape (domains,)."""
    held = [sums >= kind.wanted for kind, sums in zip(kinds, _by_domain(kinds, level), strict=True)]
    return np.logical_and.reduce(held) if held else np.zeros(len(level.values), np.bool_)


def _chosen(state: ClusterState, kinds: list[_Kind], level: Level | None, preferred: Level | None) -> Iterator[Mask]:
    """The rows that the search of `core.topology` chooses, of each domain of the required level that holds all."""
    levels = [each for each in (level, preferred) if each is not None]
    if not levels or not kinds:
        return
    tree = state.network.tree(levels)
    groups = tuple(Group(number, kind.wanted) for number, kind in enumerate(kinds))
    rules = Rules(None if level is None else 0, None if preferred is None else len(levels) - 1)
    request = Request(tuple(Shape(kind.held) for kind in kinds), (Set(groups),), rules)
    for placement in choices(tree, request):
        rows: Mask = np.zeros(state.nodes.count, np.bool_)
        rows[[place.row for places in placement.sets for place in places]] = True
        yield rows


def _fewest(home: int, kinds: list[_Kind], level: Level, rows: Mask) -> Mask | None:
    """Rows of few domains of a level that hold a gang, some of whose members have places; None: they do not hold it.

    home: where members are already, first of all. Then one that holds all of the rest, the tightest; else the largest first.
    """
    sums = _by_domain(kinds, level, rows)
    wanted = [kind.wanted for kind in kinds]
    taken: list[int] = []
    names = [level.name(domain) for domain in range(1, len(level.values))]
    while any(wanted):
        shares = np.minimum.reduce([np.minimum(each, need) / need for each, need in zip(sums, wanted, strict=True) if need])
        shares[0] = -1
        shares[taken] = -1
        left = np.minimum.reduce([each - need for each, need in zip(sums, wanted, strict=True)])
        best = home if home and not taken and shares[home] > 0 else _best(shares, left, names)
        if best == 0 or not any(each[best] for each in sums):
            return None
        taken.append(best)
        wanted = [max(0, need - int(each[best])) for each, need in zip(sums, wanted, strict=True)]
    mask: Mask = rows & np.isin(level.domain[: len(rows)], taken)
    return mask


def _best(shares: np.ndarray[tuple[int], np.dtype[np.float64]], left: Ints, names: list[str]) -> int:
    """The domain that holds all of the rest with the least left over, else the one that holds most; 0: there is none."""
    candidates = [domain for domain in range(1, len(shares)) if shares[domain] > 0]
    if not candidates:
        rest = [domain for domain in range(1, len(shares)) if shares[domain] >= 0]
        return max(rest, key=lambda domain: int(left[domain]), default=0)
    return min(candidates, key=lambda domain: (-shares[domain], int(left[domain]), names[domain - 1]))


def _ceilings(state: ClusterState, unit: Unit, near: Near, level: Level) -> list[tuple[int, Ints]]:
    """For each kind of member how many there are, and how many each domain would hold, were it empty; shape (domains,)."""
    found, size, rows = [], len(level.values), slice(0, state.nodes.count)
    for count, task in _members(unit, near):
        held = _at_most(task, task.ranking.ceilings(), empty=True)
        held[~(state.nodes.open[rows] & task.ranking.admitted(rows))] = 0
        sums = np.bincount(level.domain[rows], weights=held, minlength=size).astype(np.int64)
        sums[0] = 0
        found.append((count, sums))
    return found


def could_hold(state: ClusterState, unit: Unit, near: Near, at_most: int) -> Iterator[Mask]:
    """The rows of the domains that could hold a gang, were they empty; those that hold most of it now first; shape (rows,)."""
    if not all(state.network.knows(each) for each in near.required):
        return
    level = state.network.level(*near.required)
    home = state.network.home(near.gang, level)
    enough = np.logical_and.reduce([sums >= count for count, sums in _ceilings(state, unit, near, level)])
    domains = [home] if home else np.flatnonzero(enough).tolist()
    now = np.minimum.reduce(_by_domain(_kinds(unit, near, None), level))
    domains.sort(key=lambda domain: (-int(now[domain]), level.name(domain)))
    for domain in domains[:at_most]:
        yield rows_in(level, domain, state.nodes.count)


class Scattered(NamedTuple):
    """A gang has places, but in more domains of its preferred level than it needs.

    domains: how many now, fewest: how many were they empty. until: when it starts all the same, seconds since the epoch.
    """

    level: str
    domains: int
    fewest: int
    until: float
    code: ReasonCode = ReasonCode.PREFERRED_TOPOLOGY


def scattered(state: ClusterState, unit: Unit, near: Near, closed: Closed) -> Scattered | None:
    """Why a gang is to wait for places nearer to each other; None: it is not, or has no place at all now.

    Counted kind by kind, so never more domains than it would get: in doubt it starts.
    """
    until = unit.created + state.policy.preferred_wait
    if not state.policy.preferred_wait or until <= state.services.now or not near.preferred:
        return None
    if not all(map(state.network.knows, (near.preferred, *near.required))):
        return None
    level = state.network.level(near.preferred)
    if state.network.home(near.gang, level):
        return None
    ideal = _domains(_ceilings(state, unit, near, level))
    kinds = _kinds(unit, near, closed)
    sums = _by_domain(kinds, level)
    now = _domains([(kind.wanted, each) for kind, each in zip(kinds, sums, strict=True)])
    return Scattered(near.preferred, now, ideal, until) if 0 < ideal < now else None


def _domains(kinds: list[tuple[int, Ints]]) -> int:
    """The fewest domains that hold so many of each kind, kind by kind; 0: all together do not. Shapes (domains,)."""
    found = 0
    for wanted, sums in kinds:
        total = np.cumsum(np.sort(sums)[::-1])
        if not len(total) or total[-1] < wanted:
            return 0
        found = max(found, int(np.searchsorted(total, wanted)) + 1)
    return found


def by_rank(state: ClusterState, tasks: list[Task], rows: list[int]) -> tuple[list[Task], list[int]]:
    """Identical members in the order of their ranks, and their rows in the order of the network: neighbours there are near.

    rows: one for each of the first members that get one. The order of the network is that of the names of domains, widest first.
    """
    names, objects = state.nodes.names, state.nodes.objects
    place = {
        row: (state.network.path(node.labels) if (node := objects[row]) is not None else [], names[row]) for row in set(rows)
    }
    ordered = sorted(tasks, key=lambda task: (not leads(task.pod), index_of(task.pod), task.pod.key))
    return ordered, sorted(rows, key=place.__getitem__)


def most(state: ClusterState, unit: Unit, near: Near) -> Held | None:
    """What the best domain of the required level holds of a gang's members; None: no node is in one."""
    level = state.network.level(*near.required)
    kinds = _kinds(unit, near, None)
    sums = _by_domain(kinds, level)
    rows = np.fromiter(state.nodes.rows.values(), np.int32, len(state.nodes.rows))
    domains = sorted(set(level.domain[rows].tolist()) - {0})
    if not domains:
        return None
    held = {
        domain: sum(min(int(each[domain]), kind.wanted) for kind, each in zip(kinds, sums, strict=True)) for domain in domains
    }
    ceilings = _ceilings(state, unit, near, level)
    ceiling = max(sum(min(int(each[domain]), count) for count, each in ceilings) for domain in domains)
    home = state.network.home(near.gang, level)
    best = home or min(domains, key=lambda domain: (-held[domain], level.name(domain)))
    return Held(
        near.required[-1],
        level.name(best),
        held.get(best, 0),
        sum(kind.wanted for kind in kinds),
        len(domains),
        ceiling,
        bool(home),
    )
