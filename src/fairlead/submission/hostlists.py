"""Slurm's lists of nodes: names, and ranges of numbers in brackets, such as `login,gpu[01-04,7],rack[1-2]node[1-8]`."""

from __future__ import annotations

import re

MOST_HOSTS = 900
"""Of one list: a pod that names more nodes than the scheduler reads is not placed."""
_LONGEST = 63
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


class HostlistError(ValueError):
    """An invalid list; the message names the invalid part."""


def hosts(text: str) -> list[str]:
    """The names in a list, each once, in their order. Raises `HostlistError`."""
    if "/" in text or text.startswith("^"):
        raise HostlistError(f"{text!r} is a file of names, which is not read: write out the names")
    found: dict[str, None] = {}
    for part in _parts(text):
        found |= dict.fromkeys(_expanded(part))
        if len(found) > MOST_HOSTS:
            raise HostlistError(f"{text[:100]!r} names more than {MOST_HOSTS} nodes")
    if not found:
        raise HostlistError("no node is named: give at least one")
    return list(found)


def _parts(text: str) -> list[str]:
    """What is between the commas that are in no brackets."""
    parts, depth, begun = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise HostlistError(f"{text[:100]!r}: its brackets do not match")
        if char == "," and not depth:
            parts.append(text[begun:place])
            begun = place + 1
    if depth:
        raise HostlistError(f"{text[:100]!r}: its brackets do not match")
    return [each.strip() for each in (*parts, text[begun:]) if each.strip()]


def _expanded(part: str) -> list[str]:
    """The names that one part stands for; of several brackets each number of the first with each of the next."""
    found = [""]
    for numbers, plain in _PIECE.findall(part):
        endings = [plain] if plain else _numbers(numbers, part)
        if len(found) * len(endings) > MOST_HOSTS:
            raise HostlistError(f"{part[:100]!r} names more than {MOST_HOSTS} nodes")
        found = [name + ending for name in found for ending in endings]
    for name in found:
        if len(name) > _LONGEST or not _NAME.fullmatch(name):
            raise HostlistError(f"{name[:100]!r} is not a node name")
    return found


def _numbers(text: str, part: str) -> list[str]:
    """The numbers in brackets. They have as many digits as the first of their range: `08-10` is 08, 09, 10."""
    found: list[str] = []
    for each in text.split(","):
        numbers = _RANGE.fullmatch(each.strip())
        if numbers is None:
            raise HostlistError(f"{part[:100]!r}: {each!r} in its brackets is neither a number nor a range such as 01-04")
        first, last = numbers[1], numbers[2] or numbers[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST_HOSTS:
            raise HostlistError(f"{part[:100]!r}: {each!r} is not a range of 1 to {MOST_HOSTS} nodes")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found
