"""The interface of filters that read more than one node's labels and free amounts.

A `Relation` is made for one shape and judges every node by what is around it: pods elsewhere, ports in use, volumes.
It answers for all rows at once and for one row; both must agree, and a property test holds them to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.pods.pairs import LabelSet, Pairs

if TYPE_CHECKING:
    from fairlead.core.nodes.device_claims import DeviceClaims
    from fairlead.core.nodes.network import Network
    from fairlead.core.nodes.numa import NumaNodes
    from fairlead.core.nodes.storage import Storage
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.holdings import Holdings
    from fairlead.core.pods.shapes import Shape

_NO_LABELS = LabelSet("", {})
MANY = 1 << 40
"""More pods than any row holds, and of many rows the sum is still no overflow."""


class Refusal(Enum):
    """Why a node is out: UNSCHEDULABLE may change when pods leave it, UNRESOLVABLE may not, ERROR could not be judged."""

    UNSCHEDULABLE = "unschedulable"
    UNRESOLVABLE = "unresolvable"
    ERROR = "error"


class Stop(NamedTuple):
    """Why no node at all will do. plugin: in whose judgement; error: it could not be judged."""

    plugin: str
    message: str
    error: bool = False


class Surroundings(NamedTuple):
    """What relations read."""

    nodes: NodeTable
    pairs: Pairs
    holdings: Holdings
    storage: Storage
    device_claims: DeviceClaims
    network: Network
    numa: NumaNodes


class Relation(ABC):
    """One plugin's judgement of one shape."""

    plugin: ClassVar[str]
    code: ClassVar[ReasonCode]
    complaint: str

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        self.shape = shape
        self.spec = shape.spec
        self.around = around
        self.nodes = around.nodes
        self.labels = shape.labels or _NO_LABELS

    def stop(self) -> Stop | None:
        """Why no node will do, whichever it is; asked before the nodes are."""
        return None

    def applies(self) -> bool:
        """Whether there is anything to judge as things stand; if not, nodes are not asked."""
        return True

    @abstractmethod
    def refused(self) -> Mask | None:
        """For each row whether it is out, shape (rows,); None: none is."""

    @abstractmethod
    def refuses(self, row: int) -> Refusal | None:
        """Whether one row is out, and in which way."""

    def most(self, *, empty: bool = False) -> Ints | None:
        """For each row a bound of how many pods of the shape it holds, shape (rows,), not to be written to; None: there is none.

        empty: were nothing there.
        """
        return None

    def words(self, rows: Ints | RowNumbers) -> str:
        """The complaint about rows that it refuses."""
        return self.complaint

    def version(self) -> int:
        """Changes when something elsewhere did that may open a place; what opens on a row itself is in the nodes' ring."""
        return 0

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """The shape is forgotten."""


def sparse(count: int, rows: list[dict[int, int]]) -> Mask | None:
    """A mask of the rows that count more than 0 in any of these."""
    hit = {row for each in rows for row, number in each.items() if number > 0}
    if not hit:
        return None
    mask: Mask = np.zeros(count, np.bool_)
    mask[list(hit)] = True
    return mask
