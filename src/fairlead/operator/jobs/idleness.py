"""Jobs that hold GPUs and do not use them: they are shut down, if they or their class set a time for that.

Two rules. A `utilizationPolicy` ends a job when none of its GPUs was busy enough for a whole window, where a metric is there for
each of its pods and was there when the window began; what is not measured is not idle. An `idleDuration` shuts an Interactive job
down when its user was not active: activity is the annotation `fairlead.dev/last-activity` on the job, which `fairlead run` renews
while its user types and any tool may set, or the use of a GPU where that is measured. While measurements are asked for in
vain nothing is shut down.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping

import msgspec
import structlog

from fairlead.api import names, spans
from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster.times import seconds
from fairlead.observability.prometheus import Prometheus, PrometheusError
from fairlead.operator.jobs.members import asks_gpus
from fairlead.operator.jobs.pods import PodSeen

log = structlog.get_logger("idleness")

_EVERY = 30.0  # seconds between two measurements
_STALE = 4 * _EVERY  # after which a measurement no longer counts

Series = Mapping[tuple[str, str], float]
"""(namespace, pod) -> percent: of its busiest GPU, at its busiest within a window."""


class Measured(msgspec.Struct, frozen=True):
    """What was measured. by_window: seconds -> use; at: when; 0.0: never."""

    by_window: Mapping[float, Series] = {}
    at: float = 0.0


def windows(job: AIJob) -> Iterable[float]:
    """Over which times, in seconds, the use of a job's GPUs must be known."""
    if job.spec.utilization_policy is not None:
        yield spans.seconds(job.spec.utilization_policy.time_window)
    if job.spec.idle_duration is not None and job.spec.workload_type == "Interactive":
        yield spans.seconds(job.spec.idle_duration)


def judge(job: AIJob, pods: Iterable[PodSeen], measured: Measured | None, now: float) -> tuple[str, float | None]:
    """Why a job is to be shut down, empty if it is not; and when to recheck at the latest, in seconds from now.

    job: with its class's rules filled in. measured: None where nothing measures.
    """
    if not any(windows(job)):
        return "", None  # by far the commonest: it has no such rule
    running = [pod for pod in pods if pod.attempt == _attempt(job) and pod.phase == "Running" and not pod.terminating]
    began = max((seconds(pod.started) for pod in running), default=0.0)
    if not running or not began:
        return "", None
    again: list[float] = []
    known = measured if measured is not None and now - measured.at <= _STALE else None
    policy = job.spec.utilization_policy
    if policy is not None and measured is not None:
        window = spans.seconds(policy.time_window)
        use = _use(job, running, known, window)
        if now - began >= window and use is not None and use < policy.min_gpu_utilization:
            least = policy.min_gpu_utilization
            return f"GPU utilization was at most {use:g} % within {policy.time_window}, below {least} %: shut down", None
        again.append(_EVERY)
    if job.spec.idle_duration is not None and job.spec.workload_type == "Interactive":
        window = spans.seconds(job.spec.idle_duration)
        active = max(began, seconds((job.metadata.annotations or {}).get(names.LAST_ACTIVITY_ANNOTATION)))
        left = active + window - now
        if left > 0:
            again.append(left)
        elif measured is not None and (known is None or any((_use(job, [pod], known, window) or 0) > 0 for pod in running)):
            again.append(_EVERY)  # its GPUs are used, or their use is unknown
        else:
            return f"no activity for {job.spec.idle_duration}: shut down", None
    return "", min(again, default=None)


def _attempt(job: AIJob) -> int:
    return job.status.attempt if job.status is not None else 0


def _use(job: AIJob, pods: Iterable[PodSeen], measured: Measured | None, window: float) -> float | None:
    """How much the busiest of their GPUs was used; None unless it is known of all that have any."""
    series = measured.by_window.get(window, {}) if measured is not None else {}
    with_gpus = {role.name for role in job.spec.roles if asks_gpus(role)}
    found = [series.get((job.metadata.namespace, pod.name)) for pod in pods if pod.role in with_gpus]
    uses = [each for each in found if each is not None and not math.isnan(each)]
    return max(uses) if uses and len(uses) == len(found) else None


class Idleness:
    """Measures while it runs, for the windows that jobs ask for. on_measured: called after each measurement."""

    def __init__(
        self,
        prometheus: Prometheus | None,
        clock: Callable[[], float],
        wanted: Callable[[], Iterable[float]],
        on_measured: Callable[[], None],
        *,
        metric: str = "DCGM_FI_DEV_GPU_UTIL",
        labels: tuple[str, str] = ("namespace", "pod"),
        speed: float = 1.0,
    ) -> None:
        self.prometheus = prometheus
        self.failures = 0
        self._clock = clock
        self._wanted = wanted
        self._on_measured = on_measured
        self._metric = metric
        self._labels = labels
        self._speed = speed
        self.measured = Measured() if prometheus is not None else None

    async def run(self) -> None:
        """Measure until cancelled."""
        while self.prometheus is not None:
            await self.measure(self.prometheus)
            await asyncio.sleep(_EVERY / self._speed)

    async def measure(self, prometheus: Prometheus) -> None:
        """Ask once. What fails is logged, and what was known grows old."""
        found: dict[float, Series] = {}
        try:
            for window in sorted(set(self._wanted())):
                answer = await prometheus.query(self.question(window), self._labels)
                found[window] = {(key[0], key[1]): value for key, value in answer.items()}
        except PrometheusError as error:
            self.failures += 1
            log.warning("the use of GPUs is not known: nothing is shut down for it", error=str(error)[:300])
            return
        self.measured = Measured(found, self._clock())
        self._on_measured()

    def question(self, window: float) -> str:
        """The busiest moment of each pod's GPUs within a window at whose beginning it was measured already."""
        span, by = f"{max(1, round(window))}s", ", ".join(self._labels)
        busiest = f"max by ({by}) (max_over_time({self._metric}[{span}]))"
        return f"{busiest} and on ({by}) count by ({by}) ({self._metric} offset {span})"
