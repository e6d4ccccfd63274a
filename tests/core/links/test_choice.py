"""The choice of GPUs against trying every set, on random interconnects, and what is said of such that cannot be used."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.links.choice import Choices, beside, cards_of, choices_of
from fairlead.core.links.matrix import MOST_GPUS, PATHS, FaultKind, Links, LinksError, by_place, links_of

SOME_WEIGHTS = st.sampled_from([10, 20, 50, 110, 250])


@st.composite
def interconnects(draw: st.DrawFn, most: int = 8) -> Links:
    count = draw(st.integers(1, most))
    weights = [[0] * count for _ in range(count)]
    for one, two in combinations(range(count), 2):
        weights[one][two] = weights[two][one] = draw(SOME_WEIGHTS)
    roots = draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    nics = draw(st.lists(st.integers(-1, 4), max_size=5))
    return links_of(weights, roots, nics)


def members(mask: int) -> list[int]:
    return [at for at in range(mask.bit_length()) if mask >> at & 1]


def total(links: Links, mask: int) -> int:
    return sum(links.weights[one][two] for one, two in combinations(members(mask), 2))


def paired(links: Links, mask: int, nics: list[int]) -> int:
    """How many of these network cards have a GPU of the set for themselves under their root."""
    roots = [links.roots[at] for at in members(mask)]
    found = 0
    for each in nics:
        if links.nics[each] >= 0 and links.nics[each] in roots:
            roots.remove(links.nics[each])
            found += 1
    return found


def most_paired(links: Links, mask: int, fixed: list[int], free: list[int], more: int) -> int:
    """The most by any choice of `more` cards beside those that the job has."""
    return max(paired(links, mask, [*fixed, *chosen]) for chosen in combinations(free, min(more, len(free))))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Links, int, int, int, int, list[int], list[int], int]:
    links = draw(interconnects())
    everything = (1 << links.gpus) - 1
    free, allowed = draw(st.integers(0, everything)), draw(st.integers(0, everything) | st.just(everything))
    required = draw(st.integers(0, everything)) & ~free if draw(st.booleans()) else 0
    nics = draw(st.permutations(range(len(links.nics))))
    cut = draw(st.integers(0, len(nics)))
    more = draw(st.integers(0, len(nics) - cut))
    return links, free, draw(st.integers(0, links.gpus)), required, allowed, sorted(nics[:cut]), sorted(nics[cut:]), more


@given(questions())
@settings(max_examples=150, deadline=None)
def test_the_best_set_is_that_of_all_sets_tried_one_by_one(question):
    links, free, count, required, allowed, fixed, open_, more = question
    best = Choices(links).best(free, count, required, allowed, cards_of(links, fixed, open_, more))
    candidates = [
        sum(1 << at for at in chosen) | required
        for chosen in combinations(members(free & allowed & ~required), max(0, count - required.bit_count()))
        if count >= required.bit_count()
    ]
    if not candidates:
        assert best is None
        return

    def worth(mask: int) -> tuple[int, int, int, int]:
        pairs = most_paired(links, mask, fixed, open_, more) if fixed or more else 0
        return pairs, total(links, mask), total(links, free & ~mask), -mask

    assert best == max(candidates, key=worth)


@given(interconnects(), st.data())
@settings(max_examples=60, deadline=None)
def test_devices_taken_one_by_one_are_the_set_that_was_chosen_at_once(links, data):
    free = data.draw(st.integers(1, (1 << links.gpus) - 1))
    count = data.draw(st.integers(1, free.bit_count()))
    choices = choices_of(links)
    first = choices.best(free, count)
    assert first is not None
    assert first & ~free == 0
    assert first.bit_count() == count
    taken, rest = 0, free
    while taken.bit_count() < count:
        again = choices.best(rest, count, taken)
        assert again == first
        low = again & ~taken & -(again & ~taken)
        taken, rest = taken | low, rest ^ low


@given(interconnects(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_cards_for_a_set_are_paired_with_as_many_gpus_as_can_be(links, data):
    free = data.draw(st.lists(st.sampled_from(range(len(links.nics))), unique=True)) if links.nics else []
    gpus, count = data.draw(st.integers(0, (1 << links.gpus) - 1)), data.draw(st.integers(0, 5))
    chosen = beside(links, gpus, sorted(free), count)
    assert len(chosen) == len(set(chosen)) == min(count, len(free))
    assert set(chosen) <= set(free)
    assert paired(links, gpus, chosen) == most_paired(links, gpus, [], free, count)


def test_cards_that_a_job_has_already_count_for_its_gpus():
    links = links_of([[0, 1], [1, 0]], [0, 1], [0, 0, 1])
    assert beside(links, 0b11, [1, 2], 1, taken=[0]) == [2]
    assert Choices(links).best(0b11, 1, cards=cards_of(links, [2], [0], 0)) == 0b10


def test_sixteen_gpus_are_decided_as_small_ones_are():
    weights = [[0 if one == two else 600 if one // 8 == two // 8 else 10 for two in range(16)] for one in range(16)]
    choices = Choices(links_of(weights))
    everything = (1 << 16) - 1
    assert choices.best(everything, 8) == 0xFF
    assert choices.best(everything ^ 0b11, 8) == 0xFF00
    assert choices.best(everything ^ 0b11, 6) == 0xFC  # the other half stays whole
    assert choices.best(everything, 16) == everything
    assert choices.best(everything, 17) is None


@pytest.mark.parametrize(
    ("weights", "roots", "kind", "text"),
    [
        ([], (), FaultKind.EMPTY, "names no GPU"),
        ([[0, 1], [1]], (), FaultKind.WRONG_SIZE, "row of GPU1 has 1 columns for 2 GPUs"),
        ([[0, 1], [2, 0]], (), FaultKind.ASYMMETRIC, "GPU1 to GPU0 is 2, and GPU0 to GPU1 is 1"),
        ([[0, -1], [-1, 0]], (), FaultKind.UNKNOWN_LINK, "GPU0 to GPU1 has weight -1"),
        ([[0, 1], [1, 0]], (1,), FaultKind.WRONG_SIZE, "roots are given for 1 of 2 GPUs"),
        ([[0] * (MOST_GPUS + 1)] * (MOST_GPUS + 1), (), FaultKind.TOO_MANY, "it has 17 GPUs, and sets are chosen of at most 16"),
    ],
)
def test_what_is_no_interconnect_is_refused_with_its_place(weights, roots, kind, text):
    with pytest.raises(LinksError, match=text) as refused:
        links_of(weights, roots)
    assert refused.value.kind is kind


def test_places_alone_give_weights_by_the_closest_of_them():
    links = by_place(["a", "a", "b", None], [0, 0, 0, None], ["b", None])
    assert links.weights[0] == (0, PATHS["PXB"], PATHS["NODE"], PATHS["SYS"])
    assert links.weights[3] == (PATHS["SYS"],) * 3 + (0,)
    assert links.roots == (0, 0, 1, -1)
    assert links.nics == (1, -1)
