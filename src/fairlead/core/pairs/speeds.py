"""What is learned of the speeds of kinds of jobs, alone and two on one GPU, and which kinds may share one by it.

A kind is named as for pressures: by namespace, user and what is alike in the names of its pods, else by their images. Jobs report
steps per second; what counts is the part of the speed alone. On a full cluster hardly any kind runs alone: then the most that it
had beside another counts as that, and what was measured of its other pairs with it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from fairlead.core.pairs import choose, estimate
from fairlead.core.pairs.learned import LearnedKind, LearnedSpeeds

FLOOR = 0.4
"""The least speed, as a part of that alone, at which a job may run beside another: a slowdown of 2.5."""
GAIN = 1.4
"""What two jobs on one GPU must be worth, in jobs that run alone: else one waits for another partner, as the next in line may
be a better one."""
PATIENCE = 3600.0
"""Seconds that a job waits for such a partner; after that, of those that do the oldest, the floor alone decides."""
SETTLED = 90.0
"""Seconds that two jobs run together before a measurement is one of both: rates are means over the last minute."""
LEARNS = 300.0
"""Seconds for which a pod keeps its GPU where its kind was never measured alone, once speeds are reported at all."""
AT_START = 600.0
"""Seconds in which a pod that fails beside another shows that the two do not run together: memory is taken at the start."""

_KINDS, _PAIRED = 4096, 64  # of which the speed alone is known, and which take part in estimates
_NEW, _PARTS = 1, 4  # the part of the newest measurement
_PRIOR = 8.0  # pairs that run, beside those that were measured: else the first one that does not would rule out all
_MOST_WRITTEN = 96 * 1024  # bytes that survive a restart: all annotations of an object together may have 256 KiB
_OF_KIND, _OF_PAIR, _OF_STOPPED = 64, 80, 16  # of these at most, beside names: two numbers of 24 bytes, and of kinds
_STEP = 0.025  # of relative speeds: less than that is an error of measurement and changes no decision

Names = tuple[str, ...]
Pair = tuple[str, str]


class Speeds:
    """version: raised when what may share a GPU, or what that is worth, may be something else.

    changed: whether more is known than was written for the next scheduler.
    """

    def __init__(self) -> None:
        self.version = 0
        self.changed = False
        self._alone: OrderedDict[str, float] = OrderedDict()  # steps per second
        self._beside: OrderedDict[Pair, float] = OrderedDict()  # those of the first beside the second
        self._best: dict[str, float] = {}  # the most of these, by kind
        self._stopped: OrderedDict[Pair, None] = OrderedDict()  # sorted: they do not run together
        self._in_stopped: Counter[str] = Counter()  # in how many of these a kind is
        self._judged: dict[tuple[Pair, bool], int | None] = {}
        self._table: tuple[dict[str, int], list[list[float]], list[list[float]]] | None = None

    def kind(self, names: Names) -> str:
        """The kind of a pod: the first of its names of which something is known."""
        return next((name for name in names if self._is_known(name)), names[0])

    def _is_known(self, name: str) -> bool:
        return name in self._alone or name in self._best or name in self._in_stopped

    def alone(self, names: Names, speed: float) -> bool:
        """Pods of these names were measured alone on their GPU, in steps per second; whether more is known of pairs by it."""
        if speed <= 0:
            return False
        changed = False
        for name in names:
            before = self._alone.pop(name, None)
            self._alone[name] = speed if before is None else _mean(before, speed)
            self.changed |= before is None or _differ(before, self._alone[name])
            changed |= name in self._best and _differ(before or self._best[name], self._alone[name])
        while len(self._alone) > _KINDS:
            self._alone.popitem(last=False)
        if changed:
            self._forget()
        return changed

    def together(self, first: Names, second: Names, speeds: tuple[float, float]) -> tuple[bool, bool]:
        """Two pods were measured on one GPU, in steps per second: whether both are fast enough, and whether more is known now."""
        kinds = self.kind(first), self.kind(second)
        if kinds[0] == kinds[1]:
            speeds = (sum(speeds) / 2,) * 2
        changed = False
        for pair, speed in zip((kinds, kinds[::-1]), speeds, strict=True):
            base, before = self.base(pair[0]), self._beside.pop(pair, None)
            mean = self._beside[pair] = speed if before is None else _mean(before, speed)
            self._best[pair[0]] = max(mean, self._best.get(pair[0], 0.0))
            changed |= before is None or _differ(before, mean) or _differ(base, self.base(pair[0]))
        fast = min(self._part(kinds), self._part(kinds[::-1])) >= FLOOR
        if fast and _sorted(kinds) in self._stopped:
            self._set_stopped(_sorted(kinds), stopped=False)
            changed = True
        if changed:
            self._forget()
        return fast, changed

    def ran_alone(self, names: Names) -> bool:
        """Whether the speed alone is known."""
        return self.kind(names) in self._alone

    def base(self, kind: str) -> float:
        """The speed alone of a kind; where it never ran alone, the most that it had beside another: it is at least that."""
        return self._alone.get(kind, 0.0) or self._best.get(kind, 0.0)

    def _part(self, pair: Pair) -> float:
        """How fast the first of a measured pair is, as a part of its speed alone."""
        base = self.base(pair[0])
        return min(1.0, self._beside[pair] / base) if base else 0.0

    def stop(self, first: Names, second: Names) -> None:
        """Two pods do not run together: one of them failed soon after they met."""
        pair = _sorted((self.kind(first), self.kind(second)))
        if pair not in self._stopped:
            self._set_stopped(pair, stopped=True)
            if len(self._stopped) > _KINDS:
                self._set_stopped(next(iter(self._stopped)), stopped=False)
            self._forget()

    def _set_stopped(self, pair: Pair, *, stopped: bool) -> None:
        if stopped:
            self._stopped[pair] = None
            self._in_stopped.update(pair)
            return
        del self._stopped[pair]
        for kind in pair:
            self._in_stopped[kind] -= 1
            if not self._in_stopped[kind]:
                del self._in_stopped[kind]

    def loss(self, first: Names, second: Names, *, urgent: bool = False) -> int | None:
        """Thousandths of a job's speed that two pods lose together on one GPU; None: they may not share one.

        urgent: one of them has waited so long that it need not gain much.
        """
        pair = self.kind(first), self.kind(second)
        if (pair, urgent) not in self._judged:
            if len(self._judged) > _KINDS:
                self._judged.clear()
            self._judged[pair, urgent] = self._judge(pair, urgent=urgent)
        return self._judged[pair, urgent]

    def _judge(self, pair: Pair, *, urgent: bool) -> int | None:
        if _sorted(pair) in self._stopped:
            return None
        if self._table is None:
            self._table = self._estimated()
        numbers, speed, worth = self._table
        one, other = (numbers.get(kind, len(numbers)) for kind in pair)
        # Of two new kinds nothing is estimated: they are tried.
        known = one < len(numbers) or other < len(numbers)
        if known and min(speed[one][other], speed[other][one]) < FLOOR:
            return None
        if known and not urgent and worth[one][other] < GAIN:
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
        for first, second in sorted(self._beside):
            if first <= second and first in numbers and second in numbers and (second, first) in self._beside:
                parts = self._part((first, second)), self._part((second, first))
                measured.record(numbers[first], numbers[second], (_rounded(parts[0]), _rounded(parts[1])))
        found = estimate.estimate(measured, prior=_PRIOR)
        # Raised by one deviation, so that pairs of which little is known are tried; it is 0 of those that were measured.
        return numbers, (found.speed + found.deviation).tolist(), choose.worths(found).tolist()

    # -- over a restart ------------------------------------------------------------------------

    def written(self) -> LearnedSpeeds:
        """What is to survive a restart: of all that is known the latest, 96 KiB at most.

        A quarter of it at most are pairs that do not run; kinds without a pair follow if something is left.
        """
        names: dict[str, None] = {}
        left = _MOST_WRITTEN // 4
        stopped, beside = set[Pair](), set[Pair]()
        for pair in reversed(self._stopped):
            if (size := _OF_STOPPED + _size(pair, names)) <= left:
                left -= size
                stopped.add(pair)
                names |= dict.fromkeys(pair)
        left += _MOST_WRITTEN - _MOST_WRITTEN // 4
        for pair in map(_sorted, reversed(self._beside)):
            if pair in beside or pair[::-1] not in self._beside or pair not in self._beside:
                continue
            if (size := _OF_PAIR + _size(pair, names)) <= left:
                left -= size
                beside.add(pair)
                names |= dict.fromkeys(pair)
        for name in reversed(self._alone):
            if (size := _size((name,), names)) <= left:
                left -= size
                names[name] = None
        ordered = [*(name for name in self._alone if name in names), *sorted(name for name in names if name not in self._alone)]
        numbers = {name: number for number, name in enumerate(ordered)}
        pairs = ((pair, speed) for pair, speed in self._beside.items() if _sorted(pair) in beside)
        return LearnedSpeeds(
            tuple(LearnedKind(name, self._alone.get(name), self._best.get(name)) for name in ordered),
            tuple((numbers[first], numbers[second], speed) for (first, second), speed in pairs),
            tuple((numbers[first], numbers[second]) for first, second in self._stopped if (first, second) in stopped),
        )

    def restore(self, learned: LearnedSpeeds) -> None:
        """What a scheduler before this one wrote; where this one knows something itself, nothing of it."""
        if self._alone or self._beside or self._stopped:
            return
        names = [each.name for each in learned.kinds]
        self._alone.update((each.name, each.alone) for each in learned.kinds if each.alone is not None)
        self._best.update((each.name, each.best) for each in learned.kinds if each.best is not None)
        self._beside.update(((names[first], names[second]), speed) for first, second, speed in learned.beside)
        for first, second in learned.stopped:
            self._set_stopped(_sorted((names[first], names[second])), stopped=True)
        self._forget()
        self.changed = False

    def _forget(self) -> None:
        self.version += 1
        self.changed = True
        self._judged.clear()
        self._table = None
        if len(self._beside) > _KINDS:
            while len(self._beside) > _KINDS // 2:
                self._beside.popitem(last=False)
            self._best.clear()
            for (kind, _), speed in self._beside.items():
                self._best[kind] = max(speed, self._best.get(kind, 0.0))


def _sorted(pair: Pair) -> Pair:
    return pair if pair[0] <= pair[1] else (pair[1], pair[0])


def _size(names: Iterable[str], written: dict[str, None]) -> int:
    """The most bytes that kinds take which are not written yet."""
    return sum(_OF_KIND + len(msgspec.json.encode(name)) for name in set(names) if name not in written)


def _mean(before: float, speed: float) -> float:
    """Of what was known and what was measured."""
    return (before * (_PARTS - _NEW) + speed * _NEW) / _PARTS


def _differ(before: float, after: float) -> bool:
    return abs(before - after) > _STEP * max(before, after)


def _rounded(speed: float) -> float:
    return round(speed / _STEP) * _STEP
