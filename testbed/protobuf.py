"""Writes `cluster/simulated/protobuf.txt`: the numbers that fields of Kubernetes' objects have in protobuf.

Read from the Go modules of which the real API server is built: numbers and types from `generated.proto`, names in JSON, pointers
and what is inlined from the tags in Go's structs. Only facts about the wire are kept.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.build import KUBERNETES_VERSION, MODULES, go_command

_GROUPS = (
    "core/v1",
    "apps/v1",
    "batch/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "coordination/v1",
    "events/v1",
    "policy/v1",
    "rbac/v1",
    "scheduling/v1",
    "storage/v1",
    "networking/v1",
    "node/v1",
    "discovery/v1",
    "resource/v1",
    "admissionregistration/v1",
    "authentication/v1",
    "authorization/v1",
)
_EXTENSIONS = "apiextensions/v1"
_MACHINERY = {"meta": "pkg/apis/meta/v1", "intstr": "pkg/util/intstr", "quantity": "pkg/api/resource", "runtime": "pkg/runtime"}
_PACKAGES = {
    "k8s.io.apimachinery.pkg.apis.meta.v1": "meta",
    "k8s.io.apimachinery.pkg.util.intstr": "intstr",
    "k8s.io.apimachinery.pkg.api.resource": "quantity",
    "k8s.io.apimachinery.pkg.runtime": "runtime",
}
_SCALARS = {"int32": "int", "int64": "int", "uint32": "int", "uint64": "int"}
_PLAIN = ("string", "bytes", "int", "bool", "double")
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:(optional|repeated) ([\w.]+)|map<string, ([\w.]+)>) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"^\t(?:\w+ +)?(\S+) +`json:\"([^\"]*)\".*?protobuf:\"[^\"]*name=(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class _Field:
    """One field. many: "" for one, [] for a list, {} for a map of strings; mark: ? for a pointer, + for what is inlined."""

    number: int
    name: str
    type: str
    many: str
    mark: str

    def __str__(self) -> str:
        return f"{self.number} {self.name} {self.type}{self.many}{self.mark}"


def table() -> Iterator[str]:
    """The lines: `group/version.Message: number name type, ...` for every message that a served object may hold."""
    messages: dict[str, list[_Field]] = {}
    for group in _GROUPS:
        messages |= _read(group, _module("k8s.io/api") / group)
    messages |= _read(_EXTENSIONS, _module("k8s.io/apiextensions-apiserver") / "pkg/apis" / _EXTENSIONS)
    for name, path in _MACHINERY.items():
        messages |= _read(name, _module("k8s.io/apimachinery") / path)
    yield f"# Field numbers of Kubernetes {KUBERNETES_VERSION}, written by `make protobuf`: number, name in JSON, type."
    yield "# [] a list, {} a map of strings, ? a pointer (its zero is told from nothing), + inlined in JSON."
    wanted = [name for name in messages if name.partition(".")[0] in (*_GROUPS, _EXTENSIONS) and not name.endswith("List")]
    wanted.append("meta.DeleteOptions")
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in seen:
            seen.add(name)
            wanted += [field.type for field in messages[name] if field.type not in _PLAIN]
    for name in sorted(seen):
        yield f"{name}: {', '.join(map(str, messages[name]))}"


def _module(name: str) -> Path:
    """Where Go keeps a module, of the version that the API server is built with."""
    asked = [go_command(), "mod", "download", "-json", name]
    told = subprocess.run(asked, cwd=MODULES / "kubernetes", check=True, capture_output=True, text=True).stdout
    return Path(json.loads(told)["Dir"])


def _read(package: str, path: Path) -> dict[str, list[_Field]]:
    tags: dict[str, dict[str, tuple[str, str]]] = {}
    for file in sorted(path.glob("*.go")):
        for struct, body in _STRUCT.findall(file.read_text()):
            for go_type, as_json, name in _TAGGED.findall(body):
                tags.setdefault(struct, {})[name] = (go_type, as_json)
    found = {}
    for message, body in _MESSAGE.findall((path / "generated.proto").read_text()):
        fields = []
        for rule, single, mapped, name, number in _FIELD.findall(body):
            go_type, as_json = tags.get(message, {}).get(name, ("", name))
            inlined = as_json.endswith(",inline")
            mark = "+" if inlined else "?" if go_type.startswith("*") else ""
            many = "{}" if mapped else "[]" if rule == "repeated" else ""
            shown = name if inlined else as_json.partition(",")[0] or name
            fields.append(_Field(int(number), shown, _type(package, mapped or single), many, mark))
        found[f"{package}.{message}"] = sorted(fields, key=lambda field: field.number)
    return found


def _type(package: str, name: str) -> str:
    plain = _SCALARS.get(name, name)
    if plain in _PLAIN:
        return plain
    if not name.startswith("."):
        return f"{package}.{name}"
    where, _, message = name[1:].rpartition(".")
    if where in _PACKAGES:
        return f"{_PACKAGES[where]}.{message}"
    return f"{'/'.join(where.split('.')[-2:])}.{message}"
