"""Statuses of queues: all that changed at once, not too often; from time to time with what a restart would forget."""

from __future__ import annotations

from fairlead.api.reasons import Reason
from fairlead.core import explain
from fairlead.core.model.queues import ForecastRecord, RunTimeRecord, UsageRecord
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import QueueStatus

_REST = 10.0  # seconds between two statuses of a queue
_CHECKPOINT_REST = 60.0  # seconds between two checkpoints of what survives a restart: usage and run times


class QueueReports:
    """What was written of each queue."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._reported: dict[str, QueueStatus] = {}
        self._due = 0.0  # when statuses may be written again
        self._checkpoint_due = 0.0

    @property
    def next_due(self) -> float | None:
        """When something is to be written; None: nothing changes by itself."""
        due = self._due if self._state.queues.fair.touched else None
        if self._keeps:
            checkpoint = max(self._checkpoint_due, self._due)
            due = checkpoint if due is None else min(checkpoint, due)
        return due

    @property
    def _keeps(self) -> bool:
        """Whether there is something to write that a restart would forget."""
        return bool(self._state.policy.usage_half_life or self._state.runtimes.changed)

    def forget(self, name: str) -> None:
        """Another release serves a queue; should it be ours again, all of it is written."""
        self._reported.pop(name, None)

    def due(self, now: float) -> list[QueueStatus]:
        """What is to be written now."""
        queues = self._state.queues
        checkpoint = self._keeps and now >= self._checkpoint_due
        if not (queues.fair.touched or checkpoint) or now < self._due:
            return []
        if checkpoint:
            self._checkpoint_due = now + _CHECKPOINT_REST
        queues.fair.touched = False
        self._due = now + _REST
        statuses: list[QueueStatus] = []
        for name, node in sorted(queues.queues.items()):
            try:
                status = self._status(node, now, checkpoint=checkpoint)
            except Exception as error:  # noqa: BLE001 - one status stops no other status
                self._faults.note("status", f"queue {name}", error)
                continue
            if queues.tree.has_object(name) and self._reported.get(name) != status:
                self._reported[name] = status
                statuses.append(status)
        if checkpoint:
            self._state.runtimes.changed.clear()
            self._state.foretold.changed.clear()
        return statuses

    def _status(self, node: QueueNode, now: float, *, checkpoint: bool) -> QueueStatus:
        return QueueStatus(
            node.name,
            _amounts(node.used),
            node.pods_waiting,
            tuple(sorted(self._state.queues.fair.share.get(node.name, {}).items())),
            self._usage(node.name, now, checkpoint=checkpoint),
            self._why_waits(node),
            self._run_times(node.name, checkpoint=checkpoint),
            _amounts(node.foreign),
            self._forecasts(node.name, checkpoint=checkpoint),
        )

    def _why_waits(self, node: QueueNode) -> Reason | None:
        """Why the first job of a queue waits; as reported before, while only the numbers behind it change."""
        first = node.first_refused()
        reason = explain.own(self._state, *first) if first is not None else None
        reported = self._reported.get(node.name)
        if reason is not None and reported is not None and reported.reason is not None and reported.reason.code is reason.code:
            return reported.reason
        return reason

    def _usage(self, name: str, now: float, *, checkpoint: bool) -> UsageRecord | None:
        """What a queue used of late, as of the latest checkpoint."""
        if checkpoint:
            return self._state.queues.fair.usage.checkpoint(name, now)
        reported = self._reported.get(name)
        return reported.usage if reported is not None else None

    def _run_times(self, name: str, *, checkpoint: bool) -> tuple[RunTimeRecord, ...]:
        """What was learned in a queue, as of the latest checkpoint."""
        if checkpoint and name in self._state.runtimes.changed:
            return self._state.runtimes.written(name)
        reported = self._reported.get(name)
        return reported.run_times if reported is not None else ()

    def _forecasts(self, name: str, *, checkpoint: bool) -> tuple[ForecastRecord, ...]:
        """What became of starts that were foretold in a queue, as of the latest checkpoint."""
        if checkpoint and name in self._state.foretold.changed:
            return self._state.foretold.written(name)
        reported = self._reported.get(name)
        return reported.forecasts if reported is not None else ()


def _amounts(held: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((resource, amount) for resource, amount in held.items() if amount))
