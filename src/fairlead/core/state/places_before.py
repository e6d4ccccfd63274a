"""Places before: those that a scheduler before this one has recorded, as no pod shows them. They are used in the first pass."""

from __future__ import annotations

from fairlead.core.model.kept_places import NO_PLACES, HeldPlaces, KeptPlaces, MovedPlace


class PlacesBefore:
    """Nothing, unless `remember` was called before the first pass."""

    def __init__(self) -> None:
        self._places = NO_PLACES
        self._held: dict[str, HeldPlaces] = {}

    def remember(self, places: KeptPlaces) -> None:
        """What the scheduler before this one has recorded last."""
        self._places, self._held = places, {each.group: each for each in places.held}

    def held_for(self, group: str, epoch: int, now: float) -> tuple[str, ...]:
        """The nodes of the places that were held for members of a job, suspended by the target of this epoch."""
        held = self._held.get(group)
        return held.nodes if held is not None and now < held.until and held.epoch == epoch else ()

    def take_moved(self) -> tuple[MovedPlace, ...]:
        """The new places of pods that moved. Nothing is remembered any more."""
        moved, self._places, self._held = self._places.moved, NO_PLACES, {}
        return moved
