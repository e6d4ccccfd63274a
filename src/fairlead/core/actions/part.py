"""Part: of two pods on one GPU that run too slowly, or not at all, the one that came later is evicted, and waits again.

What was measured has taught that the two may not share a GPU, so they do not meet again.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.transactions import Binding, Evict
from fairlead.core.pairs.speeds import FLOOR
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.state.cluster import ClusterState


def part_pairs(state: ClusterState) -> Iterator[Evict]:
    """Those that are due. An eviction that fails is due again with the next measurement."""
    partners = state.nodes.partners
    due, partners.due = partners.due, set()
    for uid in sorted(due):
        task = state.tasks.get(uid)
        if task is None or not _runs(task):
            continue
        with state.isolation.guard("pairs", [task]):
            found = partners.mate(task, task.row)
            mate = state.tasks.get(found.pod.uid) if found is not None else None
            if mate is not None:
                # Without a controller an eviction would end a job for good: then the other one goes, if that has one.
                later, other = (task, mate) if task.pod.controlled or not mate.pod.controlled else (mate, task)
                if later.pod.controlled and _runs(later):
                    yield _parted(state, later, other)


def _runs(task: Task) -> bool:
    return task.row >= 0 and task.state is TaskState.BOUND and not task.pod.terminating


def _parted(state: ClusterState, later: Task, other: Task) -> Evict:
    message = (
        f"it shares a GPU with pod {other.pod.key}, and one of them runs at less than {FLOOR:g} of its speed alone: it waits for "
        "another GPU"
    )
    reason = Reason(ReasonCode.PAIR_PARTED, message)
    victims = (Binding(later.ref, later.pod.node),)
    return Evict(victims, later.gang.key if later.gang is not None else "", reason, state.departures.graces([later]))
