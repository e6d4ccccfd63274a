"""A plugin of pytest: runs chosen tests in a given order, and writes down the time and the failures of each.

MUTATION_CHOSEN names a file with the IDs of the tests to run, one a line. MUTATION_REPORT names one that takes a line of JSON
for each phase of a test, and for each file that cannot be collected.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the chosen tests, in their order."""
    chosen = os.environ.get("MUTATION_CHOSEN")
    if not chosen:
        return
    place = {test: number for number, test in enumerate(Path(chosen).read_text().splitlines())}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
    items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a phase of a test."""
    _note(report, phase="run", seconds=report.duration)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note what could not be collected."""
    if report.failed:
        _note(report, phase="collect", seconds=0.0)


def _note(report: pytest.TestReport | pytest.CollectReport, *, phase: str, seconds: float) -> None:
    """Write a line. Workers of pytest-xdist leave it to the process that started them."""
    where = os.environ.get("MUTATION_REPORT")
    if where and "PYTEST_XDIST_WORKER" not in os.environ:
        line = {"test": report.nodeid, "phase": phase, "seconds": seconds, "failed": report.failed}
        with Path(where).open("a") as file:
            file.write(json.dumps(line) + "\n")
