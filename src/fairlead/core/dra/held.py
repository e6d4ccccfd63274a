"""What is allocated in a cluster: devices held alone, shares of devices, and the counters that both consume.

A device that its driver has withdrawn goes on consuming counters as long as it is allocated: what it consumes is remembered
from when it was last seen. Admin access holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.model import Allocation, Amount, Device, DeviceId
from fairlead.core.dra.pools import PoolId


class NotHeld(Exception):
    """Devices are released that are not held."""


class _Hold:
    """How often a device is held alone and in shares, what the shares consume, and how it was last seen."""

    __slots__ = ("alone", "amounts", "seen", "shares")

    def __init__(self) -> None:
        self.alone = self.shares = 0
        self.amounts: dict[str, Amount] = {}
        self.seen: Device | None = None


class Held:
    """Allocated devices by pool, and devices that are avoided. `take` and `release` are each other's inverse.

    avoided: by pool and name whether a device is closed to all claims, else it is tried last; and why.
    """

    def __init__(self, avoided: dict[PoolId, dict[str, tuple[bool, str]]] | None = None) -> None:
        self._pools: dict[PoolId, dict[str, _Hold]] = {}
        self.avoided = avoided if avoided is not None else {}

    def avoid(self, device: DeviceId, status: tuple[bool, str] | None) -> None:
        """A device is avoided from now on; None: no longer."""
        pool = (device.driver, device.pool)
        if status is not None:
            self.avoided.setdefault(pool, {})[device.device] = status
        elif device.device in self.avoided.get(pool, {}):
            del self.avoided[pool][device.device]
            if not self.avoided[pool]:
                del self.avoided[pool]

    def closing(self, closed: Mapping[DeviceId, str]) -> Held:
        """The same, with these devices closed, too; what is taken or released there is so here."""
        avoided = {pool: dict(devices) for pool, devices in self.avoided.items()}
        found = Held(avoided)
        found._pools = self._pools
        for device, why in closed.items():
            found.avoid(device, (True, why))
        return found

    def take(self, allocations: Iterable[Allocation], seen: Mapping[DeviceId, Device] | None = None) -> None:
        """Count the devices of allocations as held. seen: what is known of devices, for the counters that they consume."""
        for allocation in allocations:
            for each in allocation.devices:
                if each.admin:
                    continue
                hold = self._pools.setdefault((each.device.driver, each.device.pool), {}).setdefault(each.device.device, _Hold())
                if each.shared:
                    hold.shares += 1
                    for name, amount in each.consumed:
                        hold.amounts[name] = hold.amounts.get(name, 0) + amount
                else:
                    hold.alone += 1
                hold.seen = (seen or {}).get(each.device, hold.seen)

    def release(self, allocations: Iterable[Allocation]) -> None:
        """Count the devices of allocations, taken before, as free again. Raises `NotHeld` before anything changes."""
        allocations = list(allocations)
        self._check(allocations)
        for allocation in allocations:
            for each in allocation.devices:
                if each.admin:
                    continue
                pool = self._pools[each.device.driver, each.device.pool]
                hold = pool[each.device.device]
                if each.shared:
                    hold.shares -= 1
                    for name, amount in each.consumed:
                        hold.amounts[name] -= amount
                else:
                    hold.alone -= 1
                if not hold.alone and not hold.shares:
                    del pool[each.device.device]
                    if not pool:
                        del self._pools[each.device.driver, each.device.pool]

    def _check(self, allocations: Iterable[Allocation]) -> None:
        """Raise `NotHeld` where more is released than is held."""
        counts: dict[tuple[DeviceId, bool], int] = {}
        amounts: dict[tuple[DeviceId, str], Amount] = {}
        for each in (each for allocation in allocations for each in allocation.devices if not each.admin):
            device = each.device
            hold = self._pools.get((device.driver, device.pool), {}).get(device.device)
            key = device, each.shared
            counts[key] = counts.get(key, 0) + 1
            if hold is None or counts[key] > (hold.shares if each.shared else hold.alone):
                raise NotHeld(f"{device} is not held {'in so many shares' if each.shared else 'alone'}")
            for name, amount in each.consumed if each.shared else ():
                amounts[device, name] = amounts.get((device, name), 0) + amount
                if amounts[device, name] > hold.amounts.get(name, 0):
                    raise NotHeld(f"so much {name} of {device} is not held")

    def holds(self, device: DeviceId) -> bool:
        """Whether a device is held, alone or in shares."""
        return device.device in self._pools.get((device.driver, device.pool), {})

    def amounts(self) -> dict[DeviceId, tuple[int, int, dict[str, Amount]]]:
        """Device -> how often it is held alone and in shares, and what the shares consume."""
        return {
            DeviceId(*pool, name): (hold.alone, hold.shares, {key: each for key, each in hold.amounts.items() if each})
            for pool, holds in self._pools.items()
            for name, hold in holds.items()
        }

    def on(self, inventory: Inventory) -> NodeState:
        """What of a node's devices is free."""
        alone = sharing = overdrawn = 0
        free = list(inventory.totals)
        shares: dict[int, dict[str, Amount]] = {}
        closed: dict[int, str] = {}
        doubted = 0
        for key, pool in inventory.pools.items():
            for name, (shut, why) in self.avoided.get(key, {}).items():
                at = inventory.position.get(DeviceId(*key, name))
                if at is not None and shut:
                    closed[at] = why
                elif at is not None:
                    doubted |= 1 << at
            for name, hold in self._pools.get(key, {}).items():
                device_id = DeviceId(*key, name)
                at = inventory.position.get(device_id)
                if at is not None and (hold.alone or not inventory.multiple >> at & 1):
                    alone |= 1 << at  # in shares, too, where the driver has changed the device since
                elif at is not None:
                    sharing |= 1 << at
                    shares[at] = dict(hold.amounts)
                device = pool.every.get(name, hold.seen)
                for counter, amount in inventory.consumed(device_id, device) if device is not None else ():
                    free[counter] -= amount
        wrong = {inventory.counters[at][:2] for at, amount in enumerate(free) if amount < 0}
        for index, each in enumerate(inventory.ids if wrong else ()):
            if inventory.uses[index] and (each.driver, each.pool) in wrong:
                overdrawn |= 1 << index
        return NodeState(inventory, alone, sharing, shares, free, overdrawn, Avoided(closed, doubted))


