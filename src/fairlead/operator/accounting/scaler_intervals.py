"""Which HorizontalPodAutoscalers there were, and from how many replicas on they grew: what growth cost is reckoned from it."""

from __future__ import annotations

import msgspec

from fairlead.cluster import views
from fairlead.observability.history import Scaler
from fairlead.operator.accounting.intervals import Intervals

PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"


class _Target(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    scale_target_ref: _Target = msgspec.field(default_factory=_Target)
    min_replicas: int = 1
    max_replicas: int = 1


class ScalerView(msgspec.Struct):
    """A HorizontalPodAutoscaler."""

    metadata: views.Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class ScalerIntervals:
    """Of autoscalers that are there. Not for several threads at once."""

    def __init__(self) -> None:
        self.intervals: Intervals[Scaler] = Intervals(lambda row: f"{row.namespace}/{row.name}")
        self._there: set[str] = set()

    def observed(self, key: str, view: ScalerView | None, now: float) -> None:
        """One as it is; None: it is gone."""
        if view is None:
            self._there.discard(key)
            self.intervals.end(key, now)
            return
        self._there.add(key)
        target = view.spec.scale_target_ref
        fresh = Scaler(
            uid="",
            namespace=view.metadata.namespace,
            name=view.metadata.name,
            kind=target.kind,
            target=target.name,
            min_replicas=view.spec.min_replicas,
            max_replicas=view.spec.max_replicas,
            started_at=now,
        )
        self.intervals.put(fresh, view.metadata.uid, now)

    def close_others(self, alive_at: float | None) -> None:
        """All autoscalers are listed."""
        self.intervals.close_others(self._there, alive_at)
