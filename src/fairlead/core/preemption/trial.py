"""A trial of who would reclaim what was just placed: which of those that wait need not be tried, since that would be in vain.

Most that waits lacks a free place, and its queue has no lender to reclaim from: to try that changes nothing. So a queue in which
all is in vain is left out. What is placed in the trial takes places and what shares leave, and gives neither; but it may make its
queue a lender. Then queues that were left out may not be in vain any more, and the trial is made again with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairlead.core.model.charges import Charge
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.few_rows import FewRows
from fairlead.core.preemption.policy import PreemptionPolicy, may_lend
from fairlead.core.queues.entitlement import beyond_quota
from fairlead.core.queues.queue_node import PendingClass, QueueNode, pending_class_of
from fairlead.core.state.cluster import ClusterState

_DIVISIONS = 4  # of shares, by which it is remembered: those of a pass, and those of its trials


class Claiming:
    """Which queues may be entitled to more at all, kept from trial to trial until a queue holds something else, or should."""

    def __init__(self, _: ClusterState) -> None:
        self._known: dict[int, _OfDivision] = {}

    def of(self, state: ClusterState) -> _OfDivision:
        """What is known by the present shares."""
        share = state.queues.fair.share
        known = self._known.get(id(share))
        if known is None or known.share is not share or known.tree_version != state.queues.tree.version:
            if len(self._known) >= _DIVISIONS:
                self._known.clear()
            known = self._known[id(share)] = _OfDivision(state)
        return known


class _May(NamedTuple):
    """Whether anything in a queue may be entitled to more, by what waited, and what it held, then."""

    may: bool
    alike: tuple[frozenset[str], list[list[PendingClass]]] | None
    held: list[int]


class _Claim:
    """Of what is alike in a queue: whether one may be tried at all, and reclaim from a queue (None: not asked yet)."""

    __slots__ = ("permitted", "preemption", "reclaims")

    def __init__(self, preemption: PreemptionPolicy) -> None:
        self.preemption = preemption
        self.permitted = preemption.entitled or not preemption.state.queues.fair.scarce(preemption.queue)
        self.reclaims: bool | None = None if preemption.entitled else False


class _OfDivision:
    """The same by one division of shares."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.share = state.queues.fair.share
        self.tree_version = state.queues.tree.version
        self._names: dict[QueueNode, frozenset[str]] = {}
        self._may: dict[QueueNode, _May] = {}
        self._charged: dict[QueueNode, None] = {}  # those that may hold something else since they were asked about
        self._place = (-1, 0)  # in the changes of what queues hold

    def names_of(self, node: QueueNode) -> frozenset[str]:
        """What shares and quotas of a queue, and of those above it, are about."""
        names = self._names.get(node)
        if names is None:
            names = self._names[node] = self._state.queues.fair.names_of(node)
        return names

    def may_claim(self, node: QueueNode) -> bool:
        """Whether anything that waits in a queue may be entitled to more."""
        self._follow()
        known = self._may.get(node)
        return known.may if known is not None and self._holds(known, node) else self._ask(node)

    def claiming(self) -> list[QueueNode]:
        """The queues in which anything that waits may be entitled to more."""
        self._follow()
        found, known_of = [], self._may
        for node in self._state.queues.queues.values():
            if node.pods_waiting:
                known = known_of.get(node)
                if known.may if known is not None and self._holds(known, node) else self._ask(node):
                    found.append(node)
        return found

    def _follow(self) -> None:
        charged = self._state.queues.accounts.charged
        if self._place != charged.place:
            changed = charged.since(self._place)
            self._place = charged.place
            self._charged.update(dict.fromkeys(self._may if changed is None else changed))

    def _holds(self, known: _May, node: QueueNode) -> bool:
        """Whether what was found of a queue holds still: it may have been charged for what was taken back since."""
        if known.alike is not node.alike:
            return False
        if node not in self._charged:
            return True
        if known.held != self._held(node):
            return False
        del self._charged[node]
        return True

    def _held(self, node: QueueNode) -> list[int]:
        """What a queue holds of what is scarce for it."""
        used = node.used
        return [used.get(name, 0) for name in self.share.get(node.name, ())]

    def _ask(self, node: QueueNode) -> bool:
        groups = node.alike_in(self.names_of(node))
        may = any(may_claim(self._state, node, group[0].core_charge) for group in groups)  # it is the same for all of a group
        self._charged.pop(node, None)
        self._may[node] = _May(may, node.alike, self._held(node))
        return may


