"""`fairlead quota`: what queues and users may still have."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, fail
from fairlead.cli.snapshot import IntervalOption, KubeconfigOption, Snapshot, WatchOption, show
from fairlead.core.model.charges import units_of
from fairlead.core.model.queues import UserLimits
from fairlead.core.queues.tree import QueueNode


class Amount(msgspec.Struct, frozen=True):
    """One resource of a queue in its own unit: devices, millicores, bytes. null: not limited, or not given.

    guaranteed_left: of its own quota. left: what it may still take before a limit, its own or of a queue above, stops it.
    """

    resource: str
    used: float
    quota: float | None
    guaranteed_left: float | None
    limit: float | None
    left: float | None


class User(msgspec.Struct, frozen=True):
    """One user in a queue. limits: what the queue allows each; null where it does not limit."""

    user: str
    used: dict[str, float]
    limits: dict[str, float]
    running: int
    running_limit: int | None
    submitted: int
    submitted_limit: int | None


class Quota(msgspec.Struct, frozen=True):
    """One queue. running, submitted: jobs, descendants' included."""

    queue: str
    parent: str
    resources: list[Amount]
    running: int
    running_limit: int | None
    submitted: int
    submitted_limit: int | None
    users: list[User]


class Quotas(msgspec.Struct, frozen=True):
    """The result of the command."""

    queues: list[Quota]


def quota(
    kubeconfig: KubeconfigOption = "",
    name: Annotated[str, typer.Option("--queue", "-q", help="Only this queue.")] = "",
    user: Annotated[str, typer.Option("--user", "-u", help="Only this user.")] = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Quota and limit of each queue with what is left of them, and what its users hold of their limits."""

    def view_of(snapshot: Snapshot) -> tuple[Quotas, Listing]:
        if name and not snapshot.state.queues.tree.knows(name):
            fail(f"queue {name!r} does not exist (`fairlead share` lists them)", Exit.NOT_FOUND)
        found = [each for each in quotas(snapshot, user) if name in ("", each.queue)]
        return Quotas(found), _table(found)

    show(kubeconfig, output, view_of, watch=watch, interval=interval)


def quotas(snapshot: Snapshot, user: str = "") -> list[Quota]:
    """Every queue, by name."""
    tree = snapshot.state.queues
    return [_quota(snapshot, node, user) for name, node in sorted(tree.queues.items()) if node.exists]


def _quota(snapshot: Snapshot, node: QueueNode, only: str) -> Quota:
    policy = node.policy
    resources = sorted({*node.quota, *node.limits, *(name for name, used in node.used.items() if used), *_limited_above(node)})
    jobs: dict[str, dict[str, bool]] = {}  # user -> job -> whether it runs
    held: dict[str, dict[str, float]] = {}
    for task in snapshot.state.tasks.values():
        if not task.charged or not snapshot.state.queues.tree.above(node.name, task.queue):
            continue
        mine = jobs.setdefault(task.user, {})
        if task.pod.ours:  # pods of others hold amounts, and are no jobs
            mine[task.job] = mine.get(task.job, False) or task.row >= 0
        for resource, amount in task.shape.charge if task.row >= 0 else ():
            amounts = held.setdefault(task.user, {})
            amounts[resource] = amounts.get(resource, 0.0) + amount / units_of(resource)
    each_may = policy.per_user or UserLimits()
    together = policy.jobs or UserLimits()
    users = [
        User(
            user=name,
            used=held.get(name, {}),
            limits={resource: amount / units_of(resource) for resource, amount in each_may.resources},
            running=sum(found.values()),
            running_limit=each_may.running,
            submitted=len(found),
            submitted_limit=each_may.submitted,
        )
        for name, found in sorted(jobs.items())
        if only in ("", name)
    ]
    return Quota(
        queue=node.name,
        parent=policy.parent,
        resources=[_amount(node, resource) for resource in resources],
        running=sum(sum(found.values()) for found in jobs.values()),
        running_limit=together.running,
        submitted=sum(len(found) for found in jobs.values()),
        submitted_limit=together.submitted,
        users=users,
    )


def _limited_above(node: QueueNode) -> set[str]:
    return {resource for each in node.path for resource in each.limits}


def _amount(node: QueueNode, resource: str) -> Amount:
    unit = units_of(resource)
    used, quota_, limit = node.used.get(resource, 0), node.quota.get(resource), node.limits.get(resource)
    left = [each.limits[resource] - each.used.get(resource, 0) for each in node.path if resource in each.limits]
    return Amount(
        resource=resource,
        used=used / unit,
        quota=None if quota_ is None else quota_ / unit,
        guaranteed_left=None if quota_ is None else max(0, quota_ - used) / unit,
        limit=None if limit is None else limit / unit,
        left=max(0, min(left)) / unit if left else None,
    )


def _table(found: list[Quota]) -> Listing:
    from rich.text import Text

    columns = [Column("QUEUE", flexible=True), Column("USER", flexible=True), Column("OF", flexible=True)]
    columns += [Column(name, right=True) for name in ("USED", "QUOTA", "QUOTA LEFT", "LIMIT", "LIMIT LEFT")]
    rows = []
    for each in found:
        for amount in each.resources:
            numbers = (amount.quota, amount.guaranteed_left, amount.limit, amount.left)
            rows.append(
                [Text(each.queue), Text(""), Text(amount.resource), f"{amount.used:g}", *(_number(number) for number in numbers)]
            )
        rows.append(_jobs(each.queue, "", each))
        for user in each.users:
            for resource in sorted({*user.used, *user.limits}) if user.limits else ():
                used, may = user.used.get(resource, 0.0), user.limits.get(resource)
                left = None if may is None else max(0.0, may - used)
                rows.append(
                    [Text(each.queue), Text(user.user), Text(resource), f"{used:g}", "-", "-", _number(may), _number(left)]
                )
            rows.append(_jobs(each.queue, user.user, user))
    return Listing(columns, rows)


def _jobs(queue: str, user: str, counts: Quota | User) -> list[object]:
    from rich.text import Text

    may, left = counts.running_limit, None if counts.running_limit is None else max(0, counts.running_limit - counts.running)
    label = f"jobs running ({counts.submitted} submitted)"
    return [Text(queue), Text(user), Text(label), str(counts.running), "-", "-", _number(may), _number(left)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
