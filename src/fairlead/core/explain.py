"""Why a unit was not placed, in kube-scheduler's form and with the numbers.

Asked where it is reported, not where places are sought: a refusal travels as data (`allocation.Refused`) until then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fairlead.api.names import GPU_SHARING_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.api.shared_resources import show
from fairlead.core.allocation import OverLimit, ReservedForOthers, closed_to, full_pool, reserved_for_others
from fairlead.core.gang_slices import divided, refusal
from fairlead.core.gang_topology import Scattered, most, near_of
from fairlead.core.mig.parts import sharing_of
from fairlead.core.model.arrays import RowNumbers
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Near
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.nodes.shared_resources import wanted_by
from fairlead.core.pods.colocation import kin
from fairlead.core.pods.filters import (
    StaticFilter,
    devices,
    first_refusal,
    gpu_headroom,
    gpu_pairs,
    node_affinity,
    node_isolation,
    resources,
)
from fairlead.core.pods.filters.network_topology import NetworkTopology
from fairlead.core.pods.filters.shared_resources import left
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.shapes import Shape
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.reclaimable import Reclaimed, Refused
from fairlead.core.queues.reservations import Hold
from fairlead.core.state.cluster import ClusterState

_LISTED = 3  # pools in a message
_SHARE_NOTHING = "don't share their GPUs"


def no_node(state: ClusterState, ranking: Ranking) -> Reason:
    """`0/N nodes are available: ...` for a shape that fits no node now.

    Each node is counted under the first filter that rejects it, resources under each that is
    short, as kube-scheduler does. The code is that of the most frequent refusal; `Resources` if
    any node lacks just free resources, since that is what may change by itself; else what pools share.
    """
    nodes, shape = state.nodes, ranking.shape
    complaints: Counter[str] = Counter()
    codes: Counter[ReasonCode] = Counter()
    quarantined = 0
    if not nodes.rows:
        return Reason(ReasonCode.RESOURCES, "0/0 nodes are available.", {"nodes": 0})
    rows, refused_by_class = ranking.terms.verdicts()
    if closed := len(nodes.rows) - len(rows) - sum(count for _, count in refused_by_class):
        named = (name for name, row in nodes.rows.items() if not nodes.open.item(row))
        complaints[state.bound.unread.complaint(nodes, named)] += closed
        codes[ReasonCode.NODE_CLOSED] += closed
    for number, count in refused_by_class:
        refusal = first_refusal(shape.spec, nodes.classes.known[number])
        if refusal is not None:
            complaints[refusal.complaint(shape.spec, nodes.classes.known[number])] += count
            codes[refusal.CODE] += count
            quarantined += count if _is_quarantine(refusal, shape, nodes.classes.known[number]) else 0
    names = list(nodes.resources)
    short = resources.short_of(nodes, shape.demand, rows)
    for column, count in short.items():
        complaints["Too many pods" if names[column] == "pods" else f"Insufficient {names[column]}"] += count
        codes[ReasonCode.RESOURCES] += count
    if len(rows) not in short.values():  # else no row has enough of everything
        if shape.asks_devices:
            _count_devices(state, ranking, rows, complaints, codes)
        if shape.minds_neighbours:
            _count_neighbours(ranking, rows, complaints, codes)
    _count_relations(ranking, complaints, codes)
    if ReasonCode.RESOURCES in codes:
        code = ReasonCode.RESOURCES
    elif ReasonCode.SHARED_RESOURCES in codes:
        code = ReasonCode.SHARED_RESOURCES  # the only one of these that may change by itself
    else:
        code = codes.most_common(1)[0][0] if codes else ReasonCode.RESOURCES
    listed = ", ".join(sorted(_counted(count, complaint) for complaint, count in complaints.items()))
    total = len(nodes.rows)
    numbers = {"nodes": total, **{str(key): value for key, value in codes.items()}}
    if quarantined:
        numbers["quarantined"] = quarantined
    return Reason(code, f"0/{total} nodes are available: {listed}.", numbers)


def _count_neighbours(ranking: Ranking, rows: RowNumbers, complaints: Counter[str], codes: Counter[ReasonCode]) -> None:
    """Nodes with enough of everything that what else is there keeps a pod off."""
    nodes, shape = ranking.nodes, ranking.shape
    enough = rows[resources.fits(nodes, ranking.need, rows)]
    kept_off: list[tuple[str, int]] = []
    if shape.leaves_gpu_headroom:
        kept_off.append((gpu_headroom.COMPLAINT, int((~gpu_headroom.fits(nodes, shape, enough)).sum())))
    if shape.isolates:
        kept_off.append((node_isolation.complaint(shape), int((~node_isolation.fits(nodes, shape, enough)).sum())))
    if shape.minds_partners:
        free = devices.fits(nodes, shape, enough, shape.fit.costs(nodes.device[enough])) if shape.asks_devices else slice(None)
        there = enough[free]
        kept_off.append((gpu_pairs.complaint(shape), int((~gpu_pairs.fits(nodes, shape, there)).sum())))
    for complaint, count in kept_off:
        if count:
            complaints[complaint] += count
            codes[ReasonCode.RESOURCES] += count


def _unshared(state: ClusterState, rows: RowNumbers) -> Iterator[tuple[str, RowNumbers]]:
    """(what is missing there, rows) of nodes that give out no fractions."""
    named: dict[str, list[int]] = {}
    for row in rows.tolist():
        named.setdefault(_not_shared(state.nodes.objects[row]), []).append(row)
    for missing, found in named.items():
        yield f"node(s) {missing}", np.array(found, np.int32)


def _not_shared(node: Node | None) -> str:
    """Why a node gives out no fractions."""
    agent = node.labels.get(GPU_SHARING_LABEL) if node is not None else None
    if node is None or agent is None:
        return _SHARE_NOTHING
    if sharing_of(node.labels).by_unit:
        return "offer partitions or replicas of GPUs, of which no fractions are given"
    return f"have the label {GPU_SHARING_LABEL}={agent}, which is not listed in gpuSharing.agents"


def refused(state: ClusterState, unit: Unit, why: Refused) -> Reason:
    """The reason for a unit that was not placed, with the state as it was before the attempt."""
    if isinstance(why, OverLimit):
        return why.reason
    if isinstance(why, ReservedForOthers):
        return _reserved(state, why)
    if isinstance(why, Scattered):
        return _scattered(state, unit, why)
    if isinstance(why, Reclaimed):
        return _reclaimed(state, why)
    return no_row(state, unit.tasks[0]) if len(unit.tasks) == 1 else no_gang(state, unit)


def _scattered(state: ClusterState, unit: Unit, why: Scattered) -> Reason:
    """Why a gang that has places waits for places nearer to each other."""
    left = max(0, round(why.until - state.services.now))
    fewer = f"waits for {why.fewest}, at most {left} s more"
    text = f"would span {why.domains} domains of {why.level} now; {fewer}"
    return Reason(why.code, text, {"domains": why.domains, "fewest": why.fewest}, unit.key)


def no_row(state: ClusterState, task: Task) -> Reason:
    """Why a pod gets no node now: there is none, or its queue may hold no more of their pool, or they are reserved for others."""
    full = full_pool(state, task)
    return full.reason if full is not None else reserved(state, task) or no_node(state, task.ranking)


def reserved(state: ClusterState, task: Task) -> Reason | None:
    """Suitable nodes are reserved for others until after the pod is expected to end; None if there are none."""
    found = reserved_for_others(state, task)
    return _reserved(state, found) if found is not None else None


def _holder(hold: Hold) -> str:
    """For whom nodes are reserved, `gang/NAMESPACE/NAME` or `pod/NAMESPACE/NAME`: a UID is no name to users."""
    return f"{hold.key.partition('/')[0]}/{hold.unit.key}" if hold.unit is not None else hold.key


def _reserved(state: ClusterState, found: ReservedForOthers) -> Reason:
    task, first = found.task, found.hold
    wait = max(0.0, first.start - state.reserved.now)
    numbers = {"nodes": found.nodes, "begins_in": int(wait)}
    if found.queue is not None:
        queue = f"the remaining capacity of queue {found.queue.name!r}"
        message = f"{queue} is reserved for {_holder(first)}, which starts in about {wait:.0f} s"
        return Reason(ReasonCode.RESERVATION, message, numbers)
    total = state.runtimes.total(task) if first.given is None else state.services.limits.of(task)
    if total is None or math.isinf(total):
        runs = "the run time of this pod is unknown" if first.given is None else "this pod has no time limit"
    else:
        runs = f"this pod may run for {total:g} s"
        if first.late:
            runs += (
                f"; the reservation was delayed {first.late} times, so the pod must end within 1/{first.late + 1} of that time"
            )
    if first.head is not None:
        runs = "other jobs passed it for too long, so only jobs that a time limit ends before its start may use them"
    message = f"{found.nodes} suitable nodes are reserved for {_holder(first)}, which starts in about {wait:.0f} s; {runs}"
    return Reason(ReasonCode.RESERVATION, message, numbers)


def _reclaimed(state: ClusterState, why: Reclaimed) -> Reason:
    """Another job would reclaim what it would borrow."""
    scale, held, more = state.queues.tree.scale(why.resource), why.used, why.requested
    message = (
        f"with {more / scale:g} more, queue {why.queue!r} would hold {(held + more) / scale:g} {why.resource}, above its fair "
        f"share of {why.share / scale:g}, and a pending job of queue {why.claimant!r} would reclaim that at once"
    )
    return Reason(ReasonCode.FAIR_SHARE, message, {"used": held, "share": why.share, "requested": more})


def own(state: ClusterState, unit: Unit, reason: Reason) -> Reason:
    """A reason that others of its pending class share, as it is of one unit: with its own name and run time, not another's."""
    if reason.code is not ReasonCode.RESERVATION:
        return reason.of(unit.key)
    mine = reserved(state, unit.tasks[0])
    if mine is not None:
        return mine
    if unit.gang is not None and len(unit.tasks) > 1:
        return no_gang(state, unit)  # the reserved nodes are its own, or it ends in time: it lacks capacity all the same
    return no_node(state, unit.tasks[0].ranking)


