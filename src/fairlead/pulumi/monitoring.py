"""What Prometheus and Grafana need to watch Fairlead."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import yaml
from pulumi_kubernetes.apiextensions import CustomResource

from fairlead.install import NAMESPACE
from fairlead.install.processes import PORTS
from fairlead.observability import dashboards, rules
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument


class Monitoring(pulumi.ComponentResource):
    """Services to scrape, rules, and dashboards.

    namespace: where rules and dashboards go; watched: where scheduler and operator are. prometheus_operator: rules as a
    PrometheusRule and a ServiceMonitor; otherwise the rules are in ConfigMap `fairlead-rules`, key `rules.yaml`, to be mounted
    into Prometheus, and the Services have the annotations `prometheus.io/scrape` and `port`. dashboards: as ConfigMaps with the
    label that Grafana's sidecar selects. runbook: where the alerts' sections are found. labels: on everything that Prometheus
    selects by labels.
    """

    rules_name: pulumi.Output[str]
    """Name of the PrometheusRule or the ConfigMap, once it exists."""
    dashboard_names: pulumi.Output[list[str]]
    """Names of the dashboards' ConfigMaps."""

    def __init__(
        self,
        name: str = "monitoring",
        *,
        namespace: str = "monitoring",
        watched: str = NAMESPACE,
        create_namespace: bool = False,
        prometheus_operator: bool = False,
        with_dashboards: bool = True,
        runbook: str = rules.RUNBOOK,
        labels: dict[str, str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        checks.name(namespace, "namespace", 63)
        checks.name(watched, "watched", 63)
        if not runbook.strip():
            raise InvalidArgument("runbook is empty; give the URL or path of docs/runbook.md")
        super().__init__("fairlead:index:Monitoring", name, None, opts)
        self._name, self._watched, self._labels = name, watched, {"app": "fairlead", **(labels or {})}
        self._inside = pulumi.ResourceOptions(parent=self)
        if create_namespace:
            made = kubernetes.core.v1.Namespace(f"{name}-{namespace}", metadata={"name": namespace}, opts=self._inside)
            self._inside = pulumi.ResourceOptions(parent=self, depends_on=[made])
        for process, port in PORTS.items():
            self._service(process, port)
        if prometheus_operator:
            self.rules_name = self._monitored(namespace, runbook)
        else:
            text = yaml.safe_dump(rules.groups(runbook), sort_keys=False, width=130)
            self.rules_name = self._config("fairlead-rules", namespace, {"rules.yaml": text}, self._labels)
        shown = [self._dashboard(uid, namespace) for uid in dashboards.DASHBOARDS] if with_dashboards else []
        self.dashboard_names = pulumi.Output.all(*shown).apply(list)
        self.register_outputs({"rules_name": self.rules_name, "dashboard_names": self.dashboard_names})

    def _service(self, process: str, port: int) -> None:
        app = f"fairlead-{process}"
        metadata: Any = {
            "name": f"{app}-metrics",
            "namespace": self._watched,
            "labels": {**self._labels, "component": process},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)},
        }
        spec: Any = {"selector": {"app": app}, "ports": [{"name": "metrics", "port": port, "target_port": port}]}
        kubernetes.core.v1.Service(f"{self._name}-{app}-metrics", metadata=metadata, spec=spec, opts=self._inside)

    def _monitored(self, namespace: str, runbook: str) -> pulumi.Output[str]:
        given = rules.resource(runbook, "fairlead", namespace)
        metadata: Any = {**given["metadata"], "labels": self._labels}
        rule = CustomResource(
            f"{self._name}-rules",
            api_version=given["apiVersion"],
            kind=given["kind"],
            metadata=metadata,
            spec=given["spec"],
            opts=self._inside,
        )
        CustomResource(
            f"{self._name}-services",
            api_version="monitoring.coreos.com/v1",
            kind="ServiceMonitor",
            metadata=metadata,
            spec={
                "namespaceSelector": {"matchNames": [self._watched]},
                "selector": {"matchLabels": self._labels},
                "endpoints": [{"port": "metrics", "interval": "15s"}],
            },
            opts=self._inside,
        )
        named: str = metadata["name"]
        return rule.id.apply(lambda _: named)

    def _dashboard(self, uid: str, namespace: str) -> pulumi.Output[str]:
        text = json.dumps(dashboards.dashboard(uid), indent=1)
        return self._config(f"{uid}-dashboard", namespace, {f"{uid}.json": text}, {**self._labels, "grafana_dashboard": "1"})

    def _config(self, name: str, namespace: str, data: dict[str, str], labels: dict[str, str]) -> pulumi.Output[str]:
        metadata: Any = {"name": name, "namespace": namespace, "labels": labels}
        made = kubernetes.core.v1.ConfigMap(f"{self._name}-{name}", metadata=metadata, data=data, opts=self._inside)
        found: pulumi.Output[str] = made.metadata.name
        return found
