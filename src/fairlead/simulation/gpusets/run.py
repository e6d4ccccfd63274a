"""Jobs that arrive on one machine and leave it: what each rule chooses of the same free GPUs, and where its own choices lead it.

An event is an arrival of a job, of 1 GPU to half of them, or the end of a random one; a job that finds too few free GPUs is lost.
All rules are asked at every arrival with the same free GPUs. One of two decides what is then taken, by seed in turn: ours, so
that free sets are those that it leaves, and a random one, so that they are worse than any rule would leave them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from time import thread_time

import msgspec

from fairlead.core.links.choice import Choices, beside, cards_of
from fairlead.core.links.matrix import Links
from fairlead.simulation.gpusets.machines import Machine, machines
from fairlead.simulation.gpusets.rules import RULES, Exhaustive, Rule, first_fit, rules_of

_ARRIVALS = 0.6  # of all events; more than ends, so that machines are mostly full


class OnMachine(msgspec.Struct):
    """What was measured on one machine.

    choices: of at least two GPUs of more that were free. over_exhaustive: by rule its bandwidth over that of the best set for
    the job, mean; worst: the smallest such value of ours. own_stream: the same, over the best set of the empty machine, each
    rule living with its own choices. choice_ms, choice_ms_p99, choice_ms_most: CPU time of a choice of ours that was not
    remembered. tables_ms: of the tables of the machine. same_root: of the network cards that could be given under a root of a
    GPU of the job, the part that was.
    """

    name: str
    gpus: int
    choices: int = 0
    over_exhaustive: dict[str, float] = {}
    worst: float = 1.0
    own_stream: dict[str, float] = {}
    choice_ms: float = 0.0
    choice_ms_p99: float = 0.0
    choice_ms_most: float = 0.0
    tables_ms: float = 0.0
    same_root: dict[str, float] = {}


class Result(msgspec.Struct):
    """mean: of ours over exhaustive, over machines. lowest: of the machine where it is least.

    below_best_effort: machines where ours has less bandwidth than go-gpuallocator's rule, on the same free sets;
    own_stream_below: the same where each lives with its own choices. choice_ms: mean of the machine where it is largest.
    same_root: the least of any machine.
    """

    mean: float
    lowest: float
    below_best_effort: list[str]
    own_stream_below: list[str]
    choice_ms: float
    choice_ms_p99: float
    same_root: float
    machines: list[OnMachine]


def run(seeds: Sequence[int], events: int, report: Callable[[int, int], None] | None = None) -> Result:
    """All machines, with these seeds and so many events each."""
    found, all_machines = [], machines()
    for number, machine in enumerate(all_machines):
        found.append(measured(machine, seeds, events))
        if report is not None:
            report(number + 1, len(all_machines))
    ratios = [each.over_exhaustive["ours"] for each in found]
    return Result(
        mean=sum(ratios) / len(ratios),
        lowest=min(ratios),
        below_best_effort=[e.name for e in found if e.over_exhaustive["ours"] < e.over_exhaustive["best_effort"]],
        own_stream_below=[e.name for e in found if e.own_stream["ours"] < e.own_stream["best_effort"]],
        choice_ms=max(each.choice_ms for each in found),
        choice_ms_p99=max(each.choice_ms_p99 for each in found),
        same_root=min((each.same_root["ours"] for each in found if each.same_root), default=1.0),
        machines=found,
    )


def measured(machine: Machine, seeds: Sequence[int], events: int) -> OnMachine:
    """One machine."""
    links = machine.links
    began = thread_time()
    fresh = Choices(links)
    found = OnMachine(machine.name, links.gpus, tables_ms=1000 * (thread_time() - began))
    judge = Exhaustive(links)
    ratios: dict[str, list[float]] = {name: [] for name in RULES}
    own: dict[str, list[float]] = {name: [] for name in RULES}
    times: list[float] = []
    for seed in seeds:
        rules = rules_of(machine, seed)
        driver = rules["ours" if seed % 2 else "random"]
        for free, count in _asked(links.gpus, seed, events, driver):
            if count < 2 or count == free.bit_count():
                continue
            _, most = judge.best(free, count)
            for name, rule in rules.items():
                ratios[name].append(judge.value(_checked(rule(free, count), free, count)) / most)
            times.append(_timed(fresh, free, count))
        for name, rule in rules.items():
            own[name].append(_alone(links.gpus, seed, events, rule, judge))
    found.choices = len(ratios["ours"])
    found.over_exhaustive = {name: _mean(each) for name, each in ratios.items()}
    found.worst = min(ratios["ours"], default=1.0)
    found.own_stream = {name: _mean(each) for name, each in own.items()}
    times.sort()
    found.choice_ms, found.choice_ms_p99, found.choice_ms_most = _mean(times), times[len(times) * 99 // 100], times[-1]
    if links.nics:
        found.same_root = _cards(machine, fresh, seeds, events)
    return found


def _timed(choices: Choices, free: int, count: int) -> float:
    choices.forget()
    began = thread_time()
    choices.best(free, count)
    return 1000 * (thread_time() - began)


def _asked(gpus: int, seed: int, events: int, rule: Rule) -> Iterable[tuple[int, int]]:
    """The arrivals that find enough free GPUs: (free, how many). What the rule chooses is taken."""
    draw = random.Random(seed)
    free, running = (1 << gpus) - 1, list[int]()
    for _ in range(events):
        count, arrives, place = draw.randint(1, max(2, gpus // 2)), draw.random() < _ARRIVALS, draw.random()
        if arrives and free.bit_count() >= count:
            yield free, count
            running.append(rule(free, count))
            free ^= running[-1]
        elif not arrives and running:
            free ^= running.pop(int(place * len(running)))


def _alone(gpus: int, seed: int, events: int, rule: Rule, judge: Exhaustive) -> float:
    """Bandwidth of a rule's choices over that of the best sets of the empty machine, where it lives with them."""
    whole, chosen = (1 << gpus) - 1, list[tuple[int, int]]()

    def kept(free: int, count: int) -> int:
        chosen.append((rule(free, count), count))
        return chosen[-1][0]

    for _ in _asked(gpus, seed, events, kept):
        pass
    return _mean([judge.value(each) / judge.best(whole, count)[1] for each, count in chosen if count > 1])


