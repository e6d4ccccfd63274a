"""Faults on demand: what goes wrong between a client and the API server, decided by one seeded generator.

A `FaultPlan` is asked for every request and every watch event. Each kind has a chance (per request or
per event) while faults are on; `counts` records what happened. Nothing here waits or writes by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import StrEnum

import msgspec

from fairlead.cluster.simulated.errors import StatusError, expired


class Fault(StrEnum):
    """Kinds of faults between client and server."""

    CONFLICT = "conflict"  # 409 on a write
    TOO_MANY = "too_many_requests"  # 429 with Retry-After
    INTERNAL = "internal_error"  # 500
    UNAVAILABLE = "unavailable"  # 503
    LOST = "timeout_lost"  # no answer, and it did not happen
    APPLIED = "timeout_applied"  # no answer, though it happened
    REFUSED = "connection_refused"
    SLOW = "slow"  # the answer takes seconds
    GONE = "gone"  # 410 when a watch begins
    GONE_LATER = "gone_in_watch"  # an ERROR event in a watch
    CUT = "watch_cut"  # the connection of a watch ends
    STALL = "watch_stall"  # a watch goes silent without ending
    DUPLICATE = "duplicate_event"
    DELAY = "delayed_event"  # one kind's events lag behind the others'
    COMPACTED = "compacted"  # the server's history is forgotten
    FORBIDDEN = "forbidden"  # 403: the server has not loaded the roles yet
    UNAUTHORIZED = "unauthorized"  # 401: nor those who are known


WRITES = (Fault.CONFLICT, Fault.INTERNAL, Fault.LOST, Fault.APPLIED)
READS = (Fault.TOO_MANY, Fault.UNAVAILABLE, Fault.REFUSED, Fault.SLOW)
EVENTS = (Fault.GONE_LATER, Fault.CUT, Fault.STALL, Fault.DUPLICATE, Fault.DELAY)


class Rates(msgspec.Struct, frozen=True):
    """Chances in thousandths: of each write fault, of each fault of any request, of each watch fault."""

    write: float = 12.0
    request: float = 6.0
    event: float = 4.0
    start: float = 20.0


class FaultPlan:
    """Decides what goes wrong. kinds: those that may; none: all. starting: what every request meets while the server starts."""

    def __init__(self, seed: int, rates: Rates | None = None, kinds: frozenset[Fault] | None = None) -> None:
        self.rates = rates or Rates()
        self.on = False
        self.starting: Fault | None = None
        self.counts: Counter[str] = Counter()
        self.random = random.Random(f"faults {seed}")
        self._kinds = kinds if kinds is not None else frozenset(Fault)

    def for_request(self, *, write: bool) -> Fault | None:
        """What goes wrong with this request, if anything."""
        if self.starting is not None:
            self.counts[self.starting] += 1
            return self.starting
        if not self.on:
            return None
        choice = self._choose(WRITES, self.rates.write) if write else None
        return choice or self._choose(READS, self.rates.request)

    def for_watch(self) -> Fault | None:
        """What goes wrong at the beginning of this watch."""
        if self.starting is not None:
            return self.starting
        return self._choose((Fault.GONE, Fault.COMPACTED), self.rates.start) if self.on else None

    def for_event(self) -> Fault | None:
        """What goes wrong with this batch of events."""
        return self._choose(EVENTS, self.rates.event) if self.on else None

    def _choose(self, kinds: tuple[Fault, ...], thousandths: float) -> Fault | None:
        draw = self.random.random() * 1000.0
        number = int(draw / thousandths) if thousandths else len(kinds)
        if number >= len(kinds) or kinds[number] not in self._kinds:
            return None
        self.counts[kinds[number]] += 1
        return kinds[number]

    def seconds(self, low: float, high: float) -> float:
        """A length of time."""
        return self.random.uniform(low, high)


def refusal(fault: Fault, plan: FaultPlan) -> StatusError | None:  # noqa: PLR0911 - a fault each
    """The Status of faults that are answers."""
    if fault is Fault.CONFLICT:
        return StatusError(
            409, "Conflict", "Operation cannot be fulfilled: the object has been modified; please apply your changes"
        )
    if fault is Fault.TOO_MANY:
        wait = {"Retry-After": str(plan.random.randint(1, 5))}
        return StatusError(429, "TooManyRequests", "Too many requests, please try again later.", headers=wait)
    if fault is Fault.INTERNAL:
        return StatusError(500, "InternalError", "Internal error occurred: etcdserver: leader changed")
    if fault is Fault.UNAVAILABLE:
        return StatusError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    if fault is Fault.FORBIDDEN:
        message = 'User "fairlead" cannot use it: RBAC: clusterrole.rbac.authorization.k8s.io "fairlead-scheduler" not found'
        return StatusError(403, "Forbidden", f"forbidden: {message}")
    if fault is Fault.UNAUTHORIZED:
        return StatusError(401, "Unauthorized", "Unauthorized")
    if fault is Fault.GONE:
        return expired("too old resource version: 1 (2)")
    return None
