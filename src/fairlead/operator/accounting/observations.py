"""What accounting records: objects as they are, and when that was observed."""

from __future__ import annotations

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.node_pool import NodePoolSpec
from fairlead.cluster import device_views, views
from fairlead.operator.accounting.node_intervals import NodeView
from fairlead.operator.accounting.scaler_intervals import ScalerView
from fairlead.operator.use import Used


class PodObserved(msgspec.Struct, frozen=True):
    """A pod as it is; view: None where it is gone. at: when it was observed, seconds since 1970; 0: when it is recorded."""

    key: str
    view: views.Pod | None
    at: float = 0.0


class JobObserved(msgspec.Struct, frozen=True):
    """An AIJob as it is; job: None where it is gone."""

    key: str
    job: AIJob | None
    at: float = 0.0


class NodeObserved(msgspec.Struct, frozen=True):
    """A node as it is; view: None where it is gone."""

    name: str
    view: NodeView | None
    at: float = 0.0


class PoolObserved(msgspec.Struct, frozen=True):
    """A NodePool as it is; spec: None where it is gone."""

    name: str
    spec: NodePoolSpec | None
    at: float = 0.0


class ScalerObserved(msgspec.Struct, frozen=True):
    """A HorizontalPodAutoscaler as it is; view: None where it is gone."""

    key: str
    view: ScalerView | None
    at: float = 0.0


class SliceObserved(msgspec.Struct, frozen=True):
    """A ResourceSlice as it is; view: None where it is gone."""

    name: str
    view: device_views.ResourceSlice | None
    at: float = 0.0


class ClaimObserved(msgspec.Struct, frozen=True):
    """A ResourceClaim as it is; view: None where it is gone."""

    key: str
    view: device_views.ResourceClaim | None
    at: float = 0.0


Observation = PodObserved | JobObserved | NodeObserved | PoolObserved | ScalerObserved | SliceObserved | ClaimObserved | Used


def subject(observed: Observation) -> str:
    """The object of an observation, `namespace/name`."""
    if isinstance(observed, Used):
        return ""
    return observed.name if isinstance(observed, NodeObserved | PoolObserved | SliceObserved) else observed.key
