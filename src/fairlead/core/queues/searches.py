"""What is remembered of a pending class from one pass to the next: as of which versions it was checked, and its searches."""

from __future__ import annotations

import math
from typing import NamedTuple

from fairlead.api.reasons import Reason
from fairlead.core.pods.tasks import Unit


class Seen(NamedTuple):
    """Versions of what may help a pending class, as of its last check; `actions.requeue` compares them with the present ones."""

    reservations: int = -1  # their version when it became unschedulable
    kept_out: int = 0  # for how many holds rows were reserved against it then
    exhausted: bool = False  # whether what its queue may hold was reserved for another then
    surroundings: tuple[int, ...] = ()  # of those of its shapes that depend on other pods
    shares: tuple[int, int] = (-1, -1)  # the version of fair shares, and how many jobs had started
    leaving: int = 0  # how many pods had begun to leave when it became unschedulable


class Search:
    """What is remembered of searches for victims, and for pods to be moved, for a pending class; the actions update it."""

    __slots__ = (
        "awaited",
        "awaits",
        "backoff_until",
        "budgets",
        "check_at",
        "given_up",
        "moves_again",
        "moves_vain",
        "moves_wanted",
        "put_off",
        "vain",
        "without_victims",
    )

    def __init__(self) -> None:
        self.vain = 0  # how many searches for victims in a row were in vain
        self.backoff_until = 0.0  # no search for victims before
        self.put_off: dict[str, None] = {}  # users whom a limit stops, and for whom a search was due during the backoff
        self.awaits = 0.0  # until when it is in backoff since what leaves by itself is enough for it
        self.awaited: frozenset[str] = frozenset()  # the UIDs of that
        self.given_up: Unit | None = None  # who would have taken back what the last search found, so that this was given up
        self.budgets: Reason | None = None  # disruption budgets that protect all victims that would be enough
        self.check_at = math.inf  # when these are overridden, or may have changed
        self.moves_vain = 0  # how many searches for pods to be moved in a row were in vain
        self.moves_again = 0.0  # no search for such pods before
        self.moves_wanted = False  # such a search was due during its backoff
        self.without_victims = False  # none are searched for: only a place helps it; see `actions.victimless`

    def forget(self) -> None:
        """One of its units has a place: the next searches are not put off."""
        self.vain, self.backoff_until, self.given_up = 0, 0.0, None
        self.moves_vain, self.moves_again = 0, 0.0