class Avoided:
    """Devices of a node whose binding failed. closed: those that no claim gets, each with why; doubted: those tried last."""

    __slots__ = ("closed", "doubted", "why")

    def __init__(self, why: Mapping[int, str], doubted: int) -> None:
        self.why, self.doubted = why, doubted
        self.closed = sum(1 << at for at in why)


_NONE_AVOIDED = Avoided({}, 0)


class NodeState:
    """What of a node's devices is allocated, and which are avoided.

    alone, sharing: sets of devices held alone, or in shares. shares: amounts of capacities that shares consume, by device.
    free: what is left of each counter. overdrawn: devices that consume counters of a pool of which more is allocated than there
    is: none of them is allocated until that ends.
    """

    def __init__(
        self,
        inventory: Inventory,
        alone: int,
        sharing: int,
        shares: dict[int, dict[str, Amount]],
        free: list[Amount],
        overdrawn: int,
        avoided: Avoided = _NONE_AVOIDED,
    ) -> None:
        self.inventory, self.alone, self.sharing, self.shares = inventory, alone, sharing, shares
        self.free, self.overdrawn, self.avoided = free, overdrawn, avoided

    def without(self, closed: Mapping[DeviceId, str]) -> NodeState:
        """The same where these devices are closed, too, each with why."""
        position = self.inventory.position
        more = {position[device]: why for device, why in closed.items() if device in position}
        if not more:
            return self
        avoided = Avoided({**self.avoided.why, **more}, self.avoided.doubted)
        return NodeState(self.inventory, self.alone, self.sharing, self.shares, self.free, self.overdrawn, avoided)

    @cached_property
    def unservable(self) -> int:
        """Devices for which free counters do not suffice, each by itself; one that is held in shares has its counters."""
        if not self.inventory.totals:
            return 0
        short = self.overdrawn
        for index, uses in enumerate(self.inventory.uses):
            if any(self.free[at] < amount for at, amount in uses):
                short |= 1 << index
        return short & ~self.sharing

    def less(self, other: NodeState) -> NodeState:
        """What is free in both of two states of one inventory: an allocation from it can be had in either."""
        if self.inventory is not other.inventory:
            raise ValueError("the states are not of one inventory")
        alone = self.alone | other.alone
        shares: dict[int, dict[str, Amount]] = {}
        for at in self.shares.keys() | other.shares.keys():
            one, two = self.shares.get(at, {}), other.shares.get(at, {})
            shares[at] = {name: max(one.get(name, 0), two.get(name, 0)) for name in one.keys() | two.keys()}
        free = [min(each) for each in zip(self.free, other.free, strict=True)]
        sharing = (self.sharing | other.sharing) & ~alone
        return NodeState(self.inventory, alone, sharing, shares, free, self.overdrawn | other.overdrawn, self.avoided)

    def taking(self, devices: int) -> NodeState:
        """The same where these devices, a set, are held alone."""
        alone, sharing = self.alone | devices, self.sharing & ~devices
        return NodeState(self.inventory, alone, sharing, self.shares, self.free, self.overdrawn, self.avoided)
