"""A long history, and what is asked of it."""

from fairlead.observability.history import Wanted
from fairlead.observability.store import History
from fairlead.simulation import long_history
from fairlead.simulation.long_history import DAY, NOW


def test_it_is_written_added_up_and_asked():
    found = long_history.measure(400)
    assert found.jobs == 400
    assert 0 < found.list_seconds < 10
    assert 0 < found.cost_seconds < 10
    assert found.size_mb > 0


def test_jobs_lie_evenly_in_its_days_and_hold_no_more_than_there_is(tmp_path):
    history = History(f"sqlite:///{tmp_path}/history.db")
    long_history.write(history, 800, 20.0)
    assert len(history.jobs(Wanted(since=NOW - 10 * DAY), NOW)) == 400 + 7, "with those that were under way then"
    ledger = long_history.costs(history, NOW - 10 * DAY)
    assert len(ledger.lines) == 20
    assert ledger.balance == {"USD": 0.0}
    history.close()
