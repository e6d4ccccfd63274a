"""NumaAlignment: nodes whose kubelet would refuse a pod because no NUMA nodes have what it needs together are out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.numa.admission import Refused
from fairlead.core.numa.model import SINGLE, Machine, NumaNeed, memories, resources
from fairlead.core.pods.filters.base import Refusal, Relation

_UNKNOWN, _OUT = -2, -1
MOST_COST = 7


class NumaAlignment(Relation):
    """What kubelets' topology, CPU and memory managers do with pods of a shape."""

    plugin = "NumaAlignment"
    code = ReasonCode.TOPOLOGY
    complaint = "node(s) had no NUMA nodes that could hold the pod"
    _costs: npt.NDArray[np.int8] = np.zeros(0, np.int8)
    _generation = -1

    @override
    def applies(self) -> bool:
        return self.around.numa.any

    def costs(self) -> npt.NDArray[np.int8]:
        """For each row -1 if its kubelet may refuse the pod, else by how many NUMA nodes wider than one it may be spread."""
        numa = self.around.numa
        if self._generation != numa.generation:
            self._generation, self._costs = numa.generation, np.zeros(0, np.int8)
        if len(self._costs) < len(numa.states):
            unknown = np.full(len(numa.states) - len(self._costs), _UNKNOWN, np.int8)
            self._costs = np.concatenate([self._costs, unknown])
        column = np.zeros(self.nodes.count, np.int32)
        known = numa.state[: self.nodes.count]
        column[: len(known)] = known
        found = self._costs[column]
        if (found == _UNKNOWN).any():
            for number in np.unique(column[found == _UNKNOWN]).tolist():
                self._costs[number] = min(numa.judge(number, self.spec.numa), MOST_COST)
            found = self._costs[column]
        return found

    @override
    def refused(self) -> Mask | None:
        out: Mask = self.costs() == _OUT
        return out if out.any() else None

    @override
    def refuses(self, row: int) -> Refusal | None:
        numa = self.around.numa
        number = numa.state.item(row) if row < len(numa.state) else 0
        return Refusal.UNSCHEDULABLE if number and numa.judge(number, self.spec.numa) == _OUT else None

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        numa, need = self.around.numa, self.spec.numa
        found: Counter[str] = Counter()
        for row in rows.tolist():
            known = numa.rows.get(row)
            if known is None:
                continue
            if not known.worlds:
                found["have NUMA nodes whose use is not known until their pods have ended"] += 1
                continue
            why = numa.why(row, need)
            found[_lacking(known.machine, need, why, self.nodes.names[row], row, self)] += 1
        if not found:
            return self.complaint
        first, more = found.most_common(1)[0][0], len(found) - 1
        return f"node(s) {first}" + (f" (and {more} other(s) likewise)" if more else "")


def _lacking(machine: Machine, need: NumaNeed, why: Refused | None, name: str, row: int, of: NumaAlignment) -> str:
    """What a pod needs together, and what the NUMA nodes of one node have free."""
    worlds = of.around.numa.rows[row].worlds
    cpus = sum(each.cpus for each in need if not each.init)
    totals: Counter[str] = Counter()
    for each in need:
        totals.update({} if each.init else dict(each.devices) | dict(each.memory))
    wanted = [f"{totals[each]} {each}" for each in resources(machine) if totals[each]]
    wanted += [f"{cpus} cpu"] if machine.static and cpus else []
    wanted += [f"{totals[each] >> 20} MiB of {each}" for each in memories(machine) if totals[each]]
    if why is Refused.CORES:
        return f"give out whole cores of {machine.threads} CPUs only (full-pcpus-only); {cpus} are requested"
    zones = []
    for at, zone in enumerate(machine.zones):
        free = worlds[0].free
        has = [f"{free.devices[i][at]} {each}" for i, each in enumerate(resources(machine)) if totals[each]]
        has += [f"{sum(free.cores[at])} cpu"] if machine.static and cpus else []
        has += [f"{free.memory[i][at] >> 20} MiB of {each}" for i, each in enumerate(memories(machine)) if totals[each]]
        zones.append(f"{zone.name} has {' and '.join(has)} free")
    together = "one NUMA node" if machine.policy == SINGLE else "as few NUMA nodes as could hold them"
    return f"cannot give {' and '.join(wanted)} from {together}: on {name} {', '.join(zones)}"
