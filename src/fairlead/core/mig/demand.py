"""What waits and what nodes offer, put so that `planner.plan` finds which nodes to reconfigure: gangs, pods that need
several partitions, and pods that only some nodes may hold.

The planner knows a pod as the profiles that it accepts, and matches it with partitions. Nodes that differ for some waiting
pod (labels, taints, free CPU) are kept apart by the names of profiles: `1g.5gb` of the nodes of kind 3 is `1g.5gb@3`,
and a pod accepts those of the kinds that may hold it. A gang that would be served in part only is left out and planned
without, since a part of it starts nothing. A pod that needs several partitions of one node (also several whole GPUs) gets a
node of its own after that, or before, where it is the first of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.core.mig import planner
from fairlead.core.mig.planner import ConfigState

WHOLE = "gpu"
"""The name of a GPU without MIG among profiles."""
_ROUNDS = 8  # plans without gangs that are served in part, before all such are left out
_WORK = 100_000
_MOST_PODS = 64  # that a change names

Partitions = tuple[tuple[str, int], ...]


class Offer(msgspec.Struct, frozen=True):
    """A node. pool: whose configurations it may get. config: that of its label, or the one that it is being changed to.
    free: partitions that no pod holds, or that are coming, by profile. changeable: it is idle, and at rest for long
    enough. holds: of each shape of waiting pods whether the node may hold it.
    """

    name: str
    pool: str
    config: str
    free: Partitions
    changeable: bool
    holds: tuple[bool, ...]


class Wish(msgspec.Struct, frozen=True):
    """A waiting pod. shape: the place of its verdict in `Offer.holds`. needs: partitions, by profile. gang: those with the
    same name start together, empty: alone.
    """

    name: str
    shape: int
    needs: Partitions
    gang: str = ""

    @property
    def single(self) -> bool:
        """Whether one partition is all that it needs."""
        return sum(count for _, count in self.needs) == 1


class Change(msgspec.Struct, frozen=True):
    """Reconfigure this node, for these pods. first: the place in the queue order of the first of them."""

    node: str
    config: str
    before: str
    pods: tuple[str, ...]
    first: int


class Proposal(msgspec.Struct, frozen=True):
    """The changes, the one for the first pod first. served: pods that have partitions with them, or without any change;
    exact: fewer changes do not serve as many (as far as all pods need one partition and are in no gang).
    """

    changes: tuple[Change, ...]
    served: tuple[str, ...]
    exact: bool


def propose(
    offers: Sequence[Offer],
    configs: Mapping[str, Mapping[str, Partitions]],
    wishes: Sequence[Wish],
    *,
    work: int = _WORK,
) -> Proposal:
    """Which nodes to reconfigure. configs: pool -> name -> partitions of a node. wishes: in queue order; names are unique.

    work: steps of each plan, two in about a microsecond; there are ten plans at most.
    """
    position = {wish.name: place for place, wish in enumerate(wishes)}
    kinds: dict[tuple[bool, ...], int] = {}
    for offer in sorted(offers, key=lambda each: each.name):
        kinds.setdefault(offer.holds, len(kinds))
    left = {offer.name: offer for offer in offers}
    units = _units(wishes)
    large = [unit for unit in units if any(not wish.single for wish in unit)]
    head = large[: bool(large and large[0] is units[0])]
    changes, served = _alone(head, left, configs, position)
    single = [wish for unit in units if unit not in large for wish in unit]
    single.sort(key=lambda wish: position[wish.name])
    small = _small(list(left.values()), configs, kinds, single, position, work)
    for change in small.changes:
        left.pop(change.node, None)
    more, others = _alone(large[len(head) :], left, configs, position)
    found = sorted([*changes, *small.changes, *more], key=lambda change: (change.first, change.node))
    names = sorted({*served, *small.served, *others}, key=position.__getitem__)
    return Proposal(tuple(found), tuple(names), small.exact and not large)


# -- pods that need one partition ----------------------------------------------------------------


def _small(
    offers: Sequence[Offer],
    configs: Mapping[str, Mapping[str, Partitions]],
    kinds: Mapping[tuple[bool, ...], int],
    wishes: Sequence[Wish],
    position: Mapping[str, int],
    work: int,
) -> Proposal:
    """By the planner, again without gangs that it would serve in part."""
    nodes = [_node(offer, kinds) for offer in offers]
    known = [
        planner.Config(name, f"{pool}@{kind}", _of_kind(partitions, kind))
        for pool, named in sorted(configs.items())
        for name, partitions in sorted(named.items())
        for kind in kinds.values()
    ]
    left, exact = list(wishes), True
    for turn in range(_ROUNDS + 1):
        plan = planner.plan(nodes, known, _waiting(left, kinds), work=work)
        exact = exact and plan.exact
        partly = _in_part(left, set(plan.served))
        if not partly:
            break
        gone = {partly[-1]} if turn < _ROUNDS else {wish.gang for wish in left if wish.gang}
        left = [wish for wish in left if wish.gang not in gone]
    else:
        plan = planner.plan(nodes, known, _waiting(left, kinds), work=work)
    free = set(planner.plan(nodes, [], _waiting(left, kinds), work=work).served) if plan.changes else set()
    by_name = {wish.name: wish for wish in left}
    needing = [by_name[name] for name in plan.served if name not in free]
    return Proposal(_for_pods(plan, offers, configs, needing, position), plan.served, exact and len(left) == len(wishes))


def _node(offer: Offer, kinds: Mapping[tuple[bool, ...], int]) -> planner.Node:
    kind = kinds[offer.holds]
    running = 0 if offer.changeable else 1  # the planner leaves nodes with running pods as they are
    free = _of_kind(offer.free, kind)
    return planner.Node(offer.name, f"{offer.pool}@{kind}", offer.config, ConfigState.SUCCESS, free, running)


def _of_kind(partitions: Partitions, kind: int) -> Partitions:
    return tuple((f"{profile}@{kind}", count) for profile, count in partitions)


def _waiting(wishes: Iterable[Wish], kinds: Mapping[tuple[bool, ...], int]) -> list[planner.Waiting]:
    return [
        planner.Waiting(wish.name, tuple(f"{wish.needs[0][0]}@{kind}" for holds, kind in kinds.items() if holds[wish.shape]))
        for wish in wishes
    ]


def _in_part(wishes: Sequence[Wish], served: set[str]) -> list[str]:
    """Gangs of which some members are served and some are not, in the order of their first members."""
    members = Counter(wish.gang for wish in wishes if wish.gang)
    found = Counter(wish.gang for wish in wishes if wish.gang and wish.name in served)
    return [gang for gang in members if 0 < found[gang] < members[gang]]


def _for_pods(
    plan: planner.Plan,
    offers: Sequence[Offer],
    configs: Mapping[str, Mapping[str, Partitions]],
    needing: Sequence[Wish],
    position: Mapping[str, int],
) -> tuple[Change, ...]:
    """The changes of a plan with the pods that they are for: as many as each node offers, in queue order."""
    by_name = {offer.name: offer for offer in offers}
    left, changes = list(needing), []
    for change in plan.changes:
        offer = by_name[change.node]
        free = dict(configs[offer.pool][change.config])
        mine = []
        for wish in left:
            profile = wish.needs[0][0]
            if free.get(profile, 0) > 0 and offer.holds[wish.shape]:
                free[profile] -= 1
                mine.append(wish)
        taken = {wish.name for wish in mine}
        left = [wish for wish in left if wish.name not in taken]
        changes.append((change, mine))
    # A partition that was free may serve another pod, and the change makes up for it: such a change is for all that need one.
    return tuple(
        Change(
            change.node,
            change.config,
            change.before,
            tuple(wish.name for wish in (mine or needing)[:_MOST_PODS]),
            min((position[wish.name] for wish in mine or needing), default=len(position)),
        )
        for change, mine in changes
    )


# -- pods that need several partitions of one node --------------------------------------------------


def _alone(
    units: Iterable[Sequence[Wish]],
    left: dict[str, Offer],
    configs: Mapping[str, Mapping[str, Partitions]],
    position: Mapping[str, int],
) -> tuple[list[Change], list[str]]:
    """Each pod gets a node: one that has enough free, else one that is changed to what leaves least over.

    left: the nodes that may be used; what is taken is taken out. A unit that is not served whole changes nothing.
    """
    changes: list[Change] = []
    served: list[str] = []
    for unit in units:
        before, made = dict(left), list[Change]()
        if all(_place(wish, left, configs, made, position[wish.name]) for wish in unit):
            changes += made
            served += [wish.name for wish in unit]
        else:
            left.clear()
            left.update(before)
    return changes, served


def _place(
    wish: Wish, left: dict[str, Offer], configs: Mapping[str, Mapping[str, Partitions]], made: list[Change], place: int
) -> bool:
    """Take what a pod needs of a node, if there is one."""
    holding = [offer for _, offer in sorted(left.items()) if offer.holds[wish.shape]]
    choices = [(offer.free, "", offer) for offer in holding]
    choices += [
        (partitions, name, offer)
        for offer in holding
        if offer.changeable
        for name, partitions in sorted(configs.get(offer.pool, {}).items())
        if name != offer.config
    ]
    fitting = [(rest, config, offer) for have, config, offer in choices if (rest := _rest(have, wish.needs)) is not None]
    if not fitting:
        return False
    free, config, offer = min(fitting, key=lambda each: (bool(each[1]), sum(count for _, count in each[0])))
    if config:
        made.append(Change(offer.name, config, offer.config, (wish.name,), place))
    left[offer.name] = msgspec.structs.replace(offer, config=config or offer.config, free=free, changeable=False)
    return True


def _rest(free: Partitions, needs: Partitions) -> Partitions | None:
    """What is left over; None: it is not enough."""
    amounts = dict(free)
    for profile, count in needs:
        if amounts.get(profile, 0) < count:
            return None
        amounts[profile] -= count
    return tuple(amounts.items())


def _units(wishes: Sequence[Wish]) -> list[list[Wish]]:
    """Gangs, and pods that are in none, in the order of their first pods."""
    units: dict[str, list[Wish]] = {}
    for wish in wishes:
        units.setdefault(f"gang {wish.gang}" if wish.gang else f"pod {wish.name}", []).append(wish)
    return list(units.values())
