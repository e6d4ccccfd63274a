"""Queues, classes of service and node pools as Fairlead's custom resources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from fairlead.api import names
from fairlead.api.kinds.common import Metadata
from fairlead.api.kinds.node_pool import NodePool, NodePoolSpec
from fairlead.api.kinds.queue import QueueSpec
from fairlead.api.kinds.service_class import ServiceClassSpec
from fairlead.api.quantity import parse
from fairlead.operator.mig import pools as mig
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument


@dataclass(frozen=True)
class Queue:
    """A queue and its children. spec: as in the Queue's spec, without `parent`, which the tree determines."""

    name: str
    spec: QueueSpec = field(default_factory=QueueSpec)
    children: Sequence[Queue] = ()


class QueueTree(pulumi.ComponentResource):
    """The Queues of a tree, parents first.

    Raises InvalidArgument: two queues of one name, a quota above its limit, children that are guaranteed more together than
    their parent, and whatever the CustomResourceDefinition refuses.
    """

    queue_names: pulumi.Output[list[str]]
    """The queues' names, once they exist."""

    def __init__(self, name: str, queues: Sequence[Queue], opts: pulumi.ResourceOptions | None = None) -> None:
        specs = {queue.name: _queue_spec(queue, parent) for queue, parent in _walk(queues, None)}
        checks.unique((queue.name for queue, _ in _walk(queues, None)), "queue")
        super().__init__("fairlead:index:QueueTree", name, None, opts)
        made: dict[str, CustomResource] = {}
        for queue, parent in _walk(queues, None):
            above = [made[parent.name]] if parent is not None else []
            inside = pulumi.ResourceOptions(parent=self, depends_on=above)
            made[queue.name] = _custom(f"{name}-{queue.name}", "Queue", queue.name, specs[queue.name], inside)
        self.queue_names = _once_made(made)
        self.register_outputs({"queue_names": self.queue_names})


