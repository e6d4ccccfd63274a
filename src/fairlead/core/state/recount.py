"""Recount: everything that is derived from who is where, reckoned anew after a change was broken off half way.

Facts are the objects, which task is listed on which row or as a stray, and the victims that others wait for. Free amounts and
devices, surroundings, what queues hold, lines and caches follow from them. It costs time in proportion to the cluster, so it is
called after a fault and never otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.core.model.objects import WHOLE
from fairlead.core.pods.tasks import Task, TaskState

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


def cut_out(state: ClusterState, tasks: Iterable[Task]) -> None:
    """Take tasks that wait, or have half taken a place, out of every table that serves them; nothing is asked of them.

    What they are counted for stays until `recount`, if they have a row.
    """
    for task in tasks:
        uid, unit = task.pod.uid, task.unit
        if unit is not None:
            unit.retire()
            for each in unit.tasks:
                each.unit = None
            if unit.gang is not None:
                state.unsettle(unit.gang)
        kept = state.moves.returning.pop(uid, None)
        for each in (task,) if kept is None else (task, kept.stand_in):
            _lift(state, each)
        for victim in task.waits_for:
            state.holds.get(victim, set()).discard(uid)
            if victim in state.queues.owed:
                state.queues.owed[victim] = state.queues.owed[victim].without(uid)
        task.waits_for = set()
        state.freed_holds.pop(uid, None)
        state.applicants.pop(uid, None)
        state.reserved.started(f"pod/{uid}" if task.gang is None else f"gang/{task.gang.key}")
        task.not_before = 0.0
        task.become(TaskState.UNUSABLE)


def expel(state: ClusterState, uid: str) -> None:
    """Forget a pod wherever it is listed, whatever it was in the middle of; who waited for it to go waits no longer."""
    known = state.tasks.pop(uid, None)
    if known is not None:
        cut_out(state, (known,))
    for queue in state.queues.queues.values():
        for room in queue.rooms.values():
            for unit in [unit for unit in room.units if any(task.pod.uid == uid for task in unit.tasks)]:
                cut_out(state, [task for task in unit.tasks if task.pod.uid == uid] or unit.tasks)
    for pods in state.nodes.pods:
        pods.pop(uid, None)
    for tables in (state.strays, state.queueless, state.nominated):
        for name in [name for name, tasks in tables.items() if tasks.pop(uid, None) is not None and not tasks]:
            del tables[name]
    for name in [name for name, pods_there in state.nodes.poisoned.items() if uid in pods_there]:
        state.nodes.poison(name, uid, bad=False)
    for gang in [gang for gang in state.gangs.values() if gang.tasks.pop(uid, None) is not None]:
        state.unsettle(gang)
    for table in (state.applicants, state.freed_holds, state.lingering, state.plans, state.queues.owed):
        table.pop(uid, None)
    state.surplus.discard(uid)
    for book in (state.unread, state.belonging, state.services):
        book.forget(uid)
    for beneficiary in state.holds.pop(uid, ()):
        held = state.tasks.get(beneficiary)
        if held is not None:
            held.waits_for.discard(uid)
            if not held.waits_for and held.state is TaskState.HELD:
                state.freed_holds[beneficiary] = held
    for waiting in state.holds.values():
        waiting.discard(uid)
    kept = state.moves.kept.pop(uid, None)
    for stand_in in (*state.forget_leftovers(uid), *((kept.stand_in,) if kept is not None else ())):
        _lift(state, stand_in)


def _lift(state: ClusterState, task: Task) -> None:
    """Off its row, without giving anything back."""
    task.instead_of = ""
    if task.row < 0:
        return
    state.nodes.pods[task.row].pop(task.pod.uid, None)
    for use in task.shape.spec.claims if not task.pod.node else ():
        state.storage.drop(use.key)
    task.row, task.devices = -1, ()


def distrust(state: ClusterState) -> None:
    """Derive anew what is remembered only to save time."""
    state.nodes.renew()
    state.shapes.distrust()
    state.pass_caches.drop()
    state.queues.relist()


def recount(state: ClusterState) -> None:
    """Reckon everything anew. Nothing may be tried meanwhile."""
    _columns(state)
    if state.pairs.active:
        state.recount_pairs()
    _holdings(state)
    _queues(state)
    state.starts.touch_all()
    distrust(state)
    state.nodes.gained.update(state.nodes.rows.values())


def _columns(state: ClusterState) -> None:
    nodes = state.nodes
    for column, alloc in zip(nodes.free, nodes.alloc, strict=True):
        column[:] = alloc
    nodes.extra[:] = 0
    for row in nodes.rows.values():
        left = [WHOLE] * len(nodes.devices.states[nodes.device.item(row)])
        for task in nodes.pods[row].values():
            task.row = row
            for index, amount in task.shape.demand:
                nodes.free[index][row] -= amount
            for device in task.devices:
                left[device] -= task.shape.gpu_milli
            if task.shape.lingers:
                for line, amount in zip(nodes.extra, task.shape.extra, strict=True):
                    line[row] += amount
        nodes.device[row] = nodes.devices.intern(tuple(left))
    for task in state.tasks.values():
        if task.row >= 0 and nodes.pods[task.row].get(task.pod.uid) is not task:
            task.row, task.devices = -1, ()


def _holdings(state: ClusterState) -> None:
    holdings = state.holdings
    holdings.clear()
    for row in state.nodes.rows.values():
        for task in state.nodes.pods[row].values():
            if task.shape.holds:
                holdings.add(task.shape.spec, row, 1)
    for uid, row in state.lingering.items():
        holdings.add(state.tasks[uid].shape.spec, row, 1)


def _queues(state: ClusterState) -> None:
    """Who is charged: all that a queue pays for and that is listed on a row, stand-ins, too, and strays."""
    state.belonging.judge_anew()
    charged = [(task, row) for row in state.nodes.rows.values() for task in state.nodes.pods[row].values() if task.charged]
    charged += [(task, -1) for tasks in state.strays.values() for task in tasks.values() if task.charged]
    owed, instead = state.queues.owed, {task.instead_of: task for task, _ in charged if task.instead_of}
    for uid, row in state.lingering.items():
        task = state.tasks[uid]
        if task.charged and (uid in instead or uid not in owed or owed[uid].moves):
            owed[uid] = state.queues.debt_of_moved(task, row, instead.get(uid))
    state.queues.charge_anew(charged)
