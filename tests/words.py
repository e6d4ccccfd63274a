"""The words that src/ and docs/ no longer use: `python -m tests.words` checks them, `--update` lowers the numbers that have shrunk."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("words.toml")
_SHOWN = 20
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Word(NamedTuple):
    """A word of the list. use: the term in its place; left: how often it may still occur."""

    name: str
    pattern: re.Pattern[str]
    use: str
    left: int


class Use(NamedTuple):
    """One occurrence."""

    path: Path
    line: int
    text: str


def listed(content: str) -> list[Word]:
    """The words of a list."""
    words = tomllib.loads(content)["words"]
    return [
        Word(name, re.compile(rf"(?<![A-Za-z])(?:{each['pattern']})(?![A-Za-z])", re.IGNORECASE), each["use"], each["left"])
        for name, each in words.items()
    ]


def occurrences(words: list[Word], files: Mapping[Path, str]) -> dict[str, list[Use]]:
    """Where each word is used in these files, names in camelCase word by word."""
    return {word.name: list(_uses(word, files)) for word in words}


def _uses(word: Word, files: Mapping[Path, str]) -> Iterator[Use]:
    for path, content in files.items():
        for found in word.pattern.finditer(content):
            yield Use(path, content.count("\n", 0, found.start()) + 1, found[0])


def sources() -> dict[Path, str]:
    """All code of src/ and all pages of docs/, with camelCase taken apart."""
    files = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT): CAMEL.sub(" ", path.read_text()) for path in files}


def problems(words: list[Word], found: Mapping[str, list[Use]]) -> list[str]:
    """What is wrong, one text per word."""
    return [_problem(word, found[word.name]) for word in words if len(found[word.name]) != word.left]


def _problem(word: Word, uses: list[Use]) -> str:
    if len(uses) < word.left:
        return f"{word.name!r} occurs {len(uses)} times, {LIST.name} has {word.left}: run `make words`"
    lines = [f"{each.path}:{each.line}: {each.text}" for each in uses] if len(uses) <= _SHOWN else []
    return "\n  ".join([f"{word.name!r} occurs {len(uses)} times instead of {word.left}; use: {word.use}", *lines])


def lowered(content: str, found: Mapping[str, list[Use]]) -> str:
    """The list with the numbers that have shrunk; no number rises."""
    for word in listed(content):
        left = min(word.left, len(found[word.name]))
        content = re.sub(rf"(\[words\.{word.name}\]\n(?:.+\n)*?left = )\d+", rf"\g<1>{left}", content)
    return content


def main(arguments: list[str]) -> int:
    """Check, or update."""
    content = LIST.read_text()
    found = occurrences(listed(content), sources())
    if arguments == ["--update"]:
        content = lowered(content, found)
        LIST.write_text(content)
    wrong = problems(listed(content), found)
    for each in wrong:
        print(each)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
