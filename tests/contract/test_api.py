"""The contract of the API server: see `cases`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_contract(api, name):
    CASES[name](api)


def test_the_cases_of_every_subject_are_in_the_suite():
    subjects = {path.stem for path in (Path(__file__).parent / "cases").glob("*.py")} - {"__init__", "common"}
    assert {case.__module__.rpartition(".")[2] for case in CASES.values()} == subjects