def _checked(chosen: int, free: int, count: int) -> int:
    if chosen & ~free or chosen.bit_count() != count:
        raise AssertionError(f"{chosen:b} is no set of {count} of {free:b}")
    return chosen


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0


# -- GPUs with network cards ---------------------------------------------------------------------


def _cards(machine: Machine, choices: Choices, seeds: Sequence[int], events: int) -> dict[str, float]:
    """Jobs that want one network card for two GPUs: of the cards that could be under a root of a GPU, those that are.

    first_fit: the lowest GPUs, and the lowest cards. Free GPUs and cards are the same for both; ours decides what is taken.
    """
    links = machine.links
    possible, kept = 0, {"ours": 0, "first_fit": 0}
    for seed in seeds:
        draw = random.Random(seed)
        free, nics = (1 << links.gpus) - 1, list(range(len(links.nics)))
        running: list[tuple[int, list[int]]] = []
        for _ in range(events):
            count, arrives, place = draw.randint(1, links.gpus // 2), draw.random() < _ARRIVALS, draw.random()
            wanted = min(ceil(count / 2), len(nics))
            if arrives and free.bit_count() >= count:
                gpus = _checked(choices.best(free, count, cards=cards_of(links, (), nics, wanted)) or 0, free, count)
                given = beside(links, gpus, nics, wanted)
                possible += _most_pairs(links, free, count, nics, wanted)
                kept["ours"] += _pairs(links, gpus, given)
                kept["first_fit"] += _pairs(links, first_fit(free, count), nics[:wanted])
                running.append((gpus, given))
                free ^= gpus
                nics = [each for each in nics if each not in given]
            elif not arrives and running:
                gpus, given = running.pop(int(place * len(running)))
                free ^= gpus
                nics = sorted([*nics, *given])
    return {name: each / possible for name, each in kept.items()} if possible else {}


def _pairs(links: Links, gpus: int, nics: Sequence[int]) -> int:
    """How many of these cards are under a root with a GPU of its own."""
    left = [links.roots[at] for at in range(links.gpus) if gpus >> at & 1]
    found = 0
    for each in nics:
        if links.nics[each] in left:
            left.remove(links.nics[each])
            found += 1
    return found


def _most_pairs(links: Links, free: int, count: int, nics: Sequence[int], wanted: int) -> int:
    """The most that any choice of GPUs and cards has: cards and GPUs are paired root by root, as many as are wanted."""
    roots = [links.roots[at] for at in range(links.gpus) if free >> at & 1]
    cards = [links.nics[each] for each in nics]
    return min(count, wanted, sum(min(roots.count(root), cards.count(root)) for root in set(cards)))


def as_rows(result: Result) -> list[Mapping[str, object]]:
    """One row for each machine, for a table."""
    return [
        {
            "machine": each.name,
            "GPUs": each.gpus,
            "choices": each.choices,
            **{name: each.over_exhaustive[name] for name in RULES if name != "exhaustive"},
            **{f"own {name}": each.own_stream[name] for name in ("ours", "best_effort", "first_fit")},
            "ms": each.choice_ms,
            "same root": each.same_root.get("ours", ""),
        }
        for each in result.machines
    ]
