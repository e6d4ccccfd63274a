"""Why claims have no devices on a node: a kind, where it is wrong, and numbers; the text is for users."""

from __future__ import annotations

from enum import Enum

import msgspec


class Kind(Enum):
    """What prevents an allocation."""

    INVALID = "invalid claim"  # it cannot be read, or asks for more than a claim can get
    NO_CLASS = "no device class"  # a DeviceClass is missing
    POOL = "pool not usable"  # all devices are asked for while a pool is incomplete or invalid
    SELECTOR = "selector failed"  # all devices are asked for and a selector errs for one
    DEVICES = "not enough devices"  # one request has too few devices of its own
    TOGETHER = "no combination"  # each request has devices, but not all at once
    GAVE_UP = "search gave up"  # the work budget was used up


class Counts(msgspec.Struct, frozen=True):
    """What becomes of a node's devices for one request: each is counted where it fails first.

    selectors: (which, devices that fail it), the class's first. failed: devices for which a selector errs, with its message.
    avoided: devices whose binding failed a while ago; why: the first of them, and what failed.
    """

    devices: int = 0
    selectors: tuple[tuple[str, int], ...] = ()
    failed: int = 0
    failure: str = ""
    capacity: int = 0
    tainted: int = 0
    avoided: int = 0
    why: str = ""
    allocated: int = 0
    overdrawn: int = 0
    counters: int = 0
    shares: int = 0
    left: int = 0

    def text(self) -> str:
        """The numbers in words, without those that are zero."""
        parts = [f"{number} fail {which}" for which, number in self.selectors if number]
        named = (
            (self.failed, f"make a selector err ({self.failure})"),
            (self.capacity, "lack the capacity"),
            (self.tainted, "have a taint that is not tolerated"),
            (self.avoided, f"could not be bound ({self.why})"),
            (self.allocated, "are allocated"),
            (self.overdrawn, "are in a pool with overdrawn counters"),
            (self.counters, "lack free counters"),
            (self.shares, "have too little capacity left"),
        )
        parts += [f"{number} {what}" for number, what in named if number]
        return f"{self.devices} devices" + (f", {', '.join(parts)}" if parts else "")


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no allocation. claim, request: where; wanted: devices that the request needs; work: picks that were tried."""

    kind: Kind
    message: str
    claim: str = ""
    request: str = ""
    wanted: int = 0
    counts: Counts = Counts()
    faults: tuple[str, ...] = ()
    work: int = 0

    @property
    def can_change_by_itself(self) -> bool:
        """Whether it can help to try again when devices, pools or allocations change; else the claim or its class must."""
        return self.kind is not Kind.INVALID

    def text(self) -> str:
        """One sentence for a condition or an event."""
        where = f"claim {self.claim}" if self.claim else "claims"
        where += f", request {self.request}" if self.request else ""
        return f"{where}: {self._reason()}"

    def text_of_claim(self) -> str:
        """The same where the claim is known already."""
        return f"request {self.request}: {self._reason()}" if self.request else self._reason()

    def _reason(self) -> str:
        pools = f"; pools that give no devices: {'; '.join(self.faults)}" if self.faults else ""
        return f"{self.message}{pools}"


def unknown(why: str, refusal: Refusal) -> Refusal:
    """A refusal of a gang that was not placed and can perhaps be placed all the same."""
    if refusal.kind is Kind.GAVE_UP:
        return refusal
    message = f"no placement was found, and it is not known whether there is one: {why}; {refusal.message}"
    return msgspec.structs.replace(refusal, kind=Kind.GAVE_UP, message=message)
