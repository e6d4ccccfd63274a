"""Random trees and requests: every answer keeps every rule, verdicts and numbers are those of an integer program."""

import pytest

from fairlead.core.topology.choose import choices, choose
from fairlead.core.topology.request import Placement, Refusal
from testbed.topology import exact
from testbed.topology.checker import broken
from testbed.topology.instances import draw


def test_verdicts_and_numbers_of_domains_are_those_of_an_integer_program():
    judged = exact.run(60, first=5000)
    assert judged.wrong == []
    assert (judged.undecided, judged.most_above_optimum) == (0, 0)
    assert min(judged.placed, judged.refused, judged.optimal, judged.invalid) > 3


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_places_of_several_sets_keep_every_rule(first):
    placed = 0
    for seed in range(first, first + 100):
        labels, tree, request = draw(seed, several=True)
        for found in [choose(tree, request), *choices(tree, request)]:
            if isinstance(found, Placement):
                assert list(broken(labels, request, found)) == [], seed
                placed += 1
    assert placed > 30


def test_a_refusal_names_the_domain_with_the_most():
    """Of gangs without slices that need one domain: the number is what the domain takes, and it is too few."""
    seen = 0
    for seed in range(400):
        _, tree, request = draw(seed)
        found = choose(tree, request)
        each = request.sets[0]
        if (
            not isinstance(found, Refusal)
            or found.reason != "NoDomain"
            or each.groups[0].slices
            or each.rules.required is not None
        ):
            continue
        fits = request.shapes[0].fits
        held = [
            int(fits[tree.members(found.level, at)].sum()) for at in range(tree.sizes[found.level]) if tree.named[found.level][at]
        ]
        assert found.fits == max(held) < found.wanted
        assert tree.name(found.level, found.domain) in found.text
        seen += 1
    assert seen > 5


def test_the_judge_sees_what_is_broken():
    """A placement that is moved to other rows breaks a rule, or has another number of domains."""
    seen = 0
    for seed in range(200):
        labels, tree, request = draw(seed)
        found = choose(tree, request)
        if not isinstance(found, Placement):
            continue
        moved = found._replace(sets=tuple(tuple(place._replace(row=0) for place in places) for places in found.sets))
        pods = sum(place.pods for place in found.sets[0])
        if pods > int(request.shapes[0].fits[0]):
            assert list(broken(labels, request, moved)), seed
            seen += 1
    assert seen > 20


def test_answers_do_not_depend_on_when_they_are_asked_for():
    for seed in range(60):
        _, tree, request = draw(seed, several=True)
        assert choose(tree, request) == choose(draw(seed, several=True).tree, request)