def owner(state: ClusterState, reason: Reason) -> Callable[[Unit], Reason]:
    """`own` for many units of one pending class: what depends on nothing but how long they run is found once for each length."""
    known: dict[tuple[float | None, float], Reason] = {}
    holders = {id(hold.unit) for hold in state.reserved.holds.values() if hold.unit is not None}

    def found(unit: Unit) -> Reason:
        if reason.code is not ReasonCode.RESERVATION or id(unit) in holders:
            return own(state, unit, reason)
        task = unit.tasks[0]
        key = state.runtimes.total(task), state.services.limits.of(task)
        if key not in known:
            mine = own(state, unit, reason)
            if mine.code is not ReasonCode.RESERVATION:
                return mine
            known[key] = mine
        return known[key]

    return found


def _count_devices(
    state: ClusterState, ranking: Ranking, rows: RowNumbers, complaints: Counter[str], codes: Counter[ReasonCode]
) -> None:
    """Add the nodes of `rows` whose free amounts suffice, and whose devices do not."""
    nodes, shape = state.nodes, ranking.shape
    enough = rows[resources.fits(nodes, ranking.need, rows)]
    if shape.gpu_milli < WHOLE:
        for complaint, unshared in _unshared(state, enough[~nodes.shares[enough]]):
            complaints[complaint] += len(unshared)
            codes[ReasonCode.DEVICES] += len(unshared)
        enough = enough[nodes.shares[enough]]
    splintered = int((~devices.fits(nodes, shape, enough, shape.fit.costs(nodes.device[enough]))).sum())
    if splintered:
        complaints["node(s) had no device with enough free capacity"] += splintered
        codes[ReasonCode.RESOURCES] += splintered


