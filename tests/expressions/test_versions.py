"""Versions: the order of semver.org, and that it is total."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.expressions import messages
from fairlead.expressions.versions import Version, parse, parse_tolerant

ASCENDING = [
    "0.0.0-0",
    "0.9.9",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.10.0",
    "2.0.0",
]


def test_the_order_is_that_of_the_specification():
    versions = [parse(text) for text in ASCENDING]
    shuffled = random.Random(3).sample(versions, len(versions))
    assert sorted(shuffled) == versions
    for low, left in enumerate(versions):
        for high, right in enumerate(versions):
            assert (left < right, left > right, left == right) == (low < high, low > high, low == high)


def test_build_metadata_does_not_count():
    assert parse("1.2.3+a.b") == parse("1.2.3") == Version(1, 2, 3)
    assert hash(parse("1.2.3+a")) == hash(parse("1.2.3+b"))


def test_a_version_is_written_as_it_is_read():
    for text in ASCENDING:
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3-01", "1.2.3+", "1.2.x", "v1.2.3", f"{1 << 64}.0.0"]
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("v01.02.03", "1.2.3"), ("00.0.0", "0.0.0"), ("1.2.3-rc.1", "1.2.3-rc.1")],
)
def test_short_and_padded_versions_are_read_where_that_is_asked(text, version):
    assert parse_tolerant(text) == parse(version)


@pytest.mark.parametrize("text", ["1-rc", "1.2+b", "", "v", "1..3"])
def test_what_cannot_be_filled_up_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_tolerant(text)


identifiers = st.from_regex(r"0|[1-9][0-9]{0,18}|[0-9]{0,2}[A-Za-z-][0-9A-Za-z-]{0,3}", fullmatch=True)
numbers = st.integers(0, 12) | st.integers(0, (1 << 64) - 1)
texts = st.builds(
    lambda major, minor, patch, pre, build: f"{major}.{minor}.{patch}" + (f"-{'.'.join(pre)}" if pre else "") + build,
    numbers,
    numbers,
    numbers,
    st.lists(identifiers, max_size=3),
    st.sampled_from(["", "+b", "+0.x"]),
)


@given(texts, texts)
def test_the_texts_of_messages_sort_as_versions_do(left, right):
    values = parse(left), parse(right)
    written = [messages.version_text(each) for each in values]
    assert (written[0] < written[1], written[0] == written[1]) == (values[0] < values[1], values[0] == values[1])
    assert [messages.value_of(messages.of_version(each)) for each in values] == list(values)
