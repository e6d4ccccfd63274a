"""ComputeDomains: pods that join one stay in one clique of NVLink, on nodes that are in no other domain.

A node is in another domain by its label, which NVIDIA's driver writes once a pod is there, or since a pod of that domain has got
a place there and the label is still to come.
"""

from __future__ import annotations

from collections import Counter

from typing_extensions import override

from fairlead.api.names import CLIQUE_LABEL
from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.nodes.joined_domains import seats_of
from fairlead.core.pods.filters.base import Refusal, Relation


class ComputeDomains(Relation):
    """The ComputeDomain that pods of a shape join."""

    plugin = "ComputeDomains"
    code = ReasonCode.DEVICES
    complaint = "node(s) cannot join the ComputeDomain"

    @override
    def refused(self) -> Mask | None:
        return self.around.network.domains.closed(self.spec.near) if self.spec.near is not None else None

    @override
    def refuses(self, row: int) -> Refusal | None:
        near, network = self.spec.near, self.around.network
        if near is None or not network.domains.closed_row(near, row):
            return None
        clique, here = network.domains.clique(near.domain), network.level(CLIQUE_LABEL).domain.item(row)
        leave = here and clique in (0, here) and not network.domains.other_label(near.domain, row)
        return Refusal.UNSCHEDULABLE if leave else Refusal.UNRESOLVABLE

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        near, network = self.spec.near, self.around.network
        if near is None:
            return self.complaint
        level, clique = network.level(CLIQUE_LABEL), network.domains.clique(near.domain)
        found: Counter[str] = Counter()
        for row in rows.tolist():
            here = level.domain.item(row)
            if network.domains.other_label(near.domain, row) or network.domains.others(near.domain, row):
                found["were in another ComputeDomain"] += 1
            elif not here:
                found[f"had no label {CLIQUE_LABEL}"] += 1
            elif clique:
                found[f"were outside clique {level.name(clique)}, where the ComputeDomain is"] += 1
        if not found:
            return self.complaint
        return "node(s) " + ", ".join(each if len(found) == 1 else f"{each} ({count})" for each, count in sorted(found.items()))

    @override
    def version(self) -> int:
        near, network = self.spec.near, self.around.network
        if near is None:
            return 0
        seats = network.seats_version(seats_of(near.domain))
        return hash((network.version, seats, network.domains.epoch(), self.nodes.topologies.version))
