"""Classes without victims: unschedulable ones for which nothing may be preempted, or a search for others alike found nothing.

Most often their queues hold what they deserve, and nothing of lower priority. Only a free place helps them, until that is
otherwise: which is asked once for all of a queue that are alike in it, not for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import NamedTuple

from fairlead.core.model.agenda import Agenda, Timers
from fairlead.core.model.charges import Charge
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.followed import Followed
from fairlead.core.queues.queue_node import PendingClass, QueueNode


class Alike(NamedTuple):
    """What decides whether something may be preempted for single pods of a queue, but for what they ask for besides.

    work: whether they never preempt, their class of service, and its level. names: the resources that shares and quotas of their
    queue, and of those above it, are about; charge: what is asked for of these. milli: devices that are asked for, in milli.
    """

    priority: int
    work: tuple[bool, str, int]
    names: frozenset[str]
    charge: Charge
    milli: int


class Group(NamedTuple):
    """Those of a queue that are alike."""

    node: QueueNode
    alike: Alike

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Group) and self.order() < other.order()

    def order(self) -> tuple[str, Alike, list[str]]:
        """The same in every process."""
        return self.node.name, self.alike._replace(names=frozenset()), sorted(self.alike.names)


class Sought(NamedTuple):
    """What was tried of a group in this pass since something may be preempted for it.

    tried: each is once in a pass, so that it ends. vain: those of them that found nothing. unhelped: nothing happened that could
    help them. covered: those for which a search is in vain as one for these was, as far as that is known.
    """

    tried: set[Unit]
    vain: list[Unit]
    unhelped: list[Unit]
    covered: set[Unit]


class Vain:
    """A unit for which a search was in vain. covers: asked of all others of its group, of which there may be thousands."""

    __slots__ = ("_created", "_demand", "_devices", "_since", "_terms")

    def __init__(self, unit: Unit) -> None:
        ranking = unit.tasks[0].ranking
        self._terms, self._since, self._created = ranking.terms, unit.since, unit.rank.created
        self._devices = ranking.shape.gpus, ranking.shape.gpu_milli
        self._demand = ranking.shape.demand

    def covers(self, unit: Unit) -> bool:
        """Whether a search for a unit that is alike is in vain, too: it asks for as much, and has waited no longer."""
        ranking = unit.tasks[0].ranking
        if ranking.terms is not self._terms or unit.since < self._since or unit.rank.created < self._created:
            return False
        shape = ranking.shape
        if (shape.gpus, shape.gpu_milli) != self._devices:
            return False
        asked = dict(shape.demand)
        for column, amount in self._demand:  # noqa: SIM110 - a generator would take most of the time
            if asked.get(column, 0) < amount:
                return False
        return True


class Facts(NamedTuple):
    """Of a queue, for some shares: the names of `Alike`, whether something is scarce for it, whether something may be reclaimed
    for what it is guaranteed since it is free in fragments only.
    """

    names: frozenset[str]
    scarce: bool
    in_fragments: bool


class Hope(Enum):
    """Whether something may be preempted for a group: for its rank, or only where another queue holds more than it should."""

    NONE = 0
    BY_SHARE = 1
    BY_RANK = 2


class _Hopeful:
    """What was judged of each group. Most is the same from pass to pass, and most groups have no hope."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._as_of: tuple[object, ...] = ()
        self._number = 0
        self._numbers: dict[Group, int] = {}  # in the order in which they came
        self._anew: dict[Group, None] = {}  # to be judged
        self._by_rank: dict[Group, None] = {}
        self._by_share: dict[Group, None] = {}

    def add(self, group: Group) -> None:
        self._number += 1
        self._numbers[group] = self._number
        self._anew[group] = None

    def discard(self, group: Group) -> None:
        del self._numbers[group]
        for groups in (self._anew, self._by_rank, self._by_share):
            groups.pop(group, None)

    def find(
        self,
        groups: Collection[Group],
        of_queue: Mapping[QueueNode, Collection[Group]],
        judge: Callable[[Group], Hope],
        as_of: tuple[object, ...],
        *,
        lends: bool,
    ) -> list[Group]:
        changed = self._followed.changed()
        if changed is None or as_of != self._as_of:
            self._as_of = as_of
            self._anew.update(dict.fromkeys(groups))
        else:
            for node in changed:
                self._anew.update(dict.fromkeys(of_queue.get(node, ())))
        for group in self._anew:
            hope = judge(group)
            for which, kept in ((Hope.BY_RANK, self._by_rank), (Hope.BY_SHARE, self._by_share)):
                if hope is which:
                    kept[group] = None
                else:
                    kept.pop(group, None)
        self._anew.clear()
        found = [*self._by_rank, *self._by_share] if lends else list(self._by_rank)
        return sorted(found, key=self._numbers.__getitem__)


