"""Rules that choose sets of GPUs: the machines, go-gpuallocator's rule by its own expectations, and what `bench gpusets` reports."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from fairlead.simulation.gpusets.machines import machines
from fairlead.simulation.gpusets.rules import BestEffort, Exhaustive, rules_of
from fairlead.simulation.gpusets.run import measured, run

MACHINES = {each.name: each for each in machines()}
SMALL = ("dgx-1-pascal", "dgx-1-volta", "4x-rtx8000", "summit", "dgx-v", "nvlink-bridges", "pcie-two-sockets")


def mask(*members: int) -> int:
    return sum(1 << each for each in members)


def test_the_machines_are_those_that_are_published():
    assert {name: each.links.gpus for name, each in MACHINES.items()} == {
        "dgx-1-pascal": 8,
        "dgx-1-volta": 8,
        "4x-rtx8000": 4,
        "dgx-2": 16,
        "dgx-v": 8,
        "dgx-p": 8,
        "summit": 6,
        "torus-2d": 16,
        "cube-mesh-16": 16,
        "nvlink-bridges": 8,
        "pcie-two-sockets": 8,
    }
    # MAPA's DGX-1 with V100 has the NVLinks of NVIDIA's.
    volta, mapa = MACHINES["dgx-1-volta"].links, MACHINES["dgx-v"].scores
    assert [[weight // 100 for weight in row] for row in volta.weights] == [
        [weight // 100 for weight in row] for row in mapa.weights
    ]
    # Degrees: six NVLinks a GPU in the DGX-1 with V100, four with P100; the torus lacks a link.
    assert {sum(weight // 100 for weight in row) for row in volta.weights} == {6}
    assert {sum(weight // 100 for weight in row) for row in MACHINES["dgx-1-pascal"].links.weights} == {4}
    assert [sum(weight > 10 for weight in row) for row in MACHINES["torus-2d"].links.weights] == [3, 4, 4, 4, 3, *[4] * 11]


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        ((0, 2, 4, 5), 2, (4, 5)),
        ((0, 4, 5, 6), 2, (5, 6)),
        ((0, 3, 1), 2, (0, 3)),
        ((0, 1, 4), 2, (0, 4)),
        (range(8), 4, (0, 1, 2, 3)),
        ((4, 5, 6, 7), 4, (4, 5, 6, 7)),
    ],
)
def test_best_effort_chooses_what_its_own_tests_expect_on_a_dgx_1(free, count, expected):
    assert BestEffort(MACHINES["dgx-1-volta"].scores)(mask(*free), count) == mask(*expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dgx-1-pascal", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("dgx-1-volta", [(0, 3), (1, 2), (4, 7), (5, 6)]),
        ("4x-rtx8000", [(0, 3), (1, 2)]),
    ],
)
def test_best_effort_gives_the_pairs_that_its_own_tests_expect(name, expected):
    rule, free = BestEffort(MACHINES[name].scores), (1 << MACHINES[name].links.gpus) - 1
    found = []
    while free:
        found.append(rule(free, 2))
        free ^= found[-1]
    assert found == [mask(*each) for each in expected]


def divisions(members: tuple[int, ...], count: int, short: int) -> list[list[tuple[int, ...]]]:
    """All divisions of GPUs into sets of a size, and one smaller set if they do not come out even."""
    if not members:
        return [[]]
    found = []
    for size in {count, short} - {0}:
        for rest in combinations(members[1:], size - 1) if size <= len(members) else ():
            chosen = (members[0], *rest)
            left = tuple(each for each in members if each not in chosen)
            found += [[chosen, *others] for others in divisions(left, count, 0 if size == short and size != count else short)]
    return found


@pytest.mark.parametrize("name", SMALL)
def test_best_effort_takes_the_best_set_of_a_best_division(name):
    links, draw = MACHINES[name].scores, random.Random(3)
    rule = BestEffort(links)

    def score(members: tuple[int, ...]) -> int:
        return sum(links.weights[one][two] for one, two in combinations(members, 2))

    for _ in range(20):
        free = tuple(sorted(draw.sample(range(links.gpus), draw.randint(2, links.gpus))))
        count = draw.randint(2, len(free))
        tried = divisions(free, count, len(free) % count)
        best = max(sum(map(score, each)) for each in tried)
        of_best = [each for each in tried if sum(map(score, each)) == best]
        allowed = {
            mask(*members)
            for each in of_best
            for members in each
            if len(members) == count and score(members) == max(score(one) for one in each if len(one) == count)
        }
        assert rule(mask(*free), count) in allowed


@pytest.mark.parametrize("name", ["dgx-1-volta", "summit", "nvlink-bridges"])
def test_ours_has_the_bandwidth_of_the_exhaustive_choice_on_every_free_set(name):
    machine = MACHINES[name]
    judge, ours = Exhaustive(machine.links), rules_of(machine, 0)["ours"]
    everything = (1 << machine.links.gpus) - 1
    for free in range(1, everything + 1):
        for count in range(1, free.bit_count() + 1):
            chosen = ours(free, count)
            assert chosen & ~free == 0
            assert judge.value(chosen) == judge.best(free, count)[1]


def test_what_is_measured_is_the_same_again_but_for_times():
    first, second = (measured(MACHINES["summit"], [1, 2], 200) for _ in range(2))
    assert first.choices == second.choices > 20
    assert first.over_exhaustive == second.over_exhaustive
    assert first.own_stream == second.own_stream
    assert first.over_exhaustive["ours"] == first.over_exhaustive["exhaustive"] == 1.0
    assert first.over_exhaustive["random"] < first.over_exhaustive["first_fit"] < 1.0


def test_network_cards_are_under_roots_of_the_gpus_where_that_is_possible():
    found = measured(MACHINES["pcie-two-sockets"], [1, 2], 300)
    assert found.same_root["ours"] == 1.0
    assert found.same_root["first_fit"] < 1.0


def test_machines_where_ours_falls_behind_would_be_named(monkeypatch):
    machine = MACHINES["4x-rtx8000"]
    monkeypatch.setattr("fairlead.simulation.gpusets.run.machines", lambda: [machine])
    result = run([1], 200)
    assert result.below_best_effort == result.own_stream_below == []
    monkeypatch.setattr("fairlead.simulation.gpusets.run.rules_of", lambda of, seed: {**rules_of(of, seed), "ours": worst})
    assert run([1], 200).below_best_effort == ["4x-rtx8000"]


def worst(free: int, count: int) -> int:
    """The set with the least bandwidth."""
    links = MACHINES["4x-rtx8000"].links
    members = [at for at in range(links.gpus) if free >> at & 1]
    return min((mask(*each) for each in combinations(members, count)), key=lambda chosen: Exhaustive(links).value(chosen))
