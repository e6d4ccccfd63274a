"""Semantic versions (semver.org, 2.0.0) as CEL compares them in Kubernetes: build metadata is read and does not count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Final

_FORM: Final = re.compile(
    r"(?P<major>0|[1-9][0-9]*)\.(?P<minor>0|[1-9][0-9]*)\.(?P<patch>0|[1-9][0-9]*)"
    r"(?:-(?P<pre>[0-9A-Za-z.-]*))?(?:\+(?P<build>[0-9A-Za-z.-]*))?"
)
_MOST: Final = 1 << 64


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version. prerelease: its identifiers, numbers as integers; versions that differ in build metadata are equal."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[object, ...]:
        # A version without identifiers comes after those with some; numbers before words; the shorter of two first.
        identifiers = tuple((isinstance(each, str), each) for each in self.prerelease)
        return (self.major, self.minor, self.patch, not self.prerelease, identifiers)

    def __str__(self) -> str:
        release = f"{self.major}.{self.minor}.{self.patch}"
        return "-".join([release, ".".join(map(str, self.prerelease))]) if self.prerelease else release


@lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """The version of a text such as `12.2.0-rc.1`. Raises ValueError if it is none."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version such as 1.2.3")
    major, minor, patch = int(match["major"]), int(match["minor"]), int(match["patch"])
    prerelease = _identifiers(text, match["pre"])
    if match["build"] is not None and not all(match["build"].split(".")):
        raise ValueError(f"{text!r} has empty build metadata")
    if max(major, minor, patch) >= _MOST:
        raise ValueError(f"{text!r} has a number of more than 64 bits")
    return Version(major, minor, patch, prerelease)


def _identifiers(text: str, joined: str | None) -> tuple[int | str, ...]:
    if joined is None:
        return ()
    found: list[int | str] = []
    for each in joined.split("."):
        if not each:
            raise ValueError(f"{text!r} has an empty identifier before its build metadata")
        if not each.isdecimal():
            found.append(each)
        elif (len(each) > 1 and each[0] == "0") or int(each) >= _MOST:
            raise ValueError(f"{text!r} has the number {each}: without leading zeros and of at most 64 bits")
        else:
            found.append(int(each))
    return tuple(found)


def parse_tolerant(text: str) -> Version:
    """The version of a text that may begin with `v`, lack its minor or patch number, or have leading zeros.

    Raises ValueError if it is none, also if a short one has a prerelease or build metadata.
    """
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            rest = part.lstrip("0")
            parts[index] = rest if rest[:1].isdecimal() else "0" + rest
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            raise ValueError(f"{text!r} is short: it cannot have a prerelease or build metadata")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))
