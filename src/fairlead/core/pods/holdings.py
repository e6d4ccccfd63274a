"""What pods hold on a node beside amounts: ports of the node, inline disks, and volume claims.

Counted per row and taken back by the undo log, like the counts of `pairs.py`. Most pods hold none of these and cost
nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairlead.core.model.pods import Disk, HostPort, PodSpec
from fairlead.core.model.undo import UndoLog

Counts = dict[int, int]
"""row -> how many pods; rows that once counted may remain with 0."""

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a value in pods, nothing binds to it


class Trial:
    """What upstream believes while it takes victims off one row and puts some back.

    It keeps a node's ports as a set, so that a port is free once any of those that hold it left; and it knows the
    claims of victims by name alone. ports: taken on the row; claims: how many uses of a name came or left.
    """

    def __init__(self, specs: Iterable[PodSpec]) -> None:
        self.ports = {port for spec in specs for port in spec.ports}
        self.claims: Counter[str] = Counter()

    def copy(self) -> Trial:
        """Another, to go on differently."""
        made = Trial(())
        made.ports, made.claims = set(self.ports), Counter(self.claims)
        return made

    def add(self, spec: PodSpec, by: int) -> None:
        """A pod came to the row (1) or left it (-1)."""
        if by > 0:
            self.ports.update(spec.ports)
        else:
            self.ports.difference_update(spec.ports)
        for claim in spec.claims:
            if not claim.owner:
                self.claims[claim.name] += by

    def takes(self, port: HostPort) -> bool:
        """Whether a port is taken."""
        every = port.address == EVERY_ADDRESS
        return any(
            taken.protocol == port.protocol
            and taken.port == port.port
            and (every or taken.address in (port.address, EVERY_ADDRESS))
            for taken in self.ports
        )


class Holdings:
    """Who holds what where. trial: how upstream sees the row on which victims are being tried, None outside of that."""

    def __init__(self, log: UndoLog) -> None:
        self.log = log
        self.trial: Trial | None = None
        self.version = 0
        self.claims: dict[str, Counts] = {}
        self._ports: dict[tuple[str, int], dict[str, Counts]] = {}  # (protocol, port) -> address -> rows
        self._disks: dict[tuple[str, str], dict[Disk, Counts]] = {}

    def clear(self) -> None:
        """No pod holds anything: all of it is about to be counted anew."""
        self.trial = None
        self.log.renew(self)
        for rows in (
            *self.claims.values(),
            *(each for kind in (self._ports, self._disks) for of in kind.values() for each in of.values()),
        ):
            rows.clear()

    def add(self, spec: PodSpec, row: int, by: int) -> None:
        """A pod came to a row (1) or left it (-1)."""
        self.log.renew(self)
        for port in spec.ports:
            self._add(self._ports.setdefault((port.protocol, port.port), {}).setdefault(port.address, {}), row, by)
        for claim in spec.claims:
            if not claim.owner:
                self._add(self.claims.setdefault(claim.key, {}), row, by)
        for disk in spec.disks:
            self._add(self._disks.setdefault((disk.kind, disk.name), {}).setdefault(disk, {}), row, by)

    def _add(self, rows: Counts, row: int, by: int) -> None:
        self.log.add(rows, row, by)

    def port_rows(self, port: HostPort) -> list[Counts]:
        """Where a port is taken: on its address, or on all of them."""
        taken = self._ports.get((port.protocol, port.port), {})
        if port.address == EVERY_ADDRESS:
            return list(taken.values())
        return [taken[address] for address in {port.address, EVERY_ADDRESS} if address in taken]

    def disk_rows(self, disk: Disk) -> list[Counts]:
        """Where a disk is mounted in a way that excludes this mount."""
        return [rows for other, rows in self._disks.get((disk.kind, disk.name), {}).items() if _exclude(disk, other)]

    def uses(self, claim: str) -> int:
        """How many pods that are on a node mount a claim."""
        return sum(self.claims.get(claim, {}).values())


def _exclude(disk: Disk, other: Disk) -> bool:
    if disk.read_only and other.read_only:
        return False
    return not disk.monitors or bool(set(disk.monitors) & set(other.monitors))
