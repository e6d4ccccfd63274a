"""The interconnect of one node: how well each pair of its GPUs is connected, and which network cards share a root with them.

The weight of a pair is an integer; only sums and comparisons of weights matter, so a bandwidth in GB/s serves as well. Where
kinds of links are known and no bandwidth, the weights are the scores of NVIDIA's go-gpuallocator v0.6.0
(`gpuallocator/besteffort_policy.go`): 10 to 60 by the PCIe path, 100 for each NVLink.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

MOST_GPUS = 16
"""GPUs of a node up to which sets are chosen exactly: a table has an entry for each set of them."""

MOST_WEIGHT = 1_000_000
"""Of one pair: sums over all pairs of a node stay far below what a column of integers holds."""

PER_NVLINK = 100
PATHS = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "PSB": 60}
"""Scores of PCIe paths, in the words of `nvidia-smi topo -m`: through the link between sockets, between host bridges of one NUMA
node, through a host bridge, through several PCIe switches, through one, and on one board."""

SAME_ROOT = frozenset({"PXB", "PIX", "PSB"})
"""Paths that pass no host bridge: both ends are under one PCIe root."""


class FaultKind(StrEnum):
    """What is wrong with a description of an interconnect."""

    EMPTY = "Empty"
    WRONG_SIZE = "WrongSize"
    ASYMMETRIC = "Asymmetric"
    UNKNOWN_LINK = "UnknownLink"
    TOO_MANY = "TooMany"
    TOO_LONG = "TooLong"
    OTHER_GPUS = "OtherGPUs"


class LinksError(Exception):
    """A description of an interconnect that cannot be used; its text has the place and what is expected."""

    def __init__(self, kind: FaultKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Links(msgspec.Struct, frozen=True):
    """The interconnect of a node with n GPUs.

    weights: n rows of n, symmetric, 0 on the diagonal. roots: by GPU a number that devices under one PCIe root share, -1: not
    known. nics: the same by network card.
    """

    weights: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs the node has."""
        return len(self.weights)


def links_of(weights: Sequence[Sequence[int]], roots: Sequence[int] = (), nics: Sequence[int] = ()) -> Links:
    """An interconnect, checked. Raises `LinksError`."""
    count = len(weights)
    if not count:
        raise LinksError(FaultKind.EMPTY, "it names no GPU")
    if count > MOST_GPUS:
        raise LinksError(FaultKind.TOO_MANY, f"it has {count} GPUs, and sets are chosen of at most {MOST_GPUS}")
    for at, row in enumerate(weights):
        if len(row) != count:
            raise LinksError(FaultKind.WRONG_SIZE, f"the row of GPU{at} has {len(row)} columns for {count} GPUs")
        for other, weight in enumerate(row):
            if not 0 <= weight <= MOST_WEIGHT:
                message = f"GPU{at} to GPU{other} has weight {weight}, which is not between 0 and {MOST_WEIGHT}"
                raise LinksError(FaultKind.UNKNOWN_LINK, message)
    for at in range(count):
        for other in range(at):
            if weights[at][other] != weights[other][at]:
                message = f"GPU{at} to GPU{other} is {weights[at][other]}, and GPU{other} to GPU{at} is {weights[other][at]}"
                raise LinksError(FaultKind.ASYMMETRIC, message)
    if roots and len(roots) != count:
        raise LinksError(FaultKind.WRONG_SIZE, f"roots are given for {len(roots)} of {count} GPUs")
    plain = tuple(tuple(0 if at == other else weight for other, weight in enumerate(row)) for at, row in enumerate(weights))
    return Links(plain, tuple(roots) or (-1,) * count, tuple(nics))


def by_place(roots: Sequence[object], numas: Sequence[object], nics: Sequence[object] = ()) -> Links:
    """The interconnect as far as it follows from PCIe roots and NUMA nodes: n values of each for n GPUs, None: not known.

    GPUs under one root count as `PXB`, on one NUMA node as `NODE`, others as `SYS`. nics: roots of network cards. Raises
    `LinksError` where there are too many GPUs.
    """
    numbers: dict[object, int] = {}
    known = [-1 if root is None else numbers.setdefault(root, len(numbers)) for root in roots]
    cards = [-1 if root is None else numbers.setdefault(root, len(numbers)) for root in nics]
    weights = [
        [
            PATHS["PXB"]
            if known[at] >= 0 and known[at] == known[other]
            else PATHS["NODE"]
            if numas[at] is not None and numas[at] == numas[other]
            else PATHS["SYS"]
            for other in range(len(known))
        ]
        for at in range(len(known))
    ]
    return links_of(weights, known, cards)
