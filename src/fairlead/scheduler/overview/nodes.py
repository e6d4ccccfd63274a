"""Nodes, a row each, with what is left of every GPU: of device plugins, and of drivers that publish ResourceSlices."""

from __future__ import annotations

from collections.abc import Collection

from fairlead.api.names import POOL_LABELS
from fairlead.core.model.units import WHOLE
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.overview.rows import Domain, GpuPart, NodeLine, SharedAmount

_DOWN = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes whose kubelet does not answer, or has reported that it is not ready."""


def lines(state: ClusterState, down: Collection[str] = (), seen_from: str = "") -> list[NodeLine]:
    """Every node, by name. down: nodes that are known to be, beside those whose taints show it.

    seen_from: a namespace; pods of others are not named.
    """
    return [_line(state, name, row, seen_from, down=name in down) for name, row in sorted(state.nodes.rows.items())]


def _line(state: ClusterState, name: str, row: int, seen_from: str, *, down: bool) -> NodeLine:
    table = state.nodes
    parts, claimed = state.queues.tree.parts, table.claimed
    offered, used = parts.on(row)
    offered, used = offered + claimed.more(row), used + claimed.used(row).milli

    def amount(resource: str) -> tuple[int, int]:
        column = table.resources.get(resource)
        if column is None:
            return 0, 0
        there = table.alloc[column].item(row)
        return there, there - table.free[column].item(row)

    cpu, memory = amount("cpu"), amount("memory")
    node = table.objects[row]
    labels = node.labels if node is not None else {}
    closed_by = state.bound.unread.closers(table, name, seen_from)
    kept = [task for task in table.pods[row].values() if task.pod.spare]
    if down or (node is not None and any(taint.key in _DOWN for taint in node.taints)):
        where = "down"
    elif node is not None and node.unschedulable:
        where = "drained"
    elif closed_by:
        where = "closed"
    else:
        held, there = (used, offered) if offered else (cpu[1], cpu[0])
        where = "idle" if not held else "allocated" if held >= there else "mixed"
    return NodeLine(
        name=name,
        state=where,
        gpu_model=next((labels[label] for label in POOL_LABELS if label in labels), ""),
        gpus=offered / WHOLE if offered % WHOLE else offered // WHOLE,
        gpus_used=used / WHOLE,
        gpu_free_milli=_free(state, row),
        cpu_milli=cpu[0],
        cpu_milli_used=cpu[1],
        memory_bytes=memory[0],
        memory_bytes_used=memory[1],
        pods=len(table.pods[row]) - len(kept),
        closed_by=closed_by,
        gpu_parts=[GpuPart(*each) for each in (*parts.listed(row), *state.device_claims.devices.parts_on(row))],
        domains=[Domain(*each) for each in state.network.path(labels)],
        kept_gpus=sum(map(parts.of, kept)) / WHOLE,
        shared=[SharedAmount(*each) for each in table.shared.listed(row)],
    )


def gpus_of(state: ClusterState, row: int) -> tuple[list[int], list[str | None]]:
    """Of each GPU of a row, as they are drawn: thousandths left, and a queue whose pods hold of it; None: none does."""
    table, free = state.nodes, _free(state, row)
    gpus = table.claimed.gpus_on(row)
    owner: list[str | None] = [None] * len(free)
    at = {each: number for number, each in enumerate(gpus, len(free) - len(gpus))}
    for task in table.pods[row].values():
        for device in task.devices:
            owner[device] = task.queue
        for use in task.pod.claims:
            allocation = state.device_claims.allocation_of(use.key)
            for chosen in allocation.devices if allocation is not None else ():
                part = table.claimed.gpus.part(chosen)
                if part is not None and (number := at.get((part.driver, part.pool, part.gpu))) is not None:
                    owner[number] = task.queue
    return free, owner


def _free(state: ClusterState, row: int) -> list[int]:
    """Thousandths left of each GPU. Where plugins and drivers may offer the same GPUs, the last of these are the drivers'."""
    table = state.nodes
    free = list(table.devices.states[table.device.item(row)])
    gpus = table.claimed.gpus_on(row)
    if not gpus:
        return free
    held = table.claimed.used(row).by_gpu
    left = [max(0, WHOLE - held.get(each, 0)) for each in gpus]
    beside = len(free) + len(left) - -(-(state.queues.tree.parts.on(row)[0] + table.claimed.more(row)) // WHOLE)
    same = max(0, min(beside, len(free), len(left)))  # so many are counted once
    at = len(free) - same
    return [*free[:at], *(min(pair) for pair in zip(free[at:], reversed(left[:same]), strict=True)), *left[same:]]
