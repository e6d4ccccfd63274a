"""Backoffs: pending classes for which a search for victims was due before their next one may be made, by when that is."""

from __future__ import annotations

from fairlead.core.model.agenda import Agenda, Timers
from fairlead.core.queues.queue_node import PendingClass


class Backoffs:
    """Classes in backoff, each until `search.backoff_until`; passes are due for them then."""

    def __init__(self, timers: Timers) -> None:
        self._until: Agenda[int] = timers.agenda("backoffs")  # by `id`, which is compared at once: due ones are ordered below
        self._classes: dict[int, PendingClass] = {}
        self._awaiting: set[PendingClass] = set()  # of them, some that wait for what leaves by itself

    def __contains__(self, pending_class: object) -> bool:
        return id(pending_class) in self._classes

    def add(self, pending_class: PendingClass) -> None:
        """A search is due for a class once its backoff is over."""
        self._classes[id(pending_class)] = pending_class
        self._until.put(id(pending_class), pending_class.search.backoff_until)
        if pending_class.search.awaits:
            self._awaiting.add(pending_class)

    def discard(self, pending_class: PendingClass) -> None:
        """No search is due for a class any more."""
        self._until.drop(id(pending_class))
        self._classes.pop(id(pending_class), None)

    def end(self, pending_class: PendingClass) -> None:
        """A unit of a class has its place: the next search is not put off."""
        pending_class.search.forget()
        if id(pending_class) in self._classes:
            self.add(pending_class)

    def over(self, now: float) -> list[PendingClass]:
        """Classes whose backoff is over, in order: they may search again. Each is returned once."""
        due = [self._classes.pop(number) for number in self._until.due(now)]
        for pending_class in due:
            if pending_class.search.backoff_until > now:
                self.add(pending_class)
        return sorted((each for each in due if each.search.backoff_until <= now), key=PendingClass.order)

    def awaiting(self, now: float) -> list[PendingClass]:
        """Classes in backoff because what leaves by itself is enough for them."""
        self._awaiting = {each for each in self._awaiting if each in self and each.search.awaits > now}
        return list(self._awaiting)
