"""NetworkTopology: members of a gang that must be in one domain of the network stay in that of those which have places.

None is anywhere yet: every domain will do, and `core.gang_topology` chooses one that holds the whole gang. A node that lacks the
label of the level, or of a wider one, is in no domain, so no member may have it.
"""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.pods.filters.base import Refusal, Relation, Stop
from fairlead.core.pods.filters.compute_domains import ComputeDomains
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.filters.extended_resources import ExtendedResources


class NetworkTopology(Relation):
    """The levels on which the pods of one gang must be together."""

    plugin = "NetworkTopology"
    code = ReasonCode.TOPOLOGY
    complaint = "node(s) were outside the topology domain of the gang"

    @override
    def stop(self) -> Stop | None:
        near = self.spec.near
        unknown = [each for each in near.required if not self.around.network.knows(each)] if near is not None else []
        if not unknown:
            return None
        known = ", ".join(self.around.network.names)
        message = f"no NodePool has the topology level {unknown[0]!r}" + (f": levels are {known}" if known else "")
        return Stop(self.plugin, message)

    @override
    def applies(self) -> bool:
        near = self.spec.near
        return near is not None and bool(near.required or self.around.network.is_confined(near.gang))

    @override
    def refused(self) -> Mask | None:
        return self.around.network.apart(self.spec.near) if self.spec.near is not None else None

    @override
    def refuses(self, row: int) -> Refusal | None:
        near = self.spec.near
        return Refusal.UNRESOLVABLE if near is not None and self.around.network.apart_row(near, row) else None

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        near = self.spec.near
        if near is None or not near.required:
            return self.complaint
        network = self.around.network
        level = network.level(*near.required)
        home = network.home(near.gang, level)
        if home:
            return f"node(s) were outside {near.required[-1]} {level.name(home)}, where the gang is"
        return f"node(s) had no label for the topology level {near.required[-1]}"

    @override
    def version(self) -> int:
        near, network = self.spec.near, self.around.network
        return hash((network.version, network.seats_version(near.gang))) if near is not None else 0


def depends_on_others(relations: Iterable[Relation]) -> bool:
    """Whether more is judged of a shape than nodes by themselves, devices of its claims, and the place of its gang.

    Extended resources that devices serve elsewhere are judged by each node itself; the place of a ComputeDomain is like a gang's.
    """
    known = NetworkTopology | ComputeDomains | DynamicResources | ExtendedResources
    return any(not isinstance(each, known) for each in relations)
