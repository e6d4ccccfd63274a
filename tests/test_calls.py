"""No unit of work takes more function calls than recorded, at any size of any dimension: see testbed/calls.py."""

import pytest

from fairlead.simulation.growth.dimensions import BY_NAME
from testbed import calls
from testbed.calls import Calls


@pytest.mark.parametrize("name", BY_NAME)
def test_no_unit_of_work_takes_more_calls_than_recorded(name):
    assert calls.worse(name, calls.measured(name), calls.load().dimensions[name]) == []


def test_a_recorded_number_changes_with_a_line_in_the_changelog():
    recorded = calls.load()
    assert sorted(recorded.dimensions) == sorted(BY_NAME)
    assert recorded.digest == calls.digest(recorded.dimensions), "record with python -m testbed.calls --update 'LINE'"
    assert recorded.line in calls.CHANGELOG.read_text()


@pytest.mark.parametrize(
    ("now", "problems"),
    [
        ([100.0, 100.0], []),
        ([109.0, 109.0], []),
        ([90.0, 112.0], ["a at 20: 112 calls instead of 100", "a: exponent 0.32 instead of 0.00"]),
        ([112.0, 100.0], ["a at 10: 112 calls instead of 100"]),
        ([100.0, 105.0], ["a: exponent 0.07 instead of 0.00"]),
        ([1.0, 1.0], []),
    ],
)
def test_what_counts_as_worse(now, problems):
    assert calls.worse("a", Calls([10, 20], now), Calls([10, 20], [100.0, 100.0])) == problems


def test_an_entry_of_the_changelog_is_one_of_the_changes():
    before = "# Changelog\n\n## 2\n\n### Changed\n\n- a\n\n### Fixed\n\n- b\n"
    assert calls.with_entry(before, "c") == before.replace("- a\n", "- a\n- c\n")
    assert calls.with_entry("# Changelog\n\n- a\n", "c") == "# Changelog\n\n- a\n- c\n"


def test_other_sizes_are_recorded_anew():
    assert "record anew" in calls.worse("a", Calls([10, 30], [1.0, 1.0]), Calls([10, 20], [1.0, 1.0]))[0]
