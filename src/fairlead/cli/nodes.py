"""`fairlead nodes`: the nodes, as sinfo shows them, with every GPU drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.connection import IntervalOption, KubeconfigOption, SeenFromOption, WatchOption, show
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Output, OutputOption
from fairlead.cluster import views
from fairlead.core.model.units import WHOLE
from fairlead.scheduler.overview.rows import NodeLine

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot


_GIB = 1 << 30


class Nodes(msgspec.Struct, frozen=True):
    """The result of the command."""

    nodes: list[NodeLine]


def nodes(
    kubeconfig: KubeconfigOption = "",
    state: Annotated[
        str, typer.Option("--state", "-t", help="Only nodes in this state: idle, mixed, allocated, closed, drained, down.")
    ] = "",
    gpus: Annotated[bool, typer.Option("--gpus", help="Only nodes with GPUs.")] = False,
    namespace: SeenFromOption = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """All nodes with their GPUs: · free, ▄ shared, █ allocated."""

    def chosen(known: list[NodeLine]) -> tuple[Nodes, Listing]:
        found = [line for line in known if state in ("", line.state) and (line.gpus or not gpus)]
        return Nodes(found), _table(found)

    async def by_leader(leader: Leader, _: float) -> tuple[Nodes, Listing] | None:
        known = await leader.nodes()
        return chosen(known) if known is not None else None

    def view_of(snapshot: Snapshot) -> tuple[Nodes, Listing]:
        return chosen(lines(snapshot))

    show(kubeconfig, output, view_of, watch=watch, interval=interval, by_leader=by_leader, namespace=namespace)


def lines(snapshot: Snapshot) -> list[NodeLine]:
    """Every node, by name."""
    from fairlead.scheduler.overview import nodes as overview

    down = {view.metadata.name for view in snapshot.nodes if _is_down(view)}
    return overview.lines(snapshot.state, down)


def _is_down(view: views.Node) -> bool:
    ready = next((each for each in (view.status.conditions if view.status else None) or () if each.type == "Ready"), None)
    return ready is not None and ready.status != "True"


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


def _table(found: list[NodeLine]) -> Listing:
    from rich.text import Text

    rows = [
        [
            Text(line.name),
            Text(line.state, _STYLES[line.state]),
            Text(line.gpu_model),
            drawn(line.gpu_free_milli),
            f"{line.gpus_used:g}/{line.gpus:g}",
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
    return Listing(columns, rows)


def drawn(free: list[int]) -> str:
    """One character a GPU."""
    return "".join("·" if left == WHOLE else "█" if left == 0 else "▄" for left in free)