class Trial:
    """What was just placed, and is being asked about.

    own: its queue. within: whether that, and those above it, stay within their shares; if not, it goes before no entitled job,
    whatever the victims. all_queues: none is left out. borrowing: what goes beyond its queue's quota keeps a free place;
    borrowed: something did. no_places: nothing has found a free place. stale: since something was placed, a queue that was left
    out may not be in vain any more. over: all that is left is in vain.
    """

    def __init__(self, state: ClusterState, own: QueueNode, *, within: bool, all_queues: bool, borrowing: bool) -> None:
        self.state = state
        self.own = own
        self.within = within
        self.all_queues = all_queues
        self.borrowing = borrowing
        self.borrowed = False
        self.no_places = True
        self.stale = False
        self.over = False
        self._left_out: list[QueueNode] = []
        self._tried: list[QueueNode] = []  # that are not left out
        self._sorted = False  # whether these are as things stand
        self._more = False  # whether members beyond their gangs' minima have come to wait
        self._no_place: set[Ranking] = set()
        self._has_place: set[Ranking] = set()  # as things stand
        self._beyond: dict[tuple[QueueNode, Charge], bool] = {}  # whether what is alike goes beyond its queue's quota by now
        self.by_class = state.queues.tree.by_row  # what is charged depends on the node, too
        self._claiming = state.caches.get(Claiming).of(state)
        self._claims: dict[QueueNode, dict[PendingClass | tuple[QueueNode, Charge], _Claim]] = {}  # by root
        self._placeless: dict[int, list[PendingClass]] = {}  # by `id`: groups of classes of which none has a place
        state.queues.lenders.follow()
        self._rises = state.queues.lenders.rises

    # -- who is tried ----------------------------------------------------------------------------

    def queues(self) -> list[QueueNode]:
        """Those in which something waits that may reclaim, but for those in which that is in vain."""
        if self.all_queues:
            return self._beside(node for node in self.state.queues.queues.values() if node.pods_waiting)
        if not self._sorted:
            self._sorted, self._tried, self._left_out = True, [], []
            nodes = self.claiming()
            self._compare_rows(nodes)
            for node in nodes:
                (self._left_out if self._is_vain(node) else self._tried).append(node)
        return list(self._tried)

    def claiming(self) -> list[QueueNode]:
        """Those in which anything that waits may be entitled to more."""
        if self.by_class:
            return self._beside(node for node in self.state.queues.queues.values() if node.pods_waiting)
        return self._beside(self._claiming.claiming())

    def _beside(self, nodes: Iterable[QueueNode]) -> list[QueueNode]:
        """Those that are neither the queue itself, nor above it, nor below it."""
        own = self.own
        return [node for node in nodes if node not in own.path and own not in node.path]

    def placed(self, unit: Unit) -> None:
        """A unit that waits has found a free place."""
        state = self.state
        self.no_places = False
        self._sorted = self._sorted and self.all_queues
        self._has_place.clear()
        self._beyond.clear()
        self._more = self._more or bool(unit.later)
        state.queues.lenders.follow()
        node = state.queues.queues[unit.tasks[0].queue]
        if len(node.placed) <= len(unit.tasks) or any(task.queue != node.name for task in unit.tasks):
            self._rises = -1
        if self._rises == state.queues.lenders.rises:
            # No queue has become a lender. Those that share one above them with it may claim less than before.
            self._claims.pop(node.path[-1], None)
        else:
            self._rises = state.queues.lenders.rises
            self._claims.clear()
            if self.all_queues:
                self._tried, self._left_out = [*self._tried, *self._left_out], []
            claiming = (each for each in self._left_out if self.may_claim(each))
            self.stale = any(self._any_reclaims(group) for each in claiming for group in self.groups(each))
        self.over = not self._more and self._none_is_left()

    def _none_is_left(self) -> bool:
        if self.all_queues and not self._sorted:
            self._sorted, self._tried, self._left_out = True, self.claiming(), []
        compared = False
        while self._tried and self._is_vain(self._tried[-1]):
            self._left_out.append(self._tried.pop())
            if not compared:
                compared = True
                self._compare_rows(self._tried)
        return not self._tried

    def _compare_rows(self, nodes: Iterable[QueueNode]) -> None:
        """Find groups of queues for which few rows have any free GPUs, and none of these enough."""
        if not self.by_class:
            self._placeless |= self.state.caches.get(FewRows).without_place(nodes)

    def may_claim(self, node: QueueNode) -> bool:
        """Whether anything that waits in a queue may be entitled to more: if not, all of it is in vain."""
        return self.by_class or self._claiming.may_claim(node)

    def in_vain(self, unit: Unit) -> bool:
        """Whether to try a unit changes nothing: its queue may not, or it has neither a place nor a lender."""
        pending_class = pending_class_of(unit)
        return pending_class is not None and self._is_in_vain(pending_class)

    def _is_vain(self, node: QueueNode) -> bool:
        return not self.may_claim(node) or all(self._is_group_in_vain(group) for group in self.groups(node))

    def _is_in_vain(self, pending_class: PendingClass) -> bool:
        claim = self._claim_of(pending_class)
        if claim is None or not claim.permitted:
            return True
        return not claim.reclaims and self._gets_no_place(pending_class) and not self._reclaims(claim)

    def groups(self, node: QueueNode) -> list[list[PendingClass]]:
        """What waits in a queue, together what shares and quotas treat alike."""
        if self.by_class:
            return [[each] for each in node.pending_classes.values() if each.waiting]
        return node.alike_in(self._claiming.names_of(node))

    def _any_reclaims(self, group: list[PendingClass]) -> bool:
        first = _one_of(group)
        claim = self._claim_of(first) if first is not None else None
        return claim is not None and claim.permitted and self._reclaims(claim)

    def _is_group_in_vain(self, group: list[PendingClass]) -> bool:
        whose = _one_of(group)
        first = whose.first() if whose is not None else None
        claim = self._claim_of(whose) if whose is not None else None
        if first is None or claim is None or not claim.permitted:
            return True
        if claim.reclaims:
            return False
        if id(group) not in self._placeless:
            if not self._keeps_none(first, group) and not all(self._gets_no_place(each) for each in group):
                return False
            if not self.by_class:
                self._placeless[id(group)] = group
        return not self._reclaims(claim)

    def _keeps_none(self, first: Unit, group: list[PendingClass]) -> bool:
        """Whether a group may keep no place, as all of it would go beyond its queue's quota: what is alike does, or does not."""
        if self.borrowing or not self.state.queues.fair.disputed <= self._claiming.names_of(group[0].queue):
            return False
        return goes_beyond(self.state, first)

    def _gets_no_place(self, pending_class: PendingClass) -> bool:
        """Whether none of a class has a place, or may keep one, by itself; if limits do not stop all its users anyway."""
        none = self._no_place
        for ranking in pending_class.rankings:
            if ranking in none:
                return True
        if not self.borrowing and self._goes_beyond(pending_class):
            return True
        return any(self._lacks_place(ranking) for ranking in pending_class.rankings) or pending_class.first() is None

    def _goes_beyond(self, pending_class: PendingClass) -> bool:
        """Whether one of a class would go beyond its queue's quota, as what is alike would; or limits stop all its users."""
        first = pending_class.first()
        if first is None or self.by_class:
            return first is None or goes_beyond(self.state, first)
        key = pending_class.queue, pending_class.core_of(self.state.queues.fair.disputed)
        found = self._beyond.get(key)
        if found is None:
            found = self._beyond[key] = goes_beyond(self.state, first)
        return found

    def _lacks_place(self, ranking: Ranking) -> bool:
        """Whether no row takes a pod, however much is placed elsewhere."""
        if ranking in self._no_place:
            return True
        if ranking in self._has_place:
            return False
        shape = ranking.shape
        # Where GPUs are left for GPU pods, what is placed may open a place for others.
        if shape.holds or shape.minds_neighbours or ranking.relations or self._fits_somewhere(ranking):
            self._has_place.add(ranking)
            return False
        self._no_place.add(ranking)
        return True

    def _fits_somewhere(self, ranking: Ranking) -> bool:
        rows = ranking.few_rows()
        return ranking.best() >= 0 if rows is None else any(ranking.fits_alone(row) for row in rows)

    def _claim_of(self, pending_class: PendingClass) -> _Claim | None:
        """Whether one of a class may be tried at all, and reclaim; None: it may not."""
        node = pending_class.queue
        claims = self._claims.setdefault(node.path[-1], {})
        key = pending_class if self.by_class else (node, pending_class.core_of(self._claiming.names_of(node)))
        known = claims.get(key)
        if known is None:
            if not may_claim(self.state, node, pending_class.core_charge):
                return None
            unit = pending_class.first()
            if unit is None:
                return None  # limits stop all its users
            known = claims[key] = _Claim(PreemptionPolicy(self.state, unit))
        return known

    def _reclaims(self, claim: _Claim) -> bool:
        """Whether there is a queue from which it may reclaim; it is permitted."""
        if claim.reclaims is None:
            preemption = claim.preemption
            claim.reclaims = any(preemption.reclaims_from(each) for each in self.lenders(preemption))
        return claim.reclaims

    def lenders(self, preemption: PreemptionPolicy) -> Iterator[QueueNode]:
        """Those from which a unit's queue may reclaim at all: all from them up to its sibling hold more than they should."""
        rivals, known = self.own.rivals(preemption.queue), self.state.queues.lenders
        for mine in preemption.queue.path:
            for by_quota in (False, True) if preemption.within_quota(mine) else (False,):
                for theirs, lenders in known.beside(mine, by_quota=by_quota):
                    if not (self.within and rivals is not None and theirs is not rivals[0]):
                        yield from lenders