def _counted(count: int, complaint: str) -> str:
    """What keeps a pod off so many nodes; where others keep it off all of them already, what does so besides."""
    return f"{count} {complaint}" if count else complaint.removeprefix("node(s): ")


def _count_relations(ranking: Ranking, complaints: Counter[str], codes: Counter[ReasonCode]) -> None:
    """Nodes that would do by themselves, under the first relation that rejects them."""
    if not ranking.relations:
        return
    left = np.flatnonzero(ranking.alone())
    for relation in ranking.relations:
        stop = relation.stop()
        if stop is not None:
            complaints[stop.message] += len(left)
            codes[relation.code] += max(1, len(left))
            return
        refused = relation.refused() if relation.applies() else None
        if refused is not None and (count := int(refused[left].sum())):
            complaints[relation.words(left[refused[left]])] += count
            codes[relation.code] += count
            left = left[~refused[left]]


def _no_domain(state: ClusterState, unit: Unit, near: Near) -> Reason | None:
    """Why no domain of the network holds the needed members of a gang; None where one does by counting, or all nodes do not."""
    unknown = [each for each in near.required if not state.network.knows(each)]
    if unknown:
        known = ", ".join(state.network.names)
        text = f"must be in one {unknown[0]}, but no NodePool has the topology level {unknown[0]!r}"
        return Reason(ReasonCode.TOPOLOGY, text + (f"; levels are {known}" if known else ""), {}, unit.key)
    level = near.required[-1]
    found = most(state, unit, near)
    if found is None:
        text = f"must be in one {level}, but no node has the labels of the topology level {level}"
        return Reason(ReasonCode.TOPOLOGY, text, {"domains": 0}, unit.key)
    numbers = {"needed": found.of, "held": found.held, "domains": found.domains, "ceiling": found.ceiling}
    needs = f"needs {found.of} pods in one {level}{_spares_of(unit)}"
    if not found.home and found.ceiling < found.of:
        text = f"{needs}; the largest {level} holds at most {found.ceiling} when empty"
        return Reason(ReasonCode.TOPOLOGY, text, numbers, unit.key)
    if found.held >= found.of:
        return None
    where = "where the gang is" if found.home else f"the most of {found.domains}"
    return Reason(
        ReasonCode.TOPOLOGY, f"{needs}; {level} {found.domain} has {found.held} of {found.of}, {where}", numbers, unit.key
    )


