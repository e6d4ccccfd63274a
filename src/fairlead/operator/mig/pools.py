"""Pools that allow reconfiguration: the configurations of their nodes as partitions, or what is wrong with them.

An administrator repeats in the NodePool the configurations of mig-parted that nodes may get, since it is also the list of
those that are allowed. What a node offers after a reconfiguration is compared with it.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.node_pool import MigConfig, MigPolicy, NodePool
from fairlead.api.kinds.rules import strict
from fairlead.api.quantity import QuantityError
from fairlead.cluster import selection
from fairlead.core.mig.demand import WHOLE, Partitions
from fairlead.core.mig.geometry import UnknownModel, geometry_of
from fairlead.core.mig.reconfiguration import Times
from fairlead.core.mig.states import possible
from fairlead.core.model.selectors import Selector, matches

_CHECKED = strict(NodePool)


class Pool(msgspec.Struct, frozen=True):
    """A NodePool. configs: partitions of a node by the name of the configuration; empty: no reconfiguration.

    layouts: what each GPU is partitioned into, of each configuration. most: nodes that are reconfigured at once; 0: any
    number. mistake: why the policy cannot be acted on.
    """

    name: str
    nodes: Selector
    configs: dict[str, Partitions] = {}
    layouts: dict[str, tuple[Partitions, ...]] = {}
    times: Times = Times()
    pending_for: float = 0.0
    most: int = 0
    mistake: str = ""
    policy: bool = False

    def selects(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels belongs to it, if it belongs to no pool before."""
        return matches(self.nodes, labels)


def read(view: NodePool) -> Pool:
    """A pool as it counts here. What is wrong with its policy is in `mistake`."""
    name, policy = view.metadata.name, view.spec.mig
    selector, wrong = selection.label_selector(view.spec.node_selector)
    if policy is None:
        return Pool(name, selector)
    try:
        msgspec.convert(msgspec.to_builtins(view), _CHECKED)
        times = Times(spans.seconds(policy.settle), spans.seconds(policy.timeout), spans.seconds(policy.cooldown))
        pending_for = spans.seconds(policy.pending_for)
        layouts = {each.name: _layout(each, policy) for each in policy.configs}
    except (msgspec.ValidationError, QuantityError, _Mistake) as error:
        return Pool(name, selector, mistake=str(error)[:500], policy=True)
    if wrong:
        return Pool(name, selector, mistake=f"nodeSelector: {wrong}"[:500], policy=True)
    return Pool(
        name,
        selector,
        {each: _sum(layout) for each, layout in layouts.items()},
        layouts,
        times,
        pending_for,
        policy.max_concurrent or 0,
        policy=True,
    )


class _Mistake(ValueError):
    """A configuration that cannot be."""


def _layout(config: MigConfig, policy: MigPolicy) -> tuple[Partitions, ...]:
    """What each GPU of a node offers. Raises `_Mistake`."""
    found: dict[int, Partitions] = {}
    for entry in config.devices:
        partitions = {_profile(name): count for name, count in (entry.mig_devices or {}).items() if count}
        if not entry.mig_enabled and partitions:
            raise _Mistake(f"config {config.name!r} has partitions on GPUs with migEnabled: false: set it, or remove migDevices")
        offers = tuple(sorted(partitions.items())) if entry.mig_enabled else ((WHOLE, 1),)
        for index in range(policy.gpus_per_node) if entry.devices is None else entry.devices:
            if index >= policy.gpus_per_node:
                raise _Mistake(f"config {config.name!r} names GPU {index}, and nodes have {policy.gpus_per_node} (gpusPerNode)")
            if index in found:
                raise _Mistake(f"config {config.name!r} names GPU {index} twice: give each GPU once")
            found[index] = offers
    if len(found) < policy.gpus_per_node:
        missing = [index for index in range(policy.gpus_per_node) if index not in found]
        raise _Mistake(
            f"config {config.name!r} does not name GPUs {missing}: mig-manager leaves these as they are, which "
            "differs from node to node; name each GPU"
        )
    return tuple(found[index] for index in range(policy.gpus_per_node))


def _profile(name: str) -> str:
    """As the device plugin's resources have it: `1g.5gb+me` of mig-parted is `nvidia.com/mig-1g.5gb.me`."""
    return name.replace("+", ".")


def _sum(layout: tuple[Partitions, ...]) -> Partitions:
    total: Counter[str] = Counter()
    for partitions in layout:
        total.update(dict(partitions))
    return tuple(sorted(total.items()))


def usable(pool: Pool, product: str) -> dict[str, Partitions]:
    """The configurations that GPUs of a product can have, as far as its geometry is known; of a model that is not known, all."""
    return {name: pool.configs[name] for name, layout in pool.layouts.items() if not impossible(layout, product)}


@lru_cache(maxsize=1024)
def impossible(layout: tuple[Partitions, ...], product: str) -> str:
    """Why GPUs of a product cannot have a layout; empty: they can, or it is not known."""
    geometry = geometry_of(product)
    if isinstance(geometry, UnknownModel):
        return ""
    for partitions in set(layout):
        if partitions == ((WHOLE, 1),):
            continue
        unknown = [profile for profile, _ in partitions if geometry.profile(profile) is None]
        if unknown:
            has = ", ".join(each.name for each in geometry.profiles)
            return f"{geometry.model} has no profile {unknown[0]!r} (it has {has})"
        if not possible(geometry, dict(partitions)):
            shown = ", ".join(f"{count} x {profile}" for profile, count in partitions)
            return f"one {geometry.model} does not hold {shown}"
    return ""
