"""What is learned of speeds of jobs that share GPUs, kept in a Lease of its own for the scheduler that leads next.

It names jobs of all tenants, so it stands where none of them reads, and where the scheduler has a right already. It is too large
for the Lease that is renewed, and read by standbys, every few seconds; that one names it once something was written, so a
scheduler asks for it only where there is something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.core.pairs.learned import NOTHING_LEARNED, LearnedSpeeds

log = structlog.get_logger("speeds")

_MOST = 128 * 1024
"""Bytes of a record: the core writes 96 KiB at most."""
_TRIES, _PAUSE, _PATIENCE = 3, 0.5, 5.0  # seconds between two tries, and for all of them

_read = msgspec.json.Decoder(LearnedSpeeds).decode


class KeptSpeeds:
    """Reads and writes the record. Nothing is written before `take_over`: without a Lease no other scheduler would know of it."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._led = False
        self._is_there = False
        self.named: Callable[[], None] = lambda: None
        """Called when the scheduler's Lease is to name the record."""

    def annotations(self) -> dict[str, str | None]:
        """The annotation of the scheduler's Lease; None: it has none."""
        return {names.PAIR_SPEEDS_IN_ANNOTATION: self._name if self._is_there else None}

    def take_over(self, annotations: Mapping[str, str]) -> None:
        """This scheduler leads from now on. annotations: of its Lease."""
        self._led = True
        self._is_there = annotations.get(names.PAIR_SPEEDS_IN_ANNOTATION) == self._name

    async def read(self) -> LearnedSpeeds:
        """What the scheduler before this one wrote. What cannot be read is nothing, and a warning."""
        if not self._is_there:
            return NOTHING_LEARNED
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await self._found()
        except (ApiError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
            return self._warn(str(error) or repr(error))
        annotations = _metadata(found).get("annotations") if found is not None else None
        text = annotations.get(names.PAIR_SPEEDS_ANNOTATION) if isinstance(annotations, dict) else None
        if not text:
            return NOTHING_LEARNED
        if not isinstance(text, str) or len(text) > _MOST:
            return self._warn("it is too long")
        try:
            learned = _read(text)
        except msgspec.DecodeError as error:
            return self._warn(str(error))
        problem = learned.problem()
        return self._warn(problem) if problem else learned

    def _warn(self, why: str) -> LearnedSpeeds:
        hint = "it is learned again from jobs that run, and written anew"
        log.warning("what was learned of jobs that share GPUs is not known", lease=self._name, why=why[:300], hint=hint)
        return NOTHING_LEARNED

    async def _found(self) -> dict[str, Any] | None:
        for left in reversed(range(_TRIES)):
            try:
                return await self._lease()
            except (ApiError, Unreachable) as error:
                if not left or (isinstance(error, ApiError) and error.code < 500 and error.code != 429):
                    raise
                await asyncio.sleep(_PAUSE)
        return None

    async def _lease(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = msgspec.json.decode(await self._client.get(f"{self._path}/{self._name}"), type=dict[str, Any])
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found

    async def write(self, learned: LearnedSpeeds) -> None:
        """Write the record anew, whatever stands there. Raises `Unreachable` where it may be written later."""
        if not self._led:
            return
        text = msgspec.json.encode(learned).decode()
        if not self._is_there:
            # Named first: a scheduler that finds no record there has lost nothing.
            self._is_there = True
            self.named()
        try:
            found = await self._lease()
            lease: dict[str, Any] = found or {"metadata": {"name": self._name, "namespace": self._namespace}}
            metadata = _metadata(lease)
            others = metadata.get("annotations")
            kept = {**(others if isinstance(others, dict) else {}), names.PAIR_SPEEDS_ANNOTATION: text}
            body = encode(
                {
                    **lease,
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {**metadata, "annotations": kept},
                }
            )
            if found is None:
                await self._client.post(self._path, body)
            else:
                await self._client.put(f"{self._path}/{self._name}", body)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            log.warning("what was learned of jobs that share GPUs is not written", lease=self._name, error=str(error)[:300])
            if isinstance(error, Unreachable) or (
                isinstance(error, ApiError) and (error.code in (401, 403, 409, 429) or error.code >= 500)
            ):
                raise Unreachable(str(error)) from error


def _metadata(lease: dict[str, Any]) -> dict[str, Any]:
    found = lease.get("metadata")
    return found if isinstance(found, dict) else {}
