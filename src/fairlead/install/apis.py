"""The aggregated APIs that scheduler and operator serve: their registration, and the Service through which they are reached."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.api import names
from fairlead.install.values import Values


class Api(NamedTuple):
    """One API. name: in the flags of its process; port: where the process serves it."""

    name: str
    process: str
    port: int
    service: str
    group: str
    version: str

    @property
    def registered(self) -> str:
        """The name of its APIService."""
        return f"{self.version}.{self.group}"


VISIBILITY = Api("visibility", "scheduler", 6443, names.VISIBILITY_SERVICE, names.VISIBILITY_GROUP, names.VERSION)
EXTERNAL_METRICS = Api(
    "external-metrics",
    "scheduler",
    6445,
    names.EXTERNAL_METRICS_SERVICE,
    names.EXTERNAL_METRICS_GROUP,
    names.EXTERNAL_METRICS_VERSION,
)
HISTORY = Api("history", "operator", 6444, names.HISTORY_SERVICE, names.HISTORY_GROUP, names.VERSION)


def served(values: Values, process: str = "") -> list[Api]:
    """Those that are wanted; of one process, if it is given."""
    wanted = []
    if process != "operator":
        wanted += [VISIBILITY] if values.aggregated_api else []
        wanted += [EXTERNAL_METRICS] if values.external_metrics else []
    if process != "scheduler":
        wanted += [HISTORY] if values.aggregated_api and values.history is not None else []
    return wanted


def service(api: Api, namespace: str) -> dict[str, Any]:
    """The leader makes its own pod the endpoint."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": api.service, "namespace": namespace},
        "spec": {"ports": [{"port": 443, "targetPort": api.port, "protocol": "TCP"}]},
    }


def registration(api: Api, namespace: str) -> dict[str, Any]:
    """The APIService. The leader writes its caBundle."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": api.registered},
        "spec": {
            "group": api.group,
            "version": api.version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": api.service, "namespace": namespace, "port": 443},
        },
    }
