"""Geometries and the states of one GPU, against an enumeration that knows only the rules."""

import random
from collections import Counter
from itertools import combinations

import pytest

from fairlead.core.mig.geometry import GEOMETRIES, Geometry, UnknownModel, geometry_of
from fairlead.core.mig.states import EMPTY, IllegalPlacement, States


def legal(geometry, places):
    """Whether partitions (profile, start) can be on one GPU at once: by slices one by one."""
    used = Counter()
    for profile, start in places:
        used.update(range(start, start + profile.memory))
    return (
        all(count == 1 and slice_ < geometry.memory for slice_, count in used.items())
        and sum(profile.compute for profile, _ in places) <= geometry.compute
        and sum(profile.media for profile, _ in places) <= 1
    )


def enumerated(geometry):
    """All legal sets of places, grown one place at a time."""
    places = [(profile, start) for profile in geometry.profiles for start in profile.starts]
    layer, found = {()}, {()}
    while layer:
        layer = {
            (*chosen, number)
            for chosen in layer
            for number in range(chosen[-1] + 1 if chosen else 0, len(places))
            if legal(geometry, [places[k] for k in (*chosen, number)])
        }
        found |= layer
    return found


def walked(states):
    """All states that are reached from the empty one."""
    line = [EMPTY]
    seen = {EMPTY}
    for state in line:
        for profile in range(len(states.geometry.profiles)):
            for _, after in states.options(state, profile):
                if after not in seen:
                    seen.add(after)
                    line.append(after)
    return line


@pytest.mark.parametrize(("model", "count"), [("A100-40GB", 723), ("A30", 26), ("H200", 723)])
def test_the_states_are_those_that_an_enumeration_finds(model, count):
    geometry = GEOMETRIES[model].without_media()
    states = States(geometry)
    reached = walked(states)
    assert {states.running(state) for state in reached} == enumerated(geometry)
    assert len(reached) == len(states) == count


def test_media_extensions_are_held_once():
    geometry = GEOMETRIES["A30"]
    states = States(geometry)
    assert {states.running(state) for state in walked(states)} == enumerated(geometry)
    first = states.state([states.options(EMPTY, states.index("1g.6gb+me"))[0][0]])
    assert states.options(first, states.index("2g.12gb+me")) == ()
    assert states.options(first, states.index("2g.12gb")) != ()


@pytest.mark.parametrize("model", GEOMETRIES)
def test_as_many_of_a_profile_fit_as_the_guide_says(model):
    geometry = GEOMETRIES[model]
    for profile in geometry.profiles:
        most = max(
            count
            for count in range(len(profile.starts) + 1)
            if any(legal(geometry, [(profile, start) for start in starts]) for starts in combinations(profile.starts, count))
        )
        assert most == profile.limit


@pytest.mark.parametrize("model", GEOMETRIES)
def test_profiles_are_named_by_their_slices_and_memory(model):
    geometry = GEOMETRIES[model]
    for profile in geometry.profiles:
        assert profile.name == f"{profile.compute}g.{profile.memory_gb}gb{'+me' if profile.media else ''}"
        assert all(start + profile.memory <= geometry.memory for start in profile.starts)
        assert geometry.profile(profile.name.replace("+me", ".me")) is profile
    assert geometry.profiles[-1].memory_gb == geometry.memory_gb


@pytest.mark.parametrize("seed", range(30))
def test_adding_removing_and_blocking_on_random_states(seed):
    rng = random.Random(seed)
    states = States(GEOMETRIES[rng.choice(list(GEOMETRIES))])
    geometry = states.geometry
    state, running = EMPTY, []
    for _ in range(60):
        place = rng.randrange(len(states.placements))
        places = [(states.profile(k), states.placements[k].start) for k in [*running, place]]
        fits = place not in running and legal(geometry, places)
        assert states.fits(state, place) == fits
        if fits:
            state = states.add(state, place)
            running.append(place)
        else:
            with pytest.raises(IllegalPlacement, match="does not fit beside"):
                states.add(state, place)
            # the fewest that must leave, by trying all sets
            least = min(
                count
                for count in range(len(running) + 1)
                if any(
                    legal(geometry, [(states.profile(k), states.placements[k].start) for k in [*rest, place]])
                    for rest in combinations([k for k in running if k != place], len(running) - count)
                )
            )
            assert states.blockers(state, place) == least
        if running and rng.random() < 0.4:
            state = states.remove(state, running.pop(rng.randrange(len(running))))
        assert set(states.running(state)) == set(running)
        assert states.compute(state) == sum(states.profile(k).compute for k in running)
        assert states.mask(state).bit_count() == sum(states.profile(k).memory for k in running)
    with pytest.raises(IllegalPlacement, match="does not run there"):
        states.remove(EMPTY, 0)


@pytest.mark.parametrize("seed", range(15))
def test_sets_that_block_are_needed_and_enough(seed):
    rng = random.Random(seed)
    states = States(GEOMETRIES["A100-40GB"].without_media())
    reached = walked(states)
    for _ in range(40):
        state, profile, most = rng.choice(reached), rng.randrange(6), rng.randint(1, 3)
        running = states.running(state)
        expected = set()
        for count in range(1, most + 1):
            for leaving in combinations(running, count):
                rest = states.state([k for k in running if k not in leaving])
                for placement, _ in states.options(rest, profile):
                    if not any(states.fits(states.add(rest, k), placement) for k in leaving):
                        expected.add((leaving, placement))
        assert {(each.leaving, each.placement) for each in states.blocked(state, profile, most)} == expected


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-40GB"),
        ("A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe-SHARED", "A100-80GB"),
        ("NVIDIA-A30", "A30"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("NVIDIA-H100-PCIe", "H100-80GB"),
        ("NVIDIA-H100-NVL", "H100-94GB"),
        ("NVIDIA-GH200-480GB", "H100-96GB"),
        ("NVIDIA-H20", "H100-96GB"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA-H200-NVL", "H200"),
        ("NVIDIA-B200", "B200"),
        ("H200", "H200"),
    ],
)
def test_products_lead_to_models(product, model):
    found = geometry_of(product)
    assert isinstance(found, Geometry)
    assert found.model == model


@pytest.mark.parametrize(
    "product", ["", "Tesla-T4", "NVIDIA-A100", "NVIDIA-A30X", "NVIDIA-L40S", "NVIDIA-H2000", "NVIDIA-H20-3e"]
)
def test_other_products_are_refused_with_what_is_known(product):
    found = geometry_of(product)
    assert isinstance(found, UnknownModel)
    assert repr(product) in found.message
    assert "A100-40GB" in found.message


def test_a_profile_that_a_model_lacks_is_named():
    with pytest.raises(KeyError, match=r"A30 has no profile '1g.5gb': it has 1g.6gb"):
        States(GEOMETRIES["A30"]).index("1g.5gb")
