"""Words that the code has given up do not come back, and the list of those that are left only gets shorter."""

from pathlib import Path

import pytest

from tests import words

LIST = (
    '[words.fall]\npattern = "falls|fallen"\nuse = "is preempted"\nleft = 2\n\n[words.he]\npattern = "he"\nuse = "it"\nleft = 1\n'
)


def found(text, content=LIST):
    files = {Path("a.py"): words.CAMEL.sub(" ", text)}
    return words.occurrences(words.listed(content), files)


def test_the_words_of_the_list_occur_in_src_and_docs_exactly_as_often_as_it_has_them():
    listed = words.listed(words.LIST.read_text())
    assert words.problems(listed, words.occurrences(listed, words.sources())) == []


@pytest.mark.parametrize("text", ["it Falls", "whoFalls", "who_falls", "_fallen", "FallenPods", "x = falls()"])
def test_whole_words_count_in_names_and_sentences(text):
    assert len(found(f"first line\n{text}")["fall"]) == 1
    assert found(f"first line\n{text}")["fall"][0].line == 2


@pytest.mark.parametrize("text", ["waterfalls", "fallsy", "the", "she", "cache"])
def test_parts_of_words_do_not(text):
    assert not any(found(text).values())


def test_more_than_listed_is_refused_with_place_and_term_and_fewer_asks_for_the_update():
    listed = words.listed(LIST)
    more, fewer = words.problems(listed, found("falls falls falls"))
    assert "3 times instead of 2; use: is preempted\n  a.py:1: falls" in more
    assert "make words" in fewer


def test_an_update_lowers_numbers_and_raises_none():
    lowered = words.lowered(LIST, found("falls he he he"))
    assert [each.left for each in words.listed(lowered)] == [1, 1]
    assert lowered.count("pattern") == LIST.count("pattern")
