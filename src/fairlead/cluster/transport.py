"""How requests reach an API server: over HTTP, or by a call within the process.

Below it are bytes and connections, above it Kubernetes. An implementation decides nothing: a
reply is returned whatever its status, and no answer is `Unreachable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol


class Unreachable(Exception):
    """No answer came. A write may or may not have happened: read before retrying."""


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Chunks(Protocol):
    """The body of an answer that keeps coming."""

    async def readany(self) -> bytes:
        """The next bytes; empty at the end. Raises `Unreachable` when the connection fails or goes silent."""


class Opened(NamedTuple):
    """An answer that keeps coming. status other than 200: `body` is all there is."""

    status: int
    body: bytes
    chunks: Chunks


class Transport(Protocol):
    """Sends requests."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request. Raises `Unreachable`."""

    def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence: float
    ) -> AbstractAsyncContextManager[Opened]:
        """One long answer. silence: seconds without a byte after which it counts as dead. Raises `Unreachable`."""

    async def close(self) -> None:
        """Let go of connections."""
