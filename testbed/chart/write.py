"""Trees with markers and conditions, as text of Helm's templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from testbed.chart.nodes import ABSENT, If
from testbed.chart.symbols import MARKERS

Lines = list[str]
_TEXTS = re.compile("«[a-z]+»")
_UNQUOTED = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*")
_NO_TEXTS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""What YAML, of one version or another, does not read as a text."""


def documents(objects: Iterable[Any]) -> str:
    """Objects as a stream of YAML documents."""
    lines = _written(list(objects), lambda each: ["---", *_entries(each)])
    text = "\n".join(lines) + "\n"
    left = _TEXTS.findall(text)
    if left or any(str(number) in text for number in MARKERS if isinstance(number, int)):
        raise ValueError(f"a value is used where no template can write it: {', '.join(left) or 'a number'}")
    return text


def _chosen(condition: str | None, run: Iterable[Any], write: Callable[[Any], Lines]) -> Lines:
    """Neighbours that depend on the same condition; None: they depend on none."""
    nodes = list(run)
    if condition is None:
        return [line for each in nodes for line in write(each)]
    then, other = (
        _written([each for each in side if each is not ABSENT], write)
        for side in ([each.then for each in nodes], [each.other for each in nodes])
    )
    if not then:
        negated = condition.replace("ne ", "eq ", 1) if condition.startswith("ne ") else f"not ({condition})"
        return [f"{{{{- if {negated} }}}}", *other, "{{- end }}"]
    return [f"{{{{- if {condition} }}}}", *then, *(["{{- else }}", *other] if other else []), "{{- end }}"]


def _written(nodes: Sequence[Any], write: Callable[[Any], Lines]) -> Lines:
    return [line for condition, run in groupby(nodes, _condition) for line in _chosen(condition, run, write)]


def _condition(node: Any) -> str | None:
    return node.condition if isinstance(node, If) else None


def _entries(mapping: dict[str, Any]) -> Lines:
    pairs = [_pair(key, value) for key, value in mapping.items()]
    return _written(pairs, lambda pair: _entry(*pair))


def _pair(key: str, value: Any) -> Any:
    """A key with its value, under the conditions of the value."""
    if isinstance(value, If):
        return If(value.condition, _pair(key, value.then), _pair(key, value.other))
    return value if value is ABSENT else (key, value)


def _entry(key: str, value: Any) -> Lines:
    if key in MARKERS:
        return [
            f"{{{{- range $key, $text := {MARKERS[key].each} }}}}",
            "{{ $key | toRawJson }}: {{ $text | toRawJson }}",
            "{{- end }}",
        ]
    if isinstance(value, dict | list) and value and all(map(_may_be_none, value)):
        raise ValueError(f"{key}: it would have no value where nothing is repeated")
    if isinstance(value, dict) and value and _marker(value) is None:
        return [f"{_string(key)}:", *_indented(_entries(value))]
    if isinstance(value, list) and value:
        return [f"{_string(key)}:", *_indented(_elements(value))]
    first, *rest = _scalar(value)
    return [f"{_string(key)}: {first}", *rest]


def _elements(nodes: Sequence[Any]) -> Lines:
    return _written(nodes, _element)


def _element(node: Any) -> Lines:
    """One element of a list, or all that the marker in it stands for."""
    repeated = _repeated(node)
    if repeated:
        [marker] = repeated
        return [f"{{{{- range {MARKERS[marker].each} }}}}", *_item(_of_each(node, marker)), "{{- end }}"]
    return _item(node)


def _item(node: Any) -> Lines:
    if isinstance(node, dict) and node:
        lines = _entries(node)
    elif isinstance(node, list) and node:
        lines = _elements(node)
    else:
        first, *rest = _scalar(node)
        return [f"- {first}", *rest]
    if lines[0].startswith("{{-"):  # what comes first depends on a condition
        return ["-", *_indented(lines)]
    first, *rest = lines
    return [f"- {first}", *_indented(rest)]


class _Each(str):
    """Text with `.` in place of a marker."""

    __slots__ = ()


class _Number:
    """`.`, a number."""


def _of_each(node: Any, marker: str | int) -> Any:
    """The element for one of those that the marker stands for."""
    if isinstance(node, dict):
        return {key: _of_each(value, marker) for key, value in node.items()}
    if isinstance(node, str) and isinstance(marker, str) and marker in node:
        return _Each(node)
    return _Number() if node == marker and not isinstance(node, bool) else node


def _scalar(value: Any) -> Lines:
    marker = _marker(value)
    if isinstance(value, _Number):
        return ["{{ int . }}"]
    if isinstance(value, _Each):
        return ["{{ . | toRawJson }}"] if value in MARKERS else _block(_TEXTS.sub("{{ . }}", _literal(value)))
    if marker is not None:
        pipeline = MARKERS[marker].whole
        return [f"{{{{ {pipeline} }}}}" if isinstance(marker, int) else f"{{{{ {pipeline} | toRawJson }}}}"]
    if isinstance(value, str) and _TEXTS.search(value):
        return _block(_filled(value))
    return [_string(value) if isinstance(value, str) else _literal(json.dumps(value))]


def _marker(value: Any) -> str | int | None:
    """The marker of which the value consists."""
    if isinstance(value, dict) and len(value) == 1:
        [value] = value
    found = isinstance(value, str | int) and not isinstance(value, bool) and value in MARKERS and MARKERS[value].whole
    return value if found else None


def _repeated(node: Any) -> list[str | int]:
    """Markers of lists in an element: in its text, or as one of its fields; texts of fields contain whole lists."""
    if isinstance(node, str):
        texts: list[str | int] = list(dict.fromkeys(_TEXTS.findall(node)))
        return [each for each in texts if MARKERS[each].each]
    fields = [each for each in node.values() if isinstance(each, str | int)] if isinstance(node, dict) else []
    return [each for each in fields if each in MARKERS and MARKERS[each].each]


def _may_be_none(node: Any) -> bool:
    return any(not MARKERS[each].some for each in _repeated(node))


def _filled(text: str) -> str:
    """Text in which templates write values."""
    text = _literal(text)
    for marker, how in MARKERS.items():
        if not isinstance(marker, str):
            continue
        if how.unit:
            unit = how.unit.replace(f"'{marker}'", '{{ include "fairlead.quoted" . }}')
            text = text.replace(how.unit, f"{{{{ range {how.each} }}}}{unit}{{{{ end }}}}")
        elif how.each:
            text = text.replace(f"'{marker}'", f'{{{{ include "fairlead.listed" ({how.each}) }}}}')
            text = text.replace(marker, f'{{{{ {how.each} | join ", " }}}}')
        else:
            text = text.replace(marker, f"{{{{ {how.whole} }}}}")
    return text


def _block(text: str) -> Lines:
    if "\n" in text or text[0].isspace():
        raise ValueError(f"no literal block: {text!r}")
    return ["|-", f"  {text}"]


def _string(text: str) -> str:
    if _UNQUOTED.fullmatch(text) and text.lower() not in _NO_TEXTS:
        return text
    return _literal(json.dumps(text, ensure_ascii=False))


def _literal(text: str) -> str:
    """Text that is nothing to Helm."""
    return text.replace("{{", '{{ "{{" }}')


def _indented(lines: Iterable[str]) -> Lines:
    return [f"  {line}" for line in lines]
