"""The decision log: what the core observed and decided, as JSON lines, and its exact replay.

First line: what wrote it, and the policy. Then `{"at", "events"}` for each batch of events and `{"at",
"pass", "outputs"}` for each pass, in the order in which they happened. A bug report is this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairlead import __version__
from fairlead.cluster.port import ClusterEvent
from fairlead.core.model.allocations import read_amount
from fairlead.core.model.policy import Policy
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.outputs import Output, Trouble

FORMAT = 1


encode = msgspec.json.Encoder(enc_hook=str).encode
"""The encoder of the log: it writes a `Cause` as its sentence, as in all logs of this format."""


class LogError(ValueError):
    """A file that is no decision log, or one that cannot be read here: where, and what to do."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    fairlead: str
    format: int
    policy: Policy


class _Observed(msgspec.Struct, frozen=True):
    at: float
    events: list[ClusterEvent]


class _Decided(msgspec.Struct, frozen=True, rename={"number": "pass"}):
    at: float
    number: int
    outputs: list[Output]


class _Line(msgspec.Struct, frozen=True, rename={"number": "pass"}):
    at: float
    events: list[ClusterEvent] | None = None
    number: int | None = None
    outputs: msgspec.Raw = msgspec.Raw(b"[]")


class LogWriter(Recorder):
    """Writes a decision log. limit: bytes after which it stops; `full` is set then."""

    def __init__(
        self, file: BinaryIO, policy: Policy, *, limit: int = 1 << 30, on_full: Callable[[], None] = lambda: None
    ) -> None:
        self.full = False
        self.written = 0
        self._file = file
        self._limit = limit
        self._on_full = on_full
        self._passes = 0
        self._write(Header(fairlead=__version__, format=FORMAT, policy=policy))

    def observed(self, now: float, events: list[ClusterEvent]) -> None:
        """Note a batch of events."""
        if events:
            self._write(_Observed(now, events))

    def decided(self, now: float, outputs: list[Output]) -> None:
        """Note a pass; it is on its way to the disk when this returns."""
        self._passes += 1
        self._write(_Decided(now, self._passes, outputs))
        if not self.full:
            self._file.flush()

    def _write(self, line: msgspec.Struct) -> None:
        if self.full:
            return
        content = encode(line) + b"\n"
        if self.written + len(content) > self._limit:
            self.full = True  # a log with a gap would replay something that never happened
            self._on_full()
            return
        self.written += len(content)
        self._file.write(content)


class Difference(msgspec.Struct, frozen=True):
    """The first pass whose replay is not what was recorded."""

    number: int
    at: float
    recorded: str
    replayed: str


class Replay(msgspec.Struct):
    """What a replay found."""

    version: str
    passes: int = 0
    events: int = 0
    outputs: int = 0
    identical: bool = True
    truncated: bool = False
    difference: Difference | None = None
    first: float = 0.0
    last: float = 0.0


def _as_it_is(content: bytes) -> bytes:
    return content


class Player:
    """Feeds a log to a fresh core, line by line. `state` is the core's, after the last line fed.

    translate: applied to each line before it is read, for names that have changed since. compared: applied to recorded and
    replayed outputs that are not the same bytes, for what may differ.
    """

    def __init__(
        self, path: Path, translate: Callable[[bytes], bytes] = _as_it_is, compared: Callable[[bytes], bytes] = _as_it_is
    ) -> None:
        self.path = path
        self._translate = translate
        self._compared = compared
        self.outputs: list[Output] = []
        self._decode = msgspec.json.Decoder(_Line, dec_hook=read_amount).decode
        with path.open("rb") as file:
            self.header = _header(translate(file.readline()), path)
        self._core = CoreLoop(self.header.policy, self._take)

    @property
    def state(self) -> ClusterState:
        """The replayed state."""
        return self._core.state

    def _take(self, outputs: list[Output]) -> None:
        self.outputs += [each for each in outputs if not isinstance(each, Trouble)]

    def play(self, until: int | None = None, progress: Callable[[int, int], None] = lambda _done, _of: None) -> Replay:
        """Replay, up to and including pass `until`; stops at the first difference. Raises `LogError`."""
        result = Replay(self.header.fairlead)
        size = self.path.stat().st_size
        for offset, line in self._lines(result):
            result.first = result.first or line.at
            result.last = line.at
            if line.events is not None:
                result.events += len(line.events)
                self._core.apply(line.events, line.at)
                continue
            self.outputs.clear()
            with suppress(Exception):  # it failed when it was recorded, or its outputs differ
                self._core.decide(line.at)
            result.passes += 1
            result.outputs += len(self.outputs)
            recorded, replayed = bytes(line.outputs), encode(self.outputs)
            if replayed != recorded and self._compared(replayed) != self._compared(recorded):
                result.identical = False
                result.difference = Difference(line.number or 0, line.at, recorded.decode(), replayed.decode())
                break
            if result.passes % 500 == 0:
                progress(offset, size)
            if until is not None and (line.number or 0) >= until:
                break
        return result

    def _lines(self, result: Replay) -> Iterator[tuple[int, _Line]]:
        with self.path.open("rb") as file:
            offset = len(file.readline())
            for number, content in enumerate(file, 2):
                offset += len(content)
                try:
                    line = self._decode(self._translate(content))
                except msgspec.DecodeError as error:
                    if not content.endswith(b"\n"):
                        result.truncated = True  # the process ended while it wrote
                        return
                    raise LogError(f"{self.path}, line {number}: {error}") from error
                yield offset, line


def _header(content: bytes, path: Path) -> Header:
    try:
        header = msgspec.json.decode(content, type=Header)
    except msgspec.DecodeError as error:
        raise LogError(
            f"{path} is not a decision log of Fairlead (write one with `fairlead scheduler --record FILE`): {error}"
        ) from error
    if header.format != FORMAT:
        raise LogError(f"{path} has format {header.format}; this version reads format {FORMAT}: use Fairlead {header.fairlead}")
    return header
