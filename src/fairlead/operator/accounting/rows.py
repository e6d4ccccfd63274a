"""Rows of the history that are written together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from fairlead.observability.history import HistoryError, Job, Run, Scaler, Stay
from fairlead.observability.store import History
from fairlead.operator.faults import Report

log = structlog.get_logger("history")


class Rows(msgspec.Struct):
    """Those that changed."""

    jobs: list[Job]
    runs: list[Run]
    nodes: list[Stay]
    scalers: list[Scaler]

    def __len__(self) -> int:
        return len(self.jobs) + len(self.runs) + len(self.nodes) + len(self.scalers)

    def write(self, history: History, now: float, report: Report) -> None:
        """All in one transaction, or, where a row cannot be written at all, the others without it. Raises `HistoryError`."""
        try:
            history.write(self.jobs, self.runs, alive_at=now, stays=self.nodes, scalers=self.scalers)
        except HistoryError as error:
            history.write((), (), alive_at=now)  # raises where the database itself is away: then all of it is kept
            log.warning("history rows are written one by one", error=str(error)[:300])
            whole: HistoryError | None = error
        except Exception as error:  # noqa: BLE001 - a bad row is found by writing one by one
            log.warning("history rows are written one by one", error=str(error)[:300])
            whole = None
        else:
            return
        refused, parts = 0, self._one_by_one(history)
        for key, put in parts:
            try:
                put()
            except Exception as error:  # noqa: BLE001 - one row costs itself only
                refused += 1
                report("history.rows", key, error)
        if whole is not None and refused == len(parts) > 1:
            raise whole  # nothing of it can be written: it is not one row's fault

    def _one_by_one(self, history: History) -> list[tuple[str, Callable[[], None]]]:
        """What each row is about, and what writes it."""
        parts: list[tuple[str, Callable[[], None]]] = [
            (f"{job.namespace}/{job.name}", partial(history.write, (job,), ())) for job in self.jobs
        ]
        parts += [(f"{run.namespace}/{run.name}", partial(history.write, (), (run,))) for run in self.runs]
        parts += [(node.node, partial(history.write, (), (), stays=(node,))) for node in self.nodes]
        parts += [(f"{each.namespace}/{each.name}", partial(history.write, (), (), scalers=(each,))) for each in self.scalers]
        return parts
