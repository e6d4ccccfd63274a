"""Which bindings failed because of their devices, kept in the scheduler's Lease, for the scheduler that leads next.

The core derives from each failure for how long a device is avoided, so a scheduler that receives all of them, with their times,
knows what the one before it knew. They are carried by the renewals of the Lease: no write more, and no user can write there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead.api import names
from fairlead.cluster.port import PastFailure
from fairlead.core.model.allocations import Allocation, DeviceId, FailedDevice

_MOST, _OF_DEVICE = 64, 16  # failures that are kept, of all devices and of one: the latest
_FORGOTTEN = 600.0 + 3600.0  # seconds after the last failure of a device after which the core has forgotten it
_SAME = 10.0  # seconds in which refusals of extended resources are one, as many pods are on their way: the core's first backoff
_LONGEST = 200  # characters of a reason

_read = msgspec.json.Decoder(list[PastFailure]).decode


class FailedDevices:
    """Failures by device, each with its time. clock: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[DeviceId, list[PastFailure]] = {}

    def note(self, failed: Iterable[FailedDevice]) -> None:
        """A binding failed."""
        now = self._clock()
        for each in failed:
            short = msgspec.structs.replace(each, why=each.why[:_LONGEST])
            kept = self._failures.setdefault(each.device, [])
            if not (each.unserved and kept and now < kept[-1].at + _SAME):  # to the core it is the same failure
                kept.append(PastFailure(now, short))

    def works(self, allocations: Iterable[Allocation | None]) -> None:
        """A pod was bound with these devices."""
        for allocation in allocations if self._failures else ():
            for each in allocation.devices if allocation is not None else ():
                self._failures.pop(each.device, None)

    def claims_served(self) -> None:
        """A pod was bound with a claim for extended resources: they are served."""
        self._failures.pop(DeviceId("", "", ""), None)

    def annotations(self) -> dict[str, str | None]:
        """The annotation of the Lease; None: it has none."""
        kept = self._latest()
        return {names.FAILED_DEVICES_ANNOTATION: msgspec.json.encode(kept).decode() if kept else None}

    def take_over(self, annotations: Mapping[str, str]) -> tuple[PastFailure, ...]:
        """What the scheduler before this one has kept, by time. What cannot be read is nothing."""
        try:
            found = _read(annotations.get(names.FAILED_DEVICES_ANNOTATION, "[]"))
        except msgspec.DecodeError:
            found = []
        for each in found:
            self._failures.setdefault(each.failed.device, []).append(each)
        return tuple(self._latest())

    def _latest(self) -> list[PastFailure]:
        now = self._clock()
        for device, failures in list(self._failures.items()):
            failures.sort(key=lambda each: each.at)
            del failures[:-_OF_DEVICE]
            if now - failures[-1].at > _FORGOTTEN:
                del self._failures[device]
        by_time = sorted((each.at, at, each) for at, each in enumerate(each for one in self._failures.values() for each in one))
        return [each for _, _, each in by_time[-_MOST:]]
