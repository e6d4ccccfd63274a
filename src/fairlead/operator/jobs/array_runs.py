"""The runs of all arrays that are under way. Each can be made anew from its job and its pods at any time."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kinds.ai_job import AIJob
from fairlead.operator.jobs.accepted import held
from fairlead.operator.jobs.arrays import ArrayRun, Idle
from fairlead.operator.jobs.dependencies import Gate, Verdict
from fairlead.operator.jobs.indexes import WrongIndexes
from fairlead.operator.jobs.plan import Plan
from fairlead.operator.jobs.pods import PodSeen


class ArrayRuns:
    """By job. A run remembers what it has decided: forget it where that was not carried out."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, ArrayRun]] = {}  # job -> what it was made from, and the run

    def __contains__(self, key: str) -> bool:
        return key in self._runs

    def forget(self, key: str) -> None:
        """The next plan starts from the pods that exist."""
        self._runs.pop(key, None)

    def observed(self, key: str, pod: PodSeen) -> None:
        """A pod of an array came or changed."""
        if key in self._runs:
            self._runs[key][1].observed(pod)

    def gone(self, key: str, pod: PodSeen) -> None:
        """A pod of an array is no more."""
        self._runs[key][1].gone(pod)

    def plan(
        self,
        key: str,
        job: AIJob,
        pods: Iterable[PodSeen],
        now: float,
        first: Verdict,
        opens: Gate | None,
        *,
        idle: Idle | None,
        write_counts: bool,
    ) -> Plan:
        """The next step of an array. pods: of which a run is made where there is none."""
        made_from = f"{job.metadata.uid} {job.spec.array.indexes if job.spec.array is not None else ''}"
        known, run = self._runs.get(key, ("", None))
        if run is None or known != made_from:
            try:
                run = ArrayRun(job)
            except WrongIndexes as error:
                return held(job, ("WrongIndexes", str(error)), now)
            for pod in pods:
                run.observed(pod)
            self._runs[key] = made_from, run
        return run.plan(job, now, first, opens, idle=idle, write_counts=write_counts)
