"""Tests with many seeds on the databases that a history may be in: all of them on SQLite, some on PostgreSQL, too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def on_databases(seeds: Sequence[int], few: int = 3):
    """For tests with `database` and `seed`."""
    real = [pytest.param("postgresql", seed, marks=pytest.mark.e2e) for seed in seeds[:few]]
    return pytest.mark.parametrize(("database", "seed"), [*(("sqlite", seed) for seed in seeds), *real], indirect=["database"])
