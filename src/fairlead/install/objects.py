"""All objects of an installation, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

from fairlead.api import crds
from fairlead.api.policies import policies
from fairlead.install import charts, kinds, processes, rights
from fairlead.install.values import Values, check

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "fairlead-install"
"""The value of that label, by which what was installed is found again; and the field manager."""
LABELS = {"app.kubernetes.io/part-of": "fairlead", MANAGED_BY: MANAGER}


def objects(values: Values) -> list[dict[str, Any]]:
    """The manifests of an installation; the same values give the same list. Raises `ValuesError`."""
    check(values, "values")
    made = [
        *crds.definitions(),
        *charts.manifests("flowcontrol.yaml"),
        *rights.of_processes(values),
        *rights.of_people(values),
        *policies(
            values.trusted,
            provisioning_classes=values.provisioning_classes,
            require_scheduler=values.require_scheduler,
            schedulers=values.schedulers(),
        ),
        *processes.files(values),
        *processes.network(values),
        *(each for api in rights.served(values) for each in charts.of_kind(f"{api}.yaml", "APIService")),
        *processes.deployments(values),
    ]
    return sorted((_labelled(each) for each in made), key=kinds.rank)


def _labelled(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **LABELS}}}
