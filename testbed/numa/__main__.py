"""`python -m testbed.numa`: record the verdicts of the kubelet's own managers, with which the tests compare."""

from __future__ import annotations

from pathlib import Path

from testbed.numa import differential

differential.record(400, Path(__file__).parents[2] / "tests/core/numa/verdicts.json.gz")
