"""One container as a process group of the agent's user: started, watched, asked to end, ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from fairlead.agent.recipe import Recipe
from fairlead.agent.terminal import Terminal, controlling

_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_libc = ctypes.CDLL(None, use_errno=True)


class Container:
    """A process and what it printed.

    code: its exit code once it has ended, 128 + the signal that ended it. terminal: to which users may attach, made when it
    begins if none is given. log: None: what it prints is not kept.
    """

    def __init__(self, recipe: Recipe, log: Path | None, terminal: Terminal | None = None) -> None:
        self.recipe = recipe
        self.log = log
        self.code: int | None = None
        self.terminal = terminal
        self._process: asyncio.subprocess.Process | None = None
        self._begun = asyncio.Event()  # it has started, or cannot be started
        self._killed = False

    async def run(self) -> int:
        """From its start to its end; the exit code. What cannot be started ends as in a shell: 126 or 127."""
        if self.recipe.tty or self.recipe.stdin:
            terminal = self.terminal = self.terminal or Terminal(self.log, tty=self.recipe.tty)
            try:
                code = await self._live(terminal.child_in, terminal.child_out, terminal.started)
            finally:
                terminal.close()
        else:
            with (self.log or Path(os.devnull)).open("ab") as out:
                code = await self._live(asyncio.subprocess.DEVNULL, out.fileno(), lambda: None)
        self.code = code if code >= 0 else 128 - code
        return self.code

    async def _live(self, stdin: int, out: int, started: Callable[[], None]) -> int:
        recipe = self.recipe
        try:
            recipe.directory.mkdir(parents=True, exist_ok=True)
            self._process = await asyncio.create_subprocess_exec(
                *recipe.command,
                cwd=recipe.directory,
                env=recipe.env,
                stdin=stdin,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=self._limits,
            )
        except OSError as error:
            os.write(out, f"{recipe.command[0]}: {error.strerror}\n".encode())
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        finally:
            started()
            self._begun.set()
        if self._killed:
            self.kill()
        code = await self._process.wait()
        self._signal(signal.SIGKILL)  # whatever it left behind goes with it
        return code

    async def stop(self, grace: float) -> None:
        """SIGTERM to the whole group, SIGKILL when its grace is over."""
        await self._begun.wait()
        if self._process is None or self.code is not None:
            return
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._process.wait()
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """At once, or as soon as it has started."""
        self._killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _limits(self) -> None:
        """In the child, before it becomes the command: it goes with the agent, leaves no core, and keeps to its memory."""
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.recipe.tty:
            controlling()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.recipe.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (self.recipe.memory, self.recipe.memory))
