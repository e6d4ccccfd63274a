"""NodeAffinity: `nodeSelector` and required node affinity.

Terms are alternatives; inside a term everything must hold; an empty term, an empty list of terms, and a term that
cannot be parsed match nothing.
"""

from __future__ import annotations

from fairlead.api.names import QUARANTINED_LABEL
from fairlead.api.reasons import ReasonCode
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.selectors import NAME_FIELD, SelectorTerm, any_term_holds
from fairlead.core.nodes.node_classes import NodeClass

QUARANTINED = "node(s) are quarantined for gangs (annotation fairlead.dev/quarantine-reason)"


class _NodeAffinity:
    CODE = ReasonCode.NODE_AFFINITY
    plugin = "NodeAffinity"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        return spec.affinity is None or any_term_holds(spec.affinity, node.labels, node.name)

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return QUARANTINED if self.only_quarantined(spec, node) else "node(s) didn't match Pod's node affinity/selector"

    def only_quarantined(self, spec: PodSpec, node: NodeClass) -> bool:
        """Whether a node that is out would do, were it not quarantined."""
        if QUARANTINED_LABEL not in node.labels:
            return False
        labels = {key: value for key, value in node.labels.items() if key != QUARANTINED_LABEL}
        given = NodeClass(labels, node.taints, unschedulable=node.unschedulable, features=node.features, name=node.name)
        return self.admits(spec, given)


def named_nodes(spec: PodSpec) -> frozenset[str] | None:
    """The nodes that the terms name outright, if each of them names some; None: they leave it open.

    Terms are alternatives, what one term names several times must agree. Empty: no node can match.
    """
    if not spec.affinity:
        return None
    named: frozenset[str] = frozenset()
    for term in spec.affinity:
        names = _named(term)
        if names is None:
            return None
        named |= names
    return named


def _named(term: SelectorTerm) -> frozenset[str] | None:
    named: frozenset[str] | None = None
    for requirement in term.fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In":
            values = frozenset(requirement.values)
            named = values if named is None else named & values
    return named


def labels_read(spec: PodSpec) -> set[str]:
    """Every label key (and `metadata.name`) that the selectors of this pod read."""
    keys = {key for key, _ in spec.node_selector}
    for term in (*(spec.affinity or ()), *(term for _, term in spec.preferred_nodes or () if not by_name(term))):
        keys.update(each.key for each in term.expressions)
        if term.fields:
            keys.add(NAME_FIELD)
    return keys


def only_names(term: SelectorTerm) -> frozenset[str] | None:
    """The nodes that a term selects if it does nothing but name them; None: it does something else."""
    if term.expressions or any(each.key != NAME_FIELD or each.operator != "In" for each in term.fields):
        return None
    return _named(term)


def only_excludes(term: SelectorTerm) -> frozenset[str] | None:
    """The nodes that a term rules out if it does nothing but name these; None: it does something else."""
    if term.expressions or len(term.fields) != 1:
        return None
    (only,) = term.fields
    return frozenset(only.values) if only.key == NAME_FIELD and only.operator == "NotIn" else None


def by_name(term: SelectorTerm) -> bool:
    """Whether a term reads nodes' names alone."""
    return only_names(term) is not None or only_excludes(term) is not None


FILTER = _NodeAffinity()
