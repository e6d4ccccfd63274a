"""The ledger: what GPUs were held, by whom, what lay idle, and what that cost.

Nodes have *stays*: from when to when a node was there, with the devices and the price that it had; a change of either begins a
new one. What a job costs is, of each of its runs and each stay of the run's node, the share of the node that it held, times the
price, times how long. On nodes with GPUs the share is of GPUs, on others of CPUs. What was idle is integrated by itself over what
was free, moment by moment, and is not the rest: so that jobs and idle together make the nodes' cost is a check.

All sums are of whole numbers: milliseconds, thousandths of a device, millionths of the currency's unit per hour. Nothing is
rounded before the end. So the sums of a day that is over may be kept (`DayTotal`) and added to those of the hours around it: what
a window costs is then a matter of its days and of the runs at its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Generic, TypeVar

import msgspec

from fairlead.observability.history import Run, Stay

DAY = 86_400
"""Seconds of a day; days are numbered from 1970-01-01 UTC."""
_HOUR = 3_600_000  # milliseconds
_MILLI = 1000
_DAY_MS = DAY * _MILLI
_Window = tuple[int, int]
"""From when to when, milliseconds."""
_ALWAYS: _Window = (0, 1 << 62)
Key = TypeVar("Key")


class Group(msgspec.Struct, frozen=True, array_like=True):
    """What runs have in common that are added up together."""

    namespace: str
    queue: str
    service_class: str
    user: str


Holder = Run | Group
"""By what runs may be put down where days are added up, which keep no more of them."""


class Amount(msgspec.Struct, array_like=True):
    """An exact sum: thousandths x milliseconds, and millionths by currency as (denominator, numerator); there are few such."""

    gpu: int
    cpu: int
    unpriced: int
    cost: list[tuple[str, int, str]]


class Use(msgspec.Struct, array_like=True):
    """Of runs that began on one day and ended on the total's: GPU-seconds used, and held while that was measured."""

    began: int
    group: Group
    used: float
    measured: float


class DayTotal(msgspec.Struct, array_like=True):
    """What came of a day that is over: what was held then, and idle; and how runs were used that ended on it."""

    day: int
    held: list[tuple[Group, Amount]]
    idle: Amount
    used: list[Use]


class Line(msgspec.Struct, kw_only=True):
    """What one holder held, or what was idle. cost: by currency, in its unit; unpriced_gpu_hours: those of unknown price.

    used_gpu_hours: of the `measured_gpu_hours`, those held while their use was measured; of a run that is partly in the
    window, as if it had used them evenly.
    """

    name: str
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    cost: dict[str, float] = {}
    unpriced_gpu_hours: float = 0.0
    used_gpu_hours: float = 0.0
    measured_gpu_hours: float = 0.0


class Ledger(msgspec.Struct, kw_only=True):
    """A window of time, seconds since 1970. lines: highest cost first. idle: capacity that no job held; nodes: all capacity.

    balance: by currency, jobs plus idle minus nodes; not zero where jobs held more than the capacity.
    """

    since: float
    until: float
    lines: list[Line]
    idle: Line
    nodes: Line
    balance: dict[str, float]


class _Sum:
    """Exact sums of one line."""

    def __init__(self) -> None:
        self.gpu = self.cpu = self.unpriced = 0  # thousandths x milliseconds
        self._cost: dict[tuple[str, int], int] = {}  # currency and denominator -> numerator, millionths
        self.used = self.measured = 0.0  # GPU-seconds

    def add(self, stay: Stay, gpu_milli: int, cpu_milli: int, lasted: int) -> None:
        self.gpu += gpu_milli * lasted
        self.cpu += cpu_milli * lasted
        if stay.price is None:
            self.unpriced += gpu_milli * lasted
            return
        whole, held = (_milli(stay.gpus), gpu_milli) if stay.gpus else (_milli(stay.cpus), cpu_milli)
        if whole:
            self._pay((stay.currency, whole * _HOUR), stay.price * held * lasted)

    def add_amount(self, amount: Amount) -> None:
        self.gpu += amount.gpu
        self.cpu += amount.cpu
        self.unpriced += amount.unpriced
        for currency, denominator, numerator in amount.cost:
            self._pay((currency, denominator), int(numerator))

    def _pay(self, of: tuple[str, int], numerator: int) -> None:
        self._cost[of] = self._cost.get(of, 0) + numerator

    def amount(self) -> Amount:
        cost = [(*of, str(numerator)) for of, numerator in sorted(self._cost.items())]
        return Amount(self.gpu, self.cpu, self.unpriced, cost)

    @property
    def cost(self) -> dict[str, Fraction]:
        """By currency, millionths."""
        found: dict[str, Fraction] = {}
        for (currency, denominator), numerator in sorted(self._cost.items()):
            found[currency] = found.get(currency, Fraction(0)) + Fraction(numerator, denominator)
        return found

    def line(self, name: str) -> Line:
        return Line(
            name=name,
            gpu_hours=self.gpu / (_MILLI * _HOUR),
            cpu_hours=self.cpu / (_MILLI * _HOUR),
            cost={currency: float(cost / 1_000_000) for currency, cost in self.cost.items()},
            unpriced_gpu_hours=self.unpriced / (_MILLI * _HOUR),
            used_gpu_hours=self.used / 3600,
            measured_gpu_hours=self.measured / 3600,
        )


