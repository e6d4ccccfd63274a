"""`fairlead share`: the queues, as sshare shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.api.names import GPU_RESOURCES
from fairlead.cli.output import Column, Output, OutputOption, listing
from fairlead.cli.snapshot import IntervalOption, KubeconfigOption, Snapshot, WatchOption, show
from fairlead.core.model.charges import units_of
from fairlead.core.model.queues import QueueResource
from fairlead.core.pods.tasks import TaskState

if TYPE_CHECKING:
    from rich.table import Table


class Amount(msgspec.Struct, frozen=True):
    """One resource of a queue, in its own unit: devices, millicores, bytes. None: not given.

    fair_share: its deserved share now, None while all its siblings' demand can be met. weight: as given. foreign: the part of
    the allocation that pods of other schedulers hold.
    """

    resource: str
    allocated: float
    quota: float | None
    limit: float | None
    weight: int | str | None = None
    fair_share: float | None = None
    foreign: float = 0.0


class Share(msgspec.Struct, frozen=True):
    """One queue. share: what it holds as a part of its deserved share (1 is all of it); pending: pods that wait."""

    name: str
    parent: str
    priority: int
    share: float
    running: int
    pending: int
    resources: list[Amount]


class Shares(msgspec.Struct, frozen=True):
    """The result of the command. outside_queues: resource -> what pods hold for which no queue is charged, in its own unit."""

    queues: list[Share]
    outside_queues: dict[str, float] = {}


def share(
    kubeconfig: KubeconfigOption = "",
    resource: Annotated[str, typer.Option(help="The resource shown in the table; default: GPUs.")] = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Quota, limit, fair share, allocation and pending jobs of each queue."""

    def view_of(snapshot: Snapshot) -> tuple[Shares, Table]:
        found = shares(snapshot)
        outside = {key: held / units_of(key) for key, held in sorted(snapshot.state.belonging.outside().items())}
        return Shares(found, outside), _table(found, resource or _main(snapshot), outside)

    show(kubeconfig, output, view_of, watch=watch, interval=interval)


def _main(snapshot: Snapshot) -> str:
    offered = snapshot.state.nodes.resources
    return next((name for name in GPU_RESOURCES if name in offered), "cpu")


def shares(snapshot: Snapshot) -> list[Share]:
    """Every queue, by name."""
    state = snapshot.state
    running: dict[str, int] = {}
    pending: dict[str, int] = {}
    for task in state.tasks.values():
        if task.charged:
            count = running if task.state is TaskState.BOUND else pending
            count[task.queue] = count.get(task.queue, 0) + 1
    found = []
    for name, node in sorted(state.queues.queues.items()):
        quotas, limits = dict(node.quota), dict(node.limits)
        fair = state.queues.fair.share.get(name, {})
        resources = [
            Amount(
                each,
                node.used.get(each, 0) / units_of(each),
                quotas[each] / units_of(each) if each in quotas else None,
                limits[each] / units_of(each) if each in limits else None,
                _weight(node.named.get(each)),
                fair[each] / units_of(each) if each in fair else None,
                node.foreign.get(each, 0) / units_of(each),
            )
            for each in sorted({*quotas, *limits, *fair, *(key for key, value in node.used.items() if value)})
        ]
        found.append(
            Share(
                name,
                node.policy.parent,
                node.policy.priority,
                state.queues.fair.dominant_share(node),
                running.get(name, 0),
                pending.get(name, 0),
                resources,
            )
        )
    return found


def _weight(given: QueueResource | None) -> int | str | None:
    """As it was written."""
    if given is None or given.weight_percent is None:
        return given.weight if given is not None else None
    return f"{given.weight_percent / 1000:g}%"


def _table(found: list[Share], resource: str, outside: dict[str, float]) -> Table:
    from rich.text import Text

    columns = [Column("QUEUE", flexible=True)]
    columns += [Column(name, right=True) for name in ("PRIO", "QUOTA", "LIMIT", "FAIR", "ALLOCATED", "SHARE")]
    columns.append(Column(resource, flexible=True))
    columns += [Column(name, right=True) for name in ("RUNNING", "PENDING")]
    rows = []
    for depth, each in _by_tree(found):
        amount = next((one for one in each.resources if one.resource == resource), Amount(resource, 0, None, None))
        deserved = amount.quota if amount.fair_share is None else max(amount.fair_share, amount.quota or 0)
        part = amount.allocated / deserved if deserved else 0.0
        bar = "█" * min(20, round(part * 10)) + "·" * max(0, 10 - round(part * 10))
        rows.append(
            [
                Text("  " * depth + each.name),
                str(each.priority),
                _number(amount.quota),
                _number(amount.limit),
                _number(amount.fair_share),
                f"{amount.allocated:g}",
                f"{each.share:.2f}",
                bar if deserved else "no quota",
                str(each.running),
                str(each.pending),
            ]
        )
    if outside.get(resource):
        rows.append([Text("(no queue)"), *["-"] * 4, f"{outside[resource]:g}", "-", "other schedulers", "-", "-"])
    table: Table = listing(columns, rows)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _by_tree(found: list[Share]) -> list[tuple[int, Share]]:
    """Each queue with its depth, children below their parents."""
    names = {each.name for each in found}
    children: dict[str, list[Share]] = {}
    for each in found:
        children.setdefault(each.parent if each.parent in names else "", []).append(each)
    rows: list[tuple[int, Share]] = []
    pending = [(0, each) for each in reversed(children.get("", []))]
    while pending:
        depth, each = pending.pop()
        rows.append((depth, each))
        pending += [(depth + 1, child) for child in reversed(children.get(each.name, []))]
    return rows
