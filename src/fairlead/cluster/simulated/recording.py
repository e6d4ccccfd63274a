"""Events of simulated controllers and kubelets: what repeats counts up, as client-go's recorder does."""

from __future__ import annotations

import hashlib

from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.store import Object

_EVENTS = "events"


class Recorder:
    """Writes the events of one component."""

    def __init__(self, api: ApiServer, component: str) -> None:
        self._api = api
        self._component = component
        self._resource = api.served("v1", "events")

    def warning(self, pod: Object, reason: str, message: str, *, host: str = "") -> None:
        """A Warning about a pod."""
        self._write(pod, "Warning", reason, message, host)

    def normal(self, pod: Object, reason: str, message: str) -> None:
        """A Normal event about a pod."""
        self._write(pod, "Normal", reason, message, "")

    def _write(self, pod: Object, kind: str, reason: str, message: str, host: str) -> None:
        metadata, now = pod["metadata"], self._api.clock.text()
        namespace, uid = metadata["namespace"], metadata["uid"]
        same = hashlib.sha256(f"{uid} {self._component} {reason} {message}".encode()).hexdigest()[:16]
        key = (namespace, f"{metadata['name'][:200]}.{same}")
        record = self._api.store.get(_EVENTS, key)
        if record is not None:
            event = record.object
            changed = {**event, "metadata": dict(event["metadata"]), "count": event["count"] + 1, "lastTimestamp": now}
            self._api.store.put(_EVENTS, key, changed)
            return
        source = {"component": self._component, **({"host": host} if host else {})}
        body: Object = {
            "metadata": {"name": key[1]},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": metadata["name"], "uid": uid},
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": source,
            "reportingComponent": self._component,
        }
        try:
            self._api.create(self._resource, namespace, body)
        except StatusError:
            return  # its namespace is going