def _stopped(unit: Unit) -> Reason | None:
    """Why one of the needed members, or a spare, has no place on any node whatever these have; None: there is no such cause."""
    for task in {task.shape.number: task for task in unit.tasks[: unit.need]}.values():
        for relation in task.ranking.relations:
            stop = None if isinstance(relation, NetworkTopology) else relation.stop()
            if stop is not None:
                text = f"needs {unit.need} pods at once{_spares_of(unit)}; {stop.message}"
                return Reason(relation.code, text, {"needed": unit.need}, unit.key)
    return None


def _spares_of(unit: Unit) -> str:
    """How many of the places that a gang needs are spares."""
    followers = sum(bool(task.pod.leader) for task in unit.tasks)
    spares = sum(task.pod.spare for task in unit.tasks) - followers
    parts = [f"{spares} of them for its spare{'s' if spares > 1 else ''}"] if spares else []
    parts += [f"{followers} of them for followers that are created later"] if followers else []
    return "".join(f", {each}" for each in parts)


def _no_slices(state: ClusterState, unit: Unit) -> Reason | None:
    """Why the slices, equal parts or roles of a gang have no places; None: they have by amounts."""
    nears = {task.shape.number: near for task in unit.tasks if (near := task.shape.spec.near) is not None}.values()
    for near in nears:
        if near.wrong:
            return Reason(ReasonCode.TOPOLOGY, f"topology: {near.wrong}", {}, unit.key)
    for task in {task.shape.number: task for task in unit.tasks}.values():
        for relation in task.ranking.relations:
            if isinstance(relation, NetworkTopology) and (stop := relation.stop()) is not None:
                return Reason(ReasonCode.TOPOLOGY, stop.message, {}, unit.key)
    found = refusal(state, unit, lambda task: closed_to(state, task))
    if found is None:
        return None
    numbers = {"needed": unit.need, **({"held": found.fits, "wanted": found.wanted} if found.wanted else {})}
    return Reason(
        ReasonCode.TOPOLOGY, f"needs {unit.need} pods at once by its topology{_spares_of(unit)}; {found.text}", numbers, unit.key
    )


