"""The README's commands, followed on an empty cluster by an administrator and an ordinary user: see `testbed/first_job.py`."""

import pytest

from testbed import first_job


@pytest.mark.e2e
def test_a_first_job_runs_after_the_commands_of_the_readme():
    result = first_job.run(print)
    assert result.commands == len(first_job.commands()) <= first_job.MOST_COMMANDS
    assert result.seconds <= first_job.MOST_SECONDS
