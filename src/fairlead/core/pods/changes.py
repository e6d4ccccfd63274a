"""Changes: which pods, and which gangs, are not any more as they were when something was last derived from them.

Whatever may matter is noted, trials included: what is derived anew and stays the same costs little. Where nothing is
derived for long, no more is noted than there are pods (`bound`).
"""

from __future__ import annotations

from collections.abc import Iterable

_LEAST = 1024


class Changes:
    """Noted since `clear`, in order. pods: UIDs; gangs: keys; everything: so much that all must be derived anew."""

    __slots__ = ("everything", "gangs", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.gangs: dict[str, None] = {}
        self.everything = True

    def note(self, uids: Iterable[str]) -> None:
        """Pods have changed, or may have."""
        self.pods.update(dict.fromkeys(uids))

    def bound(self, known: int) -> None:
        """Where more is noted than there are pods, all of them have changed."""
        if len(self.pods) + len(self.gangs) > 2 * known + _LEAST:
            self.clear()
            self.everything = True

    def clear(self) -> None:
        """All of it was derived anew."""
        self.pods.clear()
        self.gangs.clear()
        self.everything = False
