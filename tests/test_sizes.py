"""Files of src/ have at most 500 lines, classes of the core 400 lines and 25 public methods: what is larger is split by idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src/fairlead"
LINES, CLASS_LINES, METHODS = 500, 400, 25


def classes(text: str) -> Iterator[tuple[str, int, int]]:
    """Each class of a module: its name, its lines, its public methods."""
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.ClassDef):
            methods = [one.name for one in each.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield each.name, (each.end_lineno or each.lineno) - each.lineno + 1, sum(not name.startswith("_") for name in methods)


def too_large(package: Path) -> list[str]:
    """What is larger than it may be, with its size."""
    found = []
    for path in sorted(package.rglob("*.py")):
        text, name = path.read_text(), path.relative_to(package)
        if text.count("\n") > LINES:
            found.append(f"{name}: {text.count(chr(10))} lines")
        if name.parts[0] == "core":
            found += [f"{name}: {each} has {lines} lines" for each, lines, _ in classes(text) if lines > CLASS_LINES]
            found += [f"{name}: {each} has {methods} public methods" for each, _, methods in classes(text) if methods > METHODS]
    return found


def test_nothing_is_too_large():
    assert too_large(PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cli/a.py", "x = 1\n" * 500, []),
        ("cli/a.py", "x = 1\n" * 501, ["cli/a.py: 501 lines"]),
        ("core/a.py", "class A:\n" + "    x = 1\n" * 399, []),
        ("core/a.py", "class A:\n" + "    x = 1\n" * 400, ["core/a.py: A has 401 lines"]),
        ("cli/a.py", "class A:\n" + "    x = 1\n" * 400, []),
        (
            "core/a.py",
            "class A:\n" + "".join(f"    def a{n}(self): ...\n" for n in range(26)),
            ["core/a.py: A has 26 public methods"],
        ),
        ("core/a.py", "class A:\n" + "".join(f"    def _a{n}(self): ...\n" for n in range(26)), []),
    ],
)
def test_what_is_too_large_is_named_with_its_size(tmp_path, name, text, expected):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(text)
    assert too_large(tmp_path) == expected


def test_a_class_is_measured_with_its_decorated_methods_and_without_its_private_ones():
    text = "class A:\n    x = 1\n\n    @property\n    def a(self): ...\n    async def b(self): ...\n    def _c(self): ...\n"
    assert list(classes(text)) == [("A", 7, 2)]
