"""Which CPUs a kubelet's static CPU manager gives to a container: whole NUMA nodes and packages first, then cores, then threads.

The order is that of Kubernetes 1.36 (`pkg/kubelet/cm/cpumanager/cpu_assignment.go`, packed). Which thread of a core a container
gets makes no difference to any later decision, so cores are counted by their free threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.core.numa.model import Core, Machine


def take(machine: Machine, available: Sequence[Sequence[int]], count: int) -> dict[Core, int] | None:
    """(NUMA node, core) -> threads taken. available: by NUMA node and core. None: there are not so many."""
    chosen = _Packed(machine, [list(line) for line in available], count)
    return chosen.run() if count > 0 else {}


class _Packed:
    """One choice. left: threads that are still needed."""

    def __init__(self, machine: Machine, free: list[list[int]], count: int) -> None:
        self.machine, self.free, self.left = machine, free, count
        self.taken: dict[Core, int] = {}
        self.sockets: dict[int, list[int]] = {}
        for at, zone in enumerate(machine.zones):
            self.sockets.setdefault(zone.socket, []).append(at)
        self.by_zone = len(self.sockets) >= len(machine.zones)

    def run(self) -> dict[Core, int] | None:
        if self.left > sum(map(sum, self.free)):
            return None
        levels = (self._whole_zones, self._whole_sockets)
        for level in (*(levels if self.by_zone else levels[::-1]), self._whole_cores, self._threads):
            level()
            if not self.left:
                return self.taken
        return None

    def _count(self, zones: Sequence[int]) -> int:
        return sum(sum(self.free[zone]) for zone in zones)

    def _sorted_sockets(self) -> list[int]:
        there = [(self._count(zones), socket) for socket, zones in self.sockets.items()]
        return [socket for count, socket in sorted(there) if count]

    def _sorted_zones(self) -> list[int]:
        groups = [list(range(len(self.free)))] if self.by_zone else [self.sockets[each] for each in self._sorted_sockets()]
        return [zone for group in groups for count, zone in sorted((self._count((each,)), each) for each in group) if count]

    def _cores(self) -> Iterator[Core]:
        for zone in self._sorted_zones():
            for count, core in sorted((count, core) for core, count in enumerate(self.free[zone])):
                if count:
                    yield zone, core

    def _take(self, zone: int, core: int, count: int) -> None:
        self.free[zone][core] -= count
        self.left -= count
        self.taken[zone, core] = self.taken.get((zone, core), 0) + count

    def _whole(self, groups: Sequence[Sequence[int]]) -> None:
        machine = self.machine
        full = [zones for zones in groups if self._count(zones) == sum(machine.zones[zone].cpus for zone in zones)]
        for zones in full:
            if (count := self._count(zones)) and self.left >= count:
                for zone in zones:
                    for core, threads in enumerate(self.free[zone]):
                        self._take(zone, core, threads)

    def _whole_zones(self) -> None:
        self._whole([(zone,) for zone in self._sorted_zones()])

    def _whole_sockets(self) -> None:
        # A kubelet counts as many CPUs for each package, and so takes none of packages of unequal sizes as a whole.
        size = sum(zone.cpus for zone in self.machine.zones) // len(self.sockets)
        self._whole([self.sockets[each] for each in self._sorted_sockets() if self._count(self.sockets[each]) == size])

    def _whole_cores(self) -> None:
        threads = self.machine.threads
        for zone, core in [each for each in self._cores() if self.free[each[0]][each[1]] == threads]:
            if self.left >= threads:
                self._take(zone, core, threads)

    def _threads(self) -> None:
        for zone, core in list(self._cores()):
            count = min(self.left, self.free[zone][core])
            self._take(zone, core, count)
            if not self.left:
                return
