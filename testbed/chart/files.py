"""All files of `charts/fairlead`. `python -m testbed.chart.files` writes them; a test compares them."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import yaml

import fairlead
from fairlead.api.names import FIRST_RELEASE
from fairlead.install import Values
from fairlead.install.objects import PARTS, labelled
from fairlead.install.preflight import OLDEST
from fairlead.install.values import INSTANCE, PART_OF
from fairlead.scheduler import configuration
from testbed.chart import helpers, symbols, write

FOLDER = Path(__file__).parents[2] / "charts" / "fairlead"
KEPT = ("CustomResourceDefinition", "PersistentVolumeClaim")
"""Kinds of objects that stay when the release is uninstalled."""
KEEP = {"helm.sh/resource-policy": "keep"}
_LEFT_TO_HELM = ("namespace",)
"""Parts that are no templates: Helm has to create the namespace before it can write there what it installs."""
_WIDTH = 120
_AMOUNT = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
"""Quantities."""


def of_chart(manifest: dict[str, Any]) -> dict[str, Any]:
    """An object as the chart has it."""
    if manifest["kind"] not in KEPT:
        return manifest
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **KEEP}}}


def files() -> dict[str, str]:
    """Path in the chart -> its text."""
    return {
        "Chart.yaml": _chart(),
        "values.yaml": _values(),
        "values.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        "templates/_helpers.tpl": helpers.text(),
        "templates/checks.yaml": _CHECKS,
        "templates/NOTES.txt": _NOTES,
        **{f"templates/{name}.yaml": _template(name) for name in PARTS if name not in _LEFT_TO_HELM},
    }


def _template(part: str) -> str:
    objects = symbols.objects(PARTS[part], lambda each: of_chart(labelled(each, {**PART_OF, INSTANCE: symbols.NAME})))
    return "{{- /* Made of fairlead.install by `make charts`. */}}\n" + write.documents(objects.values())


def _chart() -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": "fairlead",
            "description": "A scheduler and workload manager for AI jobs on Kubernetes",
            "type": "application",
            "version": fairlead.__version__,
            "appVersion": fairlead.__version__,
            "kubeVersion": f">={'.'.join(map(str, OLDEST))}.0-0",
        },
        sort_keys=False,
    )


def schema() -> dict[str, Any]:
    """The schema of values: that of the record, and of the configuration file, of which nothing may be misspelt either."""
    (root,), found = msgspec.json.schema_components([Values], ref_template="#/$defs/{name}")
    configured = configuration.schema()
    definitions = {**configured["$defs"], **found}
    name = root["$ref"].rpartition("/")[2]
    values = definitions.pop(name)
    properties = values["properties"]
    file = definitions["Configuration"]
    properties["configuration"] = {
        **_without(file, "apiVersion", "kind", "name"),
        "description": properties["configuration"]["description"],
    }
    del definitions["Configuration"]
    amount = {"type": "string", "pattern": _AMOUNT}
    properties["requests"]["additionalProperties"] = amount
    history = definitions["History"]
    history["properties"]["storage"] = {"anyOf": [amount, {"type": "null"}]}
    history["oneOf"] = [{"required": ["secretName"]}, {"required": ["storage"]}]
    properties["global"] = {"description": "Of a chart that this one is a part of.", "type": "object"}
    optional = ("namespace", "history", "requests", "global")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **values,
        "required": [each for each in properties if each not in optional],
        "$defs": definitions,
    }


def _without(node: dict[str, Any], *names: str) -> dict[str, Any]:
    left = {key: value for key, value in node["properties"].items() if key not in names}
    return {**node, "properties": left, "required": []}


def _values() -> str:
    """values.yaml: each with what it does; those that have no default, or one that must not be added to, as comments."""
    defaults = msgspec.to_builtins(Values(image="registry.example/fairlead:0.1"))
    properties = schema()["properties"]
    blocks = []
    for name, default in defaults.items():
        about = textwrap.fill(properties[name]["description"], _WIDTH, initial_indent="# ", subsequent_indent="# ")
        line = f"{name}: {yaml.safe_dump(default, default_flow_style=True).removesuffix(_END).strip()}"
        blocks.append(f"{about}\n{'' if name in schema()['required'] and name != 'image' else '# '}{line}\n")
    return "# Made of fairlead.install by `make charts`.\n\n" + "\n".join(blocks)


_END = "...\n"
_ONCE = "crds, aggregatedApi, externalMetrics, requireScheduler, namespaceDefaults, monitoring.rules"


_CHECKS = (
    f"""\
{{{{- if ne $.Values.name "{FIRST_RELEASE}" }}}}
{{{{- if or $.Values.crds $.Values.aggregatedApi $.Values.externalMetrics $.Values.requireScheduler
  $.Values.namespaceDefaults $.Values.monitoring.rules }}}}
{{{{- fail (printf "{_ONCE}: a cluster has it once, by the release {FIRST_RELEASE}; false in %s" $.Values.name) }}}}
{{{{- end }}}}
{{{{- if eq $.Values.name "kube" }}}}
{{{{- fail "name: kube-scheduler is the Lease of kube-scheduler: choose another" }}}}
{{{{- end }}}}
{{{{- range include "fairlead.schedulers" $ | fromJsonArray }}}}
{{{{- if has . (list {helpers.DEFAULTS}) }}}}
{{{{- fail (printf "configuration.profiles: give %s scheduler names of its own: %s is the release {FIRST_RELEASE}'s"
  $.Values.name .) }}}}
{{{{- end }}}}
{{{{- end }}}}
{{{{- end }}}}
"""
    """\
{{- if ne ($.Values.namespace | default $.Release.Namespace) $.Release.Namespace }}
{{- fail (printf "namespace is %s: scheduler and operator run in the namespace of the release, so install it with --namespace %s"
  $.Values.namespace $.Values.namespace) }}
{{- end }}
{{- if and (or $.Values.requireScheduler $.Values.namespaceDefaults) (not $.Values.admissionPolicies) }}
{{- fail "requireScheduler and namespaceDefaults are rules of the admission policies: admissionPolicies is false" }}
{{- end }}
"""
)
_NOTES = """\
Fairlead {{ $.Chart.AppVersion }} is installed: scheduler and operator in namespace {{ $.Release.Namespace }}.

  kubectl -n {{ $.Release.Namespace }} get pods        until one of each is ready
  fairlead queue                       the queues of the cluster
{{- if ne $.Release.Namespace "kube-system" }}

The namespace can admit only restricted pods, as these are:

  kubectl label namespace {{ $.Release.Namespace }} pod-security.kubernetes.io/enforce=restricted
{{- end }}

What follows: docs/install.md (rights of people, values, uninstalling).
"""


def main() -> None:
    """Write them."""
    made = files()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path, text in made.items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text)


if __name__ == "__main__":
    main()
