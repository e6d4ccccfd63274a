"""NetworkTopology: members of a gang that must be in one domain of the network stay in that of those which have places.

None is anywhere yet: every domain will do, and `core.gang_topology` chooses one that holds the whole gang. A node that lacks the
label of the level, or of a wider one, is in no domain, so no member may have it.
"""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.model.network_labels import label_of
from fairlead.core.model.pods import Near
from fairlead.core.nodes.network import unknown_levels, widest_first
from fairlead.core.pods.filters.base import Refusal, Relation, Stop
from fairlead.core.pods.filters.compute_domains import ComputeDomains
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.filters.extended_resources import ExtendedResources
from fairlead.core.pods.filters.shared_resources import SharedResources


class NetworkTopology(Relation):
    """The levels on which the pods of one gang must be together."""

    plugin = "NetworkTopology"
    code = ReasonCode.TOPOLOGY
    complaint = "node(s) were outside the topology domain of the gang"

    @override
    def stop(self) -> Stop | None:
        near = self.spec.near
        if near is None:
            return None
        if near.wrong:
            return Stop(self.plugin, f"topology: {near.wrong}")
        unknown = unknown_levels(self.around.network, near)
        if not unknown:
            return self._disordered(near)
        known = ", ".join(self.around.network.names)
        message = f"no NodePool has the topology level {unknown[0]!r}" + (f": levels are {known}" if known else "")
        return Stop(self.plugin, message)

    def _disordered(self, near: Near) -> Stop | None:
        """Slices that are not inside of one another, or lie wider than what is required of all."""
        if not near.slices:
            return None
        given = list(dict.fromkeys((*near.required[:1], *(each.level for each in near.parts))))
        right = widest_first(self.around.network, given)
        if given == right:
            return None
        wide, narrow = next((one, other) for one, other in zip(given, right, strict=False) if one != other)
        return Stop(self.plugin, f"topology: level {narrow} is wider than {wide}, inside of which it is asked for")

    @override
    def applies(self) -> bool:
        near = self.spec.near
        return near is not None and bool(near.required or near.team or self.around.network.is_confined(near.gang))

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
        if near is None or not (near.required or near.parts):
            return self.complaint
        network = self.around.network
        for part in near.parts:
            level = network.level(part.level)
            if home := network.home(part.key, level):
                what = "slice" if part in near.slices else "role"
                return f"node(s) were outside {label_of(part.level)} {level.name(home)}, where other members of the {what} are"
        if not near.required:
            return self.complaint
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
    What pools share is an amount like those of a node.
    """
    known = NetworkTopology | ComputeDomains | DynamicResources | ExtendedResources | SharedResources
    return any(not isinstance(each, known) for each in relations)
