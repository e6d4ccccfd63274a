"""A virtual clock that is charged with the CPU time of those under test: what they take, the simulated world waits for.

Whatever a process of ours does on a `ChargedLoop`, and what follows from it, runs in a context that names it; after each step the
loop's time moves on by the CPU time of that step. The API server and the kubelets, which are simulated, cost nothing. Processes
that would run beside each other are charged one after the other, so that a result is never better than the real one.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from fairlead.cluster.simulated.clock import VirtualLoop

_PAYER: ContextVar[str] = ContextVar("payer", default="")
Given = ParamSpec("Given")
Result = TypeVar("Result")


class ChargedLoop(VirtualLoop):
    """charged: who -> seconds of CPU time."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: defaultdict[str, float] = defaultdict(float)
        self._free = 0.0

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As on any loop."""
        return super().call_soon(self._run, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As on any loop."""
        return super().call_at(when, self._run, callback, *args, context=context)

    def _run(self, callback: Callable[..., object], *args: Any) -> None:
        payer = _PAYER.get()
        if not payer:
            callback(*args)
            return
        begun, free = time.thread_time(), self._free
        try:
            callback(*args)
        finally:
            spent = max(0.0, time.thread_time() - begun - (self._free - free))
            self.charged[payer] += spent
            self.spend(spent)

    def free(self, call: Callable[Given, Result]) -> Callable[Given, Result]:
        """The same, charged to no process, with all that follows from it."""

        def wrapped(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            begun = time.thread_time()
            try:
                return Context().run(call, *args, **kwargs)
            finally:
                self._free += time.thread_time() - begun

        return wrapped


def at_the_expense_of(payer: str, begin: Callable[[], None]) -> None:
    """Begin something that is charged, with all that follows from it."""
    context = copy_context()
    context.run(_PAYER.set, payer)
    context.run(begin)
