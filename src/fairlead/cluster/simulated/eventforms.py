"""Events have two spellings, core/v1 and events.k8s.io/v1, and one storage: core's."""

from __future__ import annotations

from fairlead.cluster.simulated.store import Object

GROUP = "events.k8s.io"
_STORED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_SHOWN = {stored: shown for shown, stored in _STORED.items()}


def stored(event: Object) -> Object:
    """From events.k8s.io/v1 to core/v1."""
    renamed = {_STORED.get(name, name): value for name, value in event.items()}
    return {**renamed, "kind": "Event", "apiVersion": "v1"}


def shown(event: Object) -> Object:
    """From core/v1 to events.k8s.io/v1."""
    renamed = {_SHOWN.get(name, name): value for name, value in event.items()}
    return {**renamed, "kind": "Event", "apiVersion": "events.k8s.io/v1"}
