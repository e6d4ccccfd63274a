"""What tests of the operator share."""

from __future__ import annotations

import pytest

from fairlead.observability.store import History


@pytest.fixture
def history(database):
    """An empty one."""
    store = History(database)
    yield store
    store.close()
