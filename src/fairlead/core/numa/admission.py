"""Whether a kubelet admits a pod, and what the pod then has: hints, their merger, and allocation container by container.

Follows Kubernetes 1.36 (`pkg/kubelet/cm`: topologymanager, cpumanager, memorymanager, devicemanager). Which of several devices
that the hint names a device plugin prefers is not known: where NUMA nodes differ, every possible result is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from fairlead.core.numa.cpus import take
from fairlead.core.numa.hints import ANY, IMPOSSIBLE, Hint, Hints, masks, merge
from fairlead.core.numa.model import (
    NONE,
    RESTRICTED,
    SINGLE,
    ContainerNeed,
    Core,
    Free,
    Held,
    Machine,
    NumaNeed,
    bits,
    memories,
    resources,
)

MOST_RESULTS = 64
"""So many results of one admission are distinguished."""


class Refused(Enum):
    """Which step of a kubelet's admission refuses a pod."""

    AFFINITY = "TopologyAffinityError"
    CORES = "SMTAlignmentError"
    CPUS = "not enough CPUs for exclusive use"
    MEMORY = "no NUMA nodes with enough memory"
    DEVICES = "not enough devices"


class Result(NamedTuple):
    """A possible result of an admission. span: NUMA nodes of the widest hint; preferred: whether all hints were."""

    free: Free
    held: Held
    span: int
    preferred: bool


class _Refusal(Exception):
    def __init__(self, why: Refused) -> None:
        self.why = why


def admit(machine: Machine, free: Free, need: NumaNeed) -> list[Result] | Refused:
    """All results that a kubelet's admission may have, in a fixed order, or why it refuses.

    It refuses if one of the results that are possible so far would be refused: then it is not certain that it admits. Beyond
    `MOST_RESULTS` it refuses, too.
    """
    try:
        return _admit(machine, free, need)
    except _Refusal as refused:
        return refused.why


def _admit(machine: Machine, free: Free, need: NumaNeed) -> list[Result]:
    names = memories(machine), resources(machine)
    works = [_Work(machine, free, *names)]
    whole: Hint | None = None
    if machine.scope == "pod" and machine.policy != NONE:
        whole = _judged(machine, works[0].hints(_together(need), pod=True))
    for container in need:
        following: dict[tuple[object, ...], _Work] = {}
        for work in works:
            hint = whole
            if machine.policy == NONE:
                hint = Hint(None, preferred=False)
            elif hint is None:
                hint = _judged(machine, work.hints(container))
            for each in work.allocate(container, hint):
                following.setdefault(each.state(), each)
        if len(following) > MOST_RESULTS:
            raise _Refusal(Refused.DEVICES)
        works = list(following.values())
    return [Result(each.now(), each.held(), each.span, each.preferred) for each in works]


def _judged(machine: Machine, hints: Sequence[Hints]) -> Hint:
    hint = merge(machine, hints)
    if not hint.preferred and machine.policy in (RESTRICTED, SINGLE):
        raise _Refusal(Refused.AFFINITY)
    return hint


def _together(need: NumaNeed) -> ContainerNeed:
    """What a pod needs at most at one time, as the managers count it for the scope `pod`."""

    def most(amounts: Sequence[tuple[ContainerNeed, int]]) -> int:
        first = beside = later = 0
        for container, amount in amounts:
            if container.sidecar:
                beside += amount
            elif container.init:
                first = max(first, beside + amount)
            else:
                later += amount
        return max(first, beside + later)

    main = [each for each in need if not each.init and not each.sidecar]
    # The memory manager counts what containers ask for that are no init containers; the device manager all.
    memory = sorted({name for each in main for name, _ in each.memory})
    devices = sorted({name for each in need for name, _ in each.devices})
    return ContainerNeed(
        most([(each, each.cpus) for each in need]),
        tuple((name, most([(each, dict(each.memory).get(name, 0)) for each in need])) for name in memory),
        tuple((name, most([(each, dict(each.devices).get(name, 0)) for each in need])) for name in devices),
    )


