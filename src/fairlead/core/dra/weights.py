"""What part of a GPU a device is, for quotas, fair shares and costs; exact, in thousandths.

Devices of a driver for GPUs count (`gpu.nvidia.com`, `gpu.amd.com`, and what else begins so). A device is all of a GPU, unless it
consumes counters: then it is the largest part of these that it takes, numbered ones (`memory-slice-0`, ...) together.
Where there are counters of memory and multiprocessors, only those count: a partition with the only JPEG engine of a GPU is not
the GPU. A share of a device is the largest part of the device's capacities that it consumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fairlead.core.dra.capacity import consumption
from fairlead.core.dra.model import Amount, Ask, Device

WHOLE = 1000
_PREFIX = "gpu."
_SIZES = frozenset({"memory", "memory-slice", "multiprocessors"})

Counters = Mapping[tuple[str, str], Amount]
"""(counter set, counter) -> what there is, of a pool."""


def is_gpu(driver: str) -> bool:
    """Whether a driver's devices are GPUs."""
    return driver.startswith(_PREFIX)


def milli(device: Device, counters: Counters) -> int:
    """What part of a GPU a device is, rounded down, so that the partitions of a GPU are never more than that."""
    return int(WHOLE * part(device, counters)) if is_gpu(device.driver) else 0


def milli_of_share(device: Device, counters: Counters, consumed: Mapping[str, Amount]) -> int:
    """The same of a share of it, which consumes this."""
    if not is_gpu(device.driver):
        return 0
    parts = [
        Fraction(amount) / each.value for name, amount in consumed.items() if (each := device.capacity.get(name)) and each.value
    ]
    return int(WHOLE * part(device, counters) * min(Fraction(1), max(parts, default=Fraction(1))))


def milli_of_ask(device: Device, counters: Counters, ask: Ask) -> int:
    """The same of what an ask takes of a device that it selects; 0: it cannot have it."""
    if not device.multiple:
        return milli(device, counters)
    consumed = consumption(dict(ask.capacity), device.capacity)
    return 0 if consumed is None else milli_of_share(device, counters, consumed)


def part(device: Device, counters: Counters) -> Fraction:
    """What part of a GPU a device is, whatever its driver."""
    if not device.counters:
        return Fraction(1)
    taken: dict[tuple[str, str], Amount] = {}
    there: dict[tuple[str, str], Amount] = {}
    sets = {name for name, _ in device.counters}
    for (name, counter), total in counters.items():
        if name in sets:
            key = name, _kind(counter)
            there[key] = there.get(key, 0) + total
    for name, amounts in device.counters:
        for counter, amount in amounts:
            key = name, _kind(counter)
            taken[key] = taken.get(key, 0) + amount
    sizes = {key for key in there if key[1] in _SIZES} or set(there)
    parts = [Fraction(taken.get(key, 0)) / there[key] for key in sizes if there[key]]
    return min(Fraction(1), max(parts, default=Fraction(1)))


def _kind(counter: str) -> str:
    """A counter's name without its number: `memory-slice-3` is one of the memory slices."""
    name, dash, number = counter.rpartition("-")
    return name if dash and number.isdecimal() else counter
