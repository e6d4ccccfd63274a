"""The contract of the API server: see `cases.py` and `bodies.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def load(name):
    spec = importlib.util.spec_from_file_location(f"contract_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"contract_{name}"] = module
    spec.loader.exec_module(module)
    return module


cases = load("cases")
load("bodies")


@pytest.mark.parametrize("name", cases.CASES)
def test_contract(api, name):
    cases.CASES[name](api)


def test_the_suite_is_as_large_as_promised():
    assert len(cases.CASES) >= 120
