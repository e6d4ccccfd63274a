"""Placement: where tasks are counted, and what they hold there, under the undo log.

A task is counted on a row (its node), as lingering (a victim that is still there, though its place is given away), or as a stray
(bound to a node that is not known). What it holds on a row is taken and given back here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from fairlead.core.dra.model import Allocation
from fairlead.core.model.pods import DeviceNeed
from fairlead.core.model.selectors import any_term_holds
from fairlead.core.model.transactions import DeviceChoice, ExtendedClaim, VolumeChoice
from fairlead.core.model.units import LARGE_AMOUNT, LEAST_FREE
from fairlead.core.nodes.device_claims import key_of
from fairlead.core.nodes.extended_resources import asks_of, content_of, mappings_of
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.filters.volumes import VolumeBinding
from fairlead.core.pods.shapes import Shape
from fairlead.core.pods.tasks import Task
from fairlead.core.state.tables import Tables


class Placement:
    """Puts tasks on rows and takes them off.

    strays: name of a node that is not known -> tasks bound to it, by UID.
    """

    def __init__(self, tables: Tables) -> None:
        self._log = tables.log
        self._nodes = tables.nodes
        self._pairs = tables.pairs
        self._holdings = tables.holdings
        self._storage = tables.storage
        self._device_claims = tables.device_claims
        self._network = tables.network
        self._numa = tables.numa
        self._queues = tables.queues
        self._reserved = tables.reserved
        self._tasks = tables.tasks
        self._in_flight = tables.in_flight
        self._census = tables.census
        self._decided: dict[str, Allocation] = {}  # what claims get, where that was decided before their pod is placed
        self.strays: dict[str, dict[str, Task]] = {}

    # -- on rows -------------------------------------------------------------------------------

    def takes(self, task: Task, row: int) -> bool:
        """Whether a task fits a row now, and no limit is in the way there."""
        return task.ranking.fits_row(row) and self._queues.limits.over_limit(task, row=row) is None

    def place(self, task: Task, row: int) -> None:
        """Put a task on a row where it fits, on the devices there that its strategy prefers."""
        self.assign(task, row, task.ranking.strategy.pick(task.shape, row))

    def assign(self, task: Task, row: int, devices: tuple[int, ...]) -> None:
        """Put a task on a row and charge everything it holds; whether it fits is the caller's concern."""
        nodes, log, shape = self._nodes, self._log, task.shape
        free = nodes.free
        state = nodes.devices.take(nodes.device.item(row), devices, shape.gpu_milli) if devices else -1
        if log.depth:
            log.call(self._reset, (task, task.row, task.devices, row))
            log.add_at(free, row, shape.taken, -1)
            if devices:
                log.put(nodes.device, row, state)
            log.insert(nodes.pods[row], task.pod.uid, task)
        else:
            task.row, task.devices = row, devices  # first: should anything raise, it is known where it was to be
            log.add_at(free, row, shape.taken, -1)
            if devices:
                nodes.device[row] = state
            nodes.pods[row][task.pod.uid] = task
        if self._numa.any and shape.spec.numa:
            self._numa.take(row, task.pod.uid, shape.spec.numa)
        if shape.lingers or nodes.tenants.active:
            self._surround(task, row, 1)
        task.row = row
        task.devices = devices
        if task.charged:
            self._queues.charge(task, 1, row)
            if task.instead_of:
                self.charge_instead(task)
        nodes.changes.touch(row)
        if self._census.active:
            self._census.touch(task)
        if nodes.gpu_headroom_wanted and shape.gpus:
            nodes.gained.add(row)  # fewer free GPUs: work without devices may have a place there now

    def unassign(self, task: Task) -> None:
        """Take a task off its row and give everything back."""
        nodes, log, shape, row = self._nodes, self._log, task.shape, task.row
        if row < 0:
            return
        if log.depth:
            log.call(self._reset, (task, row, task.devices, row))
        log.add_at(nodes.free, row, shape.taken, 1)
        if task.devices:
            state = nodes.devices.give(nodes.device.item(row), task.devices, shape.gpu_milli)
            log.put(nodes.device, row, state)
        log.remove(nodes.pods[row], task.pod.uid)
        if self._numa.any and shape.spec.numa:
            self._numa.give(row, task.pod.uid, (each.shape.spec.numa for each in nodes.pods[row].values()))
        if shape.lingers or nodes.tenants.active:
            self._surround(task, row, -1)
        task.row = -1
        task.devices = ()
        if task.charged:
            self._queues.charge(task, -1, row)
        if task.instead_of:
            self.charge_back(task)
        nodes.changes.touch(row)
        if self._census.active:
            self._census.touch(task)
        if not log.depth:
            nodes.gained.add(row)

    def _reset(self, saved: tuple[Task, int, tuple[int, ...], int]) -> None:
        task, old_row, devices, row = saved
        task.row, task.devices = old_row, devices
        self._nodes.changes.touch(row)

    def devices_of(self, task: Task, row: int) -> tuple[int, ...]:
        """The devices counted for a pod that is on a row already: the ones that would be chosen.

        The kubelet chose the real ones; where none fits any more, the freest are taken into debt.
        """
        if not task.shape.gpus:
            return ()
        if task.shape.spec.paired:
            return self._nodes.partners.seat(task, row)
        return task.shape.devices_on(row)

    def follow_devices(self, row: int, had: int) -> None:
        """A node came or changed, that had so many devices until now: pods there have devices as far as there are any."""
        has = self._nodes.device_count(row)
        for task in list(self._nodes.pods[row].values()):
            if len(task.devices) < task.shape.gpus and has > len(task.devices):
                self.unassign(task)  # it came while the node had fewer devices than it asks for
                self.assign(task, row, self.devices_of(task, row))
        if self._nodes.partners.are_seats_doubtful(row, had):
            self.seat_again(row)

    def seat_again(self, row: int) -> None:
        """Count the devices of all pods on a row anew: it has more of them, or fewer, or what shared one with a stranger left.

        A pod that was counted while too few were there took one into debt, which may be another's.
        """
        there = [task for task in self._nodes.pods[row].values() if task.shape.gpus]
        for task in there:
            self.unassign(task)
        for task in self._nodes.partners.in_order(there):
            self.assign(task, row, self.devices_of(task, row))

    def is_countable(self, task: Task, row: int) -> bool:
        """Whether the free amounts of a row stay exact integers with a pod on it that another scheduler put there."""
        shape = task.shape
        if all(amount < LARGE_AMOUNT for _, amount in shape.taken) and max(shape.extra) < LARGE_AMOUNT:
            return True
        free = self._nodes.free
        return all(free[column].item(row) - amount > LEAST_FREE for column, amount in shape.taken) and all(
            line.item(row) + amount < -LEAST_FREE for line, amount in zip(self._nodes.extra, shape.extra, strict=True)
        )

    # -- instead of pods that move -------------------------------------------------------------

    def charge_instead(self, task: Task) -> None:
        """From now on it is charged in the stead of a pod that moves, if that one is still there."""
        self._charge_moved(task.instead_of, task)

    def charge_back(self, task: Task) -> None:
        """It is charged in no other pod's stead any more: that pod is itself from now on, if it is still there."""
        uid = task.instead_of
        self._log.set(task, "instead_of", "")
        self._charge_moved(uid, None)

    def _charge_moved(self, uid: str, instead: Task | None) -> None:
        row, moved = self._in_flight.lingering.get(uid), self._tasks.get(uid)
        if moved is None:
            return
        if moved.paid_for and instead is None:
            self._log.set(moved, "paid_for", False)  # noqa: FBT003 - what the attribute becomes
            if moved.charged and self.is_stray(moved):
                self._queues.charge(moved, 1, -1)
        elif row is not None and moved.charged:
            self._queues.charge_moved(moved, row, instead)

    # -- without a row -------------------------------------------------------------------------

    def linger(self, task: Task, row: int) -> None:
        """A victim's place is given away; until it is gone, others still see it, its labels, its ports and its claims."""
        self._in_flight.linger(task.pod.uid, row)
        self._pairs.add(task.shape, row, 1, leaving=task.pod.terminating)
        self._holdings.add(task.shape.spec, row, 1)
        if (near := task.shape.spec.near) is not None and near.domain:
            self._network.domains.linger(near.domain, row, 1)
        if self._nodes.tenants.active:
            self._nodes.tenants.add(task.shape, row, 1)

    def part(self, task: Task) -> None:
        """A task lingers no longer."""
        row = self._in_flight.part(task.pod.uid)
        if row is not None:
            self._pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            self._holdings.add(task.shape.spec, row, -1)
            if (near := task.shape.spec.near) is not None and near.domain:
                self._network.domains.linger(near.domain, row, -1)
            if self._nodes.tenants.active:
                self._nodes.tenants.add(task.shape, row, -1)
            self._nodes.changes.touch(row)
            self._nodes.gained.add(row)

    def counted_on(self, task: Task) -> int:
        """The row where others see a task: its own, or where it lingers; -1 for none."""
        return task.row if task.row >= 0 else self._in_flight.lingering.get(task.pod.uid, -1)

    def stray(self, task: Task, node: str) -> None:
        """A pod is bound to a node that is not known: it counts for its queue all the same."""
        self.strays.setdefault(node, {})[task.pod.uid] = task
        self._device_claims.keep(task.pod)
        if task.charged:
            self._queues.charge(task, 1, -1)

    def fail(self, victim: Task, node: str) -> None:
        """The node of a victim that lingers is gone: its beneficiary has no place any more, but the victim is charged again.

        Not where something is charged in its stead, as it moves.
        """
        self.part(victim)
        victim.paid_for = self._queues.accounts.is_moved(victim.pod.uid)
        self._queues.repay(victim.pod.uid)
        self.stray(victim, node)

    def unstray(self, task: Task, node: str) -> None:
        """It is gone, or its node has come."""
        if self.strays.get(node, {}).pop(task.pod.uid, None) is not None:
            if task.charged:
                self._queues.charge(task, -1, -1)
            task.paid_for = False
            if not self.strays[node]:
                del self.strays[node]

    def is_stray(self, task: Task) -> bool:
        """Whether a task is bound to a node that is not known."""
        return task.pod.uid in self.strays.get(task.pod.node, {})

    # -- surroundings --------------------------------------------------------------------------

    def _surround(self, task: Task, row: int, by: int) -> None:
        """Count what a pod means to others on a row, beyond the amounts it holds: it came (1) or left (-1)."""
        shape = task.shape
        if shape.spec.claims and not task.pod.node:
            self._reserve_volumes(task, row, by)
        if shape.spec.devices:
            self._reserve_devices(task, row, by)
        if shape.spec.near is not None and not task.pod.terminating:
            self._network.seat(shape.spec.near, row, by)
        if shape.labels is not None:
            self._pairs.add(task.shape, row, by, leaving=task.pod.terminating)
        if shape.holds:
            self._holdings.add(task.shape.spec, row, by)
        for line, amount in zip(self._nodes.extra, shape.extra, strict=True):
            if amount:
                self._log.put(line, row, line.item(row) + by * amount)
        if shape.spec.pressure:
            self.press(shape, row, by)
        if shape.spec.shared:
            self._nodes.shared.add(shape.spec.shared, row, by)
        if self._nodes.tenants.active:
            self._nodes.tenants.add(shape, row, by)
        if shape.spec.paired and by > 0:
            self._nodes.partners.rows.add(row)  # what is undone may stay: rows are asked, not counted

    def press(self, shape: Shape, row: int, by: int) -> None:
        """What a pod uses of what a node's pods share came to a row (1) or left it (-1)."""
        contention = self._nodes.contention
        contention.activate()
        for line, amount in zip(contention.pods, shape.spec.pressure, strict=True):
            if amount:
                self._log.put(line, row, line.item(row) + by * amount)

    def _reserve_volumes(self, task: Task, row: int, by: int) -> None:
        """Claims that wait for their first consumer get their volumes with the place of their pod, and lose them with it."""
        if by < 0:
            for use in task.shape.spec.claims:
                self._storage.release(self._log, use.key)
            return
        for relation in task.ranking.relations:
            if isinstance(relation, VolumeBinding) and relation.stop() is None:
                decided = relation.decide(row)
                for each in decided if isinstance(decided, list) else ():
                    self._storage.reserve(self._log, each.claim, each.volume, self._nodes.names[row])

    def _reserve_devices(self, task: Task, row: int, by: int) -> None:
        """Claims get their devices with the place of their pod and lose them with it; a pod on a node has its devices already."""
        if by < 0:
            self._device_claims.displace(task.pod)
            return
        decided: list[tuple[str, Allocation]] = list(self._decided.items())
        if not task.pod.claims:
            return  # it stands for another pod, and for the amounts of that only
        relation = DynamicResources.of(task.ranking.relations) if not task.pod.node and not decided else None
        if relation is not None and relation.stop() is None:
            left = self._reserved.devices_for(task, row)
            found = relation.decide(row, left)
            if left is not None and not isinstance(found, list):
                found = relation.decide(row)  # it has its place although some are reserved for others
            if isinstance(found, list):
                decided = [(key_of(task.pod.uid, task.pod.claims[at]), allocation) for at, allocation in found]
        self._device_claims.place(task.pod, decided)

    @contextmanager
    def deciding(self, decided: dict[str, Allocation]) -> Iterator[None]:
        """What is placed in this context gets these devices for its claims, and no others."""
        self._decided = decided
        try:
            yield
        finally:
            self._decided = {}

    def device_claims_of(self, task: Task) -> tuple[DeviceChoice, ...]:
        """What the claims of a pod that is not bound yet have or are to get; without an allocation: nothing could be decided."""
        claims, node = self._device_claims, self._nodes.objects[task.row]
        found = []
        relation = DynamicResources.of(task.ranking.relations)
        for use, need in zip(task.pod.claims, task.shape.spec.devices, strict=True):
            key = key_of(task.pod.uid, use)
            wanted = self._extended_claim(task, relation, need) if use.extended else None
            if use.extended and wanted is None:
                continue
            allocation = claims.allocation_of(key)
            terms = allocation.terms if allocation is not None else None
            if node is None or (terms is not None and not any_term_holds(terms, node.labels, node.name)):
                allocation = None  # it was decided for another pod that uses it, elsewhere
            found.append(DeviceChoice(key, allocation, decided=key in claims.assumed, uid=claims.uid_of(key), extended=wanted))
        return tuple(found)

    @staticmethod
    def _extended_claim(task: Task, relation: DynamicResources | None, need: DeviceNeed) -> ExtendedClaim | None:
        """What is to be created for a pod's extended resources on its row; None: nothing, and nothing is to be taken back."""
        served = relation.served_on(task.row, need) if relation is not None else ()
        if not served:
            return ExtendedClaim() if task.pod.extended_claim else None
        requests = ((each.name, each.device_class, each.count) for each in asks_of(content_of(served)))
        return ExtendedClaim(tuple(requests), mappings_of(task.pod, [each.resource for each in served]))

    def volumes_of(self, task: Task) -> tuple[VolumeChoice, ...]:
        """What was decided for the claims of a pod that is not bound yet."""
        storage = self._storage
        claims = [use.key for use in task.shape.spec.claims]
        return tuple(
            VolumeChoice(key, storage.given.get(key, "")) for key in claims if key in storage.given or key in storage.chosen
        )

    def recount_seats(self) -> None:
        """Count anew where the members of gangs are that are to be close to one another."""
        there = (task for row in self._nodes.rows.values() for task in self._nodes.pods[row].values())
        self._network.recount(
            (task.shape.spec.near, task.row) for task in there if task.shape.spec.near is not None and not task.pod.terminating
        )
        self._network.domains.leaving.clear()
        for uid, row in self._in_flight.lingering.items():
            victim = self._tasks.get(uid)
            if victim is not None and (near := victim.shape.spec.near) is not None and near.domain:
                self._network.domains.linger(near.domain, row, 1)

    def recount_neighbours(self) -> None:
        """Count anew what pods use of what those of a node share, and whose pods are where."""
        nodes = self._nodes
        nodes.contention.pods[:] = 0
        for row in nodes.rows.values():
            for task in nodes.pods[row].values():
                if task.shape.spec.pressure:
                    self.press(task.shape, row, 1)
        there = ((task.shape.spec.shared, row) for row in nodes.rows.values() for task in nodes.pods[row].values())
        nodes.shared.recount((amounts, row) for amounts, row in there if amounts)
        nodes.partners.recount()
        if nodes.tenants.active:
            nodes.tenants.active = False
            self.isolate_nodes()

    def isolate_nodes(self) -> None:
        """From now on some jobs have nodes to themselves: whose pods are where is counted."""
        nodes = self._nodes
        if nodes.tenants.active:
            return
        nodes.tenants.active = True
        nodes.tenants.forget()
        for shape, row, _ in self._seen():
            nodes.tenants.add(shape, row, 1)
        nodes.changes.renew()

    def recount_pairs(self) -> None:
        """Count anew which pods are near which."""
        self._pairs.recount(self._seen)

    def _seen(self) -> Iterator[tuple[Shape, int, bool]]:
        """Of each pod that counts on a row its shape, the row, and whether it is terminating."""
        there = ((task, row) for row in self._nodes.rows.values() for task in self._nodes.pods[row].values())
        lingering = ((self._tasks[uid], row) for uid, row in self._in_flight.lingering.items())
        yield from ((task.shape, row, task.pod.terminating) for task, row in chain(there, lingering))
