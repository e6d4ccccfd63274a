"""Moves: places reserved for the replacements of pods that are evicted to free capacity elsewhere.

A pod cannot be moved; it is evicted and its controller makes another. Its new place was chosen before, so it is kept by a
placeholder until a pod of the same owner, queue, group and shape comes to wait, which then gets it at once. If none comes
in time, the place is free again. How many pods are moved is bounded (`MoveBudget`).

A new place may be where another victim of the plan still runs, or the same pod: on the other device of its node. Then the
replacement is bound once these are gone.

A queue is charged once for a pod that moves: for its placeholder, or the replacement that waits for it to go, and for the pod
itself as soon as there is neither, until it is gone. So its replacement is bound beside it only where limits allow both. That its
node fails meanwhile changes nothing: it may be known for long, as its claims are still allocated.

No place is free before its holder has left, or counts where it runs again. A step that gives up a place (a replacement that does
not fit, a move that is dropped, a unit that takes a free place instead) leaves it closed while other victims still fill it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import msgspec

from fairlead.core.model.kept_places import MovedPlace
from fairlead.core.model.pods import DeviceUse, Pod, on_paper
from fairlead.core.nodes.claim_users import may_move, of_replacement, pools_of
from fairlead.core.nodes.idle import FreeDevices
from fairlead.core.pods.filters.dynamic_resources import only_claims
from fairlead.core.pods.filters.shared_resources import SharedResources
from fairlead.core.pods.members import first_to_go
from fairlead.core.pods.tasks import Gang, Placeholder, Task, TaskState, Unit
from fairlead.core.state.departures import Departures
from fairlead.core.state.in_flight import KEPT_FOR, GivenUp, Kept, Key
from fairlead.core.state.leftovers import Leftovers
from fairlead.core.state.move_budget import MoveBudget
from fairlead.core.state.placement import Placement
from fairlead.core.state.tables import Tables

_CLOCK = 1.0  # seconds by which times of objects are inexact
_COMES_WITHIN = 60.0  # seconds beyond a victim's time to end in which its controller makes another


def beyond_minimum(gang: Gang) -> list[Task]:
    """The members that a gang can do without: those that are evicted first, never one that leads."""
    return first_to_go(gang.placed(), gang.needed)[0]


class Moves:
    """Which pods may be moved, and the places that are reserved for their replacements."""

    def __init__(self, tables: Tables, placement: Placement, leftovers: Leftovers, departures: Departures) -> None:
        self._tables = tables
        self._placement = placement
        self._leftovers = leftovers
        self._departures = departures
        self._in_flight = tables.in_flight
        self.budget = MoveBudget(tables.policy)
        self.defragments_at: float | None = None  # when nodes are emptied next
        self.free = FreeDevices(tables.nodes)
        tables.timers.derive("moves", self._next_due)

    # -- which pods may be moved ---------------------------------------------------------------

    def is_movable(self, task: Task) -> bool:
        """Whether a pod may be evicted by itself only to run elsewhere: no member that its gang needs."""
        gang = task.gang
        return self.may_leave(task) and (gang is None or gang.group is None or task in beyond_minimum(gang))

    def movable_gang(self, task: Task) -> tuple[Task, ...]:
        """The members of a task's gang if all of them may be stopped and started elsewhere as one, else none.

        Their class allows it, and states how often they save their work: without that all of it would be lost. Where members have
        succeeded it stays: its controller may make these anew with the others, who need more than they left.
        """
        gang, service = task.gang, self._tables.services.of(task)
        if gang is None or gang.group is None or gang.succeeded or not (service.moves_whole and service.checkpoint_interval):
            return ()
        members = tuple(sorted(gang.placed(), key=lambda each: each.pod.key))
        return members if members and all(self.may_leave(each) for each in members) else ()

    def may_leave(self, task: Task) -> bool:
        """Whether a pod may be evicted only to run elsewhere, whatever it is a part of.

        It has a controller, its class allows it, and it does not ask to be left alone, as autoscalers are asked.
        """
        services = self._tables.services
        return (
            task.state is TaskState.BOUND
            and task.pod.ours
            and task.pod.controlled
            and not task.pod.terminating
            and not task.pod.stays
            and task.pod.uid not in self._departures.dismissed
            and self._keeps_relations(task)
            and task.pod.uid not in self._in_flight.kept
            and services.of(task).movable
            and services.is_preemptible(task)
            and services.may_move(task)
        )

    def _keeps_relations(self, task: Task) -> bool:
        """Whether nothing between pods binds a pod to its place, and its claims, if it has such, let it go."""
        relations = [each for each in task.ranking.relations if not isinstance(each, SharedResources)]
        return not relations or (only_claims(relations) and may_move(self._tables.device_claims, task.pod))

    # -- free devices -------------------------------------------------------------------------

    def enough_free(self, unit: Unit) -> bool:
        """Whether as much of all devices is free as a unit needs, however fragmented; a cheap test."""
        return self.lacking(unit) <= 0

    def lacking(self, unit: Unit) -> int:
        """What a unit needs of devices beyond all that are free, in milli."""
        return sum(task.shape.device_milli for task in unit.tasks[: unit.need]) - self.free.total()

    def any_free(self) -> bool:
        """Whether a device, or a part of one, is free anywhere."""
        return self.free.total() > 0

    # -- places that are kept ------------------------------------------------------------------

    def placeholder(self, victim: Task, *, charged: bool = False) -> Placeholder:
        """Something that holds on a row what a victim's replacement will.

        charged: to the victim's queue, which is charged for the victim no longer: no other pod of it may have the amount.
        """
        spec, old = victim.shape.spec, victim.pod
        claims: tuple[DeviceUse, ...] = ()
        if old.claims:
            claims, needs = of_replacement(self._tables.device_claims, old, spec.devices)
            spec = msgspec.structs.replace(spec, devices=needs)
        pod = Pod(
            f"moved/{old.uid}",
            "",
            f"moved-{old.uid}",
            spec,
            queue=victim.queue,
            ours=charged,
            user=victim.user,
            priority=old.priority,
            service_class=victim.service_class,
            placeholder=True,
            claims=claims,
        )
        made = Placeholder(pod, self._tables.shapes.intern(spec), moved=True)
        made.gang = victim.gang if charged else None  # what a job holds is counted by its gang
        return made

    def keep(self, victim: Task, placeholder: Placeholder, now: float, after: tuple[str, ...] = ()) -> None:
        """The placeholder is on its row: remember for whom."""
        placeholder.instead_of = victim.pod.uid if placeholder.charged and victim.pod.uid in self._tables.tasks else ""
        until = now + max(KEPT_FOR, self._departures.grace(victim) + _COMES_WITHIN)
        self._in_flight.keep(Kept(victim.pod.uid, _key(victim), placeholder, until, after, victim.pod, now))

    def keep_again(self, victim: Task, now: float) -> None:
        """A pod leaves to run elsewhere, as a scheduler before this one decided: its place there is reserved again.

        Not if that is not free. A victim that others wait for is charged by its placeholder from now on, as when its move was
        decided.
        """
        self._keep_again(victim, now, charged=victim.pod.uid in self._in_flight.lingering)

    def keep_for_gone(self, victim: Task, since: float, until: float) -> None:
        """The same of one that is gone, and was charged by its placeholder: also not if a limit does not allow that any more."""
        if self._keep_again(victim, since, charged=True):
            self._in_flight.kept[victim.pod.uid].until = until

    def _keep_again(self, victim: Task, since: float, *, charged: bool) -> bool:
        uid, row = victim.pod.uid, self._tables.nodes.rows.get(victim.pod.moves_to, -1)
        if row < 0 or uid in self._in_flight.kept or not victim.pod.ours or not victim.pod.controlled:
            return False
        placeholder = self.placeholder(victim, charged=charged)
        gone = uid not in self._tables.tasks
        if not (self._placement.takes(placeholder, row) if gone else placeholder.ranking.fits_row(row)):
            self._tables.shapes.release(placeholder.ranking)
            return False
        placeholder.instead_of = uid if placeholder.charged and not gone else ""
        self._placement.place(placeholder, row)
        self.keep(victim, placeholder, since)
        for task in sorted(self._tables.owned.of([victim.pod.owner]), key=lambda each: each.rank):
            if task.state is TaskState.WAITING and uid in self._in_flight.kept:
                self.arrived(task)
        return uid in self._in_flight.kept

    def recorded(self) -> list[MovedPlace]:
        """The places that are kept, for a scheduler that begins when the pods that move are gone; not those of pods with claims.

        What claims of a replacement will be allocated is not known from those of the pod before it.
        """
        names, found = self._tables.nodes.names, []
        for uid, kept in self._in_flight.kept.items():
            pod, row = kept.pod, kept.placeholder.row
            if pod is None or row < 0 or pod.claims:
                continue
            like = msgspec.structs.replace(
                on_paper(pod), queue=kept.key[2], owner=pod.owner, controlled=True, terminating=False, moves_to=names[row]
            )
            found.append(MovedPlace(uid, like, names[row], kept.since, kept.until))
        return sorted(found, key=lambda each: (each.until, each.uid))

    def is_replaced(self, victim: Task, by: set[str], since: float | None = None) -> bool:
        """Whether a pod made since a victim was deleted has a node. by: UIDs of those that replace others; it is added.

        since: when its move was decided, if it is gone.
        """
        deleted, key = (victim.pod.leaves - self._departures.grace(victim) if since is None else since) - _CLOCK, _key(victim)
        for task in self._tables.owned.of([victim.pod.owner]):
            pod = task.pod
            if pod.uid not in by and not pod.terminating and pod.node and pod.created >= deleted and _key(task) == key:
                by.add(pod.uid)
                return True
        return False

    def after(self, places: dict[str, tuple[int, tuple[int, ...]]], held: Sequence[Task], row: int) -> tuple[str, ...]:
        """The victims that must leave a row before the placeholders there can be replaced: none if both fit.

        places: victim's UID -> the row and devices where it still is. held: the beneficiaries, who come after these in any case.
        """
        here = [uid for uid, place in places.items() if place[0] == row]
        placeholders = [task for task in self._tables.nodes.pods[row].values() if isinstance(task, Placeholder) and task.moved]
        claims = self._tables.device_claims
        pools = {pool for each in placeholders if each.pod.claims for pool in pools_of(claims, each.pod)}
        if pools:
            # Their devices may be those that a victim has, here or elsewhere: which ones that were is not asked.
            giving = [uid for uid in places if not pools.isdisjoint(pools_of(claims, self._tables.tasks[uid].pod))]
            return tuple(sorted({*here, *giving}))
        sharing = self._sharing(places, held, placeholders)
        if sharing or not here or not placeholders:
            return tuple(sorted({*here, *sharing})) if sharing else ()
        nodes = self._tables.nodes
        leaving = [self._tables.tasks[uid] for uid in here]
        coming = [task for task in held if task.row == row]
        left: dict[int, int] = {}
        for sign, tasks in ((1, coming), (-1, leaving)):
            for task in tasks:
                for column, amount in task.shape.taken:
                    left[column] = left.get(column, 0) + sign * amount
        devices = list(nodes.devices.states[nodes.device.item(row)])
        for task in coming:
            for device in task.devices:
                devices[device] += task.shape.gpu_milli
        for uid, task in zip(here, leaving, strict=True):
            for device in places[uid][1]:
                devices[device] -= task.shape.gpu_milli
        beside = all(nodes.free[column].item(row) + amount >= 0 for column, amount in left.items())
        beside = beside and all(devices[device] >= 0 for task in placeholders for device in task.devices)
        return () if beside else tuple(sorted(here))

    def _sharing(
        self, places: dict[str, tuple[int, tuple[int, ...]]], held: Sequence[Task], placeholders: Sequence[Placeholder]
    ) -> list[str]:
        """The same of what pools share, wherever in a pool it is taken: none if there is enough for both."""
        shared, tasks = self._tables.nodes.shared, self._tables.tasks
        keys = {key for each in placeholders for key, _ in shared.parts(each.shape.spec.shared, each.row)}
        if not keys:
            return []
        left = Counter({key: shared.free(key) for key in keys})
        for task in held:
            left.update(dict(shared.parts(task.shape.spec.shared, task.row)))
        taking: dict[str, set[tuple[str, str]]] = {}
        for uid, (row, _) in places.items():
            parts = dict(shared.parts(tasks[uid].shape.spec.shared, row))
            left.subtract(parts)
            taking[uid] = parts.keys() & keys
        short = {key for key in keys if left[key] < 0}
        return [uid for uid, theirs in taking.items() if not short.isdisjoint(theirs)]

    def arrived(self, task: Task) -> None:
        """A pod came to wait: perhaps it replaces one that was moved."""
        if not self._in_flight.kept or task.pod.uid in self._in_flight.returning:
            return
        key = _key(task)
        for uid, kept in sorted(self._in_flight.kept.items()):
            victim = self._tables.tasks.get(uid)
            if kept.key == key and (victim is None or victim.pod.terminating or victim.state is TaskState.EVICTING):
                self._discharge(self._in_flight.replace(task.pod.uid, uid).placeholder)
                return

    def _discharge(self, placeholder: Placeholder) -> None:
        """Its queue is not charged for it any more: the replacement has come, and counts as what waits."""
        row, devices = placeholder.row, placeholder.devices
        if row < 0 or not placeholder.charged:
            return
        self._placement.unassign(placeholder)
        placeholder.pod, placeholder.queue = msgspec.structs.replace(placeholder.pod, ours=False), ""
        self._placement.assign(placeholder, row, devices)

    def drop(self, *uids: str) -> list[GivenUp]:
        """These victims stay, or no replacement came: their new places, and those that they would have left, are given up.

        Returns these places: other victims may still fill them.
        """
        dropped = [uid for uid in uids if uid in self._in_flight.kept]
        dropped += [uid for uid, kept in self._in_flight.kept.items() if uid not in uids and not set(uids).isdisjoint(kept.after)]
        places = []
        for uid in dropped:
            kept = self._in_flight.drop(uid)
            places.append(kept.given_up())
            self.vacate(kept)
        for uid in [uid for uid, kept in self._in_flight.returning.items() if not set(uids).isdisjoint(kept.after)]:
            kept = self._in_flight.take(uid)
            places.append(kept.given_up())
            self.vacate(kept)
        return places

    def give_up(self, owners: Collection[str]) -> None:
        """Jobs with these owners are suspended: they come back to other places than those that are reserved for their pods."""
        for uid in [uid for uid, kept in self._in_flight.kept.items() if kept.key[1] in owners]:
            self._give_up(self._in_flight.drop(uid))

    def vacate(self, kept: Kept) -> None:
        """Take a placeholder off its row."""
        if kept.placeholder.row >= 0:
            self._placement.unassign(kept.placeholder)
        self._tables.shapes.release(kept.placeholder.ranking)

    def take(self, uid: str) -> tuple[Kept, GivenUp, set[str]]:
        """A replacement comes to its place: that, and the victims that must go before it is free. Nothing holds it any more."""
        kept = self._in_flight.take(uid)
        place, awaited = kept.given_up(), self.awaited(kept)
        self.vacate(kept)
        return kept, place, awaited

    def reserve(self, task: Task, row: int, devices: tuple[int, ...], until: float) -> None:
        """A place is reserved for a pod that has come, for some time."""
        placeholder = self.placeholder(task)
        self._placement.assign(placeholder, row, devices)
        self._in_flight.reserve(task.pod.uid, Kept(task.pod.uid, ("", "", "", "", 0), placeholder, until))

    def awaited(self, kept: Kept) -> set[str]:
        """The victims that must still go before a place is free."""
        return {uid for uid in kept.after if uid in self._in_flight.lingering}

    def may_succeed(self, task: Task, victim: str, row: int) -> bool:
        """Whether a replacement may have its place once the pod that moves is gone: its queue's limit does not allow both."""
        queues, log = self._tables.queues, self._tables.log
        if victim not in queues.accounts.debts:
            return False
        mark = log.mark()
        queues.repay(victim)
        takes = self._placement.takes(task, row)
        log.rollback(mark)
        return takes

    def release(self, uid: str) -> None:
        """The place that a replacement would get is given up: it runs elsewhere, or its gang is placed anew."""
        self._give_up(self._in_flight.take(uid))

    def awaits(self, gang: Gang) -> bool:
        """Whether places are reserved for members of a gang that have not come yet."""
        return any(f"{kept.key[0]}/{kept.key[3]}" == gang.key for kept in self._in_flight.kept.values())

    def _give_up(self, kept: Kept) -> None:
        """No replacement came: while a victim still fills the place it stays closed."""
        placeholder, awaited = kept.placeholder, sorted(self.awaited(kept))
        row, devices, spec = placeholder.row, placeholder.devices, placeholder.shape.spec
        self.vacate(kept)
        if awaited and row >= 0:
            self._leftovers.close(spec, row, devices, awaited)

    def expire(self, now: float) -> None:
        """A pass begins: give up what was kept in vain."""
        self.budget.begin()
        for uid in [uid for uid, kept in self._in_flight.kept.items() if kept.until <= now]:
            self._give_up(self._in_flight.drop(uid))
        for uid in [uid for uid, kept in self._in_flight.returning.items() if kept.until <= now or uid not in self._tables.tasks]:
            self._give_up(self._in_flight.take(uid))

    def _next_due(self) -> float | None:
        """When a place is given up, or nodes are emptied."""
        times = [kept.until for kept in (*self._in_flight.kept.values(), *self._in_flight.returning.values())]
        times += [self.defragments_at] if self.defragments_at is not None else []
        return min(times, default=None)


def _key(task: Task) -> Key:
    pod, spec = task.pod, task.shape.spec
    varies = pod.claims or pod.extended or spec.paired or spec.pressure
    return pod.namespace, pod.owner, task.queue, pod.group, _kind(task) if varies else task.shape.number


def _kind(task: Task) -> Hashable:
    """What is the same of a pod and of the one that replaces it, whose own claims are others.

    Which way extended resources are served may differ: how much of them it has is in its requests. So may what is learned of its
    kind, which goes by its name.
    """
    shape = task.shape
    needs = tuple(
        (need.content, need.missing, "" if use.template else use.key)
        for use, need in zip(task.pod.claims, shape.spec.devices, strict=False)
        if not use.extended
    )
    spec, *more = shape.lasting()
    return msgspec.structs.replace(spec, devices=()), needs, *more
