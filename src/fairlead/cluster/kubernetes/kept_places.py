"""Places that are reserved for pods which do not exist, kept in the scheduler's Lease for the scheduler that leads next.

They are those of suspended jobs that wait for victims, and of pods that move: their replacements may not have come when they go.
No object of a user outlives the pods whose places these are, in every case and with rights that the scheduler has. They are
carried by the renewals of the Lease, of which one is made at once where they have changed; no user can write there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairlead.api import names
from fairlead.core.model.kept_places import NO_PLACES, HeldPlaces, KeptPlaces, MovedPlace

_MOST = 96 * 1024
"""Bytes that are kept: all annotations of an object together may have 256 KiB. Those that are given up first are left out."""

_read = msgspec.json.Decoder(KeptPlaces).decode


class NotedPlaces:
    """The latest that the core has answered. changed: called when they are others."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._text = ""

    def __bool__(self) -> bool:
        return bool(self._text)

    def note(self, places: KeptPlaces) -> None:
        """These are kept from now on."""
        text = _bounded(places) if places else ""
        if text != self._text:
            self._text = text
            self._changed()

    def annotations(self) -> dict[str, str | None]:
        """The annotation of the Lease; None: it has none."""
        return {names.KEPT_PLACES_ANNOTATION: self._text or None}

    def take_over(self, annotations: Mapping[str, str]) -> KeptPlaces:
        """What the scheduler before this one has kept. What cannot be read is nothing.

        It stays in the Lease until the core has answered for the first time: this scheduler may be killed, too.
        """
        text = annotations.get(names.KEPT_PLACES_ANNOTATION, "")
        try:
            found = _read(text) if text else NO_PLACES
        except msgspec.DecodeError:
            return NO_PLACES
        self._text = text
        return found


def _bounded(places: KeptPlaces) -> str:
    text = msgspec.json.encode(places)
    if len(text) > _MOST:
        left, chosen = _MOST - len(msgspec.json.encode(NO_PLACES)), set[MovedPlace | HeldPlaces]()
        every: list[MovedPlace | HeldPlaces] = [*places.moved, *places.held]
        for each in sorted(every, key=lambda each: each.until, reverse=True):
            size = len(msgspec.json.encode(each)) + 1
            if size <= left:
                left -= size
                chosen.add(each)
        moved = tuple(each for each in places.moved if each in chosen)
        places = KeptPlaces(moved, tuple(each for each in places.held if each in chosen))
        text = msgspec.json.encode(places)
    return text.decode() if places else ""
