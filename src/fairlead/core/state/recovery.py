"""Recovery: everything that is derived from which task is where, reckoned anew after a change was broken off half way.

Facts are the objects, which task is listed on which row or as a stray, and the victims that others wait for. Free amounts and
devices, surroundings, what queues hold, lines and caches follow from them. It costs time in proportion to the cluster, so it is
done after a fault and never otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.queues.reservations import key_of_job
from fairlead.core.state.caches import Caches
from fairlead.core.state.parts import Parts
from fairlead.core.state.pods import Pods
from fairlead.core.state.tables import Tables


class StateRecovery:
    """Reaches into every part of the state (`isolation.Recovery`)."""

    def __init__(self, tables: Tables, parts: Parts, pods: Pods, pass_caches: Caches[Any]) -> None:
        self._tables = tables
        self._placement = parts.placement
        self._starts = parts.starts
        self._belonging = parts.belonging
        self._pending = parts.pending
        self._bound = parts.bound
        self._evictions = parts.evictions
        self._pods = pods
        self._pass_caches = pass_caches

    def give_up(self, uid: str) -> None:
        """Give up the plan that a victim is part of."""
        self._evictions.give_up(uid, self._tables.services.now)

    def wait_again(self, task: Task) -> None:
        """Let a task that was set aside wait in line again."""
        self._pending.wait_again(task)

    def is_returning(self, uid: str) -> bool:
        """Whether a place is reserved for a pod that replaces one that was moved."""
        return uid in self._tables.in_flight.returning

    # -- out of the tables ---------------------------------------------------------------------

    def cut_out(self, tasks: Iterable[Task]) -> None:
        """Take tasks that wait, or have half taken a place, out of every table that serves them; nothing is asked of them.

        What they are counted for stays until `recount`, if they have a row.
        """
        tables = self._tables
        accounts = tables.queues.accounts
        for task in tasks:
            uid, unit = task.pod.uid, task.unit
            if unit is not None:
                unit.retire()
                if unit.gang is not None:
                    tables.unsettle(unit.gang)
            for debt in [accounts.debts[victim] for victim in task.waits_for if victim in accounts.debts]:
                accounts.note_debt(debt.without(uid))
            kept = tables.in_flight.cut_out(task)
            for each in (task,) if kept is None else (task, kept.placeholder):
                self._lift(each)
            self._tables.census.applicants.discard(uid)
            tables.reserved.started(key_of_job(task.gang, uid))
            task.not_before = 0.0
            task.become(TaskState.UNUSABLE)

    def expel(self, uid: str) -> None:
        """Forget a pod wherever it is listed, whatever it was in the middle of; what waited for it to go waits no longer."""
        tables = self._tables
        known = tables.drop(uid)
        if known is not None:
            self.cut_out((known,))
        for queue in tables.queues.queues.values():
            for pending_class in queue.pending_classes.values():
                for unit in [unit for unit in pending_class.units if any(task.pod.uid == uid for task in unit.tasks)]:
                    self.cut_out([task for task in unit.tasks if task.pod.uid == uid] or unit.tasks)
        for pods in tables.nodes.pods:
            pods.pop(uid, None)
        for listed in (self._placement.strays, self._pending.queueless, self._pods.nominated):
            for name in [name for name, tasks in listed.items() if tasks.pop(uid, None) is not None and not tasks]:
                del listed[name]
        for name in [name for name, pods_there in tables.nodes.poisoned.items() if uid in pods_there]:
            tables.nodes.poison(name, uid, bad=False)
        for gang in [gang for gang in tables.gangs.values() if gang.tasks.pop(uid, None) is not None]:
            tables.unsettle(gang)
        self._forget(uid)
        for placeholder in tables.in_flight.expel(uid):
            self._lift(placeholder)

    def _forget(self, uid: str) -> None:
        """Out of what is remembered by UID."""
        self._tables.census.applicants.discard(uid)
        self._tables.queues.accounts.forget_debt(uid)
        self._pods.elastic.discard(uid)
        self._pods.upstream.discard(uid)
        self._bound.unread.forget(uid)
        self._belonging.forget(uid)
        self._tables.services.forget(uid)

    def _lift(self, task: Task) -> None:
        """Off its row, without giving anything back."""
        task.instead_of = ""
        if task.row < 0:
            return
        self._tables.nodes.pods[task.row].pop(task.pod.uid, None)
        for use in task.shape.spec.claims if not task.pod.node else ():
            self._tables.storage.drop(use.key)
        if task.shape.spec.devices:
            self._tables.device_claims.drop(task.pod)
        task.row, task.devices = -1, ()

    # -- anew ----------------------------------------------------------------------------------

    def distrust(self) -> None:
        """Derive anew what is remembered only to save time."""
        self._tables.census.drop()
        self._tables.nodes.changes.renew()
        self._tables.shapes.renew()
        self._pass_caches.drop()
        self._tables.queues.accounts.changes.everything = True
        self._tables.queues.waiting.relist()

    def recount(self) -> None:
        """Reckon everything anew. Nothing may be tried meanwhile."""
        self._tables.sort_into_queues()
        self._tables.labelled.relist()
        self._columns()
        if self._tables.pairs.active:
            self._placement.recount_pairs()
        self._holdings()
        self._placement.recount_seats()
        self._tables.numa.recount()
        self._placement.recount_neighbours()
        nodes, tasks = self._tables.nodes, self._tables.tasks
        placed = [task.pod for row in nodes.rows.values() for task in nodes.pods[row].values()]
        self._tables.device_claims.recount(placed, [tasks[uid].pod for uid in self._tables.in_flight.lingering if uid in tasks])
        self._queues()
        self._tables.owned.recount()
        self._starts.touch_all()
        self.distrust()
        self._tables.nodes.gained.update(self._tables.nodes.rows.values())

    def _columns(self) -> None:
        nodes = self._tables.nodes
        for column, alloc in zip(nodes.free, nodes.alloc, strict=True):
            column[:] = alloc
        nodes.extra[:] = 0
        for row in nodes.rows.values():
            left = [WHOLE] * len(nodes.devices.states[nodes.device.item(row)])
            for task in nodes.pods[row].values():
                task.row = row
                for index, amount in task.shape.taken:
                    nodes.free[index][row] -= amount
                for device in task.devices:
                    left[device] -= task.shape.gpu_milli
                if task.shape.lingers:
                    for line, amount in zip(nodes.extra, task.shape.extra, strict=True):
                        line[row] += amount
            nodes.device[row] = nodes.devices.intern(tuple(left))
        for task in self._tables.tasks.values():
            if task.row >= 0 and nodes.pods[task.row].get(task.pod.uid) is not task:
                task.row, task.devices = -1, ()

    def _holdings(self) -> None:
        holdings = self._tables.holdings
        holdings.clear()
        for row in self._tables.nodes.rows.values():
            for task in self._tables.nodes.pods[row].values():
                if task.shape.holds:
                    holdings.add(task.shape.spec, row, 1)
        for uid, row in self._tables.in_flight.lingering.items():
            holdings.add(self._tables.tasks[uid].shape.spec, row, 1)

    def _queues(self) -> None:
        """Who is charged: all that a queue pays for and that is listed on a row, placeholders, too, and strays."""
        self._belonging.judge_anew()
        nodes = self._tables.nodes
        charged = [(task, row) for row in nodes.rows.values() for task in nodes.pods[row].values() if task.charged]
        charged += [(task, -1) for tasks in self._placement.strays.values() for task in tasks.values() if task.charged]
        accounts, instead = self._tables.queues.accounts, {task.instead_of: task for task, _ in charged if task.instead_of}
        for uid, row in self._tables.in_flight.lingering.items():
            task = self._tables.tasks[uid]
            debt = accounts.debts.get(uid)
            if task.charged and (uid in instead or debt is None or debt.moves):
                accounts.note_debt(accounts.debt_of_moved(task, row, instead.get(uid)))
        self._tables.queues.charge_anew(charged)
