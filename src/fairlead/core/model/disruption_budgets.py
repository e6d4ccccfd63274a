"""PodDisruptionBudgets as the core sees them."""

from __future__ import annotations

import msgspec

from fairlead.core.model.selectors import Selector


class DisruptionBudget(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodDisruptionBudget. allowed: how many of those selected may be evicted now; disrupted: pods that are leaving already."""

    namespace: str
    name: str
    selector: Selector = None
    allowed: int = 0
    disrupted: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"
