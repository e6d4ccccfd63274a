"""What waits and goes ahead of places that are held: a held place is not given another while such work would fit there.

A queue goes no earlier than what it holds already lets it. So queues are asked in that order, and no further than needed: most
of what waits is left out by its queue. In a queue, what asks for the same of what shares are about differs in age only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from fairlead.core.model.charges import Charge
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.followed import Followed
from fairlead.core.queues.queue_node import PendingClass, QueueNode, QueuePosition, Step
from fairlead.core.state.cluster import ClusterState

_Aged = tuple[bool, float, str, Unit, PendingClass]
"""Whether it is not express, when it was created, its name: of the first unit of a pending class. That unit and that class."""


class _Asked:
    """What was found for some rows. queues: how many were asked. first: what goes first. fits: whether a row holds a shape."""

    __slots__ = ("first", "fits", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.first: QueuePosition | None = None
        self.fits: dict[Ranking, bool] = {}


class _Known(NamedTuple):
    """What waits in a queue by age, and what that follows from."""

    groups: list[list[_Aged]]
    names: frozenset[str]
    stamp: int
    held: dict[str, tuple[int, int]]
    past: dict[str, int]


class _ByAge:
    """What waits in each queue by age. It is kept until something comes to wait in the queue, is refused or is let go on there
    (`QueueNode.stamp`), its users hold something else, or nodes change.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[QueueNode, _Known] = {}
        self._names: dict[QueueNode, frozenset[str]] = {}
        self._share: object = None
        self._versions = (-1, -1, -1)

    def follow(self) -> None:
        """Forget everything if nodes, or which queues there are, changed; or if classes may be express, which may be edited."""
        nodes, queues = self._state.nodes, self._state.queues
        versions = queues.tree.version, nodes.described, nodes.classes.epoch
        if versions != self._versions or queues.fair.share is not self._share:
            self._share = queues.fair.share
            self._names.clear()
        if versions != self._versions or self._state.services.any_express:
            self._versions = versions
            self._known.clear()

    def of(self, node: QueueNode) -> list[list[_Aged]]:
        """The firsts of a queue's pending classes, together those that ask for the same of what counts, each list by age."""
        known, users, names = self._known.get(node), node.users, self._names.get(node)
        if names is None:
            names = self._names[node] = self._names_of(node)
        if (
            known is None
            or known.stamp != node.stamp
            or known.names != names
            or known.past is not users.past
            or known.held != users.held
        ):
            groups = _groups(node, names)
            known = self._known[node] = _Known(groups, names, node.stamp, dict(users.held), users.past)
        return known.groups

    def _names_of(self, node: QueueNode) -> frozenset[str]:
        """What decides the shares of a queue and of those above it; nothing: that is not known."""
        fair, pools = self._state.queues.fair, self._state.queues.tree.pools.named
        if pools or any(fair.names_that_count(each) is None for each in node.path):
            return frozenset()
        return fair.names_of(node)


def _groups(node: QueueNode, names: frozenset[str]) -> list[list[_Aged]]:
    groups: dict[Charge | PendingClass, list[_Aged]] = {}
    for pending_class in node.pending_classes.values():
        unit = pending_class.first()
        if unit is not None:
            aged = not unit.express, unit.rank.created, unit.tasks[0].pod.uid, unit, pending_class
            groups.setdefault(pending_class.core_of(names) if names else pending_class, []).append(aged)
    for group in groups.values():
        group.sort(key=_age)
    return list(groups.values())


def _age(aged: _Aged) -> tuple[bool, float, str]:
    return aged[:3]


class Ahead:
    """What waits for some rows and goes before others, as things stand."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._on: dict[tuple[int, ...], _Asked] = {}
        self._order: list[tuple[QueuePosition, int, QueueNode]] | None = None  # the earliest position of each
        self._least: dict[QueueNode, Step] = {}
        self._by_age = state.caches.get(_ByAge)
        queues = state.queues
        self._followed = Followed(queues.tree, queues.fair, queues.accounts.charged)

    def forget(self) -> None:
        """The state is another, or is about to be: something is placed or released, or events have come."""
        self._on.clear()
        self._order = None

    def goes_before(self, unit: Unit, rows: list[int]) -> bool:
        """Whether a pending unit that one of the rows holds goes before held tasks. unit: of these."""
        unit.express = unit.level < self._state.services.of(unit.tasks[0]).express
        held, _ = self._state.queues.waiting.order_key(unit, held=True)
        asked, order = self._on.setdefault(tuple(rows), _Asked()), self._ordered()
        while asked.first is None or not asked.first < held:
            if asked.queues == len(order) or not order[asked.queues][0] < held:
                return False
            self._ask(order[asked.queues][2], rows, asked)
            asked.queues += 1
        return True

    def _follow(self) -> None:
        """Forget the earliest positions of queues that hold something else, or of all where policies, shares or nodes changed."""
        changed = self._followed.changed()
        for node in list(self._least) if changed is None else changed:
            self._least.pop(node, None)
        self._by_age.follow()

    def _ordered(self) -> list[tuple[QueuePosition, int, QueueNode]]:
        """The queues in which something waits, in the order in which these may go: by number where that is the same."""
        if self._order is None:
            self._follow()
            plain = not self._state.services.any_express
            waiting = [node for node in self._state.queues.queues.values() if node.pods_waiting]
            steps = [tuple(self._least_of(each) for each in reversed(node.path)) for node in waiting]
            self._order = sorted(
                ((least[0][0], plain, least), number, node)
                for number, (node, least) in enumerate(zip(waiting, steps, strict=True))
            )
        return self._order

    def _least_of(self, node: QueueNode) -> Step:
        """A queue's step with what it holds already: with a unit more it is no earlier."""
        least = self._least.get(node)
        if least is None:
            share = self._state.queues.fair.dominant_share(node)
            least = self._least[node] = (-node.policy.priority, share, -node.guarantee, -math.inf, "")
        return least

    def _ask(self, node: QueueNode, rows: list[int], asked: _Asked) -> None:
        """Note the first of a queue that one of the rows holds, if it goes before those of others."""
        order, fair = self._state.queues.waiting.order, self._state.queues.fair
        for group in self._by_age.of(node):
            unit = group[0][3]
            share = partial(_share_in, {each: fair.dominant_share_with(each, unit) for each in node.path})
            if asked.first is not None and not order.position(node, unit, share) < asked.first:
                continue
            for *_, unit, pending_class in group:
                if _fits_one(pending_class, rows, asked.fits):
                    position = order.position(node, unit, share)
                    if asked.first is None or position < asked.first:
                        asked.first = position
                    break


def _share_in(shares: dict[QueueNode, float], node: QueueNode, _: Unit) -> float:
    return shares[node]


def _fits_one(pending_class: PendingClass, rows: list[int], fits: dict[Ranking, bool]) -> bool:
    """Whether one of the rows holds a pod of a class."""
    for ranking in pending_class.rankings:
        if ranking not in fits:
            fits[ranking] = any(ranking.fits_row(row) for row in rows)
        if fits[ranking]:
            return True
    return False
