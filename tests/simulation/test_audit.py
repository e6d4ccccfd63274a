"""The audit of settled moments: what is wrong, and what only waits for its time."""

import pytest

from fairlead.core import invariants
from fairlead.core.model.transactions import Binding, PodRef
from fairlead.core.pods.tasks import TaskState
from fairlead.simulation.audit import Auditor
from tests.builders import cluster, node, pod, run


@pytest.mark.parametrize(
    ("priority", "until", "rests"), [(1, 15.0, True), (9, 15.0, False), (1, 10.0, False)], ids=["rests", "in vain", "it is time"]
)
def test_a_search_in_backoff_would_find_a_victim(priority, until, rests):
    state = cluster([node("n", gpus=1)], pods=[pod("first", at="n", priority=9, started=0.0)])
    state.upsert_pod(pod("waits", priority=5, created=1.0))
    run(state, 2.0)
    state.remove_pod("uid-first")
    state.upsert_pod(pod("second", at="n", priority=priority, started=3.0))
    task = state.tasks["uid-waits"]
    task.unit.pending_class.search.backoff_until = until
    binding = Binding(PodRef("uid-waits", "ns", "waits"), "n")
    assert Auditor._rests(state, binding, 10.0) is rests
    assert (task.state, task.row, state.tasks["uid-second"].state) == (TaskState.WAITING, -1, TaskState.BOUND)
    invariants.check(state)
