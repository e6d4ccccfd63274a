"""The floors of coverage: compared package by package, and only ever raised."""

from __future__ import annotations

from pathlib import Path

import fairlead
from testbed import floors


def report(**branches):
    """A report of coverage. branches: file below src/fairlead, with `__` for `/` -> (run, there)."""
    return {
        "files": {
            f"/anywhere/src/fairlead/{name.replace('__', '/')}.py": {
                "summary": {"covered_branches": run, "num_branches": there},
            }
            for name, (run, there) in branches.items()
        }
    }


def test_branches_are_added_up_by_package_and_those_of_modules_beside_them_together():
    found = floors.measured(report(core__a=(9, 10), core__deep__b=(0, 10), cli__c=(0, 0), version=(1, 4)))
    assert found == {".": 25.0, "cli": 100.0, "core": 45.0}


def test_what_is_below_its_floor_has_none_or_is_gone_is_said():
    found = {"api": 80.0, "cli": 50.0, "core": 94.0}
    assert floors.below(found, {"api": 80.0, "core": 94.5, "old": 1.0}) == [
        "cli: it has no floor, run `python -m testbed.floors --raise`",
        "core: 94.0 % of branches, at least 94.5 %",
        "old: there is no such package",
    ]
    assert floors.below({"api": 80.0}, {"api": 80.0}) == []


def test_floors_only_rise_and_only_by_a_point_and_more():
    found = {"falls": 50.0, "little": 81.0, "much": 95.04, "new": 70.0, "none": 0.0}
    assert floors.lifted(found, {"falls": 60.0, "little": 80.0, "much": 90.0, "gone": 3.0}) == {
        "falls": 60.0,
        "little": 80.0,
        "much": 94.5,
        "new": 69.5,
        "none": 0.0,
    }


def test_every_package_has_a_floor_and_that_of_the_core_is_90_per_cent_or_more():
    package = Path(fairlead.__file__).parent
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert set(floors.read()) - {"."} == packages
    assert floors.read()["core"] >= 90.0
