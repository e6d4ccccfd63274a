"""Lists of seeds, as options have them."""

from __future__ import annotations

from fairlead.cli.output import Exit, fail

_MOST_SEEDS = 100_000


def parse_seeds(text: str) -> list[int]:
    """`42`, `42-51` or `1,5,42-51` as a list. Raises `ValueError`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{part!r} is neither a number nor a range such as 42-51")
        start, end = int(first), int(last) if dash else int(first)
        if end < start or len(seeds) + end - start >= _MOST_SEEDS:
            raise ValueError(f"range {part!r} is empty or longer than {_MOST_SEEDS}")
        seeds += range(start, end + 1)
    return seeds


def seeds_of(text: str) -> list[int]:
    """The seeds that an option `--seeds` lists; ends the command where it lists none that can be read."""
    try:
        return parse_seeds(text)
    except ValueError as error:
        fail(f"--seeds {text!r} is not a list of numbers and ranges: {error}", Exit.USAGE)
