"""The queues that came to hold more or less, so that what is remembered of queues is asked anew only of these."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fairlead.core.queues.queue_node import QueueNode

_REMEMBERED = 4096  # changes of what queues hold


class ChargedQueues:
    """The queues that came to hold more or less, one after the other, also where that was taken back."""

    def __init__(self) -> None:
        self._nodes: list[QueueNode] = []
        self._generation = 0

    @property
    def place(self) -> tuple[int, int]:
        """Where the next one is entered: (generation, number)."""
        return self._generation, len(self._nodes)

    def note(self, nodes: Iterable[QueueNode]) -> None:
        """These hold more or less."""
        self._nodes += nodes
        if len(self._nodes) > _REMEMBERED:
            self.renew()

    def renew(self) -> None:
        """All of them may."""
        self._generation += 1
        self._nodes.clear()

    def since(self, place: tuple[int, int]) -> Collection[QueueNode] | None:
        """Those entered from a place on, each once; None: it may be any of them."""
        generation, number = place
        return dict.fromkeys(self._nodes[number:]) if generation == self._generation else None
