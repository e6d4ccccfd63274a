"""NodePorts: a port of the node itself goes to one pod; address 0.0.0.0 conflicts with every address."""

from __future__ import annotations

from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Mask
from fairlead.core.pods.filters.base import Refusal, Relation, sparse


class HostPorts(Relation):
    """The ports that a shape wants."""

    plugin = "NodePorts"
    code = ReasonCode.RESOURCES
    complaint = "node(s) didn't have free ports for the requested pod ports"

    def _taken(self) -> list[dict[int, int]]:
        return [rows for port in self.spec.ports for rows in self.around.holdings.port_rows(port)]

    @override
    def refused(self) -> Mask | None:
        return sparse(self.nodes.count, self._taken())

    @override
    def refuses(self, row: int) -> Refusal | None:
        trial = self.around.holdings.trial
        if trial is not None:
            taken = any(trial.takes(port) for port in self.spec.ports)
        else:
            taken = any(rows.get(row, 0) > 0 for rows in self._taken())
        return Refusal.UNSCHEDULABLE if taken else None
