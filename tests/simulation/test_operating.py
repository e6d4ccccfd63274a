"""What many AIJobs cost the operator."""

import pytest

from fairlead.simulation.operating import operator


@pytest.mark.parametrize("dependent", [False, True])
def test_jobs_end_and_others_begin_in_their_places(dependent):
    found = operator(60, dependent=dependent, steps=2, idle=60.0)
    assert (found.jobs, found.dependent) == (60, dependent)
    # Twice 20 end; the other 30 are bound and begin, in whichever place is free; pods of dependent jobs are made only then.
    assert found.events == 2 * 20 + 2 * 30 + 30 * dependent
    assert found.event_ms > 0
    assert found.start_ms > 0
    assert found.idle_core < 0.01
