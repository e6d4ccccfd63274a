"""`python -m testbed.dra`: record the verdicts of upstream's allocators, with which the tests compare."""

from __future__ import annotations

from pathlib import Path

from testbed.dra import differential

differential.record(range(300), Path(__file__).parents[2] / "tests/core/dra/verdicts.json.gz")
