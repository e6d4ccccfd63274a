"""Which of two allocations has to go where they overlap: the same device, counters of one set, or shares beyond a capacity.

Several schedulers may allocate at once, each by what it has seen. The allocation that was written later is the one that does not
fit beside those before it. What earlier ones take is counted as it is, also where these overlap among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from fairlead.core.dra.model import Allocation, Amount, Chosen, Device, DeviceId, Slice

if TYPE_CHECKING:
    from fairlead.core.dra.pools import PoolId

_Counter = tuple[str, str]
"""(counter set, counter)."""


class Overlap(msgspec.Struct, frozen=True):
    """A device that others have, or of which too little is left. others: the claims, sorted; what: for users."""

    device: DeviceId
    others: tuple[str, ...]
    what: str


class _Written(msgspec.Struct, frozen=True):
    """since: version at which the claim got these devices."""

    since: int
    allocation: Allocation


class _Pool(msgspec.Struct, frozen=True):
    """What slices of a pool's newest generation have."""

    devices: dict[str, Device]
    counters: dict[_Counter, Amount]


_NO_POOL = _Pool({}, {})


class Written:
    """Allocations as they are written, by claim, and the slices that they refer to."""

    def __init__(self) -> None:
        self._claims: dict[str, _Written] = {}
        self._holders: dict[DeviceId, dict[str, None]] = {}
        self._by_pool: dict[PoolId, dict[str, None]] = {}
        self._slices: dict[PoolId, dict[str, Slice]] = {}
        self._pool_of: dict[str, PoolId] = {}
        self._pools: dict[PoolId, _Pool] = {}
        self._withdrawn: dict[DeviceId, Device] = {}  # that are in no slice any more, and allocated

    # -- events --------------------------------------------------------------------------------

    def put(self, key: str, allocation: Allocation | None, version: int) -> None:
        """A claim has an allocation in this version; one with the same devices as before has them since then."""
        before = self._claims.get(key)
        if before is not None and allocation is not None and _same(before.allocation, allocation):
            return
        self.remove(key)
        if allocation is None:
            return
        self._claims[key] = _Written(version, allocation)
        for each in _holding(allocation):
            self._holders.setdefault(each.device, {})[key] = None
            self._by_pool.setdefault((each.device.driver, each.device.pool), {})[key] = None

    def remove(self, key: str) -> None:
        """A claim is gone, or has no allocation."""
        before = self._claims.pop(key, None)
        for each in _holding(before.allocation) if before is not None else ():
            holders = self._holders.get(each.device, {})
            holders.pop(key, None)
            if not holders:
                self._holders.pop(each.device, None)
                self._withdrawn.pop(each.device, None)
            pool = (each.device.driver, each.device.pool)
            claims = self._by_pool.get(pool, {})
            claims.pop(key, None)
            if not claims:
                self._by_pool.pop(pool, None)

    def put_slice(self, item: Slice) -> None:
        """A slice came or changed."""
        pool = (item.driver, item.pool)
        if self._pool_of.get(item.name, pool) != pool:
            self.remove_slice(item.name)
        self._retain(pool)
        self._pool_of[item.name] = pool
        self._slices.setdefault(pool, {})[item.name] = item

    def remove_slice(self, name: str) -> None:
        """A slice is gone; one that is not known is no news."""
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        self._retain(pool)
        del self._slices[pool][name]
        if not self._slices[pool]:
            del self._slices[pool]

    def _retain(self, pool: PoolId) -> None:
        """A pool changes: devices that are allocated are remembered as they were."""
        self._pools.pop(pool, None)
        if pool not in self._by_pool:
            return
        for item in self._slices.get(pool, {}).values():
            for device in item.devices:
                found = DeviceId(*pool, device.name)
                if found in self._holders:
                    self._withdrawn[found] = device

    @property
    def entries(self) -> int:
        """What is remembered: claims, devices that they have, slices, devices that were withdrawn."""
        return len(self._claims) + len(self._holders) + len(self._by_pool) + len(self._pool_of) + len(self._withdrawn)

    # -- questions -----------------------------------------------------------------------------

    def overlap(self, key: str) -> Overlap | None:
        """What of a claim's allocation does not fit beside those that were written before it; None: all of it fits."""
        ours = self._claims.get(key)
        if ours is None:
            return None
        for each in _holding(ours.allocation):
            found = self._same_device(key, ours, each)
            if found is not None:
                return found
        pools = dict.fromkeys((each.device.driver, each.device.pool) for each in _holding(ours.allocation))
        return next((found for pool in pools if (found := self._counters(key, ours, pool)) is not None), None)

    def _before(self, key: str, ours: _Written, others: Iterable[str]) -> Iterator[tuple[str, Allocation]]:
        """Of other claims those that were written earlier; of one version (never of one server) the first by name."""
        for other in sorted(others):
            found = self._claims[other]
            if other != key and (found.since, other) < (ours.since, key):
                yield other, found.allocation

    def _same_device(self, key: str, ours: _Written, chosen: Chosen) -> Overlap | None:
        holders = list(self._before(key, ours, self._holders.get(chosen.device, ())))
        alone = [other for other, found in holders if not chosen.shared or _has_alone(found, chosen.device)]
        if alone:
            return Overlap(chosen.device, tuple(alone), "is allocated already")
        device = self._device(chosen.device)
        if not holders or device is None:
            return None
        taken = _consumed([*(found for _, found in holders), ours.allocation], chosen.device)
        for name, amount in sorted(taken.items()):
            there = device.capacity.get(name)
            if there is not None and amount > there.value and dict(chosen.consumed).get(name):
                others = tuple(other for other, _ in holders)
                return Overlap(chosen.device, others, f"has {there.value} of {name}, and its shares are {amount}")
        return None

    def _counters(self, key: str, ours: _Written, pool: PoolId) -> Overlap | None:
        counters = self._pool(pool).counters
        if not counters:
            return None
        before = dict(self._before(key, ours, self._by_pool.get(pool, ())))
        users: dict[_Counter, dict[str, None]] = {}
        taken: dict[_Counter, Amount] = {}
        seen: set[DeviceId] = set()
        for other, found in before.items():
            for device, uses in self._uses(found, pool):
                for counter, amount in uses:
                    users.setdefault(counter, {})[other] = None
                    if device not in seen:
                        taken[counter] = taken.get(counter, 0) + amount
                seen.add(device)
        for device, uses in self._uses(ours.allocation, pool):
            for counter, amount in uses if device not in seen else ():
                taken[counter] = taken.get(counter, 0) + amount
                there = counters.get(counter)
                if there is not None and amount and taken[counter] > there and users.get(counter):
                    left = max(0, there - taken[counter] + amount)
                    what = f"needs {amount} of counter {counter[1]} of {counter[0]}, and {left} is left"
                    return Overlap(device, tuple(sorted(users[counter])), what)
            seen.add(device)
        return None

    def _uses(self, allocation: Allocation, pool: PoolId) -> Iterator[tuple[DeviceId, list[tuple[_Counter, Amount]]]]:
        """The devices of a pool that an allocation has, and what each consumes of counters."""
        for each in _holding(allocation):
            device = self._device(each.device) if (each.device.driver, each.device.pool) == pool else None
            if device is not None:
                yield each.device, [((name, counter), amount) for name, of in device.counters for counter, amount in of]

    def _device(self, wanted: DeviceId) -> Device | None:
        found = self._pool((wanted.driver, wanted.pool)).devices.get(wanted.device)
        return found if found is not None else self._withdrawn.get(wanted)

    def _pool(self, pool: PoolId) -> _Pool:
        found = self._pools.get(pool)
        if found is None:
            slices = self._slices.get(pool)
            if not slices:
                return _NO_POOL
            newest = max(each.generation for each in slices.values())
            current = [each for _, each in sorted(slices.items()) if each.generation == newest]
            devices = {device.name: device for each in current for device in each.devices}
            counters = {(name, counter): value for each in current for name, of in each.counters for counter, value in of.items()}
            found = self._pools[pool] = _Pool(devices, counters)
        return found


def _holding(allocation: Allocation) -> Iterator[Chosen]:
    return (each for each in allocation.devices if not each.admin)


def _has_alone(allocation: Allocation, device: DeviceId) -> bool:
    return any(each.device == device and not each.shared for each in _holding(allocation))


def _consumed(allocations: Iterable[Allocation], device: DeviceId) -> dict[str, Amount]:
    taken: dict[str, Amount] = {}
    for allocation in allocations:
        for each in _holding(allocation):
            for name, amount in each.consumed if each.device == device else ():
                taken[name] = taken.get(name, 0) + amount
    return taken


def _same(one: Allocation, other: Allocation) -> bool:
    """Whether two allocations keep the same from others."""
    return [_kept(each) for each in one.devices] == [_kept(each) for each in other.devices]


def _kept(each: Chosen) -> tuple[object, ...]:
    return each.device, each.admin, each.shared, each.consumed
