"""Kubernetes events: what was done to an object, as `kubectl describe` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from zlib import crc32

import structlog

from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode

log = structlog.get_logger("events")

NOTE_LIMIT = 1000


async def write(
    client: Client,
    regarding: Mapping[str, str],
    reason: str,
    note: str,
    *,
    controller: str,
    instance: str,
    action: str,
    warning: bool = False,
) -> None:
    """One event, in events.k8s.io/v1 as kube-scheduler writes them. That it cannot be written is logged, no more.

    regarding: apiVersion, kind, namespace, name and, where known, uid of the object; what has no namespace has its events in
    `default`. controller and instance: the reporter.
    """
    namespace, name = regarding.get("namespace") or "default", regarding["name"]
    now = datetime.fromtimestamp(client.clock(), UTC)
    digest = crc32(f"{reason} {note}".encode())  # an object may have several events at one time
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:200]}.{int(now.timestamp() * 1e6):x}{digest:08x}", "namespace": namespace},
        "eventTime": now.isoformat(timespec="microseconds")[:26] + "Z",
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "action": action,
        "reason": reason[:128],
        "regarding": regarding,
        "note": note[:NOTE_LIMIT],
        "type": "Warning" if warning else "Normal",
    }
    try:
        await client.post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", encode(body))
    except (ApiError, Unreachable) as error:
        log.warning("event not written", regarding=f"{namespace}/{name}", reason=reason, error=str(error)[:300])
