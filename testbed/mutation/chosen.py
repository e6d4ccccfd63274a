"""A plugin of pytest: runs chosen tests in a given order, and writes down how long each took and which failed.

MUTATION_CHOSEN names a file with the IDs of the tests to run, one a line; MUTATION_REPORT one that takes a line of JSON per test.
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
    """Note a phase of a test. Workers of pytest-xdist leave it to the process that started them."""
    where = os.environ.get("MUTATION_REPORT")
    if where and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(where).open("a") as file:
            file.write(json.dumps({"test": report.nodeid, "seconds": report.duration, "failed": report.failed}) + "\n")
