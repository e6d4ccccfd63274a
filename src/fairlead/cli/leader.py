"""The leader's overview of the cluster, followed from one question to the next: one answer instead of lists of all pods.

Every question returns None where the leader does not answer, or not to this user: the commands list the cluster then.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api import names
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.scheduler.overview.jobs import Job
from fairlead.scheduler.overview.nodes import NodeLine
from fairlead.scheduler.overview.queues import Share, Shares

NOT_SERVED = (403, 404, 405, 500, 502, 503, 504)
"""Answers of an API server behind which no leader serves this."""

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(default="", name="resourceVersion")


class _Item(msgspec.Struct, Generic[T]):
    status: T


class _List(msgspec.Struct, Generic[T], rename="camel"):
    items: list[_Item[T]]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    since: str = ""
    gone: list[Any] = []
    outside_queues: dict[str, float] = {}
    resource: str = ""


class _Followed:
    """The rows of one list, and the version of the answer that they are of."""

    def __init__(self) -> None:
        self.version = ""
        self.rows: dict[Any, Any] = {}


class Leader:
    """Asks through the API server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._followed: dict[str, _Followed] = {}

    async def jobs(self, namespace: str = "", queue: str = "") -> list[Job] | None:
        """All jobs that have not ended, by namespace and name; of one namespace, or in one queue."""
        path = f"{names.VISIBILITY}/namespaces/{namespace}/jobs" if namespace else f"{names.VISIBILITY}/jobs"
        rows = await self._follow(path, Job, {"queue": queue} if queue else {})
        return sorted(rows.values(), key=_key_of) if rows is not None else None

    async def nodes(self) -> list[NodeLine] | None:
        """All nodes, by name."""
        rows = await self._follow(f"{names.VISIBILITY}/nodes", NodeLine, {})
        return sorted(rows.values(), key=lambda row: row.name) if rows is not None else None

    async def queues(self) -> Shares | None:
        """All queues, by name."""
        found = await self._ask(f"{names.VISIBILITY}/queues", Share, {})
        return Shares([each.status for each in found.items], found.outside_queues, found.resource) if found is not None else None

    async def _follow(self, path: str, view: type[Any], query: dict[str, str]) -> dict[Any, Any] | None:
        """The rows of a list, by their keys; only what changed since the last question is sent."""
        known = self._followed.setdefault(f"{path}?{query}", _Followed())
        found = await self._ask(path, view, query | ({"since": known.version} if known.version else {}))
        if found is None:
            return None
        if not found.since:
            known.rows.clear()
        for key in found.gone:
            known.rows.pop(_key(key), None)
        known.rows.update({_key_of(each.status): each.status for each in found.items})
        known.version = found.metadata.version
        return known.rows

    async def _ask(self, path: str, view: type[Any], query: dict[str, str]) -> _List[Any] | None:
        try:
            answer = await self.client.get_packed(path, **query)
            if view is Job:  # by far the most rows, and written as they are read
                return msgspec.json.decode(answer, type=_List[Job])
            found = msgspec.json.decode(answer, type=_List[dict[str, Any]])
            rows = [_Item(msgspec.convert(snake(each.status), view)) for each in found.items]
            return msgspec.structs.replace(found, items=rows)
        except ApiError as error:
            if error.code not in NOT_SERVED:
                raise
        except msgspec.MsgspecError:
            pass  # another version's answer
        return None


def snake(status: dict[str, Any]) -> dict[str, Any]:
    """The fields of an answer, and of the lists in it, in snake_case; keys of maps as they are."""
    return {
        _snake(key): [snake(each) if isinstance(each, dict) else each for each in value] if isinstance(value, list) else value
        for key, value in status.items()
    }


@cache
def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)


def _key_of(row: Any) -> Any:
    return (row.namespace, row.name, row.kind) if isinstance(row, Job) else row.name


def _key(written: Any) -> Any:
    """A key as JSON has it."""
    return tuple(written) if isinstance(written, list) else written
