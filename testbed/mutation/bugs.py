"""The bugs of `bugs.toml`, and where in the code each of them goes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

import msgspec

PACKAGE = Path("src/fairlead")


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry; see the head of `bugs.toml`."""

    name: str
    source: str
    symptom: str
    where: str
    old: str
    new: str


class Change(NamedTuple):
    """A bug in its place. lines: those that hold its snippet, the first is 1."""

    path: Path
    text: str
    lines: range


class LostError(ValueError):
    """A snippet is nowhere, or in several places."""


def load() -> list[Bug]:
    """All bugs, in their order."""
    entries = tomllib.loads((Path(__file__).parent / "bugs.toml").read_text())["bug"]
    return msgspec.convert(entries, list[Bug])


def plant(bug: Bug, root: Path) -> Change:
    """The file that a bug changes, and its text with the bug. root: of the tree; raises `LostError`."""
    found = [
        (path, text, text.count(bug.old))
        for path in sorted((root / PACKAGE).glob(bug.where))
        if path.suffix == ".py" and bug.old in (text := path.read_text())
    ]
    if sum(count for _, _, count in found) != 1:
        places = ", ".join(f"{path.relative_to(root)} ({count})" for path, _, count in found) or "no file"
        raise LostError(f"{bug.name}: its snippet is to be in one place of {bug.where}, and is in {places}: {bug.old!r}")
    path, text, _ = found[0]
    before = text[: text.index(bug.old)]
    first = before.count("\n") + 1
    return Change(path, text.replace(bug.old, bug.new), range(first, first + bug.old.count("\n") + 1))
