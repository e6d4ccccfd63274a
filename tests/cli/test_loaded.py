"""A command starts in a few tenths of a second: what it does not need is not loaded."""

import subprocess
import sys

import pytest

HEAVY = (
    "aiohttp",
    "numpy",
    "prometheus_client",
    "rich.console",
    "sqlalchemy",
    "structlog",
    "yaml",
    "fairlead.core.state.cluster",
)


@pytest.mark.parametrize("module", ["fairlead.cli.main", "fairlead.cli.connection"])
def test_the_command_line_loads_nothing_that_a_command_may_not_need(module):
    program = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


@pytest.mark.parametrize("module", ["fairlead.cluster.kubernetes.client", "fairlead.install.preflight"])
def test_asking_an_api_server_loads_neither_aiohttp_nor_a_process_of_ours(module):
    program = f"import sys, {module}; print(*(n for n in sys.modules if n in ('aiohttp', 'sqlalchemy') or n.endswith('.app')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_what_the_leader_answers_is_shown_without_the_core():
    program = (
        "import sys; from fairlead.cli import nodes, queue, share, top; from fairlead.scheduler.overview import rows; "
        "print('numpy' in sys.modules, 'fairlead.core.state.cluster' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
