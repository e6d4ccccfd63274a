"""How much of what is held is used: the mean use of each pod's GPUs, asked of Prometheus every few minutes, for the history.

What is not measured is not unused: beside what was used, the history keeps over how much of what was held that is known.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.observability.prometheus import Prometheus, PrometheusError

log = structlog.get_logger("use")

EVERY = 300.0  # seconds between two measurements, and what each is the mean over

_MOST = 100.0  # percent


class Used(msgspec.Struct, frozen=True):
    """A measurement. share: (namespace, pod) -> mean use of its GPUs, 0 to 1, over the `seconds` before `at`."""

    share: Mapping[tuple[str, str], float]
    seconds: float
    at: float


class Use:
    """Measures while it runs. report: takes each measurement; metric: percent of a GPU, labels: of its namespace and pod."""

    def __init__(
        self,
        prometheus: Prometheus,
        clock: Callable[[], float],
        report: Callable[[Used], None],
        *,
        metric: str = "DCGM_FI_DEV_GPU_UTIL",
        labels: tuple[str, str] = ("namespace", "pod"),
        speed: float = 1.0,
    ) -> None:
        self.failures = 0
        self._prometheus = prometheus
        self._clock = clock
        self._report = report
        self._labels = labels
        self._speed = speed
        self._question = f"avg by ({', '.join(labels)}) (avg_over_time({metric}[{round(EVERY)}s]))"
        self._asked = 0.0  # when it was last measured

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(EVERY / self._speed)
            await self.measure()

    async def measure(self) -> None:
        """Ask once. A failure is logged; for that time the use is unknown."""
        now = self._clock()
        try:
            answer = await self._prometheus.query(self._question, self._labels)
        except PrometheusError as error:
            self.failures += 1
            log.warning("the use of GPUs is not known", error=str(error)[:300])
            return
        # A clock that was set back, or a long pause, counts as no more than one measurement is the mean over.
        lasted = min(EVERY, now - self._asked) if self._asked and now > self._asked else EVERY
        self._asked = now
        share = {
            (key[0], key[1]): min(_MOST, max(0.0, percent)) / _MOST for key, percent in answer.items() if not math.isnan(percent)
        }
        self._report(Used(share, lasted, now))
