"""A container's log, read part by part while the container runs.

A kubelet begins a new file when one is full (10 MiB by default), and answers with the present one: what has been read is known
by the time of its last line, not by its length. Servers that give no times have no such files (`fairlead local`): there its
length counts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})(Z|[+-]\d\d:\d\d)(?: |$)")
"""The time before each line, as kubelets write it."""


class _Time(NamedTuple):
    seconds: int
    nanoseconds: int


class LogParts:
    """Of one container. read: whether anything was.

    `query` asks for what may be new; `new` is what is new of the answer.
    """

    def __init__(self, tail: int | None = None) -> None:
        self._tail = tail
        self._last = ""  # line, with its time
        self._length = 0  # of what was read, where lines have no times
        self.read = False

    def query(self) -> dict[str, str]:
        """What to ask for."""
        asked = {"timestamps": "true"}
        if self._last:
            since = datetime.fromtimestamp(_time_of(self._last).seconds, UTC)
            asked["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        return asked

    def new(self, text: str, *, ended: bool) -> list[str]:
        """The lines that were not read yet. ended: nothing is added any more; else the last line may be unfinished."""
        if not text:
            return []
        timed = self._last or _TIMED.match(text)
        found = self._by_time(text, ended=ended) if timed else self._by_length(text, ended=ended)
        if not self.read and self._tail is not None:
            found = found[-self._tail :] if self._tail else []
        self.read = True
        return found

    def _by_time(self, text: str, *, ended: bool) -> list[str]:
        lines = (text if ended else text[: text.rfind("\n") + 1]).splitlines()
        if self._last:
            at = next((place for place in reversed(range(len(lines))) if lines[place] == self._last), None)
            after = lines[at + 1 :] if at is not None else [each for each in lines if _is_since(each, self._last)]
        else:
            after = lines
        timed = [each for each in after if _TIMED.match(each)]
        self._last = timed[-1] if timed else self._last
        return [_TIMED.sub("", each, count=1) for each in after]

    def _by_length(self, text: str, *, ended: bool) -> list[str]:
        found = text[self._length :] if ended else text[self._length : text.rfind("\n") + 1]
        self._length += len(found)
        return found.splitlines()


def _time_of(line: str) -> _Time:
    found = _TIMED.match(line)
    if found is None:
        return _Time(0, 0)
    zone = "+00:00" if found[3] == "Z" else found[3]
    return _Time(int(datetime.fromisoformat(found[1] + zone).timestamp()), int(found[2]))


def _is_since(line: str, last: str) -> bool:
    """Whether a line is not older than another; one without a time belongs to the line before it, which is not known."""
    return _time_of(line) >= _time_of(last)
