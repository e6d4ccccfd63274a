"""What ResourceClaims are allocated: which devices, and where they can be used. Transactions carry it; `core/dra` finds it.

Amounts are exact: an integer, or a fraction where a quantity is one.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.core.model.selectors import SelectorTerm

if TYPE_CHECKING:
    Amount = int | Fraction
else:
    Amount = Rational  # a union with a class of its own cannot be read from JSON


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device's repellent."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Taints that a request accepts; an empty key or effect stands for all. seconds: how long NoExecute is tolerated."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it accepts a taint, as the allocator upstream judges it."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class DeviceId(msgspec.Struct, frozen=True, order=True):
    """What identifies a device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One result of an allocation. consumed: sorted (capacity, amount) of a share. shared: it is one of several holders."""

    request: str
    device: DeviceId
    admin: bool = False
    shared: bool = False
    consumed: tuple[tuple[str, Amount], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The allocation of one claim: `status.allocation` of it.

    configs: (source, requests, parameters); empty requests: all. terms: where it can be used from; None: everywhere.
    """

    devices: tuple[Chosen, ...]
    configs: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None


class FailedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device with which a pod could not be bound. claim: `namespace/name`. why: for users.

    refused: the API server did not take the allocation, so that it may be the claim that is at fault. unserved: no claim for
    extended resources is to be had in this cluster, whatever devices it has; `claim` and `device` are empty then.
    """

    claim: str
    device: DeviceId
    why: str
    refused: bool = False
    unserved: bool = False


def read_amount(wanted: type, found: Any) -> Amount:
    """An amount as it is in JSON: an integer, or a fraction as text. For `msgspec`; raises `TypeError` for anything else."""
    if wanted is not Rational or not isinstance(found, int | str):
        raise TypeError(f"not an amount: {found!r}")
    return found if isinstance(found, int) else Fraction(found)
