"""The contract of the API server: see `cases.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("contract_cases", Path(__file__).with_name("cases.py"))
cases = importlib.util.module_from_spec(_spec)
sys.modules["contract_cases"] = cases
_spec.loader.exec_module(cases)


@pytest.mark.parametrize("name", cases.CASES)
def test_contract(api, name):
    cases.CASES[name](api)


def test_the_suite_is_as_large_as_promised():
    assert len(cases.CASES) >= 120
