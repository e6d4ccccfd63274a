"""Usage: what queues, and users in them, used of late: device-seconds that count half after a half-life.

Kept as (value, when, rate) and brought up to date when it is read, so nothing is swept. It survives a restart through
checkpoints in the status of queues: between two of them a restart forgets what was used since the first, no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairlead.core.model.queues import UsageRecord
from fairlead.core.model.units import WHOLE

if TYPE_CHECKING:
    from fairlead.core.queues.tree import QueueTree

_MOST_USERS = 200  # of a queue in a checkpoint; those who used most


class Usage:
    """Decayed use in device-seconds."""

    __slots__ = ("at", "rate", "value")

    def __init__(self, at: float, value: float = 0.0) -> None:
        self.at = at
        self.value = value
        self.rate = 0.0

    def read(self, now: float, half_life: float) -> float:
        """The value now. The rate has been the same since it was set."""
        decay = math.log(2) / half_life
        kept = math.exp(-decay * max(0.0, now - self.at))
        return self.value * kept + self.rate / decay * (1 - kept)

    def set_rate(self, rate: float, now: float, half_life: float) -> None:
        """From now on so many devices are used."""
        self.value = self.read(now, half_life)
        self.at = max(now, self.at)
        self.rate = rate


class UsageBook:
    """The usage of all queues, descendants' included, and of the users of each very queue. half_life: 0 keeps none."""

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self.queues: dict[str, Usage] = {}
        self.users: dict[str, dict[str, Usage]] = {}
        self._records: dict[str, UsageRecord] = {}

    def follow(self, tree: QueueTree, now: float) -> None:
        """Note how many devices are held now; users' past use is written to the queues."""
        resources = tree.nodes.gpu_resources
        for name, node in tree.queues.items():
            held = sum(node.used.get(resource, 0) for resource in resources) / WHOLE
            usage = self.queues.get(name)
            if usage is None:
                usage = self.queues[name] = self._restored(name, now)
            if usage.rate != held:
                usage.set_rate(held, now, self.half_life)
            users = self.users.setdefault(name, {})
            for user, (devices, _) in node.holds.items():
                if user not in users:
                    users[user] = Usage(now)
                if users[user].rate != devices / WHOLE:
                    users[user].set_rate(devices / WHOLE, now, self.half_life)
            past = {user: int(self._devices(each, now) * WHOLE) for user, each in users.items()}
            for user in [user for user, used in past.items() if not used and not any(node.holds.get(user, ()))]:
                del users[user], past[user]  # nothing is left of what they used
                node.holds.pop(user, None)
            if past != node.users.past:
                node.users.use_of_late(past)
                node.touch()

    def part_of(self, name: str, now: float, capacity: float) -> float:
        """A queue's decayed use as a part of so many devices, 0 to 1."""
        usage = self.queues.get(name)
        return self._devices(usage, now) / capacity if usage is not None and capacity else 0.0

    def _devices(self, usage: Usage, now: float) -> float:
        """As many devices as, used for ever, would have come to this."""
        return usage.read(now, self.half_life) * math.log(2) / self.half_life

    def restore(self, name: str, record: UsageRecord) -> None:
        """What a scheduler before this one wrote; what this one knows itself goes before."""
        if self.half_life and name not in self.queues:
            self._records[name] = record

    def _restored(self, name: str, now: float) -> Usage:
        record = self._records.pop(name, None)
        if record is None:
            return Usage(now)
        at = min(record.at, now)  # the clock of the one that wrote it may have been ahead
        self.users[name] = {user: Usage(at, value) for user, value in record.users}
        return Usage(at, record.value)

    def checkpoint(self, name: str, now: float) -> UsageRecord | None:
        """What to write for a queue; None if nothing was used."""
        usage = self.queues.get(name)
        if usage is None or not self.half_life:
            return None
        users = {user: each.read(now, self.half_life) for user, each in self.users.get(name, {}).items()}
        most = sorted(users.items(), key=lambda each: (-each[1], each[0]))[:_MOST_USERS]
        value = usage.read(now, self.half_life)
        kept = tuple(sorted((user, round(used, 3)) for user, used in most if used >= 1.0))
        return UsageRecord(round(value, 3), now, kept) if value >= 1.0 else None
