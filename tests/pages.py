"""What the pages of the documentation contain: code blocks, and the commands of `fairlead` in them and in sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer

from fairlead.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "benchmarks/README.md"]
PAGES = [page for page in PAGES if page.exists()] + sorted((ROOT / "docs").rglob("*.md"))
_FENCED = re.compile(r"^( *)(`{3,})(.*)\n((?:.*\n)*?)\1\2`*$", re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|(?<=\A))(?: {4}.*\n|[ \t]*\n(?= {4}))+", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"\[[^\]]*\]$|\.\.\.$|^\.\.\.")


class Block(NamedTuple):
    """A code block. language: of a fence; empty: none."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All code blocks of a page."""
    content = page.read_text()
    found = [
        Block(page, content.count("\n", 0, each.start()) + 1, each[3].strip(), each[4]) for each in _FENCED.finditer(content)
    ]
    rest = _FENCED.sub(lambda each: "\n" * each[0].count("\n"), content)
    for each in _INDENTED.finditer(rest):
        text = "\n".join(line[4:] for line in each[0].strip("\n").split("\n"))
        before = rest[: each.start()].rstrip("\n").rsplit("\n", 1)[-1]
        if not re.match(r" *([-*]|\d+\.) ", before):  # the continuation of a list's item
            found.append(Block(page, rest.count("\n", 0, each.start()) + 1, "", text))
    return found


def invocations(page: Path) -> Iterator[tuple[str, list[str]]]:
    """(as it is written, its words) for each command of `fairlead` that a page has."""
    content = page.read_text()
    for block in blocks(page):
        for line in re.sub(r"\\\n\s*", "", block.text).split("\n"):
            yield from commands(line)
    for each in _INLINE.finditer(_FENCED.sub("", content)):
        if each[1].startswith("fairlead "):
            yield from commands(each[1])


def commands(line: str) -> Iterator[tuple[str, list[str]]]:
    """The same for one line."""
    for part in re.split(r"\s\|\s|;\s|\s&&\s|\s>>?\s|\s2>&1|\s<\s|\$\(", re.sub(r"\s#.*", "", line).strip()):
        command = re.sub(r"^(\w+=\S*\s+|\$ )+", "", part.strip())
        if command.startswith("fairlead "):
            try:
                words = shlex.split(command)[1:]
            except ValueError:  # a quote that the line does not close
                words = command.split()[1:]
            yield command, words


class Unknown(Exception):
    """A command or a flag that does not exist."""


def check(words: list[str]) -> None:
    """Raise `Unknown` if there is no such command, or no such flag of it. Words after `--` are not Fairlead's."""
    command: Any = _program()
    path = ["fairlead"]
    known = _flags(command)
    for position, word in enumerate(words):
        if word == "--":
            return
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            flag = word.split("=")[0]
            for part in re.split(r"[/,|]", flag):
                if part.startswith("-") and part not in known:
                    raise Unknown(f"{' '.join(path)} has no flag {part}")
        elif getattr(command, "commands", None) is not None:
            choices = [part for part in re.split(r"[|,/]", word.strip(",.")) if part]
            if word.startswith(("[", "...")) or word.isupper() or (position and words[position - 1] == "--workloads"):
                continue
            missing = [each for each in choices if each not in command.commands]
            if missing:
                raise Unknown(f"{' '.join(path)} has no command {missing[0]}")
            command = command.commands[choices[0]]
            path.append(choices[0])
            known = _flags(command)


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def _flags(command: Any) -> set[str]:
    return {"--help"} | {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
