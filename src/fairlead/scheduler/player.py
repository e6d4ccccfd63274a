"""What-if questions of users who may not list the cluster: who may ask how much, and the process that plays them.

The process is not this one: playing takes seconds of CPU and the memory of a second cluster, and any tenant may ask. One runs
at a time, with a limit of time and of memory; it is started by the first question and ended after a while without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import msgspec
import structlog

from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.rules import Rule
from fairlead.core.model.policy import Policy

log = structlog.get_logger("whatif")

_HEAD = 4  # bytes that give the length of a frame
_LARGEST = 256 << 20

_LIMIT = 40.0  # seconds for an answer: the API server gives up a request after 60
_IDLE = 120.0  # seconds without a question after which the process ends
_LINE = 8  # questions that wait for it at most
_PATIENCE = 10.0  # seconds for which they wait
_LEAST = 1.0  # seconds that a question counts at least
MEMORY = 4 << 30


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What the process needs to know of its scheduler. rules: for other kinds of workloads; memory: bytes that it may have."""

    config: Config
    policy: Policy
    schedulers: Mapping[str, str]
    sharing_agents: Sequence[str]
    gpu_parts: Sequence[tuple[str, str, int]] = ()
    rules: Sequence[Rule] = ()
    memory: int = MEMORY


class Asked(msgspec.Struct, frozen=True):
    """One question. user: who asks, in which namespace; body: as it came."""

    namespace: str
    user: str
    body: bytes


class Played(msgspec.Struct, frozen=True):
    """Its answer: a status of HTTP with the reason and the message of a refusal, or the JSON of the outcome."""

    code: int
    reason: str
    message: str
    outcome: bytes = b""


class TooMuch(Exception):
    """Not now. wait: seconds after which it may be asked again."""

    def __init__(self, message: str, wait: float) -> None:
        self.wait = max(1, math.ceil(wait))
        super().__init__(f"{message}; ask again in {self.wait} s")


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message from a pipe; None: it was closed."""
    head = stream.read(_HEAD)
    size = int.from_bytes(head, "big")
    content = stream.read(size) if len(head) == _HEAD else b""
    return content if content and len(content) == size else None


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """Send a message through a pipe."""
    stream.write(len(content).to_bytes(_HEAD, "big") + content)
    stream.flush()


class Budget:
    """Seconds of work that each of several may ask for: so many at once, then so many a second. clock: in seconds."""

    def __init__(self, at_once: float, a_second: float, clock: Callable[[], float]) -> None:
        self._at_once, self._a_second, self._clock = at_once, a_second, clock
        self._spent: dict[str, tuple[float, float]] = {}  # who -> seconds, and when that was so

    def _left(self, who: str) -> float:
        spent, then = self._spent.get(who, (0.0, 0.0))
        return self._at_once - max(0.0, spent - (self._clock() - then) * self._a_second)

    def wait(self, who: str) -> float:
        """Seconds until they may ask; 0: now."""
        left = self._left(who)
        return 0.0 if left > 0 else (_LEAST - left) / self._a_second

    def spend(self, who: str, seconds: float) -> None:
        """They had so much of it."""
        now = self._clock()
        for each in [each for each, (spent, then) in self._spent.items() if spent <= (now - then) * self._a_second]:
            del self._spent[each]  # nothing is held against them any more
        self._spent[who] = (self._at_once - self._left(who) + seconds, now)


class Player:
    """Has questions played by a process of its own. command: what starts it. Methods are for one event loop."""

    def __init__(self, command: Sequence[str], setting: Setting, clock: Callable[[], float]) -> None:
        self._command, self._setting, self._clock = command, setting, clock
        self._each = Budget(30.0, 0.2, clock)  # of users, and of namespaces: one user may have many accounts there
        self._all = Budget(120.0, 0.5, clock)
        self._asking: set[str] = set()
        self._one = asyncio.Semaphore(1)
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None

    async def play(self, question: Asked) -> Played:
        """The answer. Raises `TooMuch` where it is not played now, `TimeoutError` where it takes too long."""
        payers = (f"user {question.user}", f"namespace {question.namespace}")
        self._admit(payers)
        self._asking.add(payers[0])
        self._waiting += 1
        try:
            await self._turn()
        except BaseException:
            self._asking.discard(payers[0])
            raise
        finally:
            self._waiting -= 1
        begun = self._clock()
        try:
            async with asyncio.timeout(_LIMIT):
                return await self._played(question)
        except BaseException:
            self.stop()  # whatever it is doing: the next question finds a new one
            raise
        finally:
            for payer in payers:
                self._each.spend(payer, max(_LEAST, self._clock() - begun))
            self._all.spend("", max(_LEAST, self._clock() - begun))
            self._asking.discard(payers[0])
            self._one.release()

    def _admit(self, payers: Sequence[str]) -> None:
        if payers[0] in self._asking:
            raise TooMuch("a question of yours is being played", _LEAST)
        for payer in payers:
            if wait := self._each.wait(payer):
                raise TooMuch(f"{payer} has asked for as much as each may", wait)
        if wait := self._all.wait(""):
            raise TooMuch("as many questions have been asked as are answered for all users together", wait)
        if self._waiting >= _LINE:
            raise TooMuch(f"{self._waiting} questions wait to be played", _PATIENCE)

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._one.acquire()
        except TimeoutError:
            raise TooMuch("other questions are being played", _PATIENCE) from None

    async def _played(self, question: Asked) -> Played:
        if self._rest is not None:
            self._rest.cancel()
        for attempt in (1, 2):  # it may have ended meanwhile, as for want of memory
            try:
                process = self._process or await self._start()
                await _send(process, msgspec.msgpack.encode(question))
                answer = msgspec.msgpack.decode(await _receive(process), type=Played)
            except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError) as error:
                self.stop()
                log.warning("the process that plays questions gave no answer", attempt=attempt, error=str(error)[:300])
                continue
            self._rest = asyncio.get_running_loop().call_later(_IDLE, self.stop)
            return answer
        return Played(503, "ServiceUnavailable", "the process that plays questions has ended; the scheduler's log has more")

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        # A session of its own: what ends the leader from a terminal does not interrupt it; its closed pipe ends it.
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, start_new_session=True)
        self._process = process
        await _send(process, msgspec.msgpack.encode(self._setting))
        return process

    async def close(self) -> None:
        """End the process, if there is one, and wait until all that were started have ended."""
        self.stop()
        await asyncio.gather(*self._ending)

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            ending = asyncio.get_running_loop().create_task(_ended(process))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Once a process that was killed has ended and its pipes are closed."""
    if process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(OSError):
            await process.stdin.wait_closed()
    await process.wait()


async def _send(process: asyncio.subprocess.Process, content: bytes) -> None:
    if process.stdin is None:
        raise OSError("the process has no pipe")
    process.stdin.write(len(content).to_bytes(_HEAD, "big") + content)
    await process.stdin.drain()


async def _receive(process: asyncio.subprocess.Process) -> bytes:
    if process.stdout is None:
        raise OSError("the process has no pipe")
    size = int.from_bytes(await process.stdout.readexactly(_HEAD), "big")
    if size > _LARGEST:
        raise OSError(f"an answer of {size} bytes")
    return await process.stdout.readexactly(size)
