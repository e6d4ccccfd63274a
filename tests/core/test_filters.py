"""What labels and taints of single nodes allow, operator by operator."""

import pytest

from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import Toleration
from fairlead.core.model.selectors import Requirement, SelectorTerm, holds
from tests.builders import cluster, node, placed, pod, run

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def taken(node_, pod_):
    """Whether a pod gets a node that is the only one."""
    return bool(placed(run(cluster([node_], pods=[pod_]))))


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_taint_keeps_out_unless_it_only_prefers(effect):
    assert taken(node("n", taints=(Taint("gpu", "yes", effect),)), pod("p")) == (effect == "PreferNoSchedule")


@pytest.mark.parametrize("effect", EFFECTS[:2])
@pytest.mark.parametrize(
    ("toleration", "effects"),
    [
        (Toleration("gpu", "Equal", "yes"), EFFECTS),
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), EFFECTS[:1]),
        (Toleration("gpu", "Exists", effect="NoExecute"), EFFECTS[1:2]),
        (Toleration("gpu", "Exists"), EFFECTS),
        (Toleration("", "Exists"), EFFECTS),
        (Toleration("", "Exists", effect="NoSchedule"), EFFECTS[:1]),
        (Toleration("gpu", "Equal", "no"), ()),
        (Toleration("cpu", "Exists"), ()),
    ],
)
def test_a_toleration_without_an_effect_is_of_all_and_with_one_of_that_alone(toleration, effects, effect):
    assert taken(node("n", taints=(Taint("gpu", "yes", effect),)), pod("p", tolerations=[toleration])) == (effect in effects)


@pytest.mark.parametrize(
    ("operator", "values", "wanted"),
    [
        ("In", ("40", "80"), {"40"}),
        ("NotIn", ("40",), {None, "39", "41", "x"}),
        ("Exists", (), {"39", "40", "41", "x"}),
        ("DoesNotExist", (), {None}),
        ("Gt", ("40",), {"41"}),
        ("Lt", ("40",), {"39"}),
    ],
)
def test_a_requirement_on_a_label(operator, values, wanted):
    requirement = Requirement("memory", operator, values)
    for value in (None, "39", "40", "41", "x"):
        labels = {} if value is None else {"memory": value}
        assert holds(requirement, labels) == (value in wanted), value
        made = pod("p", affinity=(SelectorTerm((requirement,)),))
        assert taken(node("n", labels=labels), made) == (value in wanted), value
