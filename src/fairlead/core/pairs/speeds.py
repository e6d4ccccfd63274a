"""What is learned of the speeds of kinds of jobs, alone and two on one GPU, and which kinds may share one by it.

A kind is named as for pressures: by namespace, user and what is alike in the names of its pods, else by their images. Jobs report
steps per second. What a pair loses is a part of the speed alone, so a pair teaches nothing before both kinds were measured alone.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlead.core.pairs import choose, estimate

FLOOR = 0.4
"""The least speed, as a part of that alone, at which a job may run beside another: a slowdown of 2.5."""
SETTLED = 90.0
"""Seconds that two jobs run together before a measurement is one of both: rates are means over the last minute."""
AT_START = 600.0
"""Seconds in which a pod that fails beside another shows that the two do not run together: memory is taken at the start."""

_KINDS, _PAIRED = 4096, 64  # of which the speed alone is known, and which take part in estimates
_NEW, _PARTS = 1, 4  # the part of the newest measurement
_PRIOR = 8.0  # pairs that run, beside those that were measured: else the first one that does not would rule out all
_STEP = 0.025  # of relative speeds: less than that is an error of measurement and changes no decision

Names = tuple[str, ...]
Pair = tuple[str, str]


class Speeds:
    """version: raised when what may share a GPU, or what that is worth, may be something else."""

    def __init__(self) -> None:
        self.version = 0
        self._alone: OrderedDict[str, float] = OrderedDict()
        self._beside: OrderedDict[Pair, float] = OrderedDict()  # how fast the first is beside the second
        self._stopped: OrderedDict[Pair, None] = OrderedDict()  # sorted: they do not run together
        self._judged: dict[Pair, int | None] = {}
        self._table: tuple[dict[str, int], list[list[float]], list[list[float]]] | None = None

    def kind(self, names: Names) -> str:
        """The kind of a pod: the first of its names of which something is known."""
        return next((name for name in names if name in self._alone), names[0])

    def alone(self, names: Names, speed: float) -> None:
        """Pods of these names were measured alone on their GPU: steps per second."""
        if speed <= 0:
            return
        for name in names:
            before = self._alone.pop(name, None)
            self._alone[name] = speed if before is None else (before * (_PARTS - _NEW) + speed * _NEW) / _PARTS
        while len(self._alone) > _KINDS:
            self._alone.popitem(last=False)

    def together(self, first: Names, second: Names, speeds: tuple[float, float]) -> bool | None:
        """Two pods were measured on one GPU. Whether both run fast enough there; None: the speed alone of one is not known."""
        kinds = self.kind(first), self.kind(second)
        if not all(kind in self._alone for kind in kinds):
            return None
        found = [min(1.0, speed / self._alone[kind]) for kind, speed in zip(kinds, speeds, strict=True)]
        if kinds[0] == kinds[1]:
            found = [sum(found) / 2] * 2
        changed = False
        for pair, speed in zip((kinds, kinds[::-1]), found, strict=True):
            before = self._beside.pop(pair, None)
            mean = speed if before is None else (before * (_PARTS - _NEW) + speed * _NEW) / _PARTS
            self._beside[pair] = mean
            changed |= before is None or _rounded(before) != _rounded(mean)
        fast = min(self._beside[kinds], self._beside[kinds[::-1]]) >= FLOOR
        if fast and self._stopped.pop(_sorted(kinds), self) is None:
            changed = True
        if changed:
            self._forget()
        return fast

    def stop(self, first: Names, second: Names) -> None:
        """Two pods do not run together: one of them failed soon after they met."""
        pair = _sorted((self.kind(first), self.kind(second)))
        if pair not in self._stopped:
            self._stopped[pair] = None
            if len(self._stopped) > _KINDS:
                self._stopped.popitem(last=False)
            self._forget()

    def loss(self, first: Names, second: Names) -> int | None:
        """Thousandths of a job's speed that two pods lose together on one GPU; None: they may not share one."""
        pair = self.kind(first), self.kind(second)
        if pair not in self._judged:
            if len(self._judged) > _KINDS:
                self._judged.clear()
            self._judged[pair] = self._judge(pair)
        return self._judged[pair]

    def _judge(self, pair: Pair) -> int | None:
        if _sorted(pair) in self._stopped:
            return None
        if self._table is None:
            self._table = self._estimated()
        numbers, speed, worth = self._table
        one, other = (numbers.get(kind, len(numbers)) for kind in pair)
        known = one < len(numbers) or other < len(numbers)  # of two new kinds nothing is estimated: they are tried
        if known and min(speed[one][other], speed[other][one]) < FLOOR:
            return None
        return max(0, round((2.0 - worth[one][other]) * 1000))

    def _estimated(self) -> tuple[dict[str, int], list[list[float]], list[list[float]]]:
        """Of the kinds that were measured in pairs last, and of all others as one more: their numbers, speeds and worths."""
        kinds: dict[str, None] = {}
        for first, second in reversed(self._beside):
            kinds |= dict.fromkeys((first, second))
            if len(kinds) >= _PAIRED:
                break
        numbers = {kind: number for number, kind in enumerate(sorted(kinds)[:_PAIRED])}
        measured = estimate.Measured(len(numbers) + 1)
        for (first, second), speed in sorted(self._beside.items()):
            if first <= second and first in numbers and second in numbers:
                back = self._beside.get((second, first), speed)
                measured.record(numbers[first], numbers[second], (_rounded(speed), _rounded(back)))
        found = estimate.estimate(measured, prior=_PRIOR)
        # Raised by one deviation, so that pairs of which little is known are tried; it is 0 of those that were measured.
        return numbers, (found.speed + found.deviation).tolist(), choose.worths(found).tolist()

    def _forget(self) -> None:
        self.version += 1
        self._judged.clear()
        self._table = None
        while len(self._beside) > _KINDS:
            self._beside.popitem(last=False)


def _sorted(pair: Pair) -> Pair:
    return pair if pair[0] <= pair[1] else (pair[1], pair[0])


def _rounded(speed: float) -> float:
    return round(speed / _STEP) * _STEP
