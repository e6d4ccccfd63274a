"""Errors that devices report: DCGM's XIDs, asked of Prometheus. Those that speak of the hardware quarantine the node.

`DCGM_FI_DEV_XID_ERRORS` is the last XID of a GPU and stays until the driver is loaded anew, so only a value that was not there a
while ago is news. XIDs that programs cause (13, 31, 43, 45, 68, 69, 109 and others) are no evidence against the node.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import structlog

from fairlead.observability.prometheus import Prometheus, PrometheusError

log = structlog.get_logger("devices")

_EVERY = 30.0  # seconds between two questions
NEWS = 600.0
"""For so many seconds a value counts as new."""
METRIC = "DCGM_FI_DEV_XID_ERRORS"
_NODE_LABELS = ("node", "Hostname", "hostname", "kubernetes_node")
_LABELS = (*_NODE_LABELS, "UUID", "gpu")

HARDWARE: dict[int, str] = {
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    62: "halt of an internal micro-controller",
    64: "a memory row or page could not be retired",
    74: "NVLink error",
    79: "the GPU has dropped off the bus",
    95: "uncontained ECC error",
    110: "security fault",
    119: "the GPU's system processor does not answer",
    120: "fault of the GPU's system processor",
    140: "unrecovered ECC error",
    143: "the GPU could not be initialized",
}
"""XIDs after which NVIDIA's catalogue has the node drained or the GPU reset."""


def question() -> str:
    """The last error of those GPUs of which it was another one, or none, a while ago; whichever pod has them."""
    last = f"max by ({', '.join(_LABELS)})"
    return f"{last} ({METRIC}) != {last} ({METRIC} offset {NEWS:.0f}s)"


class DeviceErrors:
    """Asks while it runs.

    known: whether a name is a node's. report: takes a node and what is wrong with it, and returns whether it noted that.
    """

    def __init__(
        self,
        prometheus: Prometheus | None,
        known: Callable[[str], bool],
        report: Callable[[str, str], Awaitable[bool]],
        *,
        speed: float = 1.0,
    ) -> None:
        self.prometheus = prometheus
        self.failures = 0
        self._known = known
        self._report = report
        self._speed = speed
        self._reported: dict[tuple[str, str, int], int] = {}  # node, GPU, XID -> how many more answers may repeat it

    async def run(self) -> None:
        """Ask until cancelled."""
        while self.prometheus is not None:
            await self.ask(self.prometheus)
            await asyncio.sleep(_EVERY / self._speed)

    async def ask(self, prometheus: Prometheus) -> None:
        """Ask once. What fails is logged; the node is judged by what else is known of it."""
        try:
            answer = await prometheus.query(question(), _LABELS)
        except PrometheusError as error:
            self.failures += 1
            log.warning("errors of devices are not known", error=str(error)[:300])
            return
        found: dict[tuple[str, str, int], int] = {}
        for labels, value in sorted(answer.items()):
            node = next((each for each in labels[: len(_NODE_LABELS)] if self._known(each)), "")
            xid = int(value) if math.isfinite(value) else 0
            if not node or xid not in HARDWARE:
                continue
            gpu = labels[-2] or labels[-1]
            key = node, gpu, xid
            if key in self._reported or await self._report(node, f"GPU {gpu} reported XID {xid}: {HARDWARE[xid]}"):
                found[key] = round(2 * NEWS / _EVERY)
        lasting = {key: left - 1 for key, left in self._reported.items() if left > 1}
        self._reported = lasting | found
