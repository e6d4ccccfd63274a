"""Asks the judge and writes tests/core/selectors.json.xz: verdicts that `make unit` compares with, without building the judge.

`python -m testbed.selectors` writes it anew: after a change of the cases, or of the judge's version.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import msgspec

from testbed.selectors import random_selectors, table
from testbed.selectors.differential import JUDGE, ask

RECORDED = Path(__file__).parents[2] / "tests/core/selectors.json.xz"
_SEEDS = range(400)


def main() -> None:
    """Write the verdicts."""
    questions = [*table.cases(), *(case for seed in _SEEDS for case in random_selectors.cases(seed))]
    answers = [msgspec.to_builtins(each) for each in ask(questions)]
    kept = {"judge": JUDGE, "questions": questions, "answers": answers}
    RECORDED.write_bytes(lzma.compress(json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode(), preset=9))
    print(f"{len(questions)} cases, {RECORDED.stat().st_size} bytes: {RECORDED}")


if __name__ == "__main__":
    main()
