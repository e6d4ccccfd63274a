"""Faults: an unexpected exception while one object is handled is that object's, and the operator goes on.

Everything that one object's data can reach runs under a site's name. A fault is logged with its traceback, counted in
`fairlead_operator_faults_total{site}`, and becomes an event on the object; the object is tried again after a pause that doubles,
at once when it changes. Tasks that fail outside of any object are started again. Only the loss of the lease ends the operator.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import structlog

from fairlead.api import names
from fairlead.cluster.kubernetes import events
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.translate import Change
from fairlead.core.model.backoff import backoff

log = structlog.get_logger("faults")

FIRST_WAIT, LONGEST_WAIT = 1.0, 3600.0
REASON = "InternalError"
_TEXT = 300  # characters of an exception that are shown
_MOST_EVENTS = 32  # events that wait for their answers; further ones are only logged

Report = Callable[[str, str, Exception], None]
"""Takes a fault: its site, the object's key, and what was raised."""


class About(NamedTuple):
    """The kind of the objects that a site handles, for their events."""

    api_version: str
    kind: str


def pause(failures: int) -> float:
    """Seconds until an object that failed so often is tried again."""
    return backoff(FIRST_WAIT, failures, LONGEST_WAIT)


def reraised(_site: str, _subject: str, error: Exception) -> None:
    """A `Report` for what runs by itself, such as tests and tools."""
    raise error


class Faults:
    """Counts and reports faults. counts: by site. speed: of the client's clock against the loop's."""

    def __init__(self, client: Client, *, speed: float = 1.0) -> None:
        self.client = client
        self.speed = speed
        self.counts: Counter[str] = Counter()
        self._events: set[asyncio.Task[None]] = set()
        self._late: dict[tuple[str, str], tuple[int, Change[Any] | None]] = {}  # what could not be taken in, and how often

    def note(self, site: str, subject: str, error: Exception, about: About | None = None, uid: str = "") -> None:
        """A fault: logged, counted and, where the kind is known, reported by an event on the object `namespace/name`."""
        self.counts[site] += 1
        log.error("fault", site=site, subject=subject, error=str(error)[:_TEXT], exc_info=error)
        note = f"internal error of the operator ({site}: {type(error).__name__}: {str(error)[:_TEXT]}); it is retried later"
        if about is not None and subject:
            self.write_event(subject, REASON, note, about, uid)

    def write_event(self, subject: str, reason: str, note: str, about: About, uid: str = "") -> None:
        """A warning event on the object `namespace/name`, written in the background."""
        if len(self._events) >= _MOST_EVENTS:
            return
        namespace, _, name = subject.rpartition("/")
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "namespace": namespace, "name": name}
        regarding |= {"uid": uid} if uid else {}
        who = {"controller": "fairlead.dev/operator", "instance": names.lease(names.release(), "operator")}
        writing = events.write(self.client, regarding, reason, note, action="Reconciling", warning=True, **who)
        task = asyncio.ensure_future(writing)
        self._events.add(task)
        task.add_done_callback(self._event_done)

    def _event_done(self, task: asyncio.Task[None]) -> None:
        self._events.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("event not written", error=str(task.exception())[:_TEXT])

    def each(
        self, site: str, take: Callable[[Change[Any]], None], about: About | None = None
    ) -> Callable[[list[Change[Any]]], None]:
        """What takes an informer's changes in, one by one; one that fails is taken in again later, unless a newer one comes."""

        def report(changes: list[Change[Any]]) -> None:
            for change in changes:
                self._late.pop((site, change.key), None)
                self._take(site, take, about, change, 1)

        return report

    def _take(
        self, site: str, take: Callable[[Change[Any]], None], about: About | None, change: Change[Any], attempt: int
    ) -> None:
        try:
            take(change)
        except Exception as error:  # noqa: BLE001 - one object's fault stops no other object
            uid = change.view.metadata.uid if change.view is not None else ""
            self.note(site, change.key, error, about, uid)
            self._late[site, change.key] = attempt, change
            again = partial(self._again, site, take, about, change)
            asyncio.get_running_loop().call_later(pause(attempt) / self.speed, again)

    def _again(self, site: str, take: Callable[[Change[Any]], None], about: About | None, change: Change[Any]) -> None:
        attempt, latest = self._late.get((site, change.key), (0, None))
        if latest is change:
            del self._late[site, change.key]
            self._take(site, take, about, change, attempt + 1)

    async def kept(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run something that has no end until cancelled, again and again where it fails. name: its site."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await run()
                return
            except Exception as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # what is cut off may end with an error instead
                lasted = (asyncio.get_running_loop().time() - began) * self.speed
                failures = 1 if lasted > pause(failures or 1) * 2 else failures + 1
                self.note(name, "", error)
                await asyncio.sleep(min(pause(failures), 60.0) / self.speed)