class _Sums(Generic[Key]):
    """Lines by what runs are put down by, and what was idle."""

    def __init__(self, key: Callable[[Run], Key], now: float) -> None:
        self.lines: dict[Key, _Sum] = {}
        self.idle = _Sum()
        self._key = key
        self._now = now

    def line(self, key: Key) -> _Sum:
        found = self.lines.get(key)
        if found is None:
            found = self.lines[key] = _Sum()
        return found

    def hold(self, stays: Iterable[Stay], on: Mapping[str, Sequence[Run]], window: _Window) -> None:
        """What was held in a window, and what was not. on: runs by node."""
        for stay in stays:
            begin, end = _within(stay, window, self._now)
            if begin >= end:
                continue
            changes: list[tuple[int, int, int]] = []  # when, GPUs and CPUs that are held more
            for run in on.get(stay.node, ()):
                first, last = _within(run, (begin, end), self._now)
                if first < last:
                    gpus, cpus = _milli(run.gpus), _milli(run.cpus)
                    self.line(self._key(run)).add(stay, gpus, cpus, last - first)
                    changes += [(first, gpus, cpus), (last, -gpus, -cpus)]
            _integrate_idle(self.idle, stay, begin, end, changes)

    def use(self, stays: Iterable[Stay], on: Mapping[str, Sequence[Run]], window: _Window) -> None:
        """How much of it was used, where that was measured."""
        for stay in stays:
            measured = [run for run in on.get(stay.node, ()) if run.measured]
            if not measured:
                continue
            within = _within(stay, window, self._now)
            for run in measured:
                first, last = _within(run, within, self._now)
                if first < last:
                    whole = _within(run, _ALWAYS, self._now)
                    part = (last - first) / (whole[1] - whole[0])
                    line = self.line(self._key(run))
                    line.used += run.used * part
                    line.measured += run.measured * part


def ledger(
    stays: Sequence[Stay],
    runs: Iterable[Run],
    since: float,
    until: float,
    key: Callable[[Run], str],
    now: float,
) -> Ledger:
    """The window's ledger.

    stays, runs: all that touch it. key: under which name a run is put down. now: until when what goes on counts.
    """
    sums = _Sums(key, now)
    window, on = _window(since, until, now), _by_node(runs)
    sums.hold(stays, on, window)
    sums.use(stays, on, window)
    return _closed(sums, stays, since, min(until, now), now)


def ledger_with_days(
    stays: Sequence[Stay],
    runs: Iterable[Run],
    days: Sequence[DayTotal],
    since: float,
    until: float,
    key: Callable[[Holder], str],
    now: float,
) -> Ledger:
    """The same. days: one after the other, within the window; runs: all that touch what of it is not within them."""
    if not days:
        return ledger(stays, runs, since, until, key, now)
    sums = _Sums(key, now)
    window, known = _window(since, until, now), (days[0].day * _DAY_MS, (days[-1].day + 1) * _DAY_MS)
    on = _by_node(runs)
    for part in ((window[0], known[0]), (known[1], window[1])):
        sums.hold(stays, on, part)
    for total in days:
        sums.idle.add_amount(total.idle)
        for group, amount in total.held:
            sums.line(key(group)).add_amount(amount)
        for each in total.used:
            if each.began >= days[0].day:
                line = sums.line(key(each.group))
                line.used += each.used
                line.measured += each.measured
    outside = {node: [run for run in theirs if not _is_within(run, known)] for node, theirs in on.items()}
    sums.use(stays, outside, window)
    return _closed(sums, stays, since, min(until, now), now)


