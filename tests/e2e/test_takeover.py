"""kill -9 of leaders that have a standby, while work arrives: see `testbed/takeover.py`."""

import os

import pytest

from testbed import takeover


@pytest.mark.e2e
def test_three_kills_of_leaders_are_survived_in_time():
    result = takeover.run(3, 1, print)
    assert result.holds, result
    assert result.kills == len(result.first_binding_seconds.each) == 3


@pytest.mark.e2e
@pytest.mark.slow
def test_fifty_kills_of_leaders_are_survived_in_time():
    result = takeover.run(int(os.environ.get("FAIRLEAD_KILLS", "50")), 2, print)
    assert result.holds, result
