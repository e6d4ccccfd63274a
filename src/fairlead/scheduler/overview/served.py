"""The overview as the leader serves it: answers that are made in parts between passes, and only what changed since the last one.

An answer carries a version. A client that names it in its next question gets rows that are new or differ, and the keys of
those that are gone; a version that is not remembered any more gets everything.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.others import without_others
from fairlead.scheduler.overview import jobs, nodes, queues, quotas
from fairlead.scheduler.overview.rows import Job, Others, Quota, Shares

T = TypeVar("T")
Ask = Callable[[Callable[[CoreLoop], Any]], Awaitable[Any]]

_PART = 1000  # rows that are made in one go: a few tens of milliseconds of the core's thread
_REMEMBERED = 8  # versions for which it is known what they held


class Answer(msgspec.Struct):
    """Rows. version: of this answer; since: it holds only what changed since that version, empty: it holds everything.

    gone: keys of rows that are not there any more.
    """

    version: str
    rows: list[Any]
    since: str = ""
    gone: list[Any] = []


class _Version(msgspec.Struct, frozen=True):
    """What an answer held. mark: how far the core was; rows: key -> digest of the row."""

    about: tuple[str, ...]
    mark: tuple[int, int]
    rows: dict[Any, int]


class Overview:
    """Answers questions about the whole cluster. ask: has the core answer between two passes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._versions: OrderedDict[str, _Version] = OrderedDict()
        self._boot = secrets.token_hex(4)
        self._count = itertools.count(1)

    async def jobs(self, namespace: str = "", queue: str = "", since: str = "") -> Answer:
        """Jobs that have not ended, by namespace and name; of one namespace or queue, or of all.

        Those of one namespace do not name others in the reasons why they wait.
        """

        async def rows() -> dict[Any, Any]:
            found: list[Job] = []
            for part in _parts(await self._ask(lambda core: jobs.keys(core.state, namespace, queue))):
                found += await self._ask(partial(_rows, part, namespace))
            return {(row.namespace, row.name, row.kind): row for row in found}

        return await self._since(("jobs", namespace, queue), since, rows)

    async def others(self, seen_from: str) -> list[Others]:
        """The jobs of all namespaces but one, counted by queue."""
        found: list[Others] = await self._ask(lambda core: jobs.others(core.state, seen_from))
        return found

    async def nodes(self, seen_from: str = "", since: str = "") -> Answer:
        """All nodes, by name. seen_from: a namespace; pods of others are not named."""

        async def rows() -> dict[Any, Any]:
            return {row.name: row for row in await self._ask(lambda core: nodes.lines(core.state, seen_from=seen_from))}

        return await self._since(("nodes", seen_from), since, rows)

    async def quotas(self, shows: Callable[[str], bool]) -> list[Quota]:
        """All queues, by name. shows: which users are listed, others are counted."""
        found: list[Quota] = await self._ask(lambda core: quotas.quotas(core.state, shows))
        return found

    async def queues(self) -> Shares:
        """All queues, by name."""
        found: Shares = await self._ask(lambda core: queues.shares(core.state))
        return found

    async def _since(self, about: tuple[str, ...], since: str, rows: Callable[[], Awaitable[dict[Any, Any]]]) -> Answer:
        """What changed since a version; the rows are made only if anything happened."""
        mark = await self._ask(_mark)
        known = self._versions.get(since)
        if known is not None and (known.about, known.mark) == (about, mark):
            return Answer(since, [], since)
        return await asyncio.to_thread(self._answer, about, mark, await rows(), since)

    def _answer(self, about: tuple[str, ...], mark: tuple[int, int], rows: dict[Any, Any], since: str) -> Answer:
        encode = msgspec.msgpack.Encoder().encode
        digests = {key: hash(encode(row)) for key, row in rows.items()}
        version = f"{self._boot}-{next(self._count)}"
        known = self._versions.get(since)
        self._versions[version] = _Version(about, mark, digests)
        while len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)
        if known is None or known.about != about:
            return Answer(version, list(rows.values()))
        changed = [row for key, row in rows.items() if known.rows.get(key) != digests[key]]
        return Answer(version, changed, since, [key for key in known.rows if key not in rows])


def _mark(core: CoreLoop) -> tuple[int, int]:
    """How far the core is: events that it has applied, and passes."""
    return core.counters.events, core.counters.passes


def _rows(keys: Sequence[jobs.Key], namespace: str, core: CoreLoop) -> list[Job]:
    found = jobs.Rows(core.state, core.reports.starts.interval).of(keys)
    return [_of_namespace(row, core) for row in found] if namespace else found


def _of_namespace(row: Job, core: CoreLoop) -> Job:
    if row.reason is None:
        return row
    message = without_others(row.reason.message, row.namespace, core.state.pairs.namespaces)
    return msgspec.structs.replace(row, reason=msgspec.structs.replace(row.reason, message=message))


def _parts(keys: Sequence[T]) -> Iterable[Sequence[T]]:
    return (keys[first : first + _PART] for first in range(0, len(keys), _PART))
