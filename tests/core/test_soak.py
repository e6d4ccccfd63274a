"""Long runs of the state machine: `make soak`."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.core.test_properties import Churn


@pytest.mark.slow
def test_churn_for_long():
    run_state_machine_as_test(
        Churn, settings=settings(max_examples=1500, stateful_step_count=60, deadline=None, derandomize=False)
    )
