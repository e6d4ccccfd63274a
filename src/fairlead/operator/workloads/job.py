"""batch/v1 Job: its controller deletes the pods of a suspended Job, counts none of them as failed, and starts its clock anew."""

from __future__ import annotations

from fairlead.operator.workloads.base import Workload

JOB = Workload("batch/v1", "Job", "jobs")
