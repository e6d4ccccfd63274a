"""Waiting work: the pending classes of each queue, and which unit is served next.

Inside a queue, waiting units are kept in pending classes (`tree.Room`): one per composition (shape, priority, size), since every
verdict about one unit of a class holds for all of them. A class whose first unit cannot be placed is set aside as a whole until
something happens that could help. In a class each user has a line: among equals the user who holds least of the queue goes
first, and a limit for one user stops that line alone. Which queue is served next `order` decides.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from fairlead.api.reasons import Reason
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import Place, QueueNode, QueueTree, Room, Standing


class Behind(NamedTuple):
    """Who waits and would take a place in turn, and whose place that is."""

    taker: Unit
    falling: list[Task]


class Versions(NamedTuple):
    """Versions of what may help any parked class."""

    pairs: int
    storage: int
    shares: int
    starts: int
    reservations: int


class Waiting:
    """All units that wait, and the order in which they are served."""

    def __init__(self, tree: QueueTree, fair: FairShares) -> None:
        self.tree = tree
        self.fair = fair
        self.order = QueueOrder(tree.queues, self._first, fair.dominant_share_with)
        self._sequence = 0
        self.parked: set[Room] = set()
        self.held_back: set[Room] = set()  # those parked rooms that are held back for a job that waits
        self.requeue_at: dict[Room, float] = {}  # pending classes that are tried again at some time, whatever happens
        self.checked = Versions(0, 0, 0, 0, 0)  # when all that are parked were last checked
        self.limited: set[Room] = set()  # where limits stop some users
        self.behind: dict[Room, Behind] = {}  # would take from others in vain -> who would take that in turn
        self.unlisted: list[tuple[Room, Exception]] = []  # could not be put in order, and why
        self.resting: set[Room] = set()  # were to search for victims, but did so in vain too often of late

    def push(self, name: str, unit: Unit) -> None:
        """Let a unit wait in its queue."""
        node = self.tree.node_of(name)
        composition = unit.composition
        room = node.rooms.get(composition)
        if room is None:
            room = node.rooms[composition] = Room(node, composition, unit)
        unit.room = room
        room.waiting += 1
        room.elastic = room.elastic or bool(unit.later)
        node.pods_waiting += room.pods
        self.fair.touch()
        heappush(room.lines.setdefault(unit.user, []), (unit.rank, unit))
        if node.blocked is not None and unit.rank < node.blocked:
            node.blocked = None
            self._reopen(node)
        room.untold.append(unit)
        if room.parked is None and unit.user not in room.limited and room.lines[unit.user][0][1] is unit:
            self._offer(node, room)
        elif room.parked is not None and node.policy.users_reclaim and room.first() is unit:
            self.unpark(room)  # what was in vain for another user need not be for this one

    def unpark(self, room: Room) -> None:
        """Something happened that could help the units of this room."""
        self.parked.discard(room)
        self.held_back.discard(room)
        self.requeue_at.pop(room, None)
        room.parked = room.held_back = None
        if room.queue.blocked is not None:
            room.queue.blocked = None
            self._reopen(room.queue)
        if not room.waiting:
            self._dissolve(room)
        else:
            self._offer(room.queue, room)

    def park(self, room: Room, reason: Reason, again_at: float | None = None) -> list[Unit]:
        """None of the units of this room can be placed for now; returns those that must be told why.

        again_at: when they are tried again although nothing happened.
        """
        if again_at is not None:
            self.requeue_at[room] = again_at
        room.parked = reason
        self.parked.add(room)
        if room.held_back is not None:
            self.held_back.add(room)
        if room.told != reason.code:
            room.told = reason.code
            room.untold = sorted(room.units)
        return self.to_tell(room)

    @property
    def releases(self) -> bool:
        """Whether a pending class is held back for a job that waits no longer."""
        return any(room.held_back is not None and not room.held_back.alive for room in self.held_back)

    def limit(self, room: Room, user: str, reason: Reason) -> list[Unit]:
        """A limit stops one user here: his line waits until the limit eases, others are served. Returns his units."""
        room.limited[user] = reason
        self.limited.add(room)
        self._offer(room.queue, room)
        theirs = sorted(unit for _, unit in room.lines.get(user, ()) if unit.alive)
        room.untold = [unit for unit in room.untold if unit.user != user]
        return theirs

    def ease(self, eased: set[str]) -> None:
        """These queues hold less, or may hold more: users whom limits stopped are looked at again."""
        for room in sorted(
            (each for each in self.limited if any(node.name in eased for node in each.queue.path)), key=Room.order
        ):
            self.limited.discard(room)
            room.limited.clear()
            if room.parked is None:
                self._offer(room.queue, room)

    def _dissolve(self, room: Room) -> None:
        """Nobody waits in a room any more."""
        room.queue.rooms.pop(room.composition, None)
        self.limited.discard(room)
        self.behind.pop(room, None)

    @property
    def next_due(self) -> float | None:
        """When something is tried again although nothing happened."""
        return min((*self.requeue_at.values(), *(room.search.rests_until for room in self.resting)), default=None)

    def due(self, now: float) -> list[Room]:
        """Pending classes that are tried again by now although nothing happened."""
        return sorted((room for room, at in self.requeue_at.items() if at <= now), key=Room.order)

    def rested(self, now: float) -> list[Room]:
        """Rooms whose rest is over: they may search again. Each is returned once."""
        found = sorted((each for each in self.resting if each.search.rests_until <= now), key=Room.order)
        self.resting.difference_update(found)
        return found

    def to_tell(self, room: Room) -> list[Unit]:
        """Units that wait in a parked room and do not know why yet."""
        units, room.untold = [unit for unit in room.untold if unit.alive], []
        return units

    def block(self, room: Room) -> None:
        """Nothing behind the first unit of this room is served before it, in its queue."""
        unit = room.first()
        if unit is not None:
            room.queue.blocked = unit.rank

    def _reopen(self, node: QueueNode) -> None:
        if node.heads and not node.listed:
            self.order.enlist(node)

    def _offer(self, node: QueueNode, room: Room) -> None:
        unit = room.first()
        if unit is None:
            return
        self._head(node, room, unit)
        if not node.listed or node.heads[0][2] is room:
            self.order.enlist(node)  # once more if it may go before others now

    def standing(self, unit: Unit, *, held: bool = False) -> Standing:
        """Where the queue of a unit stands among all, with the unit as its next. held: the unit has places already."""
        share = (lambda node, _: self.fair.dominant_share(node)) if held else None
        return self.order.standing(self.tree.node_of(unit.tasks[0].queue), unit, share)

    def turn(self, unit: Unit, *, held: bool = False) -> tuple[Standing, Place]:
        """What orders units of all queues: where its queue stands, then its place in that queue. held: see `standing`."""
        return self.standing(unit, held=held), self.tree.node_of(unit.tasks[0].queue).place(unit)

    def restart(self, changed: QueueNode | None = None) -> None:
        """Shares may have fallen: order the queues anew before serving the next.

        changed: only what this queue and those above it hold did.
        """
        self.order.again(changed)

    def next(self) -> Unit | None:
        """The unit that is served next, or None when nothing waits that could be tried."""
        return self.order.next()

    def count_anew(self) -> None:
        """How many units and pods wait is counted anew."""
        for node in self.tree.queues.values():
            for room in node.rooms.values():
                room.waiting = sum(1 for _ in room.units)
            node.pods_waiting = sum(room.waiting * room.pods for room in node.rooms.values())

    def relist(self) -> None:
        """Put all lines, and all queues, in order anew: who was about to be put back when an exception came is there again."""
        self.order.clear()
        for node in self.tree.queues.values():
            node.heads.clear()
            node.fell = False
            for room in list(node.rooms.values()):
                room.offered = None
                if not room.waiting:
                    self.parked.discard(room)
                    self.requeue_at.pop(room, None)
                    self.resting.discard(room)
                    self._dissolve(room)
                elif room.parked is None:
                    try:
                        self._offer(node, room)
                    except Exception as error:  # the others stand in line all the same
                        self.unlisted.append((room, error))
        self.held_back = {room for room in self.parked if room.held_back is not None}

    def devices_waited_for(self, room: Room) -> int:
        """For how many devices the units of a room wait, in milli."""
        return room.waiting * sum(amount for resource, amount in room.demand if resource in self.tree.nodes.gpu_resources)

    def _first(self, node: QueueNode) -> Unit | None:
        if node.fell:
            # Somebody holds less than when the heads were put in order: he may go before others now.
            node.fell = False
            node.heads.clear()
            for room in node.rooms.values():
                if room.parked is None and (unit := room.first()) is not None:
                    self._head(node, room, unit)
        heads = node.heads
        while heads and node.blocked is None:
            place, _, room = heads[0]
            unit = room.first() if room.parked is None else None
            if unit is not None:
                present = node.place(unit)
                if present == place:
                    return unit
                if room.offered == place:  # it is out of date: its user holds more now, or another unit is its first
                    self._sequence += 1
                    room.offered = present
                    heapreplace(heads, (present, self._sequence, room))
                    continue
            heappop(heads)
            if unit is None and room.parked is None and room.offered == place and not room.waiting:
                self._dissolve(room)
        return None

    def _head(self, node: QueueNode, room: Room, unit: Unit) -> None:
        self._sequence += 1
        room.offered = node.place(unit)
        heappush(node.heads, (room.offered, self._sequence, room))
