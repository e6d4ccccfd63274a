"""Alternatives: which jobs may run in several forms, and which form was chosen for each that waits.

A choice is for one attempt of a job. It is written to the PodGroup's status; the operator makes the pods of the next attempt
in that form. Nothing is held meanwhile. A job for which a form was chosen rests, so that two parts that see different things
cannot have its pods made anew without end, and so that what was not carried out is chosen again.
"""

from __future__ import annotations

from fairlead.core.model.agenda import Agenda
from fairlead.core.model.groups import Chosen, Group
from fairlead.core.pods.tasks import Gang
from fairlead.core.state.tables import Tables

REST = 30.0
"""Seconds between two choices for one job."""


class Alternatives:
    """groups: keys of those with more than one form."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.groups: set[str] = set()
        self.chosen: dict[str, Chosen] = {}
        self._rests: Agenda[str] = tables.timers.agenda("alternatives")  # group -> until when it rests

    def upsert(self, group: Group) -> None:
        """A PodGroup came or changed."""
        key = group.key
        if len(group.choices) < 2:
            self.remove(key)
            return
        self.groups.add(key)
        if group.chosen is not None and key not in self.chosen:
            self.chosen[key] = group.chosen

    def remove(self, key: str) -> None:
        """A PodGroup is gone, or its job has one form only."""
        self.groups.discard(key)
        self.chosen.pop(key, None)
        self._rests.drop(key)

    def begin(self, now: float) -> None:
        """A pass begins: those that have rested may be chosen for again."""
        for _ in self._rests.due(now):
            pass  # each is dropped as it comes

    def may_choose(self) -> list[Gang]:
        """The gangs for which a form may be chosen, by their keys."""
        found = (self._tables.gangs.get(key) for key in sorted(self.groups) if key not in self._rests)
        return [gang for gang in found if gang is not None and gang.group is not None]

    def choose(self, key: str, chosen: Chosen, now: float) -> None:
        """A form was chosen."""
        self.chosen[key] = chosen
        self._rests.put(key, now + REST)
