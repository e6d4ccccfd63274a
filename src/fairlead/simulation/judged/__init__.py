"""Random small clusters played through the core, and judged by what can be decided without it.

One module per kind of question; `KINDS` is the registry that `fairlead bench worlds --kind` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.simulation.judged import evictions, victims
from fairlead.simulation.judged.results import Kind, Tally, WorldsBench

__all__ = ["KINDS", "Kind", "Tally", "WorldsBench", "run"]

KINDS: dict[str, Kind] = {"evictions": evictions.KIND, "victims": victims.KIND}
"""By name: which varieties a kind has, and how one world of a variety is played."""

_EXAMPLES = 10


def run(
    kind: str,
    seeds: Sequence[int],
    varieties: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WorldsBench:
    """Play every seed in every variety of a kind. varieties: some of `KINDS[kind].varieties`; absent: all."""
    chosen = KINDS[kind]
    names = list(varieties or chosen.varieties)
    result = WorldsBench(kind=kind)
    done, whole = 0, len(names) * len(seeds)
    for name in names:
        tally = result.varieties[name] = Tally()
        for seed in seeds:
            found = chosen.play(name, seed)
            tally.add(found)
            result.add(found)
            if not found.good and len(result.examples) < _EXAMPLES:
                result.examples.append(f"{name} seed {seed}: {found.note}")
            done += 1
            if progress is not None:
                progress(done, whole)
    return result
