"""Kinds of workloads that can be suspended: one file for each, found here by apiVersion and kind."""

from __future__ import annotations

from fairlead.operator.workloads.base import Workload
from fairlead.operator.workloads.job import JOB

WORKLOADS: dict[tuple[str, str], Workload] = {(each.api_version, each.kind): each for each in (JOB,)}
"""(apiVersion, kind) -> how it is suspended."""
