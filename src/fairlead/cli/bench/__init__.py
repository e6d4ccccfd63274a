"""`fairlead bench`: the numbers of benchmarks/README.md, one command each."""

from __future__ import annotations

from fairlead.cli.bench import cluster, core, devices, jobs, numa, topology
from fairlead.cli.bench.common import app

__all__ = ["app", "cluster", "core", "devices", "jobs", "numa", "topology"]
