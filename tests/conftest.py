"""Shared fixtures. With FAIRLEAD_NO_SKIPS set, as in CI, a skipped test is a failed one."""

from __future__ import annotations

import os
import re
import signal
from collections import defaultdict
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from fairlead.core.pods.tasks import TRANSITIONS, Task

settings.register_profile("fairlead", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("fairlead")


def pytest_runtest_setup():
    """What one test silenced, the next hears."""
    structlog.reset_defaults()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[structlog.processors.JSONRenderer()])


# A shell ignores them for what it runs in the background, and children inherit that; the tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


_become = Task.become


def _become_checked(task, state, log=None):
    """Every change of a task's state in any test is one that the table allows."""
    assert state is task.state or state in TRANSITIONS[task.state], f"{task.pod.key}: {task.state} -> {state}"
    _become(task, state, log)


Task.become = _become_checked


def pytest_addoption(parser):
    parser.addoption(
        "--sample", type=int, default=0, help="of many tests that differ by numbers alone, as by seeds, the first so many"
    )


_MANY = 8


_LONG = ("tests/simulation/test_jobs.py", "tests/simulation/", "tests/agent/")
"""What takes longest comes first: what is short fills the gaps at the end, so that all cores are busy until then."""


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: next((at for at, start in enumerate(_LONG) if item.nodeid.startswith(start)), len(_LONG)))
    most = config.getoption("--sample")
    if not most:
        return
    alike = defaultdict(list)
    for item in items:
        name, _, parameters = item.nodeid.partition("[")
        alike[name, re.sub(r"(?<![A-Za-z_])\d+", "#", parameters)].append(item)
    left = {id(item) for group in alike.values() if len(group) > _MANY for item in group[most:]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
    items[:] = [item for item in items if id(item) not in left]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("FAIRLEAD_NO_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as failed here: {report.longrepr}"


@pytest.fixture(scope="session")
def postgresql():
    """A real server of this worker's."""
    from testbed.postgresql import PostgreSQL

    with PostgreSQL() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.e2e)])
def database(request, tmp_path) -> str:
    """The URL of an empty database for a history, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    return request.getfixturevalue("postgresql").emptied("history")


@pytest.fixture
def traces() -> Path:
    folder = os.environ.get("FAIRLEAD_TRACES")
    if not folder:
        pytest.skip("FAIRLEAD_TRACES does not name the folder of the traces (see docs/traces.md)")
    return Path(folder)
