"""Queue position: the place of a unit in the order in which all are served, term by term, and what goes before it and why.

The same terms decide in `queues`: first among queues (queue priority, express, the part of its deserved share that each holds),
then inside a queue (class priority, nearness of its longest wait, level of attained service, what its user holds, age).
"""

from __future__ import annotations

import msgspec

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import ELASTIC_LEVEL, Unit
from fairlead.core.queues.queue_node import QueueNode, pending_class_of
from fairlead.core.state.cluster import ClusterState


class Term(msgspec.Struct, frozen=True):
    """One term of the order, most significant first. value: greater goes first where `higher_first`."""

    name: str
    value: float
    meaning: str
    higher_first: bool = True


class Ahead(msgspec.Struct, frozen=True):
    """A job that is served before: which term decided, with both values."""

    job: str
    queue: str
    user: str
    term: str
    its: float
    ours: float


def terms(state: ClusterState, unit: Unit, now: float) -> list[Term]:
    """The terms of a unit's rank, in the order in which they count."""
    node = state.queues.queues[unit.tasks[0].queue]
    devices, cpu = node.holds.get(unit.user, (0, 0))
    share = f"what queue {node.name!r} would hold with it, relative to its fair share; above 1 exceeds the share"
    return [
        Term("queue priority", node.path[-1].policy.priority, "priority of its top-level queue"),
        Term("express", float(unit.express), "attained service below the express limit: served before fair shares count"),
        *(
            Term(
                f"share of {each.name}",
                round(state.queues.fair.dominant_share_with(each, unit), 6),
                share if each is node else "the same, for a parent queue",
                higher_first=False,
            )
            for each in reversed(node.path)
        ),
        Term("priority", unit.priority, "of its PriorityClass"),
        Term("urgency", -unit.rank.urgency, "quarters of the maxWait of its ServiceClass that have passed"),
        Term("level", unit.level, f"of attained service; {ELASTIC_LEVEL} for an elastic replica", higher_first=False),
        Term("devices of its user", devices / WHOLE, f"held by {unit.user!r} in the queue", higher_first=False),
        Term("CPUs of its user", cpu / 1000, f"held by {unit.user!r} in the queue", higher_first=False),
        Term("age", round(max(0.0, now - unit.rank.created), 3), "seconds since its creation"),
    ]


def blocked_by(state: ClusterState, unit: Unit) -> Ahead | None:
    """The pending job that blocks a unit: it would preempt the unit for what that took from others (see `preemption.cycles`)."""
    pending_class = pending_class_of(unit)
    found = state.queues.waiting.blocked_by.get(pending_class) if pending_class is not None else None
    if found is None or not found.taker.alive:
        return None
    taker = found.taker
    term, its, ours = "quota", 1, 0  # its queue lives within its own
    if taker.priority != unit.priority:
        term, its, ours = "priority", taker.priority, unit.priority
    elif taker.level != unit.level:
        term, its, ours = "level", taker.level, unit.level
    return Ahead(taker.key, taker.tasks[0].queue, taker.user, term, its, ours)


def line(node: QueueNode) -> list[Unit]:
    """The units that wait in a queue, in the order in which they are served."""
    return sorted((unit for pending_class in node.pending_classes.values() for unit in pending_class.units), key=node.unit_key)


def ahead_of(state: ClusterState, unit: Unit, others: list[Unit], now: float, most: int) -> list[Ahead]:
    """The first of those that go before a unit, each with the term that decides it; at most so many."""
    mine = terms(state, unit, now)
    found = []
    for other in others[:most]:
        first, job = other.tasks[0], other.key
        decided = next(
            (
                Ahead(job, first.queue, other.user, one.name, one.value, two.value)
                for one, two in zip(terms(state, other, now), mine, strict=False)
                if one.name == two.name and one.value != two.value
            ),
            Ahead(job, first.queue, other.user, "name", 0.0, 0.0),
        )
        found.append(decided)
    return found
