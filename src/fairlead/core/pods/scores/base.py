"""What a placement strategy is.

A score is an integer in [0, 2^`SCORE_BITS`); greater is better; equal scores go to the earlier
node name. `rows` judges many nodes at once and `row` one; they must agree exactly, and a property
test holds them to it. Infeasible nodes may get any score: the shape masks them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.devices import Chooser
from fairlead.core.nodes.table import NodeTable

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

States = npt.NDArray[np.int32]

SCORE_BITS = 32


class Strategy(ABC):
    """Scores nodes for shapes.

    epoch: raised whenever scores of unchanged nodes change, so that caches start afresh.
    fill: how a gang is laid over the ranked nodes: `pack` one node after the other, or `spread`.
    takes: the names of its options.
    """

    name: ClassVar[str]
    fill: ClassVar[Literal["pack", "spread"]] = "pack"
    takes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, nodes: NodeTable, options: Mapping[str, object]) -> None:
        self.nodes = nodes
        self.options = options
        self.epoch = 0

    @abstractmethod
    def rows(self, shape: Shape, rows: Rows, states: States, costs: States | None) -> Ints:
        """Scores of the given rows, one each, in a new array.

        states: device states of the rows; costs: what they cost this shape, None if it wants no devices.
        """

    @abstractmethod
    def row(self, shape: Shape, row: int) -> int:
        """The score of one row; equal to `rows` on it."""

    def pick(self, shape: Shape, row: int) -> tuple[int, ...]:
        """The devices that a pod of this shape takes on a feasible row."""
        if not shape.asks_devices:
            return shape.devices_on(row) if shape.gpus else ()  # where devices of ResourceClaims serve it: none
        if shape.spec.paired:
            return self.nodes.partners.pick(shape, row)
        return shape.fit.pick(self.nodes.device.item(row))

    def chooser(self) -> Chooser | None:
        """How a fraction picks its device inside a node: by default the tightest, first on ties."""
        return tightest

    def arrived(self, spec: PodSpec) -> None:  # noqa: B027 - most strategies do not learn
        """A pod with this spec asked for a place: what a learning strategy learns from."""

    def renumbered(self) -> None:  # noqa: B027 - most strategies remember nothing by device state
        """Device states have other ids: what is remembered by the old ones is forgotten."""


def tightest(free: tuple[int, ...], milli: int) -> tuple[int, int]:
    """The device with the least free capacity that suffices; the first among equals. Costs nothing."""
    return min((left, device) for device, left in enumerate(free) if left >= milli)[1], 0
