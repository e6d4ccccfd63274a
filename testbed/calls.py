"""Function calls of one unit of work in every dimension of `fairlead bench growth`, held to recorded numbers.

`python -m testbed.calls` compares; `--update "LINE"` records the present numbers and adds LINE to the changelog, which says why
they changed. Calls do not depend on the machine, so a test does the same (`tests/test_calls.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fairlead.simulation.growth.dimensions import BY_NAME
from fairlead.simulation.growth.measure import count, exponent

RECORDED = Path(__file__).with_name("calls.json")
CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
MORE, STEEPER = 1.1, 0.05
"""Calls may grow by so much before they count as more, and an exponent may rise by so much."""


class Calls(msgspec.Struct):
    """Calls of one unit of work at the small sizes of a dimension."""

    sizes: list[int]
    calls: list[float]

    @property
    def exponent(self) -> float:
        """How calls grow with size."""
        return exponent(self.sizes, self.calls)


class Recorded(msgspec.Struct):
    """What was recorded. line: of the changelog, why it changed; digest: of the dimensions, so that none changes without it."""

    line: str
    digest: str
    dimensions: dict[str, Calls]


def digest(dimensions: Mapping[str, Calls]) -> str:
    """A fingerprint of recorded numbers."""
    return hashlib.sha256(msgspec.json.encode(dict(sorted(dimensions.items())))).hexdigest()[:16]


def load() -> Recorded:
    """What is recorded now."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=Recorded)


def measured(name: str) -> Calls:
    """What a dimension takes now, in a process that has done the same before: what is made once does not count."""
    dimension = BY_NAME[name]
    count(dimension, dimension.small[:1])
    return Calls(list(dimension.small), [round(each, 1) for each in count(dimension, dimension.small)])


def worse(name: str, now: Calls, before: Calls) -> list[str]:
    """What got worse in a dimension."""
    if now.sizes != before.sizes:
        return [f"{name}: measured at {now.sizes}, recorded at {before.sizes}: record anew"]
    found = [
        f"{name} at {size}: {each:.0f} calls instead of {known:.0f}"
        for size, each, known in zip(now.sizes, now.calls, before.calls, strict=True)
        if each > known * MORE
    ]
    if now.exponent > max(before.exponent, 0.0) + STEEPER:
        found.append(f"{name}: exponent {now.exponent:.2f} instead of {before.exponent:.2f}")
    return found


def with_entry(changelog: str, line: str) -> str:
    """A changelog with one more entry at the end of the first group of changes."""
    before, heading, after = changelog.partition("\n### Fixed\n")
    return f"{before.rstrip()}\n- {line}\n{heading}{after}"


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", metavar="LINE", help="record; LINE goes into the changelog")
    parser.add_argument("--dimension", action="append", choices=sorted(BY_NAME), help="only this one; may be repeated")
    chosen = parser.parse_args()
    known = load() if RECORDED.exists() else Recorded("", "", {})
    now = {}
    problems = []
    for name in chosen.dimension or BY_NAME:
        now[name] = measured(name)
        before = known.dimensions.get(name)
        problems += worse(name, now[name], before) if before is not None else [f"{name}: not recorded"]
        print(f"{name:22} {now[name].calls} exponent {now[name].exponent:.2f}", flush=True)
    if chosen.update:
        kept = {name: each for name, each in (known.dimensions | now).items() if name in BY_NAME}
        RECORDED.write_bytes(
            msgspec.json.format(msgspec.json.encode(Recorded(chosen.update, digest(kept), kept)), indent=1) + b"\n"
        )
        text = CHANGELOG.read_text()
        if chosen.update not in text:
            CHANGELOG.write_text(with_entry(text, chosen.update))
        return 0
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
