"""From views to the core's selectors: the pods that affinity and spread select, and the nodes that are asked for.

What cannot be parsed is returned beside the result. Its effects are those upstream: one term of required node affinity
matches nothing, a list of pod affinity terms is void as a whole, and the pod that asks is not placed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.cluster import views
from fairlead.core.model.pods import AffinityTerm, Mistake, SpreadConstraint
from fairlead.core.model.selectors import Requirement, Selector, SelectorTerm, mistake, term_mistake

_AFFINITY = "InterPodAffinity"
_SPREAD = "PodTopologySpread"
_MOST_WEIGHT = 100
_MOST_COUNTED = (1 << 31) - 1  # what the API's integers of 32 bits hold


def label_selector(view: views.LabelSelector | None) -> tuple[Selector, str]:
    """A label selector and what is wrong with it: absent it matches nothing, empty everything."""
    if view is None:
        return None, ""
    requirements = [Requirement(key, "In", (value,)) for key, value in sorted((view.match_labels or {}).items())]
    requirements += [_requirement(each) for each in view.match_expressions or ()]
    for each in requirements:
        if wrong := mistake(each):
            return None, wrong
    return tuple(requirements), ""


def node_terms(view: views.NodeSelector) -> tuple[SelectorTerm, ...]:
    """The terms of a node selector."""
    return tuple(node_term(each) for each in view.node_selector_terms or ())


def node_term(view: views.NodeSelectorTerm) -> SelectorTerm:
    """One term of a node selector."""
    return SelectorTerm(
        tuple(_requirement(each) for each in view.match_expressions or ()),
        tuple(_requirement(each) for each in view.match_fields or ()),
    )


def preferred_nodes(view: list[views.PreferredNode] | None) -> tuple[tuple[tuple[int, SelectorTerm], ...] | None, list[Mistake]]:
    """(weight, term) of preferred node affinity; None where there is none. Empty terms and weights count for nothing."""
    if view is None:
        return None, []
    terms = [(weight_of(each), node_term(each.preference)) for each in view]
    terms = [(weight, term) for weight, term in terms if weight and (term.expressions or term.fields)]
    wrong = [Mistake("NodeAffinity", message, scoring=True) for _, term in terms if (message := term_mistake(term))]
    return tuple(terms), wrong


def weight_of(view: views.PreferredNode | views.PreferredPods) -> int:
    """The weight of a preference, within the bounds that an API server sets: beyond them nothing would be left of the others."""
    return min(max(view.weight, 0), _MOST_WEIGHT)


def pod_terms(view: Iterable[views.PodAffinityTerm], namespace: str) -> tuple[tuple[AffinityTerm, ...], list[Mistake]]:
    """The terms of pod affinity or anti-affinity of a pod in a namespace; none of them if one cannot be parsed."""
    terms: list[AffinityTerm] = []
    for each in view:
        selector, wrong = label_selector(each.label_selector)
        namespaces, wrong_too = label_selector(each.namespace_selector)
        if wrong or wrong_too:
            return (), [Mistake(_AFFINITY, wrong or wrong_too)]
        own = not each.namespaces and each.namespace_selector is None
        names = (namespace,) if own else tuple(sorted(each.namespaces or ()))
        terms.append(AffinityTerm(each.topology_key, selector, names, namespaces))
    return tuple(terms), []


def spread_constraints(
    view: list[views.TopologySpreadConstraint], labels: dict[str, str]
) -> tuple[tuple[SpreadConstraint, ...], tuple[SpreadConstraint, ...], list[Mistake]]:
    """(required, preferred) constraints of a pod with these labels, and what is wrong with them."""
    required: list[SpreadConstraint] = []
    preferred: list[SpreadConstraint] = []
    mistakes: list[Mistake] = []
    for each in view:
        selector, wrong = label_selector(each.label_selector)
        scoring = each.when_unsatisfiable == "ScheduleAnyway"
        if wrong:
            mistakes.append(Mistake(_SPREAD, wrong, scoring=scoring))
        keys = {key: labels[key] for key in each.match_label_keys or () if key in labels}
        if selector is not None:
            selector = (*(Requirement(key, "In", (value,)) for key, value in sorted(keys.items())), *selector)
        constraint = SpreadConstraint(
            each.topology_key,
            min(max(each.max_skew, 1), _MOST_COUNTED),
            selector,
            1 if each.min_domains is None else min(max(each.min_domains, 1), _MOST_COUNTED),
            each.node_affinity_policy != "Ignore",
            each.node_taints_policy == "Honor",
        )
        if scoring:
            preferred.append(constraint)
        elif each.when_unsatisfiable == "DoNotSchedule":
            required.append(constraint)
    return tuple(required), tuple(preferred), mistakes


def _requirement(view: views.SelectorRequirement) -> Requirement:
    return Requirement(view.key, view.operator, tuple(view.values or ()))
