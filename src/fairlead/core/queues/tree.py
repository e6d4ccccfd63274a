"""The tree of queues, and what there is of a resource for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from fairlead.api.names import DEFAULT_QUEUE, SHARED_PREFIX
from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.model.charges import Charge, key_of, split, sum_of
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.gpu_parts import GpuParts
from fairlead.core.pods.pools import Pools
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.queue_node import PendingClass, QueueNode
from fairlead.core.queues.stopped import StoppedLines

if TYPE_CHECKING:
    from fairlead.core.pods.ranking import Ranking
    from fairlead.core.pods.shapes import Shape


class QueueTree:
    """Queues by name with their policies, and amounts as they are charged for them."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.pools = Pools(nodes)
        self.parts = GpuParts(nodes)
        self.by_row = False  # whether what is charged for a pod depends on its row: by the pools there, or by what its GPUs are
        self.queues: dict[str, QueueNode] = {}
        self.elsewhere: dict[str, str] = {}  # queues that another release of Fairlead serves, and who that is in words
        self.stopped: StoppedLines[PendingClass] = StoppedLines()
        self.changed: dict[PendingClass, None] = {}  # in which more or fewer units wait, or for another reason; see `requests`
        self.emptied: dict[PendingClass, None] = {}  # in which nothing waited any more at some time since it was cleared
        self.version = 0  # of which queue is below which, and of their quotas and limits
        self.hung = 0  # version of which queue is below which
        self._children: tuple[int, dict[QueueNode | None, list[QueueNode]]] = (-1, {})  # as of a version
        self._totals = -1  # for which capacity of the nodes percentages were worked out
        # By the victim's uid: placeholders for what it fills beyond what was given away.
        self.closing: Mapping[str, Sequence[Task]] = {}

    def charge_at(self, shape: Shape, row: int) -> Charge:
        """What a pod of a shape is charged for on a row; -1: on a node that is not known."""
        charge = self.parts.at(shape, row) if self.parts.varies else shape.charge
        return charge + self.pools.extras(charge, row) if self.pools.named else charge

    def base(self, ranking: Ranking) -> Charge:
        """What a pod of a shape will be charged for at least, pools aside."""
        return self.parts.asked(ranking) if self.parts.varies else ranking.shape.charge

    def asked(self, ranking: Ranking) -> Charge:
        """What a pod of a shape will be charged for wherever it is placed."""
        return self._with_pools(self.base(ranking), ranking)

    def _with_pools(self, charge: Charge, ranking: Ranking) -> Charge:
        return charge + self.pools.pinned(charge, ranking) if self.pools.named else charge

    def asked_together(self, tasks: Sequence[Task]) -> Charge:
        """What tasks will be charged for together."""
        return sum_of([self.asked(task.ranking) for task in tasks])

    def dearest_together(self, tasks: Sequence[Task]) -> Charge:
        """What they will be charged for at most, on whatever nodes."""
        dearest = self.parts.dearest if self.parts.varies else attrgetter("charge")
        return sum_of([self._with_pools(dearest(task.shape), task.ranking) for task in tasks])

    def total(self, resource: str) -> int:
        """What all nodes, or those of the pool that its key names, offer, in the units that queues are charged in."""
        name, pool = split(resource) if "@" in resource else (resource, "")
        if name.startswith(SHARED_PREFIX):
            return self.nodes.shared.total(name.removeprefix(SHARED_PREFIX), pool)
        among = self.pools.mask(pool) if pool else None
        claimed = self.nodes.claimed.total(among) if name == GPU else 0
        if name == GPU and (self.nodes.partitions or self.parts.varies):
            return self.parts.total(among) + claimed
        units = WHOLE if name in self.nodes.gpu_resources else 1
        return (self.pools.total(name, pool) if pool else self.nodes.total(name)) * units + claimed

    def usable(self, resource: str) -> int:
        """The same without what is free on nodes that take nothing new: what runs there is part of what there is, no more is."""
        name, pool = split(resource) if "@" in resource else (resource, "")
        if name == GPU and (self.nodes.partitions or self.parts.varies):
            unused = self.parts.unused(self.pools.mask(pool) if pool else None)
        else:
            unused = self.pools.unused(name, pool) if pool else self.nodes.unused(name)
        if name == GPU and self.nodes.claimed.any:
            unused += self.nodes.claimed.unused(self.pools.mask(pool) if pool else None)
        return self.total(resource) - unused

    def held(self, name: str, pool: str) -> int:
        """What all pods hold of a resource, or of a pool's, but for fractions, whichever scheduler placed them; as charged."""
        among = self.pools.mask(pool) if pool else None
        claimed = self.nodes.claimed.held(among) if name == GPU else 0
        if name == GPU and (self.nodes.partitions or self.parts.varies):
            return self.parts.held(among) + claimed
        held = self.pools.held(name, pool) if pool else self.nodes.held(name)
        return (held * WHOLE if name in self.nodes.gpu_resources else held) + claimed

    def scale(self, resource: str) -> int:
        """Charged units per unit of a resource, of a pool or not: devices are charged in milli."""
        return WHOLE if split(resource)[0] in self.nodes.gpu_resources else 1

    def node_of(self, name: str) -> QueueNode:
        """The node of a queue; it is made where the name is new."""
        node = self.queues.get(name)
        if node is None:
            node = self.queues[name] = QueueNode(name, None, self.stopped, self.changed, self.emptied)
        return node

    # -- policies ------------------------------------------------------------------------------

    def hang(self, node: QueueNode, parent: QueueNode | None) -> None:
        """Put a queue under another one, or at the root (None)."""
        node.parent = parent
        self.version += 1
        self.hung += 1
        for each in self.queues.values():
            path = [each]
            while (above := path[-1].parent) is not None:
                path.append(above)
            each.path = tuple(path)

    def name_pools(self) -> bool:
        """Which pools queues name, and which resources of them; whether that is new."""
        named: dict[str, set[str]] = {}
        for node in self.queues.values():
            for each in node.policy.resources:
                if each.pool:
                    named.setdefault(each.pool, set()).add(each.name)
        new = self.pools.name({pool: frozenset(resources) for pool, resources in named.items()})
        self.by_row = bool(named) or self.parts.varies
        return new

    def below(self, node: QueueNode | None) -> Sequence[QueueNode]:
        """The queues directly below another one, or at the root (None)."""
        if self._children[0] != self.version:
            children: dict[QueueNode | None, list[QueueNode]] = {}
            for each in self.queues.values():
                children.setdefault(each.parent, []).append(each)
            self._children = self.version, children
        return self._children[1].get(node, ())

    def lowest(self, nodes: Iterable[QueueNode], chosen: Callable[[QueueNode], bool]) -> Iterator[QueueNode]:
        """Those of some queues, and below them, that hold pods of their own and are chosen, as are all from them up to these."""
        for node in nodes:
            if chosen(node):
                if node.placed or node.guests:
                    yield node
                yield from self.lowest(self.below(node), chosen)

    def resolve(self, node: QueueNode) -> None:
        """Amounts from the policy; percentages are of what the nodes offer now."""
        quotas, limits = {}, {}
        self.version += 1
        node.named = {key_of(each.name, each.pool): each for each in node.policy.resources}
        for key, each in node.named.items():
            total = self.total(key)
            if each.quota is not None:
                quotas[key] = each.quota
            elif each.quota_percent is not None:
                quotas[key] = total * each.quota_percent // 100_000
            if each.limit is not None:
                limits[key] = each.limit
            elif each.limit_percent is not None:
                limits[key] = total * each.limit_percent // 100_000
        of_pools: dict[str, int] = {}
        for key, quota in quotas.items():
            resource, pool = split(key)
            if pool:
                of_pools[resource] = of_pools.get(resource, 0) + quota
        for resource, together in of_pools.items():
            quotas[resource] = max(quotas.get(resource, 0), together)  # what is guaranteed in pools is guaranteed of the whole
        node.quota, node.limits = quotas, limits
        node.pool_limits = [(*split(key), limit) for key, limit in limits.items() if split(key)[1]]
        node.guarantee = max((quota / max(1, self.total(key)) for key, quota in quotas.items()), default=0.0)

    def resolve_all(self) -> bool:
        """Bring percentages up to what the nodes offer now; whether that has changed."""
        totals = self.nodes.totals_version + self.nodes.shared.described  # neither becomes less
        if self._totals == totals:
            return False
        self._totals = totals
        for node in self.queues.values():
            self.resolve(node)
        return True

    def pools_changed(self) -> None:
        """Pools are made up of other nodes: percentages are worked out anew with the next `resolve_all`."""
        self._totals = -1

    def above(self, name: str, queue: str) -> bool:
        """Whether one queue is another, or an ancestor of it."""
        return any(node.name == name for node in self.node_of(queue).path)

    def knows(self, name: str) -> bool:
        """Whether there is such a queue."""
        node = self.queues.get(name)
        return node is not None and node.exists

    def see(self, name: str) -> None:
        """There is a Queue object of that name: queue `default` is there by itself only where there is none at all."""
        self.node_of(name).seen = True
        self._settle_default()

    def give_away(self, name: str, to: str) -> bool:
        """A Queue object is served elsewhere: `to`: by whom, empty: no longer; whether that is new."""
        if self.elsewhere.get(name, "") == to:
            return False
        if to:
            self.elsewhere[name] = to
        else:
            del self.elsewhere[name]
        self._settle_default()
        return True

    def lose(self, node: QueueNode) -> None:
        """A queue's object is gone."""
        node.exists = node.seen = False
        self._settle_default()

    def _settle_default(self) -> None:
        default = self.node_of(DEFAULT_QUEUE)
        alone = not self.elsewhere and not any(node.seen for node in self.queues.values())
        default.exists = default.seen or alone

    def has_object(self, name: str) -> bool:
        """Whether a Queue object of that name was seen."""
        return self.knows(name) and self.queues[name].seen
