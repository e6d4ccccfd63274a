"""What tests of the operator share."""

from __future__ import annotations

import pytest

from fairlead.observability.store import History


@pytest.fixture
def history(tmp_path):
    """An empty one."""
    store = History(f"sqlite:///{tmp_path}/history.db")
    yield store
    store.close()
