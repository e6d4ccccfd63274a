"""The reference: pages of docs/reference that are generated from the code. `python -m testbed.reference PAGE` prints one.

Pages of docs/reference have the directive `reference`, and the site (`make docs`) has the generated text in its place.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import typer

from fairlead.api import crds
from fairlead.cli.main import app
from fairlead.observability import rules
from fairlead.scheduler import configuration

_OWN = ("apiVersion", "kind", "metadata")  # fields of every object, described by Kubernetes


class Flag(NamedTuple):
    """An option or an argument. spelling: as it is written, such as `--output, -o`."""

    spelling: str
    value: str
    default: str
    variable: str
    text: str


class Command(NamedTuple):
    """A command. path: its words, such as `fairlead simulate jobs`; group: it only has commands below it."""

    path: str
    text: str
    flags: tuple[Flag, ...]
    group: bool


class Field(NamedTuple):
    """A field of an object or a file. path: such as `spec.resources[].quota`."""

    path: str
    kind: str
    default: str
    text: str


@cache
def commands() -> list[Command]:
    """All commands, each with its flags."""
    return list(_commands(typer.main.get_command(app), "fairlead"))


def _commands(command: Any, path: str) -> Iterator[Command]:
    context = typer.Context(command, info_name=path)
    flags = tuple(_flag(each, context) for each in command.params if not getattr(each, "hidden", False))
    below = getattr(command, "commands", {})
    yield Command(path, inspect.cleandoc(command.help or ""), flags, bool(below))
    for name, each in below.items():
        yield from _commands(each, f"{path} {name}")


def _flag(parameter: Any, context: typer.Context) -> Flag:
    name = parameter.metavar or parameter.name.upper().replace("_", "-")
    if parameter.param_type_name == "argument":
        return Flag(name, "", "", "", parameter.help or "")
    shown = parameter.show_default
    default = shown if isinstance(shown, str) else _written(parameter.get_default(context))
    spelling = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return Flag(spelling, "", default.replace("false", ""), parameter.envvar or "", parameter.help or "")

    return Flag(spelling, name, default, parameter.envvar or "", parameter.help or "")


def _written(value: Any) -> str:
    if value is None or value == "" or callable(value) or value in ([], ()):
        return ""
    if isinstance(value, (bool, int, float, list, tuple)):
        return json.dumps(value, default=str)
    return str(value)


def fields(schema: dict[str, Any], path: str = "") -> Iterator[Field]:
    """The fields of a structural schema, without those that every object has."""
    for name, each in schema.get("properties", {}).items():
        if not path and name in _OWN:
            continue
        here = f"{path}.{name}" if path else name
        required = "required" if name in schema.get("required", ()) else _written(each.get("default"))
        yield Field(here, _kind(each), required, each.get("description", ""))
        items, values = each.get("items"), each.get("additionalProperties")
        yield from fields(each, here)
        if isinstance(items, dict):
            yield from fields(items, f"{here}[]")
        if isinstance(values, dict):
            yield from fields(values, f"{here}.NAME")


def _kind(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if choices := _choices(schema):
        return " \\| ".join(choices)
    items, values = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, dict):
        return f"list of {_kind(items)}"
    if isinstance(values, dict):
        return f"map of {_kind(values)}"
    return str(schema.get("format", "") if schema.get("format") == "date-time" else schema.get("type", "object"))


def _choices(schema: dict[str, Any]) -> list[str]:
    named = re.fullmatch(r"\^\((\w+(?:\|\w+)+)\)\$", schema.get("pattern", ""))
    return named[1].split("|") if named else [str(each) for each in schema.get("enum", ())]


@cache
def kinds() -> dict[str, list[Field]]:
    """The fields of each of our kinds, and of their statuses."""
    return {
        each["spec"]["names"]["kind"]: list(fields(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
        for each in crds.definitions()
    }


def settings() -> list[Field]:
    """The fields of the scheduler's configuration file."""
    schema = configuration.schema()
    found = fields(_resolved(schema, schema["$defs"]))
    return list(found)


def _resolved(node: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema without references; of alternatives the one with fields."""
    if "$ref" in node:
        return _resolved(components[node["$ref"].rsplit("/", 1)[-1]] | {k: v for k, v in node.items() if k != "$ref"}, components)
    if "anyOf" in node:
        branches = [_resolved(each, components) for each in node["anyOf"]]
        return max(branches, key=lambda each: len(each.get("properties", ()))) | {k: v for k, v in node.items() if k != "anyOf"}
    resolved = dict(node)
    if "properties" in node:
        resolved["properties"] = {name: _resolved(each, components) for name, each in node["properties"].items()}
        resolved.pop("default", None)
    if "items" in node:
        resolved["items"] = _resolved(node["items"], components)
    return resolved


VARIABLES = {
    "KUBECONFIG": "Kubeconfig files, separated by `:`, as for kubectl.",
    "KUBERNETES_SERVICE_HOST": "Set by Kubernetes in pods: the API server's host. With it the pod's own account is used.",
    "KUBERNETES_SERVICE_PORT": "Likewise, its port.",
}
"""Variables that are read without a flag."""


def variables() -> dict[str, str]:
    """The environment variables that are read, and what they set."""
    found: dict[str, set[str]] = {}
    for command in commands():
        for flag in command.flags:
            if flag.variable:
                found.setdefault(flag.variable, set()).add(flag.text)
    return VARIABLES | {name: " ".join(sorted(texts)) for name, texts in sorted(found.items())}


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("\\\\|", "\\|").replace("<", "&lt;").strip()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(_cell(each) for each in row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


@cache
def commands_page() -> str:
    """docs/reference/commands.md."""
    return "\n".join(_section(each) for each in commands())


def _section(command: Command) -> str:
    rows = [
        (_code(f"{each.spelling} {each.value}".strip()), each.default, _code(each.variable), each.text) for each in command.flags
    ]
    table = _table(("flag", "default", "variable", "meaning"), rows) if rows else ""
    return f"## {command.path}\n\n{command.text}\n\n{table}"


@cache
def kinds_page() -> str:
    """docs/reference/resources.md."""
    return "\n".join(f"## {kind}\n\n{_fields(found)}" for kind, found in kinds().items())


def _fields(found: list[Field]) -> str:
    rows = [(_code(each.path), each.kind, each.default, each.text) for each in found]
    return _table(("field", "type", "", "meaning"), rows)


def settings_page() -> str:
    """docs/reference/configuration.md."""
    return _fields(settings())


def variables_page() -> str:
    """docs/reference/environment.md."""
    return _table(("variable", "meaning"), ((_code(name), text) for name, text in variables().items()))


def alerts_page() -> str:
    """docs/reference/alerts.md."""
    return _table(
        ("alert", "severity", "after", "meaning"),
        (
            (
                f"[{each.name}](../runbook.md#{each.anchor})",
                each.severity,
                each.lasts,
                _plain(f"{each.summary}. {each.description}"),
            )
            for each in rules.ALERTS
        ),
    )


def _plain(text: str) -> str:
    """Templates of Prometheus as words: `{{ $labels.queue }}` is QUEUE."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", text)


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands_page,
    "resources": kinds_page,
    "configuration": settings_page,
    "environment": variables_page,
    "alerts": alerts_page,
}
"""The pages, by their names."""


if __name__ == "__main__":
    print("\n".join(PAGES[name]() for name in sys.argv[1:] or PAGES))
