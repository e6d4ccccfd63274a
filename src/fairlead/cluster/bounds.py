"""How much of a pod is read: bounds far above what work needs, so that no object can use unbounded time or memory.

An API server takes objects of a megabyte and more. What costs more than its length to judge has a bound; what is longer
than usual is read each time, and not remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from fairlead.cluster import views

MOST_REMEMBERED = 16 << 10
"""Bytes of a pod's resource amounts up to which they are remembered."""
MOST_LABELS_KEPT = 64
"""Labels up to which a set of them is kept once for all pods."""

_MOST_TERMS = 128
_MOST_CONSTRAINTS = 32
_MOST_REQUIREMENTS = 2048
_MOST_TOLERATIONS = 1024
_BULKY = 32
_MOST_SHOWN = 64


def excess(view: views.Pod) -> str:
    """What a pod has too many of, with the numbers; empty for all but absurd ones."""
    spec = view.spec
    counts = []
    if spec.affinity is not None:
        counts.append((_pod_terms(spec.affinity), _MOST_TERMS, "terms of pod affinity and anti-affinity"))
        counts.append((_requirements(spec.affinity.node_affinity), _MOST_REQUIREMENTS, "expressions and values of node affinity"))
    if spec.topology_spread_constraints:
        counts.append((len(spec.topology_spread_constraints), _MOST_CONSTRAINTS, "topology spread constraints"))
    if spec.tolerations:
        counts.append((len(spec.tolerations), _MOST_TOLERATIONS, "tolerations"))
    return "; ".join(f"it has {count} {what}, more than the {most} that are read" for count, most, what in counts if count > most)


def shown(text: str) -> str:
    """What a user wrote, as a message may hold it: escaped, and not endless."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def is_bulky(fields: Mapping[str, Any]) -> bool:
    """Whether a pod's constraints on nodes, other pods and volumes are longer than what is kept once for all pods."""
    return sum(len(each) for each in fields.values() if isinstance(each, Sized)) > _BULKY


def _pod_terms(affinity: views.Affinity) -> int:
    given = [each for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if each is not None]
    return sum(len(each.required or ()) + len(each.preferred or ()) for each in given)


def _requirements(affinity: views.NodeAffinity | None) -> int:
    if affinity is None:
        return 0
    required = affinity.required.node_selector_terms if affinity.required is not None else None
    terms = [*(required or ()), *(each.preference for each in affinity.preferred or ())]
    return sum(
        1 + len(each.values or ()) for term in terms for each in (*(term.match_expressions or ()), *(term.match_fields or ()))
    )