def _no_shared(state: ClusterState, unit: Unit, *, in_sum: bool) -> Reason | None:
    """Why pools leave a gang too little of what their nodes share; None: they do not.

    in_sum: all pools together must have too little, else each of them.
    """
    shared, wanted = state.nodes.shared, wanted_by(task.shape.spec.shared for task in unit.tasks[: unit.need])
    for name, amount in sorted(wanted.items()):
        pools = shared.pools_with(name)
        if not pools:
            text = f"needs {show(amount)} {name}, but no NodePool has the shared resource {name!r}"
            return Reason(ReasonCode.SHARED_RESOURCES, text, {"needed": amount}, unit.key)
        enough = not shared.lacks({name: amount}) if in_sum else any(shared.free((pool, name)) >= amount for pool in pools)
        if enough:
            continue
        free = sum(max(0, shared.free((pool, name))) for pool in pools)
        listed = ", ".join(f"pool {pool} has {left(shared, pool, name)} free" for pool in pools[:_LISTED])
        listed += f", and {len(pools) - _LISTED} others" if len(pools) > _LISTED else ""
        text = f"needs {unit.need} pods at once{_spares_of(unit)}, and {show(amount)} {name} for them; {listed}"
        return Reason(ReasonCode.SHARED_RESOURCES, text, {"needed": amount, "free": free}, unit.key)
    return None


def no_gang(state: ClusterState, unit: Unit) -> Reason:
    """Why the needed members of a gang do not fit together."""
    return _no_shared(state, unit, in_sum=True) or _no_places(state, unit)


def _no_places(state: ClusterState, unit: Unit) -> Reason:
    """The same, where all pools together have enough left of what their nodes share."""
    near = near_of(state, unit)
    if near is not None and (near.required or divided(unit)) and (stopped := _stopped(unit)) is not None:
        return stopped
    if near is not None and divided(unit) and (slices := _no_slices(state, unit)) is not None:
        return slices
    if near is not None and near.required and (spread := _no_domain(state, unit, near)) is not None:
        return spread
    wanted: Counter[int] = Counter(task.shape.number for task in unit.tasks[: unit.need])
    rankings = {task.shape.number: task.ranking for task in unit.tasks[: unit.need]}
    parts = []
    tightest: tuple[int, Ranking] | None = None
    for number, count in sorted(wanted.items()):
        ranking = rankings[number]
        held, ceiling = int(ranking.counts().sum()), ranking.ceiling()
        if ceiling < count:
            return _beyond(state, unit, ranking, count, ceiling)
        parts.append(f"{min(held, count)} of {count}")
        if tightest is None or held - count < tightest[0]:
            tightest = (held - count, ranking)
    text = f"needs {unit.need} pods at once{_spares_of(unit)}; capacity for {', '.join(parts)}"
    numbers = {"needed": unit.need}
    if tightest is not None and tightest[0] < 0:
        if int(tightest[1].counts().sum()) == 0:
            text = f"{text}: {no_node(state, tightest[1]).message}"
        quarantined = _quarantined(state, tightest[1], -tightest[0])
        if quarantined:
            numbers["quarantined"] = quarantined
            text += f"; {quarantined} {node_affinity.QUARANTINED}, which have capacity for the rest"
    elif apart := [each for group in kin(unit.tasks[: unit.need]) if (each := group.most())[2] < each[1]]:
        topology, count, held = apart[0]
        text += f" by resources, but {count} of them must share one {topology}, and at most {held} fit in one now"
    elif any(ranking.relations for ranking in rankings.values()):
        text += " by resources, but not with their other constraints (affinity, spread, ports, volumes)"
        return _no_shared(state, unit, in_sum=False) or Reason(ReasonCode.RESOURCES, text, numbers, unit.key)
    return Reason(ReasonCode.RESOURCES, text, numbers, unit.key)


