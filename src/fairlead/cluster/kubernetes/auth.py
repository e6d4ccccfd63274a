"""Bearer tokens that change: token files that rotate, and exec plugins whose credentials expire."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from fairlead.cluster.kubernetes.config import Config, ConfigError, ExecPlugin

_FILE_AGE = 30.0
_EXEC_LIMIT = 60.0
_EARLY = 60.0


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _Credential(msgspec.Struct):
    status: _Status | None = None


class Auth:
    """Our credentials. certificate: (chain, key) in PEM if an exec plugin gave one."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self.clock = clock
        self.certificate: tuple[bytes, bytes] | None = None
        self._token = config.token
        self._valid_until = float("inf") if not (config.token_file or config.exec_plugin) else 0.0
        self._lock = asyncio.Lock()

    @property
    def fresh(self) -> bool:
        """Whether the token at hand may be used."""
        return self.clock() < self._valid_until

    @property
    def token(self) -> str:
        """The token at hand; empty where certificates speak for us."""
        return self._token

    def reject(self) -> None:
        """The server did not accept the token: get another."""
        if self.config.token_file or self.config.exec_plugin:
            self._valid_until = 0.0

    async def refresh(self) -> None:
        """Read the token file again, or run the plugin again, unless the token is still good."""
        async with self._lock:
            if self.fresh:
                return
            if self.config.token_file:
                try:
                    self._token = (await asyncio.to_thread(Path(self.config.token_file).read_text)).strip()
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigError(f"token file {self.config.token_file} cannot be read: {error}") from error
                self._valid_until = self.clock() + _FILE_AGE
            elif self.config.exec_plugin:
                await self._run(self.config.exec_plugin)

    async def _run(self, plugin: ExecPlugin) -> None:
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigError(f"exec plugin {plugin.command!r} cannot be run: {error}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), _EXEC_LIMIT)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise ConfigError(f"exec plugin {plugin.command!r} did not answer within {_EXEC_LIMIT:g} s") from error
        if process.returncode:
            raise ConfigError(f"exec plugin {plugin.command!r} failed: {err.decode(errors='replace')[-500:]}")
        try:
            status = msgspec.json.decode(out, type=_Credential).status
        except msgspec.DecodeError as error:
            raise ConfigError(f"exec plugin {plugin.command!r} printed no ExecCredential: {error}") from error
        if status is None:
            raise ConfigError(f"exec plugin {plugin.command!r} printed an ExecCredential without status")
        self._token = status.token
        if status.client_certificate_data:
            self.certificate = (status.client_certificate_data.encode(), status.client_key_data.encode())
        self._valid_until = _expiry(status.expiration_timestamp) - _EARLY if status.expiration_timestamp else float("inf")


def _expiry(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise ConfigError(f"expirationTimestamp {text!r} is not a time") from error
