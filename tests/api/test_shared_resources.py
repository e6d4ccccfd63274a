"""Shared resources as annotations and specs have them."""

import pytest

from fairlead.api import shared_resources
from fairlead.api.quantity import QuantityError


def test_amounts_are_sorted_whole_and_without_those_that_are_0():
    assert shared_resources.read("storage-bandwidth=2G, scratch=1.5,none=0") == (("scratch", 2), ("storage-bandwidth", 2 * 10**9))
    assert shared_resources.amounts({"b": 3, "a": "1Ki"}) == (("a", 1024), ("b", 3))


def test_a_name_that_kubernetes_counts_otherwise_is_an_amount_like_others():
    assert shared_resources.read("cpu=2") == (("cpu", 2),)


def test_what_is_written_is_read():
    given = {"storage-bandwidth": "2.5G", "scratch": 3}
    assert shared_resources.read(shared_resources.written(given)) == shared_resources.amounts(given)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not one name=amount"),
        ("scratch", "'scratch' is not one name=amount"),
        ("scratch=1,scratch=2", "'scratch=2' is not one name=amount, each name once"),
        ("Scratch=1", "'Scratch' is no name"),
        ("-a=1", "'-a' is no name"),
        ("a" * 64 + "=1", "is no name: up to 63"),
        ("scratch=-1", "scratch: '-1' is negative"),
        ("scratch=2Q", "scratch: '2Q' is not a quantity"),
        ("scratch=" + "9" * 30, "is larger than any machine"),
        ("a=" + "1" * 2100, "characters are more than 2048"),
        (",".join(f"a{number}=1" for number in range(17)), "17 names are more than 16"),
    ],
)
def test_what_cannot_be_read(text, why):
    with pytest.raises(QuantityError) as refused:
        shared_resources.read(text)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("amount", "shown"), [(0, "0"), (999, "999"), (1000, "1k"), (2_500_000_000, "2.5G"), (40 * 10**9, "40G"), (3 * 10**18, "3E")]
)
def test_amounts_are_shown_as_a_person_would_write_them(amount, shown):
    assert shared_resources.show(amount) == shown