class WithoutVictims:
    """All of them, by group.

    sought: groups of which some were tried in this pass. rests: how often in a row that was in vain for a group, and until when
    none of it is tried for it.
    """

    def __init__(self, timers: Timers, followed: Followed) -> None:
        self._groups: dict[Group, dict[PendingClass, None]] = {}
        self._of_queue: dict[QueueNode, dict[Group, None]] = {}
        self._hopeful = _Hopeful(followed)
        self._of: dict[PendingClass, Group] = {}
        self.sought: dict[Group, Sought] = {}
        self.rests: dict[Group, tuple[int, float]] = {}
        self._due: Agenda[Group] = timers.agenda("victims")  # groups that something happened to while they rested
        self._facts: dict[QueueNode, Facts] = {}
        self._facts_for = -1
        self.found_anew = 0  # how often facts were forgotten
        self.grouped_by: dict[QueueNode, Facts] | None = None  # what was known of queues when all were grouped
        self._vain: dict[Group, list[Unit]] = {}
        self._vain_at: tuple[float, ...] = ()

    def vain_at(self, versions: tuple[float, ...]) -> dict[Group, list[Unit]]:
        """The units for which searches were in vain as of some versions, by group; those as of others are forgotten."""
        if self._vain_at != versions:
            self._vain_at = versions
            self._vain.clear()
        return self._vain

    def facts_of(self, names: int) -> dict[QueueNode, Facts]:
        """What was found of queues for a version of what shares are about; what was for others is forgotten."""
        if self._facts_for != names:
            self._facts_for, self._facts = names, {}
            self.found_anew += 1
        return self._facts

    def forget_facts(self) -> None:
        """Queues, or classes of service, are others."""
        self._facts_for = -1

    def __contains__(self, pending_class: object) -> bool:
        return pending_class in self._of

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, pending_class: PendingClass, group: Group) -> None:
        """Nothing may be preempted for a class."""
        self.discard(pending_class)
        self._of[pending_class] = group
        if group not in self._groups:
            self._groups[group] = {}
            self._of_queue.setdefault(group.node, {})[group] = None
            self._hopeful.add(group)
        self._groups[group][pending_class] = None

    def discard(self, pending_class: PendingClass) -> None:
        """Something may be, or it is tried."""
        group = self._of.pop(pending_class, None)
        if group is None:
            return
        del self._groups[group][pending_class]
        if not self._groups[group]:
            del self._groups[group]
            del self._of_queue[group.node][group]
            if not self._of_queue[group.node]:
                del self._of_queue[group.node]
            self._hopeful.discard(group)
            self.rests.pop(group, None)
            self._due.drop(group)

    def seek(self, group: Group) -> Sought:
        """What is tried of a group in this pass: others after the first, if they need not be in vain as well."""
        return self.sought.setdefault(group, Sought(set(), [], [], set()))

    def group_of(self, pending_class: PendingClass) -> Group | None:
        """The group of a class; None: it is in none."""
        return self._of.get(pending_class)

    def retry(self, group: Group, at: float) -> None:
        """Something happened to a group that rests: it is tried again then."""
        known = self._due.at(group)
        if known is None or known > at:
            self._due.put(group, at)

    def due(self, now: float) -> list[Group]:
        """The groups that are tried again by now."""
        return sorted(self._due.due(now))

    def alike(self, group: Group) -> Collection[PendingClass]:
        """Those of a group."""
        return self._groups.get(group, {}).keys()

    def groups(self) -> list[Group]:
        """All of them, as they are now."""
        return list(self._groups)

    def hopeful(self, judge: Callable[[Group], Hope], as_of: tuple[object, ...], *, lends: bool) -> list[Group]:
        """The groups for which something may be preempted, as far as that follows from what their queues hold, in their order.

        judge: is asked about a group whose queue holds something else, about all where `as_of`, shares or policies are others.
        lends: whether any queue holds more than it should.
        """
        return self._hopeful.find(self._groups, self._of_queue, judge, as_of, lends=lends)
