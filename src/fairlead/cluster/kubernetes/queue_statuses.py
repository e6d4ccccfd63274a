"""What is written into queues' statuses. A merge patch keeps what it does not name, so what stood there is known, or cleared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.cluster.port import QueueReport
from fairlead.cluster.reported import forecasts_shown, reason_shown, run_times_shown, shown, usage_shown
from fairlead.core.model.queues import ForecastRecord, RunTimeRecord

Write = Callable[[str, object], Awaitable[bool]]
"""Writes the status of a queue; returns whether it was written."""


class QueueStatuses:
    """Remembers what stands in each status."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._written: dict[str, dict[str, dict[str, str]]] = {}  # queue -> amounts in its status
        self._users: dict[str, set[str]] = {}  # queue -> users in its status
        self._learned: dict[str, tuple[RunTimeRecord, ...]] = {}  # queue -> run times in its status
        self._foretold: dict[str, tuple[ForecastRecord, ...]] = {}  # queue -> forecasts in its status

    async def write(self, queue: str, status: QueueReport) -> None:
        """`Queue.status`: allocation, pending pods, fair share, recent usage."""
        amounts = {"allocated": shown(status.allocated), "fairShare": shown(status.fair_share), "foreign": shown(status.foreign)}
        written = self._written.get(queue)
        if written is None:
            # Whatever a scheduler before this one wrote: a merge keeps what it does not name.
            await self._write(queue, dict.fromkeys(amounts))
            written = {field: {} for field in amounts}
        body: dict[str, dict[str, Any] | None] = {
            field: {**dict.fromkeys(written[field]), **values} for field, values in amounts.items()
        }
        if not amounts["foreign"]:
            body["foreign"] = None  # it is there only where there is such a part
        # Until this is written, what stood there before may stand there still.
        self._written[queue] = {field: {**written[field], **values} for field, values in amounts.items()}
        usage = {"usage": usage_shown(status.usage)} if status.usage is not None else {}
        if usage and (users := usage["usage"]["users"]) is not None:
            # A merge keeps users that it does not name.
            usage["usage"]["users"] = {**dict.fromkeys(self._users.get(queue, ())), **users}
            self._users[queue] = self._users.get(queue, set()) | set(users)
        news = status.run_times and self._learned.get(queue) != status.run_times
        learned = {"runTimes": run_times_shown(status.run_times)} if news else {}
        if status.forecasts and self._foretold.get(queue) != status.forecasts:
            learned["forecasts"] = forecasts_shown(status.forecasts)
        whole = {**body, **usage, **learned, "pending": status.pending, "reason": reason_shown(status.reason)}
        if not await self._write(queue, whole):
            return
        self._written[queue] = amounts
        if usage and users is not None:
            self._users[queue] = set(users)
        self._learned[queue], self._foretold[queue] = status.run_times, status.forecasts
