"""Helm itself, built from its Go module, and what it makes of the chart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairlead.api import crds
from fairlead.install import Values, kinds, objects
from testbed import build
from testbed.chart.files import FOLDER, of_chart

Manifest = dict[str, Any]


def helm(*arguments: str, values: Manifest | None = None, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm. values: those of `--values`."""
    command = [str(build.binary("helm")), *arguments]
    command += ["--kubeconfig", str(kubeconfig)] if kubeconfig is not None else []
    command += ["--values", "-"] if values is not None else []
    text = None if values is None else json.dumps(values)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def rendered(values: Manifest, namespace: str) -> list[Manifest]:
    """The objects of the chart; raises ValueError with Helm's message where it refuses the values."""
    done = helm("template", "fairlead", str(FOLDER), "--namespace", namespace, values=values)
    if done.returncode:
        raise ValueError(done.stderr)
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


def expected(values: Values) -> list[Manifest]:
    """The objects that `fairlead install` applies, as the chart is to have them: it leaves the namespace to Helm."""
    return [of_chart(each) for each in objects(values) if each["kind"] != "Namespace"]


def text(manifests: Iterable[Manifest]) -> str:
    """Objects in one order and by one writer: equal objects are equal bytes."""
    ordered = sorted(manifests, key=lambda each: (kinds.rank(each), kinds.path(each)))
    return crds.render([_sorted(each) for each in ordered])


def _sorted(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _sorted(node[key]) for key in sorted(node)}
    return [_sorted(each) for each in node] if isinstance(node, Sequence) and not isinstance(node, str) else node
