"""Matching and covering against everything tried out, on random small problems."""

from itertools import combinations, product
from random import Random

from fairlead.core.dra.covering import Cover, GaveUp, Source, relax
from fairlead.core.dra.matching import Matching


def matchable(candidates, needed, devices):
    """Hall's condition, for every set of requests."""
    numbers = range(len(candidates))
    return all(
        sum(needed[each] for each in chosen)
        <= sum(1 for at in range(devices) if any(candidates[each] >> at & 1 for each in chosen))
        for size in range(1, len(candidates) + 1)
        for chosen in combinations(numbers, size)
    )


def test_a_matching_exists_where_halls_condition_holds():
    there = 0
    for seed in range(400):
        draw = Random(seed)
        devices = draw.randint(1, 7)
        candidates = [draw.randrange(1 << devices) for _ in range(draw.randint(1, 5))]
        needed = [draw.randint(0, 2) for _ in candidates]
        matching = Matching(candidates, list(needed))
        assert matching.exists() == matchable(candidates, needed, devices), seed
        there += matching.exists()
    assert 50 < there < 350


def test_taking_devices_keeps_the_matching_or_says_that_there_is_none():
    kept = lost = 0
    for seed in range(400):
        draw = Random(seed)
        devices = draw.randint(2, 7)
        candidates = [draw.randrange(1, 1 << devices) for _ in range(draw.randint(2, 4))]
        needed = [1] * len(candidates)
        matching = Matching(candidates, list(needed))
        if not matching.exists():
            continue
        left = list(candidates)
        for number in range(len(candidates)):
            free = [at for at in range(devices) if left[number] >> at & 1]
            if not free:
                break
            device = draw.choice(free)
            saved = matching.save()
            rest = [each & ~(1 << device) for each in left]
            expected = matchable(rest[number + 1 :], needed[number + 1 :], devices)
            assert matching.take(number, device) == expected, seed
            kept, lost = kept + expected, lost + (not expected)
            if not expected:
                matching.restore(saved)
                break
            left = rest
    assert min(kept, lost) > 30


def test_a_matching_that_is_there_is_extended_or_stays():
    met = lost = 0
    for seed in range(300):
        draw = Random(seed)
        devices = draw.randint(1, 7)
        candidates = [draw.randrange(1 << devices) for _ in range(draw.randint(1, 4))]
        matching = Matching(candidates, [])
        for _ in range(6):  # more and less of each, from what the last one left
            needed = [draw.randint(0, 3) for _ in candidates]
            before = list(matching.assigned)
            expected = matchable(candidates, needed, devices)
            assert matching.meet(needed) == expected, seed
            met, lost = met + expected, lost + (not expected)
            if not expected:
                assert matching.assigned == before
                continue
            assert [each.bit_count() for each in matching.assigned] == needed
            assert all(mask & ~each == 0 for mask, each in zip(matching.assigned, candidates, strict=True))
            assert sum(matching.assigned).bit_count() == sum(needed)  # no device is given twice
    assert min(met, lost) > 200


def coverable(demand, sources):
    picks = [each for source in sources for each in [source.vectors] * source.count]
    return any(
        all(sum(values) >= wanted for values, wanted in zip(zip(*chosen, strict=True), demand, strict=True))
        for chosen in product(*picks)
    )


def draw_cover(draw):
    size = draw.randint(1, 3)
    vectors = [
        tuple(tuple(draw.randint(0, 3) for _ in range(size)) for _ in range(draw.randint(1, 4)))
        for _ in range(draw.randint(1, 2))
    ]
    sources = [Source(draw.randint(1, 3), each) for each in vectors]
    return tuple(draw.randint(0, 7) for _ in range(size)), sources


def test_covers_are_found_where_there_are_some():
    found = 0
    for seed in range(400):
        demand, sources = draw_cover(Random(seed))
        cover = Cover(sources, (), lambda rest: not any(rest), 10_000)
        expected = coverable(demand, sources)
        assert cover.solve(demand) == expected, seed
        if not expected:
            continue
        found += 1
        assert not any(cover.left(demand))
        for number, source in enumerate(sources):
            assert sum(1 for each, _ in cover.solution if each == number) <= source.count
    assert 50 < found < 350


def test_asking_again_gives_the_same_verdicts_as_asking_anew():
    for seed in range(100):
        draw = Random(seed)
        _, sources = draw_cover(draw)
        cover = Cover(sources, (), lambda rest: not any(rest), 10_000)
        for _ in range(6):
            demand = tuple(draw.randint(0, 7) for _ in sources[0].vectors[0])
            assert cover.solve(demand) == coverable(demand, sources), (seed, demand)


def test_the_relaxation_never_calls_impossible_what_is_possible():
    proven = 0
    for seed in range(600):
        demand, sources = draw_cover(Random(seed))
        relaxed = relax(demand, sources)
        if relaxed.impossible:
            proven += 1
            assert not coverable(demand, sources), seed
            served = sum(
                each.count * max(sum(map(int.__mul__, relaxed.weights, vector)) for vector in each.vectors) for each in sources
            )
            assert sum(map(int.__mul__, relaxed.weights, demand)) > served  # a proof in integers
    assert proven > 100


def test_a_cover_beyond_its_budget_gives_up():
    sources = [Source(6, ((3, 0, 1), (0, 3, 1), (1, 1, 1))), Source(6, ((2, 2, 0), (0, 1, 2)))]
    outcomes = set()
    for seed in range(200):
        draw = Random(seed)
        try:
            outcomes.add(Cover(sources, (), lambda rest: not any(rest), 1).solve(tuple(draw.randint(0, 16) for _ in range(3))))
        except GaveUp:
            outcomes.add("gave up")
    assert outcomes == {True, False, "gave up"}
