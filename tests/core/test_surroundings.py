"""What is counted event by event is what counting afresh gives, and one row is judged as all rows are."""

from __future__ import annotations

import json
from random import Random

import msgspec
import numpy as np
import pytest

from fairlead.cluster.cases import Loaded, decode
from fairlead.core.model.namespaces import Namespace
from fairlead.core.pods.tasks import TaskState
from testbed.random_clusters.cluster import generate


def loaded(seed):
    return Loaded(decode(json.dumps(generate(seed)).encode()))


def judgements(case):
    return {task.pod.key: msgspec.to_builtins(judgement) for task, judgement in case.judgements()}


def come_and_go(case, random):
    """Everything moves about and is back in the end."""
    state = case.state
    placed = [task.pod for task in state.tasks.values() if task.state is TaskState.BOUND]
    nodes = [node for node in state.nodes.objects if node is not None]
    for pod in random.sample(placed, len(placed) // 2):
        state.remove_pod(pod.uid)
    for node in random.sample(nodes, 2):
        state.upsert_node(msgspec.structs.replace(node, labels={"rack": "9"}))
    for name, labels in list(state.pairs.namespaces.items()):
        state.upsert_namespace(Namespace(name, (("team", "z"),)))
        state.upsert_namespace(Namespace(name, tuple(labels.items())))
    for pod in random.sample(placed, len(placed)):
        state.upsert_pod(msgspec.structs.replace(pod, terminating=not pod.terminating))
    gone = random.choice(nodes)
    state.remove_node(gone.name)
    for node in nodes:
        state.upsert_node(node)
    for pod in placed:  # in the first order: it is how upstream breaks ties among victims
        state.remove_pod(pod.uid)
        state.upsert_pod(pod)


@pytest.mark.parametrize("seed", range(40))
def test_counts_follow_events(seed):
    case = loaded(seed)
    before = judgements(case)
    come_and_go(case, Random(seed))
    assert judgements(case) == before


@pytest.mark.parametrize("seed", range(40, 80))
def test_trying_leaves_no_trace(seed):
    case, random = loaded(seed), Random(seed)
    before = judgements(case)
    state = case.state
    tasks = [task for task in state.tasks.values() if task.row >= 0]
    mark = state.log.mark()
    for task in random.sample(tasks, len(tasks) // 2):
        state.placement.unassign(task)
        inner = state.log.mark()
        state.placement.assign(task, random.choice(list(state.nodes.rows.values())), ())
        for waiting in case.waiting:
            waiting.ranking.keys()
        if random.random() < 0.5:
            state.log.rollback(inner)
        else:
            state.log.commit()
    state.log.rollback(mark)
    assert judgements(case) == before


@pytest.mark.parametrize("seed", range(80, 160))
def test_one_row_is_judged_as_all_rows_are(seed):
    case = loaded(seed)
    case.state.nodes.name_ranks.settle()
    rows = np.array(sorted(case.state.nodes.rows.values()))
    for task in case.waiting:
        keys = task.ranking.keys()
        assert {row: bool(keys[row] >= 0) for row in rows} == {row: task.ranking.fits_row(row) for row in rows}
