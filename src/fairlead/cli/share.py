"""`fairlead share`: the queues, as sshare shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.api import names
from fairlead.cli.connection import IntervalOption, KubeconfigOption, SeenFromOption, WatchOption, show
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing, amount
from fairlead.cli.output import Exit, Output, OutputOption, fail
from fairlead.scheduler.overview.rows import Amount, Share, Shares

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot


def share(
    kubeconfig: KubeconfigOption = "",
    resource: Annotated[str, typer.Option(help="The resource shown in the table; default: GPUs.")] = "",
    namespace: SeenFromOption = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Quota, limit, fair share, allocation and pending jobs of each queue."""

    def shown(found: Shares) -> tuple[Shares, Listing]:
        if resource:
            _check(resource, found)
        return found, _table(found, resource or found.resource)

    async def by_leader(leader: Leader, _: float) -> tuple[Shares, Listing] | None:
        found = await leader.queues()
        return shown(found) if found is not None else None

    def view_of(snapshot: Snapshot) -> tuple[Shares, Listing]:
        from fairlead.scheduler.overview.queues import shares

        return shown(shares(snapshot.state))

    show(kubeconfig, output, view_of, watch=watch, interval=interval, by_leader=by_leader, namespace=namespace)


def _check(resource: str, found: Shares) -> None:
    """End the command where the table would be empty, as of a misspelt resource."""
    known = {each.resource for queue in found.queues for each in queue.resources} | {*found.outside_queues, found.resource}
    if resource not in known and resource not in ("cpu", "memory", *names.GPU_RESOURCES):
        fail(f"no queue has a quota, a limit or pods with {resource!r}; there are {', '.join(sorted(known))}", Exit.NOT_FOUND)


def _table(found: Shares, resource: str) -> Listing:
    from rich.text import Text

    columns = [Column("QUEUE", flexible=True)]
    columns += [Column(name, right=True) for name in ("PRIO", "QUOTA", "LIMIT", "FAIR", "ALLOCATED", "SHARE")]
    columns.append(Column(resource, flexible=True))
    columns += [Column(name, right=True) for name in ("RUNNING", "PENDING")]
    rows = []
    for depth, each in _by_tree(found.queues):
        held = next((one for one in each.resources if one.resource == resource), Amount(resource, 0, None, None))
        deserved = held.quota if held.fair_share is None else max(held.fair_share, held.quota or 0)
        part = held.allocated / deserved if deserved else 0.0
        bar = "█" * min(20, round(part * 10)) + "·" * max(0, 10 - round(part * 10))
        rows.append(
            [
                Text("  " * depth + each.name),
                str(each.priority),
                amount(resource, held.quota),
                amount(resource, held.limit),
                amount(resource, held.fair_share),
                amount(resource, held.allocated),
                f"{each.share:.2f}",
                bar if deserved else "no quota",
                str(each.running),
                str(each.pending),
            ]
        )
    if found.outside_queues.get(resource):
        outside = amount(resource, found.outside_queues[resource])
        rows.append([Text("(no queue)"), *["-"] * 4, outside, "-", "other schedulers", "-", "-"])
    return Listing(columns, rows)


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
