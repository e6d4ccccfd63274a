"""`fairlead quota`: what queues and users may still have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.connection import IntervalOption, KubeconfigOption, SeenFromOption, WatchOption, show
from fairlead.cli.leader import Leader
from fairlead.cli.listing import Column, Listing, amount
from fairlead.cli.output import Exit, Output, OutputOption, fail
from fairlead.scheduler.overview.rows import Quota, User

if TYPE_CHECKING:
    from fairlead.cli.snapshot import Snapshot


class Quotas(msgspec.Struct, frozen=True):
    """The result of the command."""

    queues: list[Quota]


def quota(
    kubeconfig: KubeconfigOption = "",
    name: Annotated[str, typer.Option("--queue", "-q", help="Only this queue.")] = "",
    user: Annotated[str, typer.Option("--user", "-u", help="Only this user.")] = "",
    namespace: SeenFromOption = "",
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Quota and limit of each queue with what is left of them, and what its users hold of their limits."""

    def chosen(known: list[Quota]) -> tuple[Quotas, Listing]:
        if name and not any(each.queue == name for each in known):
            fail(f"queue {name!r} does not exist (`fairlead share` lists them)", Exit.NOT_FOUND)
        found = [_of_user(each, user) if user else each for each in known if name in ("", each.queue)]
        return Quotas(found), _table(found)

    async def by_leader(leader: Leader, _: float) -> tuple[Quotas, Listing] | None:
        known = await leader.quotas()
        return chosen(known) if known is not None else None

    def view_of(snapshot: Snapshot) -> tuple[Quotas, Listing]:
        from fairlead.scheduler.overview import quotas as overview

        return chosen(overview.quotas(snapshot.state))

    show(kubeconfig, output, view_of, watch=watch, interval=interval, by_leader=by_leader, namespace=namespace)


def _of_user(quota: Quota, user: str) -> Quota:
    shown = [each for each in quota.users if each.user == user]
    return msgspec.structs.replace(quota, users=shown, other_users=quota.other_users + len(quota.users) - len(shown))


def _table(found: list[Quota]) -> Listing:
    from rich.text import Text

    columns = [Column("QUEUE", flexible=True), Column("USER", flexible=True), Column("OF", flexible=True)]
    columns += [Column(name, right=True) for name in ("USED", "QUOTA", "QUOTA LEFT", "LIMIT", "LIMIT LEFT")]
    rows = []
    for each in found:
        for one in each.resources:
            numbers = (one.used, one.quota, one.guaranteed_left, one.limit, one.left)
            rows.append([Text(each.queue), Text(""), Text(one.resource), *(amount(one.resource, number) for number in numbers)])
        rows.append(_jobs(each.queue, "", each))
        for user in each.users:
            for resource in sorted({*user.used, *user.limits}) if user.limits else ():
                used, may = user.used.get(resource, 0.0), user.limits.get(resource)
                left = None if may is None else max(0.0, may - used)
                shown = (amount(resource, number) for number in (used, None, None, may, left))
                rows.append([Text(each.queue), Text(user.user), Text(resource), *shown])
            rows.append(_jobs(each.queue, user.user, user))
        if each.other_users and not each.users:
            rows.append([Text(each.queue), Text(_users(each.other_users, "user")), Text(""), *[""] * 5])
        elif each.other_users:
            rows.append([Text(each.queue), Text(_users(each.other_users, "other user")), Text(""), *[""] * 5])
    return Listing(columns, rows)


def _users(count: int, what: str) -> str:
    return f"({count} {what}{'s' * (count != 1)})"


def _jobs(queue: str, user: str, counts: Quota | User) -> list[object]:
    from rich.text import Text

    may, left = counts.running_limit, None if counts.running_limit is None else max(0, counts.running_limit - counts.running)
    label = f"jobs running ({counts.submitted} submitted)"
    return [Text(queue), Text(user), Text(label), str(counts.running), "-", "-", _number(may), _number(left)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