class _Work:
    """What is free while a pod's containers get theirs one by one."""

    def __init__(self, machine: Machine, free: Free, memory_names: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.machine, self.memory_names, self.names = machine, memory_names, names
        self.cores = [list(line) for line in free.cores]
        self.memory = [list(line) for line in free.memory]
        self.cells = list(free.cells)
        self.devices = [list(line) for line in free.devices]
        self.threads: dict[Core, int] = {}
        self.blocks: list[tuple[int, int, int]] = []
        self.chosen: dict[tuple[int, int], int] = {}
        self.spare_threads: dict[Core, int] = {}  # of init containers, for those that come later
        self.spare_memory: dict[tuple[int, int], int] = {}  # (mask, resource) -> bytes
        self.spare_devices: dict[tuple[int, int], int] = {}
        self.init_blocks: list[int] = []
        self.span, self.preferred = 0, True

    def copy(self) -> _Work:
        other = _Work(self.machine, self.now(), self.memory_names, self.names)
        other.threads, other.blocks, other.chosen = dict(self.threads), list(self.blocks), dict(self.chosen)
        other.spare_threads, other.spare_memory = dict(self.spare_threads), dict(self.spare_memory)
        other.spare_devices, other.init_blocks = dict(self.spare_devices), list(self.init_blocks)
        other.span, other.preferred = self.span, self.preferred
        return other

    def now(self) -> Free:
        return Free(
            tuple(map(tuple, self.cores)), tuple(map(tuple, self.memory)), tuple(self.cells), tuple(map(tuple, self.devices))
        )

    def held(self) -> Held:
        threads = tuple((zone, core, count) for (zone, core), count in sorted(self.threads.items()) if count)
        devices = tuple((resource, zone, count) for (resource, zone), count in sorted(self.chosen.items()) if count)
        return Held(threads, tuple(self.blocks), devices)

    def state(self) -> tuple[object, ...]:
        spare = tuple(sorted(self.spare_devices.items())), tuple(sorted(self.spare_threads.items()))
        return self.now(), self.held(), spare, tuple(sorted(self.spare_memory.items()))

    # -- hints ---------------------------------------------------------------------------------

    def hints(self, need: ContainerNeed, *, pod: bool = False) -> list[Hints]:
        found: list[Hints] = []
        for name, count in need.devices:
            if name in self.names:
                found.append(self._device_hints(self.names.index(name), count, reuse=not pod) or IMPOSSIBLE)
        if self.machine.static and need.cpus:
            found.append(self._cpu_hints(need.cpus) or IMPOSSIBLE)
        if self.memory_names and need.memory:
            usable = self._memory_hints(need.memory)
            found += [usable] * len(need.memory) if usable else [ANY]
        return found

    def _device_hints(self, resource: int, count: int, *, reuse: bool) -> Hints:
        free, name = self.devices[resource], self.names[resource]
        there = [dict(zone.devices).get(name, 0) for zone in self.machine.zones]
        spare = [self.spare_devices.get((resource, zone), 0) if reuse else 0 for zone in range(len(free))]
        if sum(free) + sum(spare) < count:
            return IMPOSSIBLE
        return _counted(tuple(zone for zone, total in enumerate(there) if total), there, free, spare, count)

    def _cpu_hints(self, count: int) -> Hints:
        there = [zone.cpus for zone in self.machine.zones]
        spare = [0] * len(there)
        for (zone, _), threads in self.spare_threads.items():
            spare[zone] += threads
        return _counted(tuple(zone for zone, total in enumerate(there) if total), there, list(map(sum, self.cores)), spare, count)

    def _memory_hints(self, needed: Sequence[tuple[str, int]]) -> Hints:
        asked = [(self.memory_names.index(name) if name in self.memory_names else -1, size) for name, size in needed]
        zones = self.machine.zones
        allocatable = [[dict(zone.memory).get(name, 0) for zone in zones] for name in self.memory_names]
        least, usable = len(zones), []
        for mask in masks(tuple(range(len(zones)))):
            there = bits(mask)
            if any((sum(allocatable[at][zone] for zone in there) if at >= 0 else 0) < size for at, size in asked):
                continue
            least = min(least, len(there))
            if len(there) == 1:
                if self.cells[there[0]][1].bit_count() > 1:
                    continue
            elif any(self._is_apart(zone, mask) for zone in there):
                continue
            if all(self._free_memory(at, mask) + self.spare_memory.get((mask, at), 0) >= size for at, size in asked):
                usable.append(mask)
        return [Hint(mask, mask.bit_count() == least) for mask in usable]

    def _is_apart(self, zone: int, mask: int) -> bool:
        """Whether memory of a NUMA node is given out already, alone or with other NUMA nodes than these."""
        count, cells = self.cells[zone]
        return count > 0 and (cells.bit_count() == 1 or cells != mask)

    def _free_memory(self, resource: int, mask: int) -> int:
        return sum(self.memory[resource][zone] for zone in bits(mask)) if resource >= 0 else 0

    # -- allocation ----------------------------------------------------------------------------

    def allocate(self, need: ContainerNeed, hint: Hint) -> Iterator[_Work]:
        """What may have become of this with a container's share taken: devices, then CPUs, then memory."""
        width = len(self.machine.zones) if hint.mask is None else hint.mask.bit_count()
        for work in self._with_devices(need, hint):
            work.span, work.preferred = max(work.span, width), work.preferred and hint.preferred
            if self.machine.static and need.cpus:
                work.take_cpus(need, hint)
            if self.memory_names and need.memory:
                work.take_memory(need, hint)
            yield work

    def _with_devices(self, need: ContainerNeed, hint: Hint) -> list[_Work]:
        works = [self.copy()]
        for name, count in need.devices:
            if name in self.names and self.machine.policy != NONE:
                resource = self.names.index(name)
                works = [each for work in works for each in work.taken(resource, count, need, hint)]
                if len(works) > MOST_RESULTS * 4:
                    raise _Refusal(Refused.DEVICES)
        return works

    def taken(self, resource: int, count: int, need: ContainerNeed, hint: Hint) -> Iterator[_Work]:
        zones = range(len(self.machine.zones))
        spare = [self.spare_devices.get((resource, zone), 0) for zone in zones]
        free = self.devices[resource]
        inside = [zone for zone in zones if hint.mask is not None and hint.mask >> zone & 1]
        if sum(spare) + sum(free) < count:
            raise _Refusal(Refused.DEVICES)
        for reused in _shares(spare, count):
            left = count - sum(reused)
            near = [free[zone] if zone in inside else 0 for zone in zones]
            for first in _shares(near, left):
                far = [0 if zone in inside else free[zone] for zone in zones]
                for rest in _shares(far, left - sum(first)):
                    work = self.copy()
                    for zone in zones:
                        new, again = first[zone] + rest[zone], reused[zone]
                        key = resource, zone
                        work.devices[resource][zone] -= new
                        work.chosen[key] = work.chosen.get(key, 0) + new
                        if need.init:
                            work.spare_devices[key] = spare[zone] + new
                        else:
                            work.spare_devices[key] = spare[zone] - again
                    yield work

    def take_cpus(self, need: ContainerNeed, hint: Hint) -> None:
        machine = self.machine
        if machine.full_cores:
            reserved = [-(-zone.cpus_reserved // machine.threads) for zone in machine.zones]
            usable = sum(sum(line[count:]) for line, count in zip(self.cores, reserved, strict=True))
            if need.cpus % machine.threads or need.cpus > usable:
                raise _Refusal(Refused.CORES)
        available = [list(line) for line in self.cores]
        for (zone, core), count in self.spare_threads.items():
            available[zone][core] += count
        got: dict[Core, int] = {}
        if hint.mask is not None:
            near = [line if hint.mask >> zone & 1 else [0] * len(line) for zone, line in enumerate(available)]
            got = take(machine, near, min(need.cpus, sum(map(sum, near)))) or {}
            for (zone, core), count in got.items():
                available[zone][core] -= count
        rest = take(machine, available, need.cpus - sum(got.values()))
        if rest is None:
            raise _Refusal(Refused.CPUS)
        for key, count in rest.items():
            got[key] = got.get(key, 0) + count
        for (zone, core), count in got.items():
            # Which of a core's threads were those of an init container cannot be distinguished: they are taken first.
            again = min(count, self.spare_threads.get((zone, core), 0))
            self.cores[zone][core] -= count - again
            self.threads[zone, core] = self.threads.get((zone, core), 0) + count - again
            if need.init:
                self.spare_threads[zone, core] = self.spare_threads.get((zone, core), 0) + count - again
            elif again:
                self.spare_threads[zone, core] -= again

    def take_memory(self, need: ContainerNeed, hint: Hint) -> None:
        asked = [(self.memory_names.index(name) if name in self.memory_names else -1, size) for name, size in need.memory]
        mask, preferred = hint
        if mask is None:
            mask, preferred = self._best(self._memory_hints(need.memory), hint)
        if any(self._free_memory(at, mask) < size for at, size in asked):
            wider = [each for each in self._memory_hints(need.memory) if each.mask is not None and each.mask & mask == mask]
            mask, preferred = self._best(wider, Hint(mask, preferred))
        if mask.bit_count() > 1 and any(self._is_apart(zone, mask) for zone in bits(mask)):
            raise _Refusal(Refused.MEMORY)
        earlier = tuple(self.init_blocks)
        for at, size in asked:
            again = self.spare_memory.get((mask, at), 0)
            self._charge(at, mask, max(0, size - again))
            if need.init:
                self.spare_memory[mask, at] = max(again, size)
                self.init_blocks.append(len(self.blocks))
            elif again:
                self.spare_memory[mask, at] = max(0, again - size)
            self.blocks.append((mask, at, size))
        for at, size in asked:
            self._shrink(earlier, mask, at, size)

    def _best(self, hints: Hints, before: Hint) -> tuple[int, bool]:
        found = min(
            hints, key=lambda each: (not each.preferred, each.mask.bit_count() if each.mask else 0, each.mask), default=None
        )
        if found is None or found.mask is None or (before.preferred and not found.preferred):
            raise _Refusal(Refused.MEMORY)
        return found.mask, found.preferred

    def _charge(self, resource: int, mask: int, size: int) -> None:
        for zone in bits(mask):
            self.cells[zone] = self.cells[zone][0] + 1, mask
            taken = min(size, self.memory[resource][zone])
            self.memory[resource][zone] -= taken
            size -= taken

    def _shrink(self, earlier: Sequence[int], mask: int, resource: int, size: int) -> None:
        """What init containers had of memory that a later container uses again is counted once."""
        for place in earlier:
            other, kind, had = self.blocks[place]
            if other == mask and kind == resource and size:
                self.blocks[place] = other, kind, had - min(had, size)
                size -= min(had, size)


def _counted(zones: tuple[int, ...], there: Sequence[int], free: Sequence[int], spare: Sequence[int], count: int) -> Hints:
    """Hints of what is counted: masks with enough that is free, and with all that an init container left."""
    least, found = len(zones), []
    for mask in masks(zones):
        inside = bits(mask)
        if sum(there[zone] for zone in inside) >= count:
            least = min(least, len(inside))
        if all(not left or mask >> zone & 1 for zone, left in enumerate(spare)) and (
            sum(free[zone] + spare[zone] for zone in inside) >= count
        ):
            found.append(mask)
    return [Hint(mask, mask.bit_count() == least) for mask in found]


def _shares(free: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """All ways to take `count` of what is free, or all of it if that is less."""
    count = min(count, sum(free))
    if not free:
        yield ()
        return
    rest = sum(free[1:])
    for first in range(max(0, count - rest), min(free[0], count) + 1):
        for others in _shares(free[1:], count - first):
            yield (first, *others)


def release(machine: Machine, free: Free, held: Held) -> Free:
    """What is free once a pod that had this is gone."""
    work = _Work(machine, free, memories(machine), resources(machine))
    for zone, core, count in held.threads:
        work.cores[zone][core] += count
    for resource, zone, count in held.devices:
        work.devices[resource][zone] += count
    limits = [[dict(zone.memory).get(name, 0) for zone in machine.zones] for name in work.memory_names]
    for mask, resource, size in held.blocks:
        left = size
        for zone in bits(mask):
            count, cells = work.cells[zone]
            work.cells[zone] = (count - 1, cells) if count > 1 else (0, 1 << zone)
            given = min(left, limits[resource][zone] - work.memory[resource][zone])
            work.memory[resource][zone] += given
            left -= given
    return work.now()
