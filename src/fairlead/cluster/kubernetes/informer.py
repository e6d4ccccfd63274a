"""One kind of object, listed once and then watched for ever.

A list comes in pages. The watch asks for bookmarks and continues at the last version seen; when the
server answers that the version is too old (410), it lists again and reports the difference. A watch on
which nothing moves, not even a bookmark, counts as dead and is opened anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from zlib import crc32

import msgspec
import structlog

from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import REFUSAL_GRACE, ApiError, Client, Unreachable, refuses
from fairlead.cluster.translate import Change
from fairlead.cluster.transport import Chunks

View = TypeVar("View", bound=msgspec.Struct)

_PAGE = 500
_WATCH_SECONDS, _WATCH_SPREAD = 300, 300  # as client-go's reflectors: five to ten minutes, so that not all begin anew at once
_SILENCE = 90.0  # the API server sends a bookmark about every minute
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 15.0
_CATCH_UP, _ASK = 1.0, 0.02  # seconds without a move after which a watch is listed again instead; between two checks
_ABSENT_WAIT = 30.0  # seconds until a kind that is not served is asked for again
_REFUSED_WAIT = 2.0  # at most, while the API server may not have loaded the roles yet
_LARGEST_EVENT = 8 << 20
_NOT_SERVED = "this kind is not served: install it with `fairlead crds | kubectl apply -f -`; this process waits until then"

_HINTS = {404: _NOT_SERVED}
_REFUSED = "access is denied: apply and bind the roles of charts/rbac.yaml; this process waits until then"

log = structlog.get_logger("informer")


class TooOld(Exception):
    """The version to continue from is gone from the server's history."""


