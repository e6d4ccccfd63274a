"""Devices whose binding failed: which are avoided, by which claims, and until when.

A binding condition that failed, or did not hold in time, closes the device for all claims: 10 s, then twice as long after each
failure in a row, at most 600 s. A device that fits nothing else is so tried again once that is over, and whatever fits elsewhere
goes there. What may be the fault of the claim closes the device for this claim alone: an allocation that the API server refused,
and whatever fails for a content that has failed on `_SUSPECTED` devices before (wrong parameters of a driver), so that one
user's mistake does not close the devices of all others. Times come with events; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead.core.dra.model import Claim
from fairlead.core.model.agenda import Agenda
from fairlead.core.model.allocations import Allocation, DeviceId, FailedDevice
from fairlead.core.model.backoff import backoff
from fairlead.core.model.pods import Pod
from fairlead.core.model.undo import new_version
from fairlead.core.nodes.device_needs import DeviceNeeds
from fairlead.core.nodes.node_devices import NodeDevices

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


class Unserved:
    """Whether claims for extended resources are refused by the cluster, as where a feature gate is off; by backoff, as devices.

    why: for users; empty: they are not, or are tried now.
    """

    def __init__(self) -> None:
        self.why = ""
        self.next_due: float | None = None
        self._count = 0
        self._forgotten = 0.0

    def note(self, why: str, now: float) -> None:
        """A claim was refused. Those that were on their way meanwhile are the same refusal."""
        if self.next_due is None:
            self._count = self._count + 1 if now < self._forgotten else 1
            wait = backoff(_FIRST, self._count, _LONGEST)
            times = f", {self._count} times in a row" if self._count > 1 else ""
            self.why, self.next_due = f"{why}{times}; tried again after {wait:.0f} s", now + wait
            self._forgotten = self.next_due + _REMEMBERED

    def end_backoff(self, now: float) -> bool:
        """Whether they may be tried again from now on, and might not before."""
        if self.next_due is None or self.next_due > now:
            return False
        self.why, self.next_due = "", None
        return True

    def works(self) -> bool:
        """A pod was bound with such a claim. Whether they might not be tried before."""
        closed = self.next_due is not None
        self.why, self.next_due, self._count = "", None, 0
        return closed


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


class AvoidedDevices:
    """What failures of devices change of the claims: a part of `DeviceClaims`."""

    version: int
    devices: NodeDevices
    failures: DeviceFailures
    unserved: Unserved
    wants: DeviceNeeds

    def asks_of(self, key: str) -> Claim | None:
        """What a claim asks for."""
        raise NotImplementedError

    def allocation_of(self, key: str) -> Allocation | None:
        """What a claim has, or is to get."""
        raise NotImplementedError

    @staticmethod
    def keys_of(pod: Pod) -> list[str]:
        """The keys of the claims of a pod."""
        raise NotImplementedError

    def note_failed(self, failed: FailedDevice, now: float) -> None:
        """A pod could not be bound with a device: it is avoided for a while."""
        if failed.unserved:
            self.unserved.note(failed.why, now)
            self._served_otherwise()
            return
        asks = self.asks_of(failed.claim)
        self.failures.note(failed, repr(asks) if asks is not None else failed.claim, now)

    def remember_failures(self, failures: Iterable[tuple[float, FailedDevice]], now: float) -> None:
        """What failed before this scheduler began, by time, in seconds: as if it had been there."""
        for at, failed in failures:
            since = min(at, now)
            self._pass_until(since)
            self.note_failed(failed, since)
        self._pass_until(now)

    def _pass_until(self, now: float) -> None:
        """End backoffs one after the other, each when it is over."""
        while due := [each for each in (self.failures.next_due, self.unserved.next_due) if each is not None and each <= now]:
            self.end_backoffs(min(due))

    def note_bound(self, pod: Pod) -> None:
        """A pod was bound: its devices work."""
        for use, key in zip(pod.claims, self.keys_of(pod), strict=True):
            allocation = self.allocation_of(key)
            if use.extended and allocation is not None and self.unserved.works():
                self._served_otherwise()
            for each in allocation.devices if allocation is not None else ():
                self.failures.works(each.device)

    def end_backoffs(self, now: float) -> None:
        """What was avoided for long enough may be tried again."""
        self.failures.end_backoffs(now)
        if self.unserved.end_backoff(now):
            self._served_otherwise()

    def _served_otherwise(self) -> None:
        self.version = new_version()
        self.devices.renew_all()

    def _avoid(self, device: DeviceId) -> None:
        self.devices.avoid(device, self.failures.status(device))
        self.version = new_version()
        for key in self.failures.claims_of(device):
            self.wants.concern(key)
