"""Which nodes a shape may have at all, and what a refusal says of the others: as if nothing were remembered."""

import random
from collections import Counter

import msgspec
import numpy as np
import pytest

from fairlead.core.explain import no_node
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import Toleration
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.pods.filters import STATIC, first_refusal
from fairlead.core.pods.node_terms import TermsTable
from tests.builders import cluster, node, pod, spec

_POOLS = ("a", "b", "c")


def _random_node(chance, number):
    taints = (Taint("kept", "yes", "NoSchedule"),) if chance.random() < 0.3 else ()
    labels = {"pool": chance.choice(_POOLS), "zone": chance.choice("xy")}
    return node(f"n{number}", gpus=chance.choice((2, 8)), labels=labels, taints=taints, unschedulable=chance.random() < 0.1)


def _change(state, chance):
    what, number = chance.random(), chance.randrange(8)
    if what < 0.4:
        state.upsert_node(_random_node(chance, number))
    elif what < 0.6:
        state.remove_node(f"n{number}")
    elif what < 0.8:
        state.nodes.poison(f"n{number}", "unread", bad=chance.random() < 0.5)
    else:  # a shape that reads another label: nodes are classified anew
        state.upsert_pod(pod(f"p{chance.random()}", gpus=9, selector={chance.choice(("pool", "zone")): chance.choice("abcxy")}))


@pytest.mark.parametrize("seed", range(40))
def test_verdicts_are_those_of_the_nodes_as_they_are(seed):
    chance = random.Random(seed)
    state = cluster([_random_node(chance, number) for number in range(5)], pods=[pod("first", gpus=9, selector={"pool": "a"})])
    for _ in range(30):
        _change(state, chance)
        nodes = state.nodes
        for ranking in {id(task.ranking): task.ranking for task in state.tasks.values()}.values():
            admitted, refused, closed = set(), Counter(), 0
            for row in nodes.rows.values():
                number = nodes.classes.column.item(row)
                if not nodes.open[row]:
                    closed += 1
                elif first_refusal(ranking.shape.spec, nodes.classes.known[number]) is None:
                    admitted.add(row)
                else:
                    refused[number] += 1
            found = ranking.terms.verdicts()
            assert (set(found.admitted.tolist()), Counter(dict(found.refused))) == (admitted, refused)
            reason = no_node(state, ranking)
            assert reason.numbers["nodes"] == len(nodes.rows)
            assert reason.numbers.get("NodeClosed", 0) == closed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("strategy", ["ai", "binpack", "spread"])
def test_scores_repaired_row_by_row_are_those_of_all_rows(seed, strategy):
    chance = random.Random(seed)
    state = cluster([_random_node(chance, number) for number in range(70)], strategy=strategy)
    state.upsert_pod(pod("asks", gpus=chance.choice((1, 2)), milli=chance.choice((500, 1000)), selector={"pool": "a"}))
    ranking = state.tasks["uid-asks"].ranking
    for number in range(40):
        _ = ranking.keys()
        for _ in range(chance.choice((2, 4, 9, 30))):  # of few rows, some of them several times, and of many
            row = chance.choice(list(state.nodes.rows.values()))
            if chance.random() < 0.5:
                state.upsert_pod(pod(f"there-{number}-{chance.random()}", at=state.nodes.names[row], milli=500))
            state.nodes.changes.touch(row)
        repaired, best = ranking.keys().copy(), ranking.best()
        ranking.forget()
        assert np.array_equal(repaired, ranking.keys())
        assert best == ranking.best()


class _Reads:
    """A spec that notes which of its fields are read."""

    def __init__(self, spec, read):
        self._spec, self._read = spec, read

    def __getattr__(self, name):
        self._read.add(name)
        return getattr(self._spec, name)


def test_what_static_filters_read_is_all_that_terms_differ_by():
    """Pods that differ in anything that a static filter reads share no terms."""
    read = set()
    given = {
        "node_selector": (("pool", "a"),),
        "affinity": (SelectorTerm((Requirement("pool", "In", ("a",)),)),),
        "tolerations": (Toleration("kept", "Exists"),),
        "features": ("f",),
        "node_name": "n1",
        "own_gpus": True,
        "paired": ("name/ns//p",),
    }
    demanding = msgspec.structs.replace(spec(gpus=1), **given)
    here = NodeClass({"pool": "a"}, (Taint("kept", "yes", "NoSchedule"),), unschedulable=True, features=frozenset("f"), name="n1")
    for each in STATIC:
        each.admits(_Reads(demanding, read), here)
    assert read == {*given, "requests"}
    state = cluster([node("n1", gpus=8)])
    table = TermsTable(state.nodes)
    terms = table.of(demanding)
    for field in given:
        default = getattr(spec(gpus=1), field)
        assert table.of(msgspec.structs.replace(demanding, **{field: default})) is not terms, field
    assert table.of(msgspec.structs.replace(demanding, requests=spec(gpus=2).requests)) is not terms, "GPUs that are its own"
    shared = msgspec.structs.replace(demanding, own_gpus=False)
    kept = table.of(shared)
    assert table.of(msgspec.structs.replace(shared, requests=spec(gpus=2).requests)) is kept
