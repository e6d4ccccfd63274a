"""The leader's overview of the cluster, followed from one question to the next: one answer instead of lists of all pods.

A user who may not see the whole cluster is answered as of one namespace: its jobs, with all others as counts. Every question
returns None where the leader does not answer, or not to this user: the commands list the cluster then.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from fairlead.api import names
from fairlead.cli.output import Exit, fail
from fairlead.scheduler.overview.rows import Job, NodeLine, Others, Quota, Share, Shares

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import ApiError, Client
    from fairlead.simulation.asked import Question
    from fairlead.simulation.whatif import WhatIf

NOT_SERVED = (403, 404, 405, 500, 502, 503, 504)
"""Answers of an API server behind which no leader serves this."""
_FORBIDDEN = 403

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(default="", name="resourceVersion")


class _Item(msgspec.Struct, Generic[T], gc=False):
    status: T


class _List(msgspec.Struct, Generic[T], rename="camel"):
    items: list[_Item[T]]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    since: str = ""
    gone: list[Any] = []
    outside_queues: dict[str, float] = {}
    resource: str = ""
    others: list[Others] = []


class _Followed:
    """The rows of one list, and the version of the answer that they are of."""

    def __init__(self) -> None:
        self.version = ""
        self.rows: dict[Any, Any] = {}


class Leader:
    """Asks through the API server. namespace: in which a user is answered who may not see the whole cluster.

    seen_from: that namespace, once an answer was as of it. others: the jobs of other namespaces then, counted by queue.
    """

    def __init__(self, client: Client, namespace: str = "") -> None:
        self.client = client
        self.namespace = namespace
        self.seen_from = ""
        self.others: list[Others] = []
        self._followed: dict[str, _Followed] = {}

    async def jobs(self, namespace: str = "", queue: str = "") -> list[Job] | None:
        """All jobs that have not ended, by namespace and name; of one namespace, or in one queue.

        Where only one namespace may be seen, the others' are in `others`.
        """
        path = f"namespaces/{namespace}/jobs" if namespace else "jobs"
        rows = await self._follow(path, Job, {"queue": queue} if queue else {})
        if not self.seen_from:
            self.others = []
        return sorted(rows.values(), key=_key_of) if rows is not None else None

    async def nodes(self) -> list[NodeLine] | None:
        """All nodes, by name."""
        rows = await self._follow("nodes", NodeLine, {})
        return sorted(rows.values(), key=lambda row: row.name) if rows is not None else None

    async def queues(self) -> Shares | None:
        """All queues, by name."""
        found = await self._ask("queues", Share, {})
        return Shares([each.status for each in found.items], found.outside_queues, found.resource) if found is not None else None

    async def quotas(self) -> list[Quota] | None:
        """What all queues, by name, and their users may still have; as of one namespace: only the user that asks is listed."""
        found = await self._ask("quotas", Quota, {})
        return [each.status for each in found.items] if found is not None else None

    async def _follow(self, path: str, view: type[Any], query: dict[str, str]) -> dict[Any, Any] | None:
        """The rows of a list, by their keys; only what changed since the last question is sent."""
        known = self._followed.setdefault(f"{path}?{query}", _Followed())
        found = await self._ask(path, view, query | ({"since": known.version} if known.version else {}))
        if found is None:
            return None
        self.others = found.others
        if not found.since:
            known.rows.clear()
        for key in found.gone:
            known.rows.pop(_key(key), None)
        known.rows.update({_key_of(each.status): each.status for each in found.items})
        known.version = found.metadata.version
        return known.rows

    async def _ask(self, path: str, view: type[Any], query: dict[str, str]) -> _List[Any] | None:
        from fairlead.cluster.kubernetes.client import ApiError

        try:
            answer = await self._answer(path, query)
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

    async def _answer(self, path: str, query: dict[str, str]) -> bytes:
        """Of the whole cluster, or as of one namespace, where this user may see no more."""
        from fairlead.cluster.kubernetes.client import ApiError

        below = f"namespaces/{self.namespace}/{path}" if self.namespace and not path.startswith("namespaces/") else ""
        if not (self.seen_from and below):
            try:
                return await self.client.get_packed(f"{names.VISIBILITY}/{path}", **query)
            except ApiError as error:
                if error.code != _FORBIDDEN or not below:
                    raise
        answer = await self.client.get_packed(f"{names.VISIBILITY}/{below}", **query)
        self.seen_from = self.namespace
        return answer


_ANSWER = 70.0  # seconds: the API server gives up after 60
_WRONG = (400, 413, 422)


async def what_if(client: Client, question: Question, namespace: str) -> WhatIf:
    """What the leader answers a user who may not list the cluster; ends the command where it gives no answer.

    Raises `ApiError` for what no answer explains, `Unreachable`.
    """
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.simulation.whatif import WhatIf

    path = f"{names.VISIBILITY}/namespaces/{quote(namespace, safe='')}/whatifs"
    try:
        body = msgspec.json.encode({"spec": question})
    except (TypeError, ValueError, RecursionError) as error:
        fail(f"the manifests cannot be written as JSON: {error}", Exit.USAGE)
    try:
        async with client.apart(timeout=_ANSWER) as patient:
            answer = await patient.ask(path, body)
        return msgspec.convert(_all_snake(msgspec.json.decode(answer)["status"]), WhatIf)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        fail(f"the leader is of another version: its answer cannot be read ({error})")
    except ApiError as error:
        _no_answer(error, namespace)
        raise


def _no_answer(error: ApiError, namespace: str) -> None:
    """End the command with what a refusal means."""
    if error.code in _WRONG:
        fail(error.message, Exit.USAGE)
    if error.code == _FORBIDDEN:
        by_roles = f"you may ask only as of a namespace in which you may `view`, with --namespace NAME ({error.message})"
        fail(by_roles if "cannot create resource" in error.message else error.message, Exit.REFUSED)
    if error.code in (404, 405):
        fail(
            f"you may not list the cluster, and no leader answers for namespace {namespace}: visibility.fairlead.dev is not "
            "installed, or of an earlier version; an administrator installs it: `fairlead install`, or charts/visibility.yaml",
            Exit.REFUSED,
        )
    if error.code in (502, 503):
        fail(f"you may not list the cluster, and the leader does not answer: {error.message}", Exit.UNREACHABLE)
    if error.code in (429, 500, 504):
        fail(error.message)


def _all_snake(value: Any) -> Any:
    """An answer without maps: the fields of all its objects in snake_case."""
    if isinstance(value, dict):
        return {_snake(key): _all_snake(each) for key, each in value.items()}
    return [_all_snake(each) for each in value] if isinstance(value, list) else value


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
