"""Kinds of nodes by what their GPUs count as, and what of a pod counts as a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.core.mig.parts import NO_TABLE, WHOLE, PartTable, Sharing, counts, milli_of, sharing_of
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE as UNIT

Parted = tuple[tuple[str, int], ...]
"""What a pod asks for of resources that count as GPUs of NVIDIA: (resource, thousandths of one)."""

_DRIVER = "gpu."
"""With which the names of drivers for GPUs begin that publish ResourceSlices."""


class Kind:
    """Nodes whose GPUs count alike, and otherwise than names of resources show. number: from 1 on."""

    def __init__(self, number: int, sharing: Sharing, table: PartTable) -> None:
        self.number = number
        self.sharing = sharing
        self._table = table
        self._milli: dict[str, int] = {}

    def milli(self, resource: str) -> int:
        """Thousandths of a GPU that one of a resource is there."""
        known = self._milli.get(resource)
        if known is None:
            known = self._milli[resource] = milli_of(resource, self.sharing, self._table)
        return known


def table_of(parts: tuple[tuple[str, str, int], ...]) -> PartTable:
    """A policy's parts by resource and product."""
    return {(resource, product): milli for resource, product, milli in parts} if parts else NO_TABLE


def parted(spec: PodSpec, gpu_resources: tuple[str, ...], table: PartTable) -> Parted:
    """What of a pod counts as GPUs of NVIDIA."""
    if WHOLE not in gpu_resources:
        return ()
    found = [(name, amount * UNIT) for name, amount in spec.requests if counts(name, table)]
    if spec.gpus and spec.gpu_milli < UNIT and gpu_resources[0] == WHOLE:
        found.append((WHOLE, spec.gpus * spec.gpu_milli))
    return tuple(found)


def gpus_of(spec: PodSpec, sharing: Sharing, table: PartTable) -> int:
    """Thousandths of GPUs that a pod holds on a node with such labels; of other vendors, too."""
    held = spec.gpus * spec.gpu_milli
    for name, amount in spec.requests:
        milli = milli_of(name, sharing, table)
        held += amount * (milli - UNIT if name == WHOLE else milli)
    if spec.gpus and spec.gpu_milli < UNIT:
        held += spec.gpus * spec.gpu_milli * (milli_of(WHOLE, sharing, table) - UNIT) // UNIT
    return held


def beyond(
    offered: Mapping[str, int], amounts: Mapping[str, int], labels: Mapping[str, str], resources: Iterable[str], table: PartTable
) -> int:
    """Thousandths of GPUs that a node's drivers offer beyond its device plugins: of each vendor the larger of both counts.

    offered: driver -> thousandths. amounts: of resources that the node offers. resources: those that are whole GPUs. The vendor
    of `gpu.nvidia.com` is that of `nvidia.com/gpu`.
    """
    sharing, found = sharing_of(labels), 0
    for driver, milli in offered.items():
        vendor, by_plugin = driver.removeprefix(_DRIVER), 0
        for resource, amount in amounts.items():
            if resource.partition("/")[0] in (driver, vendor):
                by_plugin += amount * (milli_of(resource, sharing, table) or (UNIT if resource in resources else 0))
        found += max(0, milli - by_plugin)
    return found