def _one_of(group: list[PendingClass]) -> PendingClass | None:
    """One that stands for all of a group; None: limits stop the users of all."""
    return next((each for each in group if each.first() is not None), None)


def goes_beyond(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit would bring its queue beyond its quota of something that is scarce: only then can it be reclaimed."""
    disputed = state.queues.fair.disputed
    pending_class = pending_class_of(unit)
    if not disputed or not state.policy.reclaim or not state.policy.preempt or pending_class is None:
        return False
    node = pending_class.queue
    # Where they may be charged for more than that the trial finds out.
    tree = state.queues.tree
    wanted = dict(tree.dearest_together(unit.tasks[: unit.need])) if tree.by_row else pending_class.core
    names = [name for name in disputed if name in wanted]
    return beyond_quota([node], names, lambda each, name: each.stays(name) + wanted[name])


def may_reclaim(preemption: PreemptionPolicy) -> bool:
    """Whether there is a queue from which a unit may reclaim something now."""
    return any(preemption.may_reclaim_from(lender) for lender in may_lend(preemption))


def may_claim(state: ClusterState, node: QueueNode, charge: Charge) -> bool:
    """Whether a queue may be entitled to so much more. Where nothing is scarce among its siblings it may.

    A test for every queue in every trial, and in every pass, which asks no more than it needs.
    """
    share = state.queues.fair.share.get(node.name)
    if not share or state.queues.guarantees.classes:
        return True
    beyond_share = beyond_quota = False
    for name, amount in charge:
        if amount and name in share:
            held = node.used.get(name, 0) + amount
            beyond_share = beyond_share or held > share[name]
            beyond_quota = beyond_quota or held > node.quota.get(name, 0)
    return not (beyond_share and beyond_quota)
