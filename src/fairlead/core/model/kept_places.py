"""Places that are reserved for pods which do not exist: what a scheduler that begins cannot see."""

from __future__ import annotations

import msgspec

from fairlead.core.model.pods import Pod


class MovedPlace(msgspec.Struct, frozen=True):
    """The new place of a pod that moves, for its replacement.

    uid: of the pod that moves; pod: what its replacement is like, and whose. since: when the move was decided, until: when the
    place is given up, in seconds since the epoch.
    """

    uid: str
    pod: Pod
    node: str
    since: float
    until: float


class HeldPlaces(msgspec.Struct, frozen=True):
    """The places of a suspended job that is to resume once others have left these.

    group: its PodGroup, epoch: of the target state that suspends it. nodes: by the number of its member, empty: none. until:
    when its victims are waited for no longer, in seconds since the epoch.
    """

    group: str
    epoch: int
    nodes: tuple[str, ...]
    until: float


class KeptPlaces(msgspec.Struct, frozen=True):
    """All such places of a scheduler, those that are given up last at the end."""

    moved: tuple[MovedPlace, ...] = ()
    held: tuple[HeldPlaces, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.moved or self.held)  # none: nothing is written


NO_PLACES = KeptPlaces()
