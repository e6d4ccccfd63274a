"""Devices whose binding failed: which are avoided, by which claims, and until when.

A binding condition that failed, or did not hold in time, closes the device for all claims: 10 s, then twice as long after each
failure in a row, at most 600 s. A device that fits nothing else is so tried again once that is over, and whatever fits elsewhere
goes there. What may be the fault of the claim closes the device for this claim alone: an allocation that the API server refused,
and whatever fails for a content that has failed on `_SUSPECTED` devices before (wrong parameters of a driver), so that one
user's mistake does not close the devices of all others. Times come with events; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairlead.core.model.agenda import Agenda
from fairlead.core.model.allocations import DeviceId, FailedDevice
from fairlead.core.model.backoff import backoff

_FIRST, _LONGEST = 10.0, 600.0  # seconds
_REMEMBERED = 3600.0  # seconds after a backoff within which another failure is one more in a row
_SUSPECTED = 8  # devices on which a content may fail before it, and not the devices, is at fault: those of one node, mostly


class _Failure(msgspec.Struct):
    """Of one device. for_all: it is closed for all claims, else for `claims`. closed: its backoff is not over."""

    count: int = 0
    why: str = ""
    until: float = 0.0
    for_all: bool = False
    closed: bool = False
    claims: dict[str, str] = {}  # key of a claim -> what it asks for, as `content`

    @property
    def message(self) -> str:
        """For users: what failed, how often, and how long that is waited for."""
        times = f", {self.count} times in a row" if self.count > 1 else ""
        return f"{self.why}{times}; tried again after {backoff(_FIRST, self.count, _LONGEST):.0f} s"


class DeviceFailures:
    """By device the failures in a row. One that works, or has not failed for long, is forgotten.

    changed: is called with a device that is avoided otherwise than before.
    """

    def __init__(self, changed: Callable[[DeviceId], object] = id) -> None:
        self._changed = changed
        self._failures: dict[DeviceId, _Failure] = {}
        self._due: Agenda[DeviceId] = Agenda()
        self._of_claim: dict[str, dict[DeviceId, None]] = {}
        self._of_content: dict[str, dict[DeviceId, int]] = {}  # content -> devices, each with how many claims failed there

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __len__(self) -> int:
        return len(self._failures) + len(self._of_claim) + len(self._of_content)

    @property
    def next_due(self) -> float | None:
        """When `end_backoffs` has something to do next, in seconds."""
        return self._due.next

    def note(self, failed: FailedDevice, content: str, now: float) -> None:
        """A binding failed. content: identifies what the claim asks for. Failures while a device is closed are the same one."""
        device = failed.device
        found = self._failures.setdefault(device, _Failure())
        if not found.closed:
            found.count += 1
            found.until = now + backoff(_FIRST, found.count, _LONGEST)
            found.for_all, found.closed = False, True
            self._due.put(device, found.until)
        found.why = failed.why
        devices = self._of_content.setdefault(content, {})
        if failed.claim not in found.claims:
            found.claims[failed.claim] = content
            devices[device] = devices.get(device, 0) + 1
            self._of_claim.setdefault(failed.claim, {})[device] = None
        found.for_all = found.for_all or (not failed.refused and len(devices) <= _SUSPECTED)
        self._changed(device)

    def end_backoffs(self, now: float) -> None:
        """Devices that have been avoided for long enough may be tried again; those that have not failed since are forgotten."""
        for device in list(self._due.due(now)):
            found = self._failures[device]
            if found.closed:
                found.closed = False
                self._due.put(device, now + _REMEMBERED)
            else:
                self._forget(device)
            self._changed(device)

    def works(self, device: DeviceId) -> None:
        """A pod was bound with a device: it is as others are."""
        if device in self._failures:
            self._due.drop(device)
            self._forget(device)
            self._changed(device)

    def claim_gone(self, key: str) -> None:
        """A claim is gone: another of that name begins anew."""
        for device in self._of_claim.pop(key, ()):
            self._discount(device, self._failures[device].claims.pop(key))

    def status(self, device: DeviceId) -> tuple[bool, str] | None:
        """Whether a device is closed for all claims, and the message; None: it has not failed."""
        found = self._failures.get(device)
        return None if found is None else (found.closed and found.for_all, found.message)

    def of_claim(self, key: str) -> Mapping[DeviceId, str]:
        """Devices that are closed for this claim and not for all, each with the message."""
        failed = ((device, self._failures[device]) for device in self._of_claim.get(key, ()))
        return {device: each.message for device, each in failed if each.closed and not each.for_all}

    def claims_of(self, device: DeviceId) -> tuple[str, ...]:
        """Keys of the claims that failed on a device."""
        found = self._failures.get(device)
        return tuple(found.claims) if found is not None else ()

    def _forget(self, device: DeviceId) -> None:
        for key, content in self._failures.pop(device).claims.items():
            devices = self._of_claim[key]
            del devices[device]
            if not devices:
                del self._of_claim[key]
            self._discount(device, content)

    def _discount(self, device: DeviceId, content: str) -> None:
        devices = self._of_content[content]
        devices[device] -= 1
        if not devices[device]:
            del devices[device]
            if not devices:
                del self._of_content[content]
