"""Charges: what a queue is charged for, resource by resource, of all nodes or of those of one pool.

A resource of one pool has a key of its own beside the resource: `nvidia.com/gpu@h100`. Devices are charged in thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.api.names import GPU_RESOURCES, POOL_LABELS
from fairlead.core.model.units import WHOLE

Charge = tuple[tuple[str, int], ...]
"""Pairs of (key, amount), in the order of the keys."""


def key_of(resource: str, pool: str) -> str:
    """Under which name a resource of one pool is charged; the resource itself where there is no pool."""
    return f"{resource}@{pool}" if pool else resource


def split(key: str) -> tuple[str, str]:
    """(resource, pool) of a key; the pool is empty for all nodes."""
    resource, _, pool = key.partition("@")
    return resource, pool


def labelled(labels: Mapping[str, str]) -> str:
    """The pool that a node's own labels name, the first of them; empty: none does."""
    return next((labels[label] for label in POOL_LABELS if labels.get(label)), "")


def units_of(key: str) -> int:
    """Charged units per unit of what a key names: devices are charged in milli."""
    return WHOLE if split(key)[0] in GPU_RESOURCES else 1


def sum_of(charges: Sequence[Charge]) -> Charge:
    """The sum of charges, by resource."""
    if len(charges) == 1:
        return charges[0]
    summed: dict[str, int] = {}
    for charge in charges:
        for resource, amount in charge:
            summed[resource] = summed.get(resource, 0) + amount
    return tuple(sorted(summed.items()))
