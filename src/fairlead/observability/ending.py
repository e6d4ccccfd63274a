"""When a process ends: on SIGINT, SIGTERM and SIGHUP, and when the terminal or the reader of its output is gone.

A terminal may close without a signal to us: the kernel sends SIGHUP to the leader of the session alone, which may be `make`. It
then no longer counts as a terminal, so a live display writes nothing instead of failing. Hence stdout is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable
from types import FrameType

_GONE = select.POLLHUP | select.POLLERR


class _Process:
    """received: the signal that ends this process; 0: none so far. watched: whether its stdout is."""

    received = 0
    watched = False


def on_signals(stop: Callable[[], object]) -> None:
    """Have the running loop call `stop` on SIGINT, SIGTERM and SIGHUP. A SIGHUP that was ignored (`nohup`) stays ignored."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)


def as_interrupts() -> None:
    """From now on SIGTERM and SIGHUP end a command as Ctrl-C does, so that it cleans up; what was ignored stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def as_worker() -> None:
    """This process is a worker of another process. It ends silently on that process's signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes of a terminal; the other one acts on it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _Process.received and number == signal.SIGHUP:
        return  # a terminal that closes is noticed more than once: the end has begun
    _Process.received = number
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)
    else:  # SIGINT is ignored, as in the background of a script
        raise KeyboardInterrupt


def exit_code(code: int) -> int:
    """What a command that ended with `code` returns: 128 and the number of the signal that made it fail, if one did."""
    return 128 + _Process.received if code and _Process.received else code


def watch_stdout(*, pipes: bool = False) -> None:
    """Send this process a SIGHUP when the terminal at stdout is gone. pipes: also when a pipe there has no reader any more."""
    if _Process.watched:
        return
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return  # there is no stdout
    if os.isatty(descriptor) or (pipes and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))):
        _Process.watched = True
        threading.Thread(target=_watch, args=(descriptor,), name="stdout", daemon=True).start()


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # what went wrong is reported unasked
    if not any(events & _GONE for _, events in poll.poll()):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for each in (1, 2):
        with contextlib.suppress(OSError):
            if _lost(each):
                os.dup2(nowhere, each)  # so that cleaning up does not fail for what it prints
    os.close(nowhere)
    os.kill(os.getpid(), signal.SIGHUP)


def _lost(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & _GONE for _, events in poll.poll(0))
