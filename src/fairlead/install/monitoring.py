"""What the Prometheus operator reads: where to scrape both processes, recordings and alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.install.accounts import PROCESSES, account
from fairlead.install.processes import PORTS
from fairlead.install.values import Values
from fairlead.observability import rules


def objects(values: Values) -> Iterator[dict[str, Any]]:
    """Services and their ServiceMonitor; the PrometheusRule."""
    wanted = values.monitoring
    if wanted.service_monitor:
        yield from (_service(process, values) for process in PROCESSES)
        spec = {"selector": {"matchLabels": _scraped(values)}, "endpoints": [{"port": "metrics", "interval": "15s"}]}
        yield _selected("ServiceMonitor", spec, values)
    if wanted.rules:
        yield _selected("PrometheusRule", rules.groups(wanted.runbook), values)


def _scraped(values: Values) -> dict[str, str]:
    """Labels of the Services that are scraped."""
    return {"app": values.name, "component": "metrics"}


def _service(process: str, values: Values) -> dict[str, Any]:
    """Of all pods of a process: standbys have metrics, too."""
    app = account(process, values.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{app}-metrics", "namespace": values.namespace, "labels": _scraped(values)},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": app},
            "ports": [{"name": "metrics", "port": PORTS[process], "targetPort": "metrics", "protocol": "TCP"}],
        },
    }


def _selected(kind: str, spec: dict[str, Any], values: Values) -> dict[str, Any]:
    """With the labels by which Prometheus selects it."""
    metadata = {"name": values.name, "namespace": values.namespace, "labels": {**values.monitoring.labels}}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": metadata, "spec": spec}
