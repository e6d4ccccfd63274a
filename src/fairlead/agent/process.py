"""One container as a process group of the agent's user: started, watched, asked to end, ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from fairlead.agent.recipe import Recipe

_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_libc = ctypes.CDLL(None, use_errno=True)


class Container:
    """A process and what it printed. code: its exit code once it has ended, 128 + the signal that ended it."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        self.recipe = recipe
        self.log = log
        self.code: int | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """From its start to its end; the exit code. What cannot be started ends as in a shell: 126 or 127."""
        recipe = self.recipe
        with self.log.open("ab") as out:
            try:
                recipe.directory.mkdir(parents=True, exist_ok=True)
                self._process = await asyncio.create_subprocess_exec(
                    *recipe.command,
                    cwd=recipe.directory,
                    env=recipe.env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    preexec_fn=self._limits,
                )
            except OSError as error:
                out.write(f"{recipe.command[0]}: {error.strerror}\n".encode())
                self.code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
                return self.code
            code = await self._process.wait()
        self._signal(signal.SIGKILL)  # whatever it left behind goes with it
        self.code = code if code >= 0 else 128 - code
        return self.code

    async def stop(self, grace: float) -> None:
        """SIGTERM to the whole group, SIGKILL when its grace is over."""
        if self._process is None or self.code is not None:
            return
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._process.wait()
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """At once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _limits(self) -> None:
        """In the child, before it becomes the command: it goes with the agent, leaves no core, and keeps to its memory."""
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.recipe.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (self.recipe.memory, self.recipe.memory))
