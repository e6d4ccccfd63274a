"""The picture of the architecture: `python -m testbed.architecture` draws docs/architecture.svg.

Layers are read from the import contracts in pyproject.toml, so the picture shows what the linter enforces; captions and the path
of a pod come from docs/architecture.toml.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
CONTRACTS = ROOT / "pyproject.toml"
TEXTS = ROOT / "docs" / "architecture.toml"
PICTURE = ROOT / "docs" / "architecture.svg"

_WIDTH, _MARGIN, _GAP = 1180, 20, 8
_LEFT, _RIGHT = 560, 560  # width of the column of packages, and of the one of the core
_ROW, _STEP = 62, 34  # height of a layer, and of a step of the path
_CHARACTER = 6.1  # mean width of one at 11 px
_COLORS = {"packages": "#e8eef7", "core": "#fbf0dc", "edge": "#5b6b82", "text": "#1d2733", "number": "#b3372b"}


class Box(NamedTuple):
    """A module in the picture: its place and size in px."""

    name: str
    caption: str
    x: float
    y: float
    width: float
    height: float


class Structure(NamedTuple):
    """Layers from the top down, each with its modules; captions by module; the steps of the path."""

    packages: list[list[str]]
    core: list[list[str]]
    captions: Mapping[str, str]
    path: Sequence[Mapping[str, str]]


class StructureError(ValueError):
    """The texts and the code do not agree: which module, and what is missing."""


def read(contracts: str, texts: str, modules: Path) -> Structure:
    """The structure as the contracts and the texts state it. modules: the directory that holds `core` and the others.

    Raises `StructureError` for a module without a caption, a caption without a module, and a step whose file does not exist.
    """
    layered = [
        [[each.strip().removeprefix("fairlead.") for each in layer.split("|")] for layer in contract["layers"]]
        for contract in tomllib.loads(contracts)["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    packages, core = layered
    found: dict[str, Any] = tomllib.loads(texts)
    captions = {**found["packages"], **{f"core.{name}": text for name, text in found["core"].items()}}
    named = [name for layer in packages for name in layer] + [f"core.{name}" for layer in core for name in layer]
    for name in sorted(set(named) ^ set(captions)):
        lacks = "no caption in architecture.toml" if name in named else "a caption, but no layer in the import contracts"
        raise StructureError(f"{name} has {lacks}")
    for step in found["path"]:
        if not (modules / step["module"]).is_file():
            raise StructureError(f"the path of a pod names {step['module']}, which does not exist")
        if step["at"] not in captions:
            raise StructureError(f"the path of a pod stands at {step['at']}, which is in no layer")
    return Structure(packages, core, captions, found["path"])


def draw(structure: Structure) -> str:
    """The picture as SVG."""
    packages = _boxes(structure.packages, "", structure.captions, _MARGIN, _LEFT)
    core = _boxes(structure.core, "core.", structure.captions, _WIDTH - _MARGIN - _RIGHT, _RIGHT)
    boxes = {box.name: box for box in (*packages, *core)}
    top = max(box.y + box.height for box in packages) + 40
    height = max(top + 24 + _STEP * len(structure.path), *(box.y + box.height for box in core)) + _MARGIN
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {height:g}",
            "font-family": "Helvetica, Arial, sans-serif",
            "role": "img",
            "aria-label": "The layers of Fairlead, and the path of a pod through them",
        },
    )
    ET.SubElement(svg, "rect", {"width": str(_WIDTH), "height": f"{height:g}", "fill": "white"})
    _text(svg, _MARGIN, 28, "Packages: imports point down only", size=14, bold=True)
    _text(svg, _WIDTH - _MARGIN - _RIGHT, 28, "Inside core, too", size=14, bold=True)
    inside = boxes["core"]
    for y, end in ((inside.y, 44), (inside.y + inside.height, max(box.y + box.height for box in core))):
        line = {"x1": inside.x + inside.width, "y1": y, "x2": core[0].x, "y2": end, "stroke": _COLORS["edge"]}
        ET.SubElement(svg, "line", {**{key: str(value) for key, value in line.items()}, "stroke-dasharray": "4 3"})
    for box in boxes.values():
        _box(svg, box, "core" if box.name.startswith("core") else "packages")
    _numbers(svg, structure, boxes)
    _steps(svg, structure, top)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _boxes(layers: list[list[str]], prefix: str, captions: Mapping[str, str], left: float, width: float) -> list[Box]:
    found = []
    for number, layer in enumerate(layers):
        each = (width - _GAP * (len(layer) - 1)) / len(layer)
        for place, name in enumerate(layer):
            key = prefix + name
            found.append(Box(key, captions[key], left + place * (each + _GAP), 44 + number * (_ROW + _GAP), each, _ROW))
    return found


def _box(svg: ET.Element, box: Box, color: str) -> None:
    place = {"x": box.x, "y": box.y, "width": box.width, "height": box.height, "rx": 5}
    fill = {"fill": _COLORS[color], "stroke": _COLORS["edge"]}
    ET.SubElement(svg, "rect", {**{key: f"{value:g}" for key, value in place.items()}, **fill})
    _text(svg, box.x + 10, box.y + 20, box.name.removeprefix("core."), size=13, bold=True)
    for number, line in enumerate(textwrap.wrap(box.caption, int((box.width - 20) / _CHARACTER))[:2]):
        _text(svg, box.x + 10, box.y + 37 + 14 * number, line)


def _numbers(svg: ET.Element, structure: Structure, boxes: Mapping[str, Box]) -> None:
    for box in boxes.values():
        steps = [number for number, step in enumerate(structure.path, 1) if step["at"] == box.name]
        for place, number in enumerate(reversed(steps), 1):
            _number(svg, box.x + box.width - 18 * place, box.y + 15, number)


def _steps(svg: ET.Element, structure: Structure, top: float) -> None:
    _text(svg, _MARGIN, top, "The path of a pod", size=14, bold=True)
    for number, step in enumerate(structure.path, 1):
        y = top + 24 + (number - 1) * _STEP
        _number(svg, _MARGIN + 8, y + 4, number)
        _text(svg, _MARGIN + 24, y, step["module"], bold=True)
        _text(svg, _MARGIN + 24, y + 14, step["text"])


def _number(svg: ET.Element, x: float, y: float, number: int) -> None:
    ET.SubElement(svg, "circle", {"cx": f"{x:g}", "cy": f"{y:g}", "r": "8", "fill": _COLORS["number"]})
    attributes = {"x": f"{x:g}", "y": f"{y + 3.5:g}", "font-size": "10", "fill": "white", "text-anchor": "middle"}
    ET.SubElement(svg, "text", attributes).text = str(number)


def _text(svg: ET.Element, x: float, y: float, text: str, *, size: int = 11, bold: bool = False) -> None:
    attributes = {"x": f"{x:g}", "y": f"{y:g}", "font-size": str(size), "fill": _COLORS["text"]}
    ET.SubElement(svg, "text", {**attributes, **({"font-weight": "bold"} if bold else {})}).text = text


def current() -> str:
    """The picture that the files of the project give now."""
    return draw(read(CONTRACTS.read_text(), TEXTS.read_text(), ROOT / "src" / "fairlead"))


if __name__ == "__main__":
    PICTURE.write_text(current())