def _quarantined(state: ClusterState, ranking: Ranking, missing: int) -> int:
    """How many nodes a gang cannot use only because of a quarantine, and would hold what is missing; 0: not enough would."""
    nodes, shape = state.nodes, ranking.shape
    rows = np.fromiter(nodes.rows.values(), np.int32, len(nodes.rows))
    found = [row for kept_off in _kept_off(state, ranking, rows) if kept_off.quarantined for row in kept_off.rows]
    if not found:
        return 0
    chosen = np.array(found, np.int32)
    held = resources.counts(nodes.free, shape.demand, chosen)
    if shape.asks_devices:
        held = np.minimum(held, shape.fit.counts(nodes.device[chosen]))
    return int((held > 0).sum()) if int(held.sum()) >= missing else 0


def _beyond(state: ClusterState, unit: Unit, ranking: Ranking, count: int, ceiling: int) -> Reason:
    """Why the nodes that a gang may use do not hold its members of one shape, were they empty.

    Too large is only what no labels and taints of the nodes would help; else the code is that of what excludes most capacity.
    """
    nodes = state.nodes
    rows = np.fromiter(nodes.rows.values(), np.int32, len(nodes.rows))
    ceilings = ranking.ceilings()
    most, numbers = int(ceilings[rows].sum()), {"needed": count, "ceiling": ceiling}
    asks = f"needs {count} identical pods at once"
    if most < count:
        text = f"{asks}; the whole cluster holds at most {most}: {_first_line(state, ranking.shape)}"
        return Reason(ReasonCode.TOO_LARGE, text, {**numbers, "ceiling": most}, unit.key)
    lost: Counter[ReasonCode] = Counter()  # pods that would fit, by what excludes them
    complaints: Counter[str] = Counter()  # nodes
    quarantined = 0
    for each in _kept_off(state, ranking, rows):
        lost[each.code] += int(ceilings[each.rows].sum())
        complaints[each.complaint] += len(each.rows)
        quarantined += len(each.rows) if each.quarantined else 0
    if quarantined:
        numbers["quarantined"] = quarantined
    code = max(lost, key=lambda each: (lost[each], each))
    listed = ", ".join(sorted(f"{number} {complaint}" for complaint, number in complaints.items()))
    text = f"{asks}; the eligible nodes hold at most {ceiling} when empty, all {len(rows)} nodes {most}: {listed}"
    return Reason(code, text, numbers, unit.key)


class _KeptOff(NamedTuple):
    """Nodes that are out for a shape, and why. quarantined: they would do, were they not quarantined for gangs."""

    code: ReasonCode
    complaint: str
    rows: RowNumbers
    quarantined: bool = False


def _is_quarantine(refusal: StaticFilter, shape: Shape, node: NodeClass) -> bool:
    """Whether nothing but a quarantine is behind a filter's refusal."""
    return refusal is node_affinity.FILTER and node_affinity.FILTER.only_quarantined(shape.spec, node)


def _kept_off(state: ClusterState, ranking: Ranking, rows: RowNumbers) -> Iterator[_KeptOff]:
    """The nodes that are out for a shape however empty they are, and not for want of amounts."""
    nodes, shape = state.nodes, ranking.shape
    closed = rows[~nodes.open[rows]]
    if len(closed):
        named = (nodes.names[row] for row in closed.tolist())
        yield _KeptOff(ReasonCode.NODE_CLOSED, state.bound.unread.complaint(nodes, named), closed)
    rows = rows[nodes.open[rows]]
    admitted = ranking.admitted(rows)
    out = rows[~admitted]
    for number in sorted(set(nodes.classes.column[out].tolist())):  # np.unique would import numpy.ma in the middle of a pass
        refusal = first_refusal(shape.spec, nodes.classes.known[number])
        if refusal is not None:
            here, node = out[nodes.classes.column[out] == number], nodes.classes.known[number]
            yield _KeptOff(refusal.CODE, refusal.complaint(shape.spec, node), here, _is_quarantine(refusal, shape, node))
    if shape.asks_devices and shape.gpu_milli < WHOLE:
        for complaint, unshared in _unshared(state, rows[admitted & ~nodes.shares[rows]]):
            yield _KeptOff(ReasonCode.DEVICES, complaint, unshared)


def _first_line(state: ClusterState, shape: Shape) -> str:
    return f"{len(state.nodes)} nodes, {', '.join(f'{amount} {resource}' for resource, amount in shape.spec.requests)} per pod"
