"""`charts/rendered/`: what Helm makes of the chart for some values. `python -m testbed.chart.rendered` writes it.

So a test without Helm compares the chart with the objects of `fairlead.install`: the files are rendered from the templates
that are checked in, whose digest they have, by the version of Helm that they name.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fairlead.install import NAMESPACE
from testbed import build
from testbed.chart import files, render

FOLDER = files.FOLDER.parent / "rendered"
SETS: dict[str, dict[str, Any]] = {
    "defaults": {"image": "registry.example/fairlead:0.1"},
    "everything": {
        "image": "registry.example/fairlead:0.1",
        "imagePullSecrets": ["registry"],
        "namespace": "batch",
        "replicas": 3,
        "crds": False,
        "configuration": {"profiles": [{"schedulerName": "gpus", "profile": "ai"}], "preemption": False},
        "trusted": ["system:serviceaccount:ray:kuberay-operator"],
        "provisioningClasses": ["check-capacity.autoscaling.x-k8s.io"],
        "requireScheduler": True,
        "otherSchedulers": ["blue"],
        "namespaceDefaults": True,
        "externalMetrics": True,
        "history": {"secretName": "database", "port": 6432},
        "prometheus": "http://prometheus.monitoring:9090",
        "monitoring": {"serviceMonitor": True, "rules": True, "labels": {"release": "prometheus"}},
        "requests": {"cpu": "4"},
    },
    "second": {
        "image": "registry.example/fairlead:0.1",
        "name": "blue",
        "namespace": "blue-system",
        "crds": False,
        "aggregatedApi": False,
        "configuration": {"profiles": [{"schedulerName": "blue", "profile": "ai"}]},
        "history": {"storage": "10Gi"},
        "monitoring": {"serviceMonitor": True},
    },
    "least": {
        "image": "fairlead",
        "namespace": "kube-system",
        "replicas": 1,
        "crds": False,
        "admissionPolicies": False,
        "aggregatedApi": False,
        "networkPolicies": False,
    },
}


def head(name: str) -> str:
    """The first lines of the file of a set: its version of Helm, the chart and the values."""
    return "".join(f"# {line}\n" for line in (f"Helm {build.HELM_VERSION}, chart {_digest()}", json.dumps(SETS[name])))


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in files.FOLDER.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(files.FOLDER)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, values in SETS.items():
        found = render.rendered(values, values.get("namespace", NAMESPACE))
        (FOLDER / f"{name}.yaml").write_text(head(name) + render.text(found))


if __name__ == "__main__":
    main()
