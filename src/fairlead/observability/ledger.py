"""The ledger: what GPUs were held, by whom, what lay idle, and what that cost.

Nodes have *stays*: from when to when a node was there, with the devices and the price that it had; a change of either begins a
new one. What a job costs is, of each of its runs and each stay of the run's node, the share of the node that it held, times the
price, times how long. On nodes with GPUs the share is of GPUs, on others of CPUs. What was idle is integrated by itself over what
was free, moment by moment, and is not the rest: so that jobs and idle together make the nodes' cost is a check.

All sums are of whole numbers: milliseconds, thousandths of a device, millionths of the currency's unit per hour. Nothing is
rounded before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import groupby

import msgspec

from fairlead.observability.history import Run, Stay

_HOUR = 3_600_000  # milliseconds
_MILLI = 1000


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
        self.cost: dict[str, Fraction] = {}  # millionths
        self.used = self.measured = 0.0  # GPU-seconds

    def add(self, stay: Stay, gpu_milli: int, cpu_milli: int, lasted: int) -> None:
        self.gpu += gpu_milli * lasted
        self.cpu += cpu_milli * lasted
        if stay.price is None:
            self.unpriced += gpu_milli * lasted
            return
        whole, held = (_milli(stay.gpus), gpu_milli) if stay.gpus else (_milli(stay.cpus), cpu_milli)
        if whole:
            # Of one stay all have the same denominator.
            self.cost[stay.currency] = self.cost.get(stay.currency, Fraction(0)) + Fraction(
                stay.price * held * lasted, whole * _HOUR
            )

    def line(self, name: str) -> Line:
        return Line(
            name=name,
            gpu_hours=self.gpu / (_MILLI * _HOUR),
            cpu_hours=self.cpu / (_MILLI * _HOUR),
            cost={currency: float(cost / 1_000_000) for currency, cost in sorted(self.cost.items())},
            unpriced_gpu_hours=self.unpriced / (_MILLI * _HOUR),
            used_gpu_hours=self.used / 3600,
            measured_gpu_hours=self.measured / 3600,
        )


def ledger(
    stays: Iterable[Stay], runs: Iterable[Run], since: float, until: float, key: Callable[[Run], str], now: float
) -> Ledger:
    """The window's ledger.

    stays, runs: all that touch it. key: under which name a run is put down. now: until when what goes on counts.
    """
    until = min(until, now)
    window = (_ms(since), max(_ms(since), _ms(until)))
    on: dict[str, list[Run]] = {}
    for run in runs:
        on.setdefault(run.node, []).append(run)
    lines: dict[str, _Sum] = {}
    idle, nodes = _Sum(), _Sum()
    for stay in stays:
        begin, end = _within(stay.started_at, stay.ended_at, window, now)
        if begin >= end:
            continue
        nodes.add(stay, _milli(stay.gpus), _milli(stay.cpus), end - begin)
        changes: list[tuple[int, int, int]] = []  # when, GPUs and CPUs that are held more
        for run in on.get(stay.node, ()):
            first, last = _within(run.started_at, run.ended_at, (begin, end), now)
            if first >= last:
                continue
            gpus, cpus = _milli(run.gpus), _milli(run.cpus)
            line = lines.setdefault(key(run), _Sum())
            line.add(stay, gpus, cpus, last - first)
            if run.measured:
                part = (last - first) / (_ms(now if run.ended_at is None else run.ended_at) - _ms(run.started_at))
                for each in (line, nodes):
                    each.used += run.used * part
                    each.measured += run.measured * part
            changes += [(first, gpus, cpus), (last, -gpus, -cpus)]
        _integrate_idle(idle, stay, begin, end, changes)
    found = [each.line(name) for name, each in lines.items()]
    found.sort(key=lambda line: (-sum(line.cost.values()), -line.gpu_hours, line.name))
    return Ledger(
        since=since,
        until=until,
        lines=found,
        idle=idle.line("idle"),
        nodes=nodes.line("nodes"),
        balance=_balance(lines.values(), idle, nodes),
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


def _within(started: float, ended: float | None, window: tuple[int, int], now: float) -> tuple[int, int]:
    return max(_ms(started), window[0]), min(_ms(now if ended is None else ended), window[1])


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _milli(amount: float) -> int:
    return round(amount * _MILLI)
