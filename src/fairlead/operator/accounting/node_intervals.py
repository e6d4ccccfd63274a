"""Which nodes were there, with which devices and at which price.

An interval begins when a node is observed first, or when its devices, its pool or its price change; then the one before ends.
There is no clock here; `recorder` observes the cluster and writes.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.kinds.node_pool import NodePoolSpec, Price
from fairlead.api.quantity import QuantityError, amount
from fairlead.cluster import selection, views
from fairlead.cluster.gpu_parts import beyond_milli, offered_milli
from fairlead.core.model.charges import labelled
from fairlead.core.model.selectors import matches
from fairlead.core.model.units import WHOLE
from fairlead.observability.history import Stay
from fairlead.operator.accounting.intervals import Intervals
from fairlead.operator.faults import Report, reraised

_MILLION = 1_000_000


class NodeView(views.View):
    """What of a node is paid for."""

    metadata: views.Metadata
    status: _NodeStatus | None = None


class _NodeStatus(views.View):
    capacity: dict[str, str | int] | None = None


class PoolView(views.View):
    """A NodePool."""

    metadata: views.Metadata
    spec: NodePoolSpec


class NodeIntervals:
    """Of nodes that are there. Not for several threads at once. report: takes faults of single nodes.

    by_slices: of a node, driver -> GPUs that it publishes in ResourceSlices.
    """

    def __init__(self, report: Report = reraised, by_slices: Callable[[str], dict[str, int]] = lambda _: {}) -> None:
        self._report = report
        self._by_slices = by_slices
        self.intervals: Intervals[Stay] = Intervals(lambda stay: stay.node)
        self._nodes: dict[str, NodeView] = {}
        self._pools: dict[str, NodePoolSpec] = {}

    def close_others(self, alive_at: float | None) -> None:
        """All nodes are listed."""
        self.intervals.close_others(self._nodes, alive_at)

    def node(self, name: str, view: NodeView | None, now: float) -> None:
        """A node as it is; None: it is gone."""
        if view is None:
            self._nodes.pop(name, None)
            self.intervals.end(name, now)
            return
        self._nodes[name] = view
        self._follow(name, now)

    def pool(self, name: str, spec: NodePoolSpec | None, now: float) -> None:
        """A pool as it is; None: it is gone. Its nodes have another price from now on."""
        if spec is None:
            self._pools.pop(name, None)
        else:
            self._pools[name] = spec
        for node in self._nodes:
            try:
                self._follow(node, now)
            except Exception as error:  # noqa: BLE001 - one node costs its own record only
                self._report("history.stays", node, error)

    def devices_changed(self, name: str, now: float) -> None:
        """What a node publishes in ResourceSlices is different."""
        if name in self._nodes:
            self._follow(name, now)

    def pool_of(self, node: str) -> str | None:
        """The pool of a node that is there."""
        stay = self.intervals.open.get(node)
        return stay.pool if stay is not None else None

    def labels_of(self, node: str) -> dict[str, str] | None:
        """The labels of a node that is there; None: it is not, or not observed yet."""
        view = self._nodes.get(node)
        return (view.metadata.labels or {}) if view is not None else None

    def _follow(self, name: str, now: float) -> None:
        view = self._nodes[name]
        pool, price = self._pool_of(view)
        capacity = (view.status.capacity if view.status is not None else None) or {}
        amounts, labels = {each: _amount(each, capacity) for each in capacity}, view.metadata.labels or {}
        milli = offered_milli(amounts, labels) + beyond_milli(self._by_slices(name), amounts, labels)
        fresh = Stay(
            uid="",
            node=name,
            node_uid=view.metadata.uid,
            pool=pool,
            gpus=milli / WHOLE,
            cpus=_amount("cpu", capacity) / 1000,
            price=round(price.per_node_hour * _MILLION) if price is not None else None,
            currency=price.currency if price is not None else "",
            kind=price.kind if price is not None else "",
            started_at=now,
        )
        self.intervals.put(fresh, view.metadata.uid, now)

    def _pool_of(self, view: NodeView) -> tuple[str, Price | None]:
        """A node's pool and its price: the first pool with a price that selects it, else the first pool, else its labels."""
        labels = view.metadata.labels or {}
        mine = [(name, spec) for name, spec in sorted(self._pools.items()) if _selects(spec, labels)]
        for name, spec in mine:
            if spec.price is not None:
                return name, spec.price
        return (mine[0][0] if mine else labelled(labels)), None


def _selects(spec: NodePoolSpec, labels: dict[str, str]) -> bool:
    if spec.node_selector is None:
        return True
    selector, _ = selection.label_selector(spec.node_selector)
    return matches(selector, labels)


def _amount(resource: str, capacity: dict[str, str | int]) -> int:
    try:
        return amount(resource, capacity.get(resource, 0))
    except QuantityError:
        return 0
