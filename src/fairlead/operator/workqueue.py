"""Keys to reconcile: each once however often it was added, and again after a delay where that failed.

As client-go's work queue: a key that is added while it is being reconciled is reconciled once more afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fairlead.cluster.kubernetes.client import ApiError, Unreachable
from fairlead.core.model.backoff import backoff
from fairlead.operator.faults import Report, pause, reraised

log = structlog.get_logger("operator")

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0


class WorkQueue:
    """Reconciles keys, `workers` at a time. reconcile: raises `ApiError` or `Unreachable` where it must be tried again.

    Any other exception is a fault of that key, reported as one of `site`; the others go on.
    """

    def __init__(
        self, reconcile: Callable[[str], Awaitable[None]], workers: int = 16, *, site: str = "", report: Report = reraised
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._site = site
        self._report = report
        self._waiting: dict[str, None] = {}
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()  # a reconciliation has
        self._closed = False

    def add(self, key: str) -> None:
        """Reconcile this key."""
        self._waiting[key] = None
        self._ready.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def drain(self) -> None:
        """Begin nothing more, and return once what is being reconciled has ended."""
        self._closed = True
        while self._busy:
            self._ended.clear()
            await self._ended.wait()

    async def _work(self) -> None:
        while True:
            key = None if self._closed else next((each for each in self._waiting if each not in self._busy), None)
            if key is None:
                self._ready.clear()
                await self._ready.wait()
                continue
            del self._waiting[key]
            self._busy.add(key)
            try:
                await self._reconcile(key)
                self._failures.pop(key, None)
            except Exception as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # what is cut off may end with an error instead
                self._failed(key, error)
            finally:
                self._busy.discard(key)
                self._ended.set()
                if self._waiting:
                    self._ready.set()

    def _failed(self, key: str, error: Exception) -> None:
        if isinstance(error, ApiError | Unreachable):
            wait = self._later(key, lambda failures: backoff(_FIRST_WAIT, failures, _LONGEST_WAIT))
            log.warning("tried again later", key=key, wait=wait, error=str(error)[:300])
        else:
            self._later(key, pause)
            self._report(self._site, key, error)

    def _later(self, key: str, wait: Callable[[int], float]) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        asyncio.get_running_loop().call_later(wait(failures), self.add, key)
        return wait(failures)
