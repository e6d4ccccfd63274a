"""NodeAffinity: `nodeSelector` and required node affinity.

Terms are alternatives; inside a term everything must hold; an empty term, and an empty list of
terms, match nothing. A requirement that cannot be read matches nothing.
"""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.model import PodSpec, Requirement, SelectorTerm
from fairlead.core.nodes import NAME_FIELD, NodeClass


def holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    """One requirement on one set of labels, operators as in a node selector."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            left, right = _integer(value), _integer(requirement.values[0] if len(requirement.values) == 1 else None)
            if left is None or right is None:
                return False
            return left > right if requirement.operator == "Gt" else left < right
    return False


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None and len(text) <= 20 else None
    except ValueError:
        return None


def _term_holds(term: SelectorTerm, labels: dict[str, str]) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(holds(each, labels) for each in term.expressions) and all(
        each.key == NAME_FIELD and holds(each, labels) for each in term.fields
    )


class _NodeAffinity:
    CODE = ReasonCode.NODE_AFFINITY

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        return spec.affinity is None or any(_term_holds(term, node.labels) for term in spec.affinity)

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return "node(s) didn't match Pod's node affinity/selector"


def labels_read(spec: PodSpec) -> set[str]:
    """Every label key (and `metadata.name`) that the selectors of this pod look at."""
    keys = {key for key, _ in spec.node_selector}
    for term in spec.affinity or ():
        keys.update(each.key for each in term.expressions)
        keys.update(each.key for each in term.fields)
    return keys


FILTER = _NodeAffinity()
