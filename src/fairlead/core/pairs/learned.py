"""What is learned of speeds, as one scheduler writes it down and the next one reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import msgspec

from fairlead.api.speeds import MOST

_MOST_KINDS, _MOST_PAIRS = 8192, 16384  # more than is ever written
_LONGEST = 65536  # characters of the name of a kind


class LearnedKind(msgspec.Struct, frozen=True, array_like=True):
    """A kind of jobs. alone: steps per second on a GPU of its own, best: the most beside another; None: not known."""

    name: str
    alone: float | None = None
    best: float | None = None


class LearnedSpeeds(msgspec.Struct, frozen=True):
    """Kinds by number, those that were measured alone last at the end; pairs of them, the latest at the end.

    beside: the first of a pair beside the second, in steps per second. stopped: they do not run together.
    """

    kinds: tuple[LearnedKind, ...] = ()
    beside: tuple[tuple[int, int, float], ...] = ()
    stopped: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def problem(self) -> str:
        """What no scheduler would have written; empty: nothing."""
        if len(self.kinds) > _MOST_KINDS or len(self.beside) + len(self.stopped) > _MOST_PAIRS:
            return "it has more kinds or pairs than are kept"
        return next(chain(self._wrong_kinds(), self._wrong_pairs()), "")

    def _wrong_kinds(self) -> Iterator[str]:
        if len({each.name for each in self.kinds}) < len(self.kinds):
            yield "a kind is in it twice"
        for each in self.kinds:
            if not each.name or len(each.name) > _LONGEST:
                yield "a kind has no name, or one that is too long"
            speeds = [speed for speed in (each.alone, each.best) if speed is not None]
            if each.alone == 0 or not all(map(_is_speed, speeds)):
                yield f"{each.name[:60]!r} has a speed that cannot be"

    def _wrong_pairs(self) -> Iterator[str]:
        count = len(self.kinds)
        pairs = [(first, second) for first, second, _ in self.beside]
        if not all(0 <= number < count for pair in (*pairs, *self.stopped) for number in pair):
            yield f"a pair is of none of its {count} kinds"
            return
        both, stopped = set(pairs), {tuple(sorted(pair)) for pair in self.stopped}
        if len(both) < len(pairs) or len(stopped) < len(self.stopped):
            yield "a pair is in it twice"
        if any((second, first) not in both for first, second in both):
            yield "a pair has a speed of only one of its kinds"
        for first, _, speed in self.beside:
            if not _is_speed(speed) or self.kinds[first].best is None:
                yield f"{self.kinds[first].name[:60]!r} has a speed beside another that cannot be"


def _is_speed(speed: float) -> bool:
    return math.isfinite(speed) and 0 <= speed < MOST


NOTHING_LEARNED = LearnedSpeeds()
