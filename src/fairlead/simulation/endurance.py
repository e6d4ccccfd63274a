"""How much memory `fairlead demo` takes as its days go by: the command itself, on a terminal, for some minutes."""

from __future__ import annotations

import os
import pty
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

_SPEED = 600.0  # simulated seconds per second
_DAY = 86_400.0 / _SPEED  # real seconds of a simulated day
_SAMPLES = 12  # of a simulated day
_MIB = 1024  # KiB


class EnduranceError(RuntimeError):
    """The demo ended by itself."""


class Endurance(msgspec.Struct):
    """rss_mb: the resident memory, twelve times a simulated day. growth_percent: from the most of the first simulated day to the
    most of the last that is whole; the days are alike.
    """

    minutes: float
    nodes: int
    simulated_days: float
    first_day_mb: float
    last_day_mb: float
    growth_percent: float
    cpu_percent: float
    rss_mb: list[float]


def run(minutes: float, nodes: int, progress: Callable[[int, int], None] | None = None) -> Endurance:
    """Watch a demo of so many nodes. minutes: real ones, of ten simulated hours each. Raises `EnduranceError`."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        command = ["-m", "fairlead", "demo", "--nodes", str(nodes), "--kubeconfig-out", str(Path(folder) / "kubeconfig")]
        pid, terminal = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.environ |= {"TERM": "xterm-256color", "LINES": "40", "COLUMNS": "120"}
            os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 - ourselves
        threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
        try:
            samples, busy = _watch(pid, minutes * 60.0, progress)
        finally:
            os.kill(pid, signal.SIGINT)
            os.waitpid(pid, 0)
            os.close(terminal)
    days = [max(samples[at : at + _SAMPLES]) for at in range(0, len(samples) - _SAMPLES + 1, _SAMPLES)]
    return Endurance(
        minutes=minutes,
        nodes=nodes,
        simulated_days=round(minutes * 60.0 / _DAY, 2),
        first_day_mb=days[0],
        last_day_mb=days[-1],
        growth_percent=round(100.0 * (days[-1] / days[0] - 1.0), 1),
        cpu_percent=round(100.0 * busy / (minutes * 60.0), 1),
        rss_mb=samples,
    )


def _watch(pid: int, seconds: float, progress: Callable[[int, int], None] | None) -> tuple[list[float], float]:
    """Its memory in MB, sample by sample, and its CPU seconds."""
    begun = time.monotonic()
    samples: list[float] = []
    wanted = int(seconds / _DAY * _SAMPLES)
    while len(samples) < wanted:
        time.sleep(max(0.0, begun + (len(samples) + 1) * _DAY / _SAMPLES - time.monotonic()))
        try:
            fields = Path(f"/proc/{pid}/status").read_text().split()
            samples.append(round(int(fields[fields.index("VmRSS:") + 1]) / _MIB, 1))
        except (OSError, ValueError) as error:
            raise EnduranceError(f"the demo ended by itself after {time.monotonic() - begun:.0f} s") from error
        if progress is not None:
            progress(len(samples), wanted)
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return samples, sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _drain(terminal: int) -> None:
    while True:
        try:
            if not os.read(terminal, 65_536):
                return
        except OSError:
            return
