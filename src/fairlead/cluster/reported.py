"""What the scheduler reports of pods, groups and queues, as it stands in their statuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fairlead.api import names, quantity
from fairlead.api.reasons import Reason
from fairlead.cluster.port import GroupReport
from fairlead.cluster.times import timestamp
from fairlead.core.model.charges import split
from fairlead.core.model.queues import ForecastRecord, RunTimeRecord, UsageRecord
from fairlead.core.model.starts import FailedStarts
from fairlead.core.model.units import WHOLE


def why_waiting(reason: Reason, limit: int = 1000) -> tuple[str, str]:
    """(reason, message) of the condition PodScheduled=False, in kube-scheduler's form where capacity is missing."""
    return "Unschedulable" if reason.is_capacity else str(reason.code), reason.message[:limit]


def waiting_condition(reason: Reason, at: str) -> dict[str, str]:
    """The condition PodScheduled=False of a pod that waits. at: since when, as timestamps are written."""
    why, message = why_waiting(reason)
    return {"type": "PodScheduled", "status": "False", "reason": why, "message": message, "lastTransitionTime": at}


def reason_shown(reason: Reason | None, limit: int = 1024) -> dict[str, str] | None:
    """Why a group or a queue waits, as it stands in its status."""
    return {"code": str(reason.code), "message": reason.message[:limit]} if reason is not None else None


def group_shown(report: GroupReport) -> dict[str, Any]:
    """A pod group's status, but for what others write of it; None for what is to go."""
    done = report.completed
    run = {
        "attempt": done.attempt if done else 0,
        "since": timestamp(done.since) if done and done.since else None,
        "lastSucceeded": timestamp(done.until) if done and done.until else None,
    }
    return {
        "phase": report.phase,
        "scheduled": report.scheduled,
        "succeeded": done.count if done else None,
        "run": {name: value for name, value in run.items() if value is not None} if done else None,
        "starts": _starts_shown(report.failed_starts),
        "reason": reason_shown(report.reason),
        "expectedStart": _time_shown(report.expected_start),
        "earliestStart": _time_shown(report.earliest_start),
        "latestStart": _time_shown(report.latest_start),
        "spares": _spares(report),
        "alternative": msgspec.to_builtins(report.chosen) if report.chosen is not None else None,
    }


def _time_shown(at: float | None) -> str | None:
    return None if at is None else timestamp(at)


def _spares(report: GroupReport) -> dict[str, Any] | None:
    spares = report.spares
    return {"wanted": spares.wanted, "kept": len(spares.nodes), "nodes": list(spares.nodes)} if spares is not None else None


def _starts_shown(failed: FailedStarts | None) -> dict[str, Any] | None:
    if failed is None:
        return None
    return {"failed": failed.count, "retryAt": timestamp(failed.until), "message": failed.message[:1024]}


def usage_shown(usage: UsageRecord) -> dict[str, Any]:
    """A usage record as it stands in a queue's status."""
    return {"deviceSeconds": usage.value, "at": timestamp(usage.at), "users": dict(usage.users)}


def run_times_shown(records: Iterable[RunTimeRecord]) -> list[dict[str, Any]]:
    """Run times as they stand in a queue's status."""
    return [
        {"user": each.user, "serviceClass": each.service_class, "devices": each.devices / WHOLE, "seconds": [*each.seconds]}
        for each in records
    ]


def forecasts_shown(records: Iterable[ForecastRecord]) -> list[dict[str, Any]]:
    """Starts that were foretold and came, as they stand in a queue's status."""
    return [{"devices": each.devices / WHOLE, "foretold": each.foretold, "waited": each.waited} for each in records]


def shown(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts in base units, devices in milli, as a person would write them."""
    return {
        name: f"{amount / WHOLE:g}" if split(name)[0] in names.GPU_RESOURCES else quantity.show(split(name)[0], amount)
        for name, amount in sorted(amounts.items())
    }
