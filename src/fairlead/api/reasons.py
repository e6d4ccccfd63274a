"""Why something is not placed: a stable code, a sentence, and the numbers behind it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReasonCode(StrEnum):
    """The documented, stable codes. Codes are added, never renamed."""

    PRIORITY = "Priority"
    FAIR_SHARE = "FairShare"
    QUOTA_EXCEEDED = "QuotaExceeded"
    LIMIT_EXCEEDED = "LimitExceeded"
    USER_LIMIT = "UserLimit"
    RESOURCES = "Resources"
    SHARED_RESOURCES = "SharedResources"
    NODE_AFFINITY = "NodeAffinity"
    TAINTS = "Taints"
    TOPOLOGY = "Topology"
    PREFERRED_TOPOLOGY = "PreferredTopology"
    DEVICES = "Devices"
    VOLUMES = "Volumes"
    GANG_INCOMPLETE = "GangIncomplete"
    DEPENDENCY = "Dependency"
    RESERVATION = "Reservation"
    TIME_LIMIT = "TimeLimit"
    START_TIMEOUT = "StartTimeout"
    PAIR_PARTED = "PairParted"
    BACKOFF = "Backoff"
    SUSPENDED = "Suspended"
    GATED = "Gated"
    UNKNOWN_QUEUE = "UnknownQueue"
    OTHER_SCHEDULER = "OtherScheduler"
    UNKNOWN_CLASS = "UnknownServiceClass"
    NOT_ALLOWED = "NotAllowed"
    ADMITTED_STAYS = "AdmittedStays"
    INVALID_SPEC = "InvalidSpec"
    TOO_LARGE = "TooLarge"
    DISRUPTION_BUDGET = "DisruptionBudget"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    NODE_CLOSED = "NodeClosed"
    INTERNAL_ERROR = "InternalError"


CAPACITY_CODES = frozenset(
    {
        ReasonCode.RESOURCES,
        ReasonCode.NODE_AFFINITY,
        ReasonCode.TAINTS,
        ReasonCode.TOPOLOGY,
        ReasonCode.DEVICES,
        ReasonCode.VOLUMES,
        ReasonCode.TOO_LARGE,
        ReasonCode.NODE_CLOSED,
    }
)
"""Codes that mean missing capacity. Only these are shown to autoscalers as `Unschedulable`."""


class Reason(msgspec.Struct, frozen=True):
    """One refusal.

    text: the sentence, without the gang that it is about. `numbers` holds whatever the sentence counts: amounts in base units,
    nodes, pods. `gang`: what is refused, `namespace/name`, its subject; empty: the text is a whole sentence.
    Decision logs hold both.
    """

    code: ReasonCode
    text: str = msgspec.field(name="message")
    numbers: dict[str, int] = {}
    gang: str = ""

    @property
    def message(self) -> str:
        """The whole sentence."""
        return f"gang {self.gang} {self.text}" if self.gang else self.text

    def of(self, gang: str) -> Reason:
        """The same of another gang that is refused for the same reason."""
        if not self.gang or not gang or gang == self.gang:
            return self
        return msgspec.structs.replace(self, gang=gang)

    @property
    def is_capacity(self) -> bool:
        """Whether more nodes would help.

        A gang too large for the cluster has numbers, an absurd quantity has none; nor have resources of device classes.
        """
        by_numbers = self.code in (ReasonCode.TOO_LARGE, ReasonCode.DEVICES)
        return self.code in CAPACITY_CODES and (not by_numbers or bool(self.numbers))
