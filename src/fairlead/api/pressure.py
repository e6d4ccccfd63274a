"""Pressure: how much of what all pods of a node share a pod uses, as annotations and AIJobs have it.

Kinds are the memory bandwidth of the node, its PCIe, its network and its disks. A value is a share of the capacity of the node on
which the pod runs, a percentage from 0% to 100% with at most one digit after the point; here thousandths of the capacity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fairlead.api.quantity import QuantityError, by_name

KINDS: Final = ("memoryBandwidth", "pcie", "network", "disk")
"""In the order in which the core counts them."""
LOADS: Final = (*KINDS, "cpu")
"""What is measured of a node: the same, and its CPUs."""
NONE: Final = (0,) * len(KINDS)
PERCENTAGE: Final = r"^(100([.]0)?|[0-9]{1,2}([.][0-9])?)%$"
MOST_LOAD: Final = 10_000
"""Thousandths; more than that of a capacity counts as so much."""
AT: Final = "at"
_SHARE = re.compile(PERCENTAGE, re.ASCII)
_MEASURED = re.compile(r"^[0-9]{1,6}([.][0-9]{1,9})?%$", re.ASCII)
_MOST_TEXT = 512


def share(kind: str, text: str) -> int:
    """Thousandths of a node's capacity. Raises `QuantityError`."""
    if not _SHARE.match(text):
        raise QuantityError(f"{kind}: {text[:40]!r} is not a percentage from 0% to 100% with at most one digit after the point")
    return round(float(text[:-1]) * 10)


def shares(given: Mapping[str, str]) -> tuple[int, ...]:
    """Thousandths by kind, in their order; () where all are 0. Raises `QuantityError`."""
    unknown = [kind for kind in given if kind not in KINDS]
    if unknown:
        raise QuantityError(f"{unknown[0][:40]!r} is no kind of pressure: kinds are {', '.join(KINDS)}")
    found = tuple(share(kind, given[kind]) if kind in given else 0 for kind in KINDS)
    return found if any(found) else ()


def read(text: str) -> tuple[int, ...]:
    """What the annotation `fairlead.dev/pressure` has, such as `memoryBandwidth=40%,network=5%`. Raises `QuantityError`."""
    return shares(_pairs(text))


def written(pressure: tuple[int, ...]) -> str:
    """The annotation for shares, without those that are 0."""
    return ",".join(f"{kind}={amount / 10:g}%" for kind, amount in zip(KINDS, pressure, strict=False) if amount)


def read_measured(text: str, kinds: tuple[str, ...] = KINDS) -> tuple[str, tuple[int, ...]]:
    """The time and the thousandths by kind of a measurement, such as `at=2027-01-31T08:00:00Z,cpu=80%`.

    A node may be used beyond what counts as its capacity. Raises `QuantityError`.
    """
    given = _pairs(text)
    at = given.pop(AT, "")
    if not at:
        raise QuantityError(f"{AT}= is missing: when it was measured, such as {AT}=2027-01-31T08:00:00Z")
    unknown = [kind for kind in given if kind not in kinds]
    if unknown:
        raise QuantityError(f"{unknown[0][:40]!r} is not measured: kinds are {', '.join(kinds)}")
    for kind, value in given.items():
        if not _MEASURED.match(value):
            raise QuantityError(f"{kind}: {value[:40]!r} is not a percentage such as 80%")
    return at, tuple(min(MOST_LOAD, round(float(given[kind][:-1]) * 10)) if kind in given else 0 for kind in kinds)


def _pairs(text: str) -> dict[str, str]:
    return by_name(text, _MOST_TEXT, "kind=value, each kind once")