class ServiceClasses(pulumi.ComponentResource):
    """ServiceClasses by name.

    priority_classes: names of the PriorityClasses that they may refer to; absent, any. Raises InvalidArgument: a class of
    priority that is not there, two that are the default for one type of job, and whatever the CustomResourceDefinition refuses.
    """

    class_names: pulumi.Output[list[str]]
    """The classes' names, once they exist."""

    def __init__(
        self,
        name: str,
        classes: Mapping[str, ServiceClassSpec],
        priority_classes: Sequence[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        specs = {key: checks.spec(each, f"service class {checks.name(key, 'service class')!r}") for key, each in classes.items()}
        defaults: dict[str, str] = {}
        for key, each in classes.items():
            if priority_classes is not None and each.priority_class_name and each.priority_class_name not in priority_classes:
                raise InvalidArgument(
                    f"service class {key!r} is of priority class {each.priority_class_name!r}, which does not exist; existing: "
                    f"{', '.join(priority_classes) or 'none'}"
                )
            for kind in each.default_for:
                if kind in defaults:
                    raise InvalidArgument(
                        f"service classes {defaults[kind]!r} and {key!r} are both the default for {kind} jobs; choose one"
                    )
                defaults[kind] = key
        super().__init__("fairlead:index:ServiceClasses", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        made = {key: _custom(f"{name}-{key}", "ServiceClass", key, spec, inside) for key, spec in specs.items()}
        self.class_names = _once_made(made)
        self.register_outputs({"class_names": self.class_names})


class NodePools(pulumi.ComponentResource):
    """NodePools by name.

    priced: whether each must have a price per hour, without which its cost counts as unknown. Raises InvalidArgument: prices
    that are negative, no number or (with `priced`) missing, size.min > size.max, and whatever the definition refuses.
    """

    pool_names: pulumi.Output[list[str]]
    """The pools' names, once they exist."""

    def __init__(
        self,
        name: str,
        pools: Mapping[str, NodePoolSpec],
        *,
        priced: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        for key, each in pools.items():
            checks.name(key, "node pool")
            _check_price(key, each, priced=priced)
            if each.size is not None and each.size.max is not None and each.size.min > each.size.max:
                raise InvalidArgument(f"node pool {key!r}: size.min {each.size.min} is above size.max {each.size.max}")
        specs = {key: checks.spec(each, f"node pool {key!r}") for key, each in pools.items()}
        for key, each in pools.items():
            mistake = mig.read(NodePool(metadata=Metadata(name=key), spec=each)).mistake
            if mistake:
                raise InvalidArgument(f"node pool {key!r}: mig: {mistake}")
        super().__init__("fairlead:index:NodePools", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        made = {key: _custom(f"{name}-{key}", "NodePool", key, spec, inside) for key, spec in specs.items()}
        self.pool_names = _once_made(made)
        self.register_outputs({"pool_names": self.pool_names})


def _custom(logical: str, kind: str, name: str, spec: dict[str, object], opts: pulumi.ResourceOptions) -> CustomResource:
    return CustomResource(logical, api_version=names.API_VERSION, kind=kind, metadata={"name": name}, spec=spec, opts=opts)


def _once_made(made: Mapping[str, CustomResource]) -> pulumi.Output[list[str]]:
    """Their names, when all of them are there."""
    return pulumi.Output.all(*(each.id for each in made.values())).apply(lambda _: list(made))


def _walk(queues: Sequence[Queue], parent: Queue | None) -> Iterator[tuple[Queue, Queue | None]]:
    for queue in queues:
        yield queue, parent
        yield from _walk(queue.children, queue)


def _queue_spec(queue: Queue, parent: Queue | None) -> dict[str, object]:
    checks.name(queue.name, "queue", 63)
    what = f"queue {queue.name!r}"
    if queue.spec.parent is not None:
        raise InvalidArgument(f"{what}: its parent follows from the tree; leave `parent` out of its spec")
    for each in queue.spec.resources or ():
        for amount in (each.quota, each.limit):
            _absolute(amount, what)  # its error is shorter than the schema's
    spec = checks.spec(queue.spec, what)
    for each in queue.spec.resources or ():
        quota, limit = _absolute(each.quota, what), _absolute(each.limit, what)
        if quota is not None and limit is not None and quota > limit:
            raise InvalidArgument(f"{what}: its quota of {each.quota} {each.name} is above its limit of {each.limit}")
    for (resource, pool), guaranteed in _quotas(queue).items():
        together = sum(_quotas(child).get((resource, pool), Fraction(0)) for child in queue.children)
        if together > guaranteed:
            where = f" in pool {pool!r}" if pool else ""
            raise InvalidArgument(
                f"{what}: its children are guaranteed {float(together):g} {resource}{where} together, it has "
                f"{float(guaranteed):g}; raise its quota or lower theirs"
            )
    return {**({"parent": parent.name} if parent is not None else {}), **spec}


def _quotas(queue: Queue) -> dict[tuple[str, str], Fraction]:
    found: dict[tuple[str, str], Fraction] = {}
    for each in queue.spec.resources or ():
        quota = _absolute(each.quota, f"queue {queue.name!r}")
        if quota is not None:
            found[each.name, each.pool or ""] = quota
    checks.unique(((each.name, each.pool or "") for each in queue.spec.resources or ()), f"queue {queue.name!r}: resource")
    return found


def _absolute(value: str | int | None, what: str) -> Fraction | None:
    """An amount; None where there is none, or where it is a percentage."""
    if value is None or (isinstance(value, str) and value.endswith("%")):
        if isinstance(value, str):
            checks.amount(value.removesuffix("%"), f"{what}: percentage")
        return None
    return parse(checks.amount(value, f"{what}: amount"))


def _check_price(pool: str, spec: NodePoolSpec, *, priced: bool) -> None:
    if spec.price is None:
        if priced:
            raise InvalidArgument(
                f"node pool {pool!r} has no price; give `price=Price(per_node_hour=...)`, 0 where it costs nothing"
            )
        return
    value = spec.price.per_node_hour
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidArgument(f"node pool {pool!r}: price per node and hour is {value!r}; give a number of at least 0")
