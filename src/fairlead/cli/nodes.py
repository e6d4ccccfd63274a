"""`fairlead nodes`: the nodes, as sinfo shows them, with every GPU drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.api.shared_resources import show as amount
from fairlead.cli.connection import IntervalOption, KubeconfigOption, SeenFromOption, WatchOption, show
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, fail
from fairlead.cluster import views
from fairlead.core.model.units import WHOLE
from fairlead.scheduler.overview.rows import NodeLine

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot


_GIB = 1 << 30


class Nodes(msgspec.Struct, frozen=True):
    """The result of the command."""

    nodes: list[NodeLine]


class DomainLine(msgspec.Struct, frozen=True):
    """A domain of the network. nodes: how many, nodes_free: how many of them have all their GPUs free, and take pods.

    gpus, gpus_used: on all its nodes, gpus_free: on those that take pods. most_free: GPUs free on the node that has most.
    kept_gpus: the part of gpus_used on which no pod is: reserved for members that are replaced, or for followers.
    """

    level: str
    name: str
    nodes: int
    nodes_free: int
    gpus: int | float
    gpus_used: float
    gpus_free: float
    most_free: float
    kept_gpus: float = 0.0


class SharedLine(msgspec.Struct, frozen=True):
    """What the nodes of a pool share, by name: as much as the NodePool declares, what pods take of it, and what is free.

    nodes: how many of those listed are in the pool.
    """

    pool: str
    name: str
    nodes: int
    declared: int
    used: int
    free: int


class Shared(msgspec.Struct, frozen=True):
    """The result of `--shared`."""

    shared: list[SharedLine]


class Domains(msgspec.Struct, frozen=True):
    """The result of `--topology`. nodes_outside: how many are in no domain of any level."""

    domains: list[DomainLine]
    nodes_outside: int


def nodes(
    kubeconfig: KubeconfigOption = "",
    state: Annotated[
        str, typer.Option("--state", "-t", help="Only nodes in this state: idle, mixed, allocated, closed, drained, down.")
    ] = "",
    gpus: Annotated[bool, typer.Option("--gpus", help="Only nodes with GPUs.")] = False,
    topology: Annotated[
        bool, typer.Option("--topology", help="The domains of the network (racks, blocks), a row each, instead of nodes.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="What the nodes of each pool share (sharedResources), a row each, instead of nodes.")
    ] = False,
    namespace: SeenFromOption = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """All nodes with their GPUs: · free, ▄ shared, █ allocated."""
    if topology and shared:
        fail("--topology and --shared exclude each other", Exit.USAGE)

    def chosen(known: list[NodeLine]) -> tuple[Nodes | Domains | Shared, Listing]:
        found = [line for line in known if state in ("", line.state) and (line.gpus or not gpus)]
        if topology:
            domains = domains_of(found)
            return domains, _domain_table(domains)
        if shared:
            pools = shared_of(found)
            return pools, _shared_table(pools)
        return Nodes(found), _table(found)

    async def by_leader(leader: Leader, _: float) -> tuple[Nodes | Domains | Shared, Listing] | None:
        known = await leader.nodes()
        return chosen(known) if known is not None else None

    def view_of(snapshot: Snapshot) -> tuple[Nodes | Domains | Shared, Listing]:
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


def domains_of(known: list[NodeLine]) -> Domains:
    """The domains that nodes are in: those of a wide level, each followed by those inside of it."""
    members: dict[tuple[str, ...], list[NodeLine]] = {}
    levels: dict[tuple[str, ...], str] = {}
    for line in known:
        for number, each in enumerate(line.domains):
            path = tuple(inner.name for inner in line.domains[: number + 1])
            members.setdefault(path, []).append(line)
            levels[path] = each.level
    found = [_domain(levels[path], path[-1], members[path]) for path in sorted(members)]
    return Domains(found, sum(not line.domains for line in known))


def _domain(level: str, name: str, there: list[NodeLine]) -> DomainLine:
    taking = [line for line in there if line.state not in ("drained", "closed", "down")]
    free = [line.gpus - line.gpus_used for line in taking]
    return DomainLine(
        level,
        name,
        len(there),
        sum(not line.gpus_used and line.gpus > 0 for line in taking),
        sum(line.gpus for line in there),
        sum(line.gpus_used for line in there),
        sum(free),
        max(free, default=0),
        sum(line.kept_gpus for line in there),
    )


def _domain_table(found: Domains) -> Listing:
    from rich.text import Text

    columns = [
        Column("LEVEL"),
        Column("DOMAIN", flexible=True, least=12),
        Column("NODES", right=True),
        Column("FREE NODES", right=True),
        Column("USED", right=True),
        Column("FREE GPUS", right=True),
        Column("ON ONE NODE", right=True),
    ]
    rows = [
        [
            Text(line.level),
            Text(line.name),
            str(line.nodes),
            str(line.nodes_free),
            f"{line.gpus_used:g}/{line.gpus:g}",
            f"{line.gpus_free:g}",
            f"{line.most_free:g}",
        ]
        for line in found.domains
    ]
    columns, rows = _with_kept(columns, rows, found.domains)
    return Listing(columns, rows)


def shared_of(known: list[NodeLine]) -> Shared:
    """What pools share that nodes are in, by pool and name."""
    rows = Counter((each.pool, each.name) for line in known for each in line.shared)
    last = {(each.pool, each.name): each for line in known for each in line.shared}
    lines = [SharedLine(*key, rows[key], each.declared, each.used, each.free) for key, each in sorted(last.items())]
    return Shared(lines)


def _shared_table(found: Shared) -> Listing:
    from rich.text import Text

    numbers = [Column(name, right=True) for name in ("NODES", "DECLARED", "TAKEN", "FREE")]
    columns = [Column("POOL", flexible=True, least=12), Column("RESOURCE", flexible=True, least=12), *numbers]
    rows = [
        [Text(line.pool), Text(line.name), str(line.nodes), *(amount(each) for each in (line.declared, line.used, line.free))]
        for line in found.shared
    ]
    return Listing(columns, rows)


def _with_kept(
    columns: list[Column], rows: list[list[Any]], found: Sequence[DomainLine | NodeLine]
) -> tuple[list[Column], list[list[Any]]]:
    """A table with the GPUs that are reserved as spare places, where there are such."""
    if not any(line.kept_gpus for line in found):
        return columns, rows
    return [*columns, Column("KEPT", right=True)], [[*row, f"{line.kept_gpus:g}"] for row, line in zip(rows, found, strict=True)]


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
    columns, rows = _with_kept(_COLUMNS, rows, found)
    if any(line.closed_by for line in found):
        columns = [*columns, Column("CLOSED BY", flexible=True, least=20)]
        rows = [[*row, Text(", ".join(line.closed_by))] for row, line in zip(rows, found, strict=True)]
    return Listing(columns, rows)


def drawn(free: list[int]) -> str:
    """One character a GPU."""
    return "".join("·" if left == WHOLE else "█" if left == 0 else "▄" for left in free)
