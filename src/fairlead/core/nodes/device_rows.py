"""Which rows have devices for claims at all, whatever is held of them now: where a pod may start one day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.dra import model
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import DeviceNeed
from fairlead.core.model.selectors import any_term_holds

if TYPE_CHECKING:
    from fairlead.core.dra.inventory import Inventory
    from fairlead.core.nodes.node_devices import NodeDevices

_REMEMBERED = 1024


class DeviceRows:
    """By what claims ask for, until slices, classes or nodes change. classes: by name; contents: by the numbers of needs."""

    def __init__(self, devices: NodeDevices, classes: dict[str, model.DeviceClass]) -> None:
        self._devices, self._classes = devices, classes
        self._known: dict[model.Claim, Mask] = {}
        self._stamp: tuple[int, ...] = ()

    def serving(self, needs: Iterable[tuple[DeviceNeed, model.Claim, model.Allocation | None]], count: int) -> Mask:
        """For each of so many rows whether its node could have what these needs ask for, one by one.

        needs: with what they ask for, and what they have.
        """
        rows: Mask = np.ones(count, np.bool_)
        for need, asks, allocation in needs:
            if allocation is not None:
                rows &= self._reached(allocation, count)
            elif not need.content:
                rows[:] = False
            else:
                rows &= self._having(asks, count)
        return rows

    def _reached(self, allocation: model.Allocation, count: int) -> Mask:
        terms, nodes = allocation.terms, self._devices.nodes
        found: Mask = np.ones(count, np.bool_)
        if terms is not None:
            for row, node in enumerate(nodes.objects[:count]):
                found[row] = node is not None and any_term_holds(terms, node.labels, node.name)
        return found

    def _having(self, asks: model.Claim, count: int) -> Mask:
        nodes = self._devices.nodes
        stamp = nodes.claimed.seen, nodes.described, count, self._devices.everywhere
        if stamp != self._stamp or len(self._known) >= _REMEMBERED:
            self._stamp, self._known = stamp, {}
        known = self._known.get(asks)
        if known is None:
            known = self._known[asks] = np.zeros(count, np.bool_)
            for row in range(count):
                state = self._devices.state_of(row)
                known[row] = state is not None and all(
                    any(self._has(state.inventory, ask) for ask in request.alternatives) for request in asks.requests
                )
        return known

    def _has(self, inventory: Inventory, ask: model.Ask) -> bool:
        device_class = self._classes.get(ask.device_class)
        if device_class is None:
            return False
        found = inventory.all
        for expression in (*device_class.selectors, *ask.selectors):
            found &= inventory.selected(expression).mask
        several = inventory.multiple & found
        return found.bit_count() >= (ask.count if ask.mode == model.EXACT and not several else 1)