class Informer(Generic[View]):
    """Reports every change of one kind, in order, in batches.

    key: what an object is known by; default: namespace/name.
    optional: the server may not serve it, or not to us: that counts as an empty list, and is asked again now and then.
    silence: seconds without any byte after which a watch counts as dead. selector, fields: of objects; empty: all.
    on_synced: called once, after the first list has been reported.
    """

    def __init__(  # noqa: PLR0913 - what goes beyond a list and a watch is given by name
        self,
        client: Client,
        path: str,
        view: type[View],
        report: Callable[[list[Change[View]]], None],
        on_synced: Callable[[], None],
        *,
        key: Callable[[views.Metadata], str] = lambda metadata: metadata.key,
        silence: float = _SILENCE,
        selector: str = "",
        fields: str = "",
        optional: bool = False,
    ) -> None:
        self.client = client
        self.path = path
        self.report = report
        self.on_synced = on_synced
        self.silence = silence
        given = {"labelSelector": selector, "fieldSelector": fields}
        self._selected = {name: text for name, text in given.items() if text}
        self.relists = 0
        self.restarts = 0
        self.known: dict[str, str] = {}  # key -> resourceVersion
        self._key = key
        self._optional, self._missed = optional, False
        self._decode = msgspec.json.Decoder(view).decode
        self._decode_metadata = msgspec.json.Decoder(views.OnlyMetadata).decode
        self._decode_event = msgspec.json.Decoder(views.WatchEvent).decode
        self._decode_list = msgspec.json.Decoder(views.RawList).decode
        self._watch_seconds = _WATCH_SECONDS + crc32(path.encode()) % _WATCH_SPREAD
        self._version = ""  # where the watch stands; empty: list first
        self._held: dict[str, Change[View]] | None = None  # the latest of each object, until `release`
        self._lists_begun = self._lists_done = 0  # done: the number of the latest that was reported whole
        self._stream: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """List and watch until cancelled. Trouble is waited out, never raised."""
        wait = _FIRST_WAIT
        loop = asyncio.get_running_loop()
        refused_at: float | None = None
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                    self._all_listed()
                    refused_at = None
                    wait = _FIRST_WAIT
                before = self._version
                await self._watch()
                self.restarts += 1
                refused_at = None
                if self._version != before:
                    wait = _FIRST_WAIT
            except TooOld:
                log.info("watch too old, listing again", path=self.path)
                self._version = ""
                self.relists += 1
            except (Unreachable, ApiError, msgspec.DecodeError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # a stream that is cut off may end with an error instead
                if self._is_absent(error):
                    await self._absent()
                    continue
                hint = _HINTS.get(_code(error), "")
                if not refuses(error):
                    refused_at = None
                elif refused_at is None:
                    refused_at = loop.time()
                if refused_at is not None and loop.time() - refused_at < REFUSAL_GRACE:
                    wait = min(wait, _REFUSED_WAIT)
                elif refused_at is not None:
                    hint = _REFUSED
                log.warning(
                    "watch interrupted", path=self.path, error=str(error)[:300], wait=wait, **({"hint": hint} if hint else {})
                )
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)

    def _all_listed(self) -> None:
        first, self._lists_done = not self.listed, self._lists_begun
        if first and self._held is None and not self._missed:
            self.on_synced()

    def _is_absent(self, error: Exception) -> bool:
        """Whether it is a kind that need not be served, and is not."""
        return self._optional and not self.listed and _code(error) in (403, 404)

    async def _absent(self) -> None:
        """It is not served: as if there were none. It is asked for again later, since it may be installed."""
        if not self._missed:
            self._missed = True
            log.info("not served, and not needed", path=self.path)
            self.on_synced()
        await asyncio.sleep(_ABSENT_WAIT)

    def relist(self) -> None:
        """Drop the watch and list everything again, as after a 410."""
        if self._stream is not None:
            self._stream.cancel()
        else:
            self._version = ""

    @property
    def listed(self) -> bool:
        """Whether all that exists has been received once."""
        return self._lists_done > 0

    def hold(self) -> None:
        """Keep what is observed from now on, the latest of each object, until `release`. To be called before `run`."""
        self._held = {}

    def release(self) -> None:
        """Report what was held, as a list does, and from now on what comes."""
        held, self._held = self._held, None
        if held:
            self.report(list(held.values()))
        if held is not None and self.listed:
            self.on_synced()

    def _deliver(self, changes: list[Change[View]]) -> None:
        if self._held is None:
            self.report(changes)
            return
        for change in changes:
            if change.view is None:
                self._held.pop(change.key, None)
            else:
                self._held[change.key] = change

    async def current(self) -> None:
        """Return once everything that was written before the call has been reported. `run` goes on beside it.

        A list that begins after the call reports it. Where that takes more than one page the watch may come to the server's
        present version sooner; but where nothing moves no event proves that it has.
        """
        begun, loop = self._lists_begun, asyncio.get_running_loop()
        many = len(self.known) > _PAGE
        wanted = await self._present() if many else ""
        before, moved = self._version, loop.time()
        while self._lists_done <= begun and not _reaches(self._version, wanted):
            if self._version != before:
                before, moved = self._version, loop.time()
            if self._stream is not None and (not many or loop.time() - moved >= _CATCH_UP):
                self.relist()
            await asyncio.sleep(_ASK)

    async def _present(self) -> str:
        """The version of the server's data now."""
        wait = _FIRST_WAIT
        while True:
            try:
                page = self._decode_list(await self.client.get(self.path, limit="1", **self._selected))
                return page.metadata.resource_version
            except (Unreachable, ApiError, msgspec.DecodeError) as error:
                log.warning("version not read", path=self.path, error=str(error)[:300], wait=wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    # -- list ----------------------------------------------------------------------------------

    async def _list(self) -> str:
        self._lists_begun += 1
        seen: set[str] = set()
        token = ""
        while True:
            query = {"limit": str(_PAGE), **self._selected}
            if token:
                query["continue"] = token
            try:
                page = self._decode_list(await self.client.get(self.path, **query))
            except ApiError as error:
                if error.code != 410 or not token:
                    raise
                seen.clear()  # the list took longer than the server's history: begin again
                token = ""
                continue
            changes = []
            for raw in page.items:
                change = self._change(raw)
                if change is None:
                    continue
                seen.add(change.key)
                if change.view is not None:
                    changes.append(change)
            if changes:
                self._deliver(changes)
            token = page.metadata.continue_
            if not token:
                break
            await asyncio.sleep(0)
        gone = [key for key in self.known if key not in seen]
        for key in gone:
            del self.known[key]
        if gone:
            self._deliver([Change(key, None) for key in gone])
        return page.metadata.resource_version

    def _change(self, raw: msgspec.Raw) -> Change[View] | None:
        """A change from one object; without `view` when this very version was reported before."""
        error = ""
        view: View | None
        try:
            view = self._decode(raw)
            metadata: views.Metadata = view.metadata  # type: ignore[attr-defined]
        except msgspec.DecodeError as refused:
            error = str(refused)
            try:
                bare = self._decode_metadata(raw)
            except msgspec.DecodeError:
                log.error("object cannot be read at all", path=self.path, error=error)
                return None
            view, metadata = bare, bare.metadata  # type: ignore[assignment]
        key = self._key(metadata)
        if self.known.get(key) == metadata.resource_version:
            return Change(key, None)
        self.known[key] = metadata.resource_version
        return Change(key, view, error)

    # -- watch ---------------------------------------------------------------------------------

    async def _watch(self) -> None:
        query = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._watch_seconds),
            **self._selected,
        }

        async def follow() -> None:
            async with self.client.stream(self.path, query, self.silence) as stream:
                await self._follow(stream)

        self._stream = asyncio.ensure_future(follow())
        try:
            await self._stream
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._stream.cancel()
                raise
            raise TooOld from None  # not we were cancelled but the stream, by `relist`
        except ApiError as error:
            if error.code == 410:
                raise TooOld from error
            raise
        finally:
            self._stream = None

    async def _follow(self, stream: Chunks) -> None:
        rest = b""
        while chunk := await stream.readany():
            lines = (rest + chunk if rest else chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LARGEST_EVENT:
                raise Unreachable(f"{self.path}: an event of more than {_LARGEST_EVENT} bytes")
            changes: list[Change[View]] = []
            try:
                for line in lines:
                    if line:
                        self.take(line, changes)
            finally:
                if changes:
                    self._deliver(changes)

    def take(self, line: bytes, changes: list[Change[View]]) -> None:
        """Take one line of a watch in; what changed by it is appended to `changes`. Raises `TooOld`, `ApiError`."""
        event = self._decode_event(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=views.ErrorStatus)
            if status.code == 410:
                raise TooOld
            raise ApiError(status.code, status.reason, status.message)
        if event.type in ("BOOKMARK", "DELETED"):
            metadata = self._decode_metadata(event.object).metadata
            self._version = metadata.resource_version or self._version
            if event.type == "DELETED":
                key = self._key(metadata)
                if self.known.pop(key, None) is not None:
                    changes.append(Change(key, None))
            return
        change = self._change(event.object)
        if change is not None and change.view is not None:
            self._version = self.known[change.key]
            changes.append(change)


def _reaches(version: str, wanted: str) -> bool:
    """Whether a version is another or a later one; versions of one server are numbers that grow."""
    return version.isdecimal() and wanted.isdecimal() and int(version) >= int(wanted)


def _code(error: Exception) -> int:
    """The status of the server's answer; 0 where there was none."""
    return error.code if isinstance(error, ApiError) else 0
