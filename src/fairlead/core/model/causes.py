"""Why pods are evicted or moved: as data, and the sentence for events, logs and `whatif`.

Rules, metrics and events read the data. The sentence is made here alone, and nothing reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

_NAMED = 3


class PreemptionReason(IntEnum):
    """Why a pod may be preempted; the lower, the less is lost by it."""

    ELASTIC = 0  # its gang can do without it
    SERVICE = 1  # attained more service than the unit
    USER = 2  # its user holds more of their queue than the unit's user
    SHARE = 3  # its queue holds more than is fair, the unit's less
    PRIORITY = 4  # of lower class priority

    @property
    def label(self) -> str:
        """As metrics name it."""
        return self.name.capitalize()


_SENTENCES = {
    PreemptionReason.ELASTIC: "the victims are elastic replicas",
    PreemptionReason.SERVICE: "it has less attained service",
    PreemptionReason.USER: "its user holds less of the queue's capacity",
    PreemptionReason.SHARE: "its queue is below its fair share",
    PreemptionReason.PRIORITY: "its priority is higher",
}


class Cause:
    """Why the pods of one transaction go. `str` gives the sentence; empty where there is nothing to add.

    reasons: of the pods that are evicted, the most frequent first; none: pods only move, or go as kube-scheduler evicts them.
    overridden: the PodDisruptionBudgets that forbid it and do not bind any more; None: none does.
    emptied: a node that is emptied although no pod waits for it; gpu: one GPU of it only.
    """

    __slots__ = ("emptied", "gpu", "overridden", "reasons")

    def __init__(
        self,
        reasons: tuple[PreemptionReason, ...] = (),
        *,
        overridden: tuple[str, ...] | None = None,
        emptied: str = "",
        gpu: bool = False,
    ) -> None:
        self.reasons = reasons
        self.overridden = overridden
        self.emptied = emptied
        self.gpu = gpu

    @property
    def main(self) -> PreemptionReason:
        """The most frequent reason."""
        return self.reasons[0] if self.reasons else PreemptionReason.PRIORITY

    def overriding(self, budgets: Sequence[str]) -> Cause:
        """The same, where some PodDisruptionBudgets (`namespace/name`) do not bind any more."""
        return Cause(self.reasons, overridden=tuple(budgets), emptied=self.emptied, gpu=self.gpu)

    def __str__(self) -> str:
        if self.gpu:
            return f"a GPU of node {self.emptied} is freed of partitions so that whole GPUs are free"
        if self.emptied:
            return f"node {self.emptied} is drained so that whole nodes are free"
        sentence = ", ".join(_SENTENCES[reason] for reason in self.reasons)
        return sentence if self.overridden is None else f"{sentence}, and the grace time of {named(self.overridden)} has expired"

    def __repr__(self) -> str:
        return f"Cause({self._values!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cause) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    @property
    def _values(self) -> tuple[object, ...]:
        return self.reasons, self.overridden, self.emptied, self.gpu


NO_CAUSE = Cause()


def named(budgets: Sequence[str]) -> str:
    """PodDisruptionBudgets as messages name them."""
    if not budgets:
        return "a PodDisruptionBudget"
    more = f" and {len(budgets) - _NAMED} more" if len(budgets) > _NAMED else ""
    return "PodDisruptionBudget " + ", ".join(budgets[:_NAMED]) + more
