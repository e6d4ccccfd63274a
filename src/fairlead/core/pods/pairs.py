"""Who is near whom: counts of pods per node, kept up event by event, that affinity and spread are judged by.

Three things are counted per row, in plain mappings that the undo log knows how to take back:

- a `LabelSet` counts pods of one namespace with the same labels, as far as any selector reads them;
- a `PodCount` counts the pods that some selectors match (what a waiting pod asks about others);
- a `TermCount` counts the pods that hold an affinity term of their own (what others ask of a waiting pod).

A pod that comes or goes changes the counts that its label set and its terms are listed under, and nothing else.
`Tally` (in `topology.py`) adds a count up over the domains of a topology key, again only where something changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fairlead.core.model.pods import AffinityTerm, PodSpec
from fairlead.core.model.selectors import Labels, Selector, keys, matches
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.tallies import Eligibility, Tally

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable

Item = TypeVar("Item")
Counts = dict[int, int]
"""row -> how many; rows that once counted may remain with 0."""


class LabelSet:
    """Pods of one namespace that no selector can distinguish."""

    __slots__ = ("counts", "epoch", "labels", "leaving", "namespace", "rows", "terms", "users")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.rows: Counts = {}
        self.leaving: Counts = {}  # those of them that are terminating
        self.counts: list[PodCount] = []
        self.terms: list[TermCount] = []
        self.epoch = 0  # raised when other terms match it
        self.users = 0


class _Count:
    """Pods per row, and their sums over domains."""

    def __init__(self) -> None:
        self.rows: Counts = {}
        self.tallies: dict[object, Tally] = {}
        self.users = 0
        self.version = 0

    def tally(self, nodes: NodeTable, key: str, eligibility: Eligibility | None = None) -> Tally:
        """The sums of this count over the domains of a topology key, among eligible nodes."""
        wanted = (key, eligibility.key if eligibility else None)
        tally = self.tallies.get(wanted)
        if tally is None:
            tally = self.tallies[wanted] = Tally(nodes, self.rows, nodes.topologies.of(key), eligibility)
        return tally

    def per_row(self, nodes: NodeTable) -> Tally:
        """This count as it is, every row a domain of its own."""
        tally = self.tallies.get(None)
        if tally is None:
            tally = self.tallies[None] = Tally(nodes, self.rows, nodes.topologies.each_row, None)
        return tally


class PodCount(_Count):
    """The pods that match all of some (namespaces, namespace selector, selector). live: leaves terminating ones out."""

    def __init__(self, who: tuple[Who, ...], *, live: bool) -> None:
        super().__init__()
        self.who = who
        self.live = live


class TermCount(_Count):
    """The pods that hold a term. anti: it keeps others away; else it scores, and `weights` sums what it weighs."""

    def __init__(self, term: AffinityTerm, *, anti: bool) -> None:
        super().__init__()
        self.term = term
        self.anti = anti
        self.weights: Counts = {}
        self._weighed: Tally | None = None

    def weighed(self, nodes: NodeTable) -> Tally:
        """The sums of the weights over the domains of the term's topology key."""
        if self._weighed is None:
            self._weighed = Tally(nodes, self.weights, nodes.topologies.of(self.term.topology_key), None)
        return self._weighed

    def forget(self) -> None:
        """Add up anew when asked next."""
        self._weighed = None


Who = tuple[tuple[str, ...], Selector, Selector]
"""(namespaces, namespace selector, selector)."""


Handle = tuple[str, str] | None


class _Handles(Generic[Item]):
    """Finds what may match without asking everything: by a label (key, value) that must be there; None: by no label."""

    def __init__(self) -> None:
        self._items: dict[Handle, dict[Item, None]] = {}

    def add(self, handles: Iterable[Handle], item: Item) -> None:
        """List an item under its handles."""
        for handle in handles:
            self._items.setdefault(handle, {})[item] = None

    def remove(self, handles: Iterable[Handle], item: Item) -> None:
        """Take an item off the lists."""
        for handle in handles:
            listed = self._items[handle]
            del listed[item]
            if not listed:
                del self._items[handle]

    def under(self, handles: Iterable[Handle]) -> list[Item]:
        """Every item listed under one of these, each once."""
        found: dict[Item, None] = {}
        for handle in handles:
            found.update(self._items.get(handle, {}))
        return list(found)


