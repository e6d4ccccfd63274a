"""`fairlead nodes`: the nodes, as sinfo shows them, with every GPU drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.api.names import POOL_LABELS
from fairlead.cli.output import Column, Output, OutputOption, listing
from fairlead.cli.snapshot import IntervalOption, KubeconfigOption, Snapshot, WatchOption, show
from fairlead.cluster import views
from fairlead.core.model.units import WHOLE

if TYPE_CHECKING:
    from rich.table import Table

_GIB = 1 << 30


class NodeLine(msgspec.Struct, frozen=True):
    """One node. state: as sinfo's words: idle, mixed, allocated, drained, down; closed where something on it cannot be counted.

    gpu_free_milli: thousandths left of each GPU, as counted (the kubelet picks the real devices).
    closed_by: what closes it: pods whose size cannot be known, or what of the node itself cannot be read.
    """

    name: str
    state: str
    gpu_model: str
    gpus: int
    gpus_used: float
    gpu_free_milli: list[int]
    cpu_milli: int
    cpu_milli_used: int
    memory_bytes: int
    memory_bytes_used: int
    pods: int
    closed_by: list[str] = []


class Nodes(msgspec.Struct, frozen=True):
    """The result of the command."""

    nodes: list[NodeLine]


def nodes(
    kubeconfig: KubeconfigOption = "",
    state: Annotated[
        str, typer.Option("--state", "-t", help="Only nodes in this state: idle, mixed, allocated, closed, drained, down.")
    ] = "",
    gpus: Annotated[bool, typer.Option("--gpus", help="Only nodes with GPUs.")] = False,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """All nodes with their GPUs: · free, ▄ shared, █ allocated."""

    def view_of(snapshot: Snapshot) -> tuple[Nodes, Table]:
        found = [line for line in lines(snapshot) if state in ("", line.state) and (line.gpus or not gpus)]
        return Nodes(found), _table(found)

    show(kubeconfig, output, view_of, watch=watch, interval=interval)


def lines(snapshot: Snapshot) -> list[NodeLine]:
    """Every node, by name."""
    table = snapshot.state.nodes
    found = []
    for view in sorted(snapshot.nodes, key=lambda each: each.metadata.name):
        name = view.metadata.name
        row = table.rows[name]
        free = table.devices.states[table.device.item(row)]
        used = sum(WHOLE - left for left in free) / WHOLE

        def amount(resource: str, row: int = row) -> tuple[int, int]:
            column = table.resources.get(resource)
            if column is None:
                return 0, 0
            offered = table.alloc[column].item(row)
            return offered, offered - table.free[column].item(row)

        cpu, memory = amount("cpu"), amount("memory")
        labels = view.metadata.labels or {}
        closed_by = snapshot.state.bound.unread.closers(table, name)
        found.append(
            NodeLine(
                name=name,
                state=_state(view, len(free), used, cpu, closed=bool(closed_by)),
                gpu_model=next((labels[label] for label in POOL_LABELS if label in labels), ""),
                gpus=len(free),
                gpus_used=used,
                gpu_free_milli=list(free),
                cpu_milli=cpu[0],
                cpu_milli_used=cpu[1],
                memory_bytes=memory[0],
                memory_bytes_used=memory[1],
                pods=len(table.pods[row]),
                closed_by=closed_by,
            )
        )
    return found


def _state(view: views.Node, gpus: int, used: float, cpu: tuple[int, int], *, closed: bool) -> str:
    ready = next((each for each in (view.status.conditions if view.status else None) or () if each.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        return "down"
    if view.spec.unschedulable:
        return "drained"
    if closed:
        return "closed"
    held, offered = (used, float(gpus)) if gpus else (float(cpu[1]), float(cpu[0]))
    return "idle" if not held else "allocated" if held >= offered else "mixed"


_STYLES = {"idle": "green", "mixed": "cyan", "allocated": "blue", "drained": "yellow", "closed": "red", "down": "red"}


_COLUMNS = [
    Column("NODE", flexible=True, least=12),
    Column("STATE"),
    Column("MODEL", flexible=True, least=5),
    Column("GPUS"),
    Column("USED", right=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True, flexible=True, least=6),
    Column("PODS", right=True),
]


def _table(found: list[NodeLine]) -> Table:
    from rich.text import Text

    rows = [
        [
            Text(line.name),
            Text(line.state, _STYLES[line.state]),
            Text(line.gpu_model),
            drawn(line.gpu_free_milli),
            f"{line.gpus_used:g}/{line.gpus}",
            f"{line.cpu_milli_used / 1000:g}/{line.cpu_milli / 1000:g}",
            f"{line.memory_bytes_used / _GIB:.0f}/{line.memory_bytes / _GIB:.0f}Gi",
            str(line.pods),
        ]
        for line in found
    ]
    columns = _COLUMNS
    if any(line.closed_by for line in found):
        columns = [*_COLUMNS, Column("CLOSED BY", flexible=True, least=20)]
        rows = [[*row, Text(", ".join(line.closed_by))] for row, line in zip(rows, found, strict=True)]
    table: Table = listing(columns, rows)
    return table


def drawn(free: list[int]) -> str:
    """One character a GPU."""
    return "".join("·" if left == WHOLE else "█" if left == 0 else "▄" for left in free)