def day_total(day: int, stays: Sequence[Stay], runs: Iterable[Run]) -> DayTotal:
    """The total of a day that is over. runs: all that touch it; stays: all that touch it, or one of its runs."""
    begin, end = day * _DAY_MS, (day + 1) * _DAY_MS
    on = _by_node(runs)
    sums = _Sums(_group, end / _MILLI)
    sums.hold(stays, on, (begin, end))
    uses = _Sums(lambda run: (_first_day(run), _group(run)), end / _MILLI)
    ended = {node: [run for run in theirs if _last_day(run) == day] for node, theirs in on.items()}
    uses.use(stays, ended, _ALWAYS)
    return DayTotal(
        day,
        [(group, each.amount()) for group, each in sorted(sums.lines.items(), key=_by_group)],
        sums.idle.amount(),
        [Use(began, group, each.used, each.measured) for (began, group), each in uses.lines.items()],
    )


def _closed(sums: _Sums[str], stays: Iterable[Stay], since: float, until: float, now: float) -> Ledger:
    window, nodes = _window(since, until, now), _Sum()
    for stay in stays:
        begin, end = _within(stay, window, now)
        if begin < end:
            nodes.add(stay, _milli(stay.gpus), _milli(stay.cpus), end - begin)
    for each in sums.lines.values():
        nodes.used += each.used
        nodes.measured += each.measured
    found = [each.line(name) for name, each in sums.lines.items()]
    found.sort(key=lambda line: (-sum(line.cost.values()), -line.gpu_hours, line.name))
    return Ledger(
        since=since,
        until=until,
        lines=found,
        idle=sums.idle.line("idle"),
        nodes=nodes.line("nodes"),
        balance=_balance(sums.lines.values(), sums.idle, nodes),
    )


def _integrate_idle(idle: _Sum, stay: Stay, begin: int, end: int, changes: list[tuple[int, int, int]]) -> None:
    """From one change to the next: what is not held then. More than all cannot be free, and less than nothing neither."""
    gpus, cpus = _milli(stay.gpus), _milli(stay.cpus)
    at = begin
    for moment, together in groupby(sorted(changes), key=lambda change: change[0]):
        idle.add(stay, max(0, gpus), max(0, cpus), moment - at)
        for _, more_gpus, more_cpus in together:
            gpus, cpus = gpus - more_gpus, cpus - more_cpus
        at = moment
    idle.add(stay, max(0, gpus), max(0, cpus), end - at)


def _balance(lines: Iterable[_Sum], idle: _Sum, nodes: _Sum) -> dict[str, float]:
    left: dict[str, Fraction] = {currency: -cost for currency, cost in nodes.cost.items()}
    for each in (*lines, idle):
        for currency, cost in each.cost.items():
            left[currency] = left.get(currency, Fraction(0)) + cost
    return {currency: float(cost / 1_000_000) for currency, cost in sorted(left.items())}


def _window(since: float, until: float, now: float) -> _Window:
    return _ms(since), max(_ms(since), _ms(min(until, now)))


def _within(each: Stay | Run, window: _Window, now: float) -> _Window:
    return max(_ms(each.started_at), window[0]), min(_ms(now if each.ended_at is None else each.ended_at), window[1])


def _is_within(run: Run, window: _Window) -> bool:
    return run.ended_at is not None and _ms(run.started_at) >= window[0] and _ms(run.ended_at) <= window[1]


def _by_node(runs: Iterable[Run]) -> dict[str, list[Run]]:
    on: dict[str, list[Run]] = {}
    for run in runs:
        on.setdefault(run.node, []).append(run)
    return on


def _group(run: Run) -> Group:
    return Group(run.namespace, run.queue, run.service_class, run.user)


def _by_group(line: tuple[Group, _Sum]) -> tuple[str, ...]:
    return msgspec.structs.astuple(line[0])


def _first_day(run: Run) -> int:
    return _ms(run.started_at) // _DAY_MS


def _last_day(run: Run) -> int | None:
    """On which day it ended; what ends at midnight ends on the day before."""
    return (_ms(run.ended_at) - 1) // _DAY_MS if run.ended_at is not None else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _milli(amount: float) -> int:
    return round(amount * _MILLI)