def asks_for(selector: Selector) -> tuple[Handle, ...]:
    """Labels of which every pod that matches has one; (None,) where there is no such set, () where no pod matches."""
    if selector is None:
        return ()
    for each in selector:
        if each.operator == "In":
            return tuple((each.key, value) for value in dict.fromkeys(each.values))
    return (None,)


def _offers(labels: LabelSet) -> tuple[Handle, ...]:
    """Under which handles selectors that match these labels are found."""
    return (None, *labels.labels.items())


class Counted(Protocol):
    """What is counted of a pod: its labels, None if nothing selects it by them, and the terms that it holds."""

    labels: LabelSet | None
    held: tuple[tuple[TermCount, int], ...]


class Pairs:
    """All counts. Empty, and free of cost, until a pod comes that speaks of others.

    epoch: raised when everything was counted anew, so that what was derived from it is derived anew, too.
    """

    def __init__(self, log: UndoLog, nodes: NodeTable) -> None:
        self.log = log
        self.nodes = nodes
        self.keys: set[str] = set()
        self.active = False
        self.terms_version = 0  # raised when other terms match what was known before
        self.stamp = 0  # another whenever a pod is counted
        self.epoch = 0
        self.namespaces: dict[str, dict[str, str]] = {}
        self._sets: dict[tuple[str, Labels], LabelSet] = {}
        self._sets_by: _Handles[LabelSet] = _Handles()
        self._counts_by: _Handles[PodCount] = _Handles()
        self._terms_by: _Handles[TermCount] = _Handles()
        self._counts: dict[tuple[tuple[Who, ...], bool], PodCount] = {}
        self._terms: dict[tuple[bool, AffinityTerm], TermCount] = {}
        self._holders: dict[int, tuple[tuple[TermCount, int], ...]] = {}

    # -- label sets ----------------------------------------------------------------------------

    def learn(self, spec: PodSpec) -> set[str] | None:
        """The label keys that this spec's selectors read and that nothing read before; None if nothing new.

        After the first spec that speaks of other pods, namespaces count, too: then even an empty set is news.
        """
        affinity = spec.pod_affinity or spec.pod_anti_affinity or spec.preferred_pods
        if not (affinity or spec.spread or spec.preferred_spread) and spec.default_spread is None:
            return None
        terms = [*spec.pod_affinity, *spec.pod_anti_affinity, *(term for _, term in spec.preferred_pods)]
        selectors: list[Selector] = [term.selector for term in terms]
        selectors += [each.selector for each in (*spec.spread, *spec.preferred_spread)]
        new = keys([*selectors, spec.default_spread]) - self.keys
        if self.active and not new:
            return None
        self.active = True
        self.keys |= new
        return new

    def label_set(self, namespace: str, labels: Labels) -> LabelSet | None:
        """The label set of a pod; None while no pod speaks of others."""
        if not self.active:
            return None
        seen = tuple(pair for pair in labels if pair[0] in self.keys)
        made = self._sets.get((namespace, seen))
        if made is None:
            made = LabelSet(namespace, dict(seen))
            self._sets_by.add(_offers(made), made)
            self._introduce(made)
            self._sets[namespace, seen] = made
        return made

    def use(self, labels: LabelSet | None) -> None:
        """One more shape of these labels."""
        if labels is not None:
            labels.users += 1

    def leave(self, labels: LabelSet | None) -> None:
        """One shape of these labels less; a set without users is forgotten."""
        if labels is None:
            return
        labels.users -= 1
        if not labels.users:
            del self._sets[labels.namespace, tuple(labels.labels.items())]
            self._sets_by.remove(_offers(labels), labels)

    def _introduce(self, made: LabelSet) -> None:
        made.counts = [count for count in self._counts_by.under(_offers(made)) if self._counted(count, made)]
        made.terms = [term for term in self._terms_by.under(_offers(made)) if self.term_matches(term.term, made)]
        made.epoch += 1

    # -- counts --------------------------------------------------------------------------------

    def count(self, who: tuple[Who, ...], *, live: bool = False) -> PodCount:
        """The count of the pods that match all of these, made on first use."""
        made = self._counts.get((who, live))
        if made is None:
            made = PodCount(who, live=live)
            self._counts_by.add(asks_for(who[0][2]), made)
            self._fill(made)
            self._counts[who, live] = made  # once it is complete: what raises before leaves nothing that is asked again
            self.log.when_settled(partial(self._refill, made))
        made.users += 1
        return made

    def release(self, count: PodCount) -> None:
        """One user of a count less; a count without users is forgotten."""
        count.users -= 1
        if count.users:
            return
        del self._counts[count.who, count.live]
        handles = asks_for(count.who[0][2])
        self._counts_by.remove(handles, count)
        for labels in self._may_match(handles):
            if count in labels.counts:
                labels.counts.remove(count)

    def _may_match(self, handles: tuple[Handle, ...]) -> Iterable[LabelSet]:
        """The label sets that a selector with these handles may match."""
        return self._sets.values() if handles == (None,) else self._sets_by.under(handles)

    def _fill(self, count: PodCount) -> None:
        for labels in self._may_match(asks_for(count.who[0][2])):
            if self._counted(count, labels):
                labels.counts.append(count)
        self._add_up(count)

    def _add_up(self, count: PodCount) -> None:
        for labels in self._may_match(asks_for(count.who[0][2])):
            if count in labels.counts:
                for rows in (labels.rows,) if count.live else (labels.rows, labels.leaving):
                    for row, number in rows.items():
                        count.rows[row] = count.rows.get(row, 0) + number

    def _refill(self, count: PodCount) -> None:
        """Count anew what was first counted while things were being tried."""
        if self._counts.get((count.who, count.live)) is not count:
            return
        count.rows.clear()
        self._add_up(count)
        self.log.renew(count)
        for tally in count.tallies.values():
            tally.forget()

    def miscounted(self) -> list[str]:
        """Counts that are not what their label sets add up to; for tests."""
        wrong = []
        for count in self._counts.values():
            wanted: dict[int, int] = {}
            for labels in self._sets.values():
                if (labels.rows or labels.leaving) and self._counted(count, labels):
                    for rows in (labels.rows,) if count.live else (labels.rows, labels.leaving):
                        for row, number in rows.items():
                            wanted[row] = wanted.get(row, 0) + number
            wanted = {row: number for row, number in wanted.items() if number}
            if {row: number for row, number in count.rows.items() if number} != wanted:
                wrong.append(f"pods that match {count.who} are counted {count.rows}, not {wanted}")
        return wrong

    def _counted(self, count: PodCount, labels: LabelSet) -> bool:
        return all(self._is_who(who, labels) for who in count.who)

    def _is_who(self, who: Who, labels: LabelSet) -> bool:
        """As of a waiting pod's own terms: a namespace selector names those namespaces that exist and match.

        One that even a namespace without labels satisfies matches every pod, wherever it is: as upstream, which asks
        it of no labels at all, besides.
        """
        namespaces, namespace_selector, selector = who
        return matches(selector, labels.labels) and (
            labels.namespace in namespaces
            or matches(namespace_selector, {})
            or (
                namespace_selector is not None
                and labels.namespace in self.namespaces
                and matches(namespace_selector, self.namespaces[labels.namespace])
            )
        )

    def term_matches(self, term: AffinityTerm, labels: LabelSet) -> bool:
        """Whether a term that another pod holds matches pods of a label set.

        Here a namespace that is not known has no labels, while a term of one's own passes it over: as upstream.
        """
        return (
            labels.namespace in term.namespaces or matches(term.namespace_selector, self.namespaces.get(labels.namespace, {}))
        ) and matches(term.selector, labels.labels)

    def own_match(self, term: AffinityTerm, labels: LabelSet) -> bool:
        """Whether a waiting pod satisfies a term of its own."""
        return self._is_who((term.namespaces, term.namespace_selector, term.selector), labels)

    # -- terms that pods hold ------------------------------------------------------------------

    def held(self, number: int, spec: PodSpec) -> tuple[tuple[TermCount, int], ...]:
        """(count, weight) of every term that pods of a shape hold towards others; weight 0: it keeps them away."""
        held = self._holders.get(number)
        if held is None:
            wanted = [(True, term, 0) for term in spec.pod_anti_affinity]
            wanted += [(False, term, 1) for term in spec.pod_affinity]
            wanted += [(False, term, weight) for weight, term in spec.preferred_pods]
            held = self._holders[number] = tuple((self._term(term, anti=anti), weight) for anti, term, weight in wanted)
            for count, _ in held:
                count.users += 1
        return held

    def drop(self, number: int) -> None:
        """A shape is forgotten: so are terms that no other shape holds."""
        for count, _ in self._holders.pop(number, ()):
            count.users -= 1
            if not count.users:
                del self._terms[count.anti, count.term]
                handles = asks_for(count.term.selector)
                self._terms_by.remove(handles, count)
                for labels in self._may_match(handles):
                    if count in labels.terms:
                        labels.terms.remove(count)
                        labels.epoch += 1
                        self.terms_version += 1

    def _term(self, term: AffinityTerm, *, anti: bool) -> TermCount:
        made = self._terms.get((anti, term))
        if made is None:
            made = TermCount(term, anti=anti)
            handles = asks_for(term.selector)
            self._terms_by.add(handles, made)
            for labels in self._may_match(handles):
                if self.term_matches(term, labels):
                    labels.terms.append(made)
                    labels.epoch += 1
                    self.terms_version += 1
            self._terms[anti, term] = made
        return made

    # -- events --------------------------------------------------------------------------------

    def add(self, shape: Counted, row: int, by: int, *, leaving: bool) -> None:
        """A pod came to a row (1) or left it (-1). leaving: it is terminating."""
        labels = shape.labels
        if labels is None:
            return
        add = self.log.add
        self.log.renew(self, "stamp")
        rows = labels.leaving if leaving else labels.rows
        add(rows, row, by)
        for count in labels.counts:
            if not (leaving and count.live):
                add(count.rows, row, by)
                self.log.renew(count)
        for term, weight in shape.held:
            add(term.rows, row, by)
            self.log.renew(term)
            if weight:
                add(term.weights, row, by * weight)

    def count_leaving(self, shape: Counted, row: int, by: int) -> None:
        """Count a terminating pod among the living, or no longer: what upstream does when it tries to evict one."""
        labels = shape.labels
        if labels is not None:
            for count in labels.counts:
                if count.live:
                    self.log.add(count.rows, row, by)
                    self.log.renew(count)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> bool:
        """A namespace came, changed or went (None). Whether anything that is counted may have changed."""
        if self.namespaces.get(name) == labels:
            return False
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        return any(made.namespace == name for made in self._sets.values())

    def recount(self, seen: Callable[[], Iterable[tuple[Counted, int, bool]]]) -> None:
        """Count everything anew, after namespaces' labels changed what selectors match.

        seen: of each pod its shape, its row, whether it is terminating.
        """
        everything = [*self._counts.values(), *self._terms.values()]
        for count in everything:
            count.rows.clear()
            count.tallies.clear()
            self.log.renew(count)
        for term in self._terms.values():
            term.weights.clear()
            term.forget()
        for labels in self._sets.values():
            labels.rows.clear()
            labels.leaving.clear()
            self._introduce(labels)
        for shape, row, leaving in seen():
            self.add(shape, row, 1, leaving=leaving)
        self.epoch += 1
        self.terms_version += 1
        self.log.renew(self, "stamp")
