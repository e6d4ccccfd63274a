"""Ending: jobs that have run for their time limits, and gangs that half run and cannot be completed, are evicted.

Learned run times never end a job.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.transactions import Binding, Evict, Transaction
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.isolation import gang_subject


def end_overtime(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Time limits kill; learned run times never do."""
    jobs: dict[str, list[Task]] = {}
    asked = False
    while not asked:
        # A job that could not be ended is tried again later; the others now.
        with state.isolation.guard("time-limits"):
            for task in state.services.limits.reached(state.tasks, state.services.now):
                if task.state is TaskState.BOUND and (not task.pod.terminating or state.departures.stays_on(task, now)):
                    jobs.setdefault(task.job, []).append(task)
            asked = True
    for job, tasks in sorted(jobs.items()):
        with state.isolation.guard("time-limits", f"job/{job}"):
            yield _ended(state, tasks)


def _ended(state: ClusterState, tasks: list[Task]) -> Evict:
    first = tasks[0]
    limit = state.services.limits.enforced(first)
    group = first.gang.key if first.gang is not None else ""
    reason = Reason(ReasonCode.TIME_LIMIT, f"it has reached its time limit of {limit:g} s", {"limit": int(limit)})
    ordered = sorted(tasks, key=lambda each: each.rank)
    return Evict(tuple(Binding(task.ref, task.pod.node) for task in ordered), group, reason, state.departures.graces(ordered))


def dismantle(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Gangs that half run, and were not completed within their grace, are taken down."""
    for key in sorted(state.pending.faulty):
        gang = state.gangs.get(key)
        if gang is None:
            state.pending.faulty.discard(key)
        elif not state.isolation.rests("dismantle", gang_subject(key)):
            with state.isolation.guard("dismantle", gang):
                yield from _judge_broken(state, gang, now)


def _judge_broken(state: ClusterState, gang: Gang, now: float) -> Iterator[Transaction]:
    if not gang.broken():
        state.pending.faulty.discard(gang.key)
        return
    if gang.fault_at is None:
        gang.fault_at = now
    if now < gang.fault_at + state.policy.gang_grace:
        return
    gang.fault_at = now  # an eviction may fail, too: it is tried again after another grace
    yield from _take_down(state, gang)


def _take_down(state: ClusterState, gang: Gang) -> Iterator[Transaction]:
    bound = sorted(gang.bound(), key=lambda task: task.rank)
    victims = [task for task in bound if task.pod.controlled]
    if not victims:
        state.pending.faulty.discard(gang.key)
    kept = len(bound) - len(victims)
    done = gang.succeeded
    also = f" ({done} more have succeeded)" if done else ""
    message = f"gang {gang.key} runs {len(bound)} of the {gang.min_member} pods it needs{also} and could not be completed"
    if kept:
        message += f"; {kept} of them have no controller and stay"
    reason = Reason(
        ReasonCode.GANG_INCOMPLETE, message, {"bound": len(bound), "min_member": gang.min_member, "kept": kept, "succeeded": done}
    )
    if victims or kept:
        taken = tuple(Binding(task.ref, task.pod.node) for task in victims)
        yield Evict(taken, gang.key, reason, state.departures.graces(victims))
