"""What a question to the history costs, by jobs that it has: the same number a day, for ever more days."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from fairlead.observability.history import Wanted
from fairlead.observability.store import History
from fairlead.simulation.long_history import DAY, NOW, costs, write

_A_DAY = 100  # jobs
_DAYS = 3  # whose cost is added up
_LISTED = 20


class Questions:
    """One question to a database in a folder of its own."""

    def __init__(self, jobs: int, ask: Callable[[History], object]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fairlead-")
        self._history = History(f"sqlite:///{Path(self._folder.name) / 'history.db'}")
        self._ask = ask
        write(self._history, jobs, jobs / _A_DAY)
        while self._history.add_up(NOW - (_DAYS + 1) * DAY, NOW):
            pass
        self._ask(self._history)  # its statements are made once

    def prepare(self, round_: int) -> None:
        """Nothing."""

    def run(self, round_: int) -> int:
        """It is asked."""
        self._ask(self._history)
        return 1

    def close(self) -> None:
        """The database goes."""
        self._history.close()
        self._folder.cleanup()


def lists(jobs: int) -> Questions:
    """The latest jobs of a queue."""
    return Questions(jobs, lambda history: history.jobs(Wanted(queue="queue-7", limit=_LISTED), NOW))


def ledgers(jobs: int) -> Questions:
    """What the last days cost, by queue."""
    return Questions(jobs, lambda history: costs(history, NOW - _DAYS * DAY))
