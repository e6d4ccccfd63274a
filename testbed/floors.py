"""Branch coverage of the fast tests, package by package, against the floors of `floors.toml`: `make coverage`.

Of tests that differ by their seeds alone the first is run (`pytest --sample 1`): the others take long and run the same
branches. A floor is a percentage of branches. Floors only rise: `--raise` lifts those that are left behind by a point and more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLOORS = Path(__file__).parent / "floors.toml"
_PACKAGE = "src/fairlead/"
_SLACK = 0.5
"""A floor is set so much below what was measured: what threads and timers run differs from run to run."""


def measured(report: Mapping[str, Any]) -> dict[str, float]:
    """Package -> per cent of its branches that were run. report: the JSON of coverage; modules beside packages are `.`."""
    run: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for path, file in report["files"].items():
        package, slash, _ = path.partition(_PACKAGE)[2].partition("/")
        package = package if slash else "."
        run[package] += file["summary"]["covered_branches"]
        there[package] += file["summary"]["num_branches"]
    return {package: 100 * run[package] / count if count else 100.0 for package, count in sorted(there.items())}


def below(found: Mapping[str, float], floors: Mapping[str, float]) -> list[str]:
    """What is wrong, in words."""
    wrong = [
        f"{each}: {found[each]:.1f} % of branches, at least {floors[each]:g} %"
        for each in found.keys() & floors.keys()
        if found[each] < floors[each]
    ]
    wrong += [f"{each}: it has no floor, run `python -m testbed.floors --raise`" for each in found.keys() - floors.keys()]
    return sorted(wrong + [f"{each}: there is no such package" for each in floors.keys() - found.keys()])


def lifted(found: Mapping[str, float], floors: Mapping[str, float]) -> dict[str, float]:
    """The floors after this measurement: none is lower than before, those of packages that are gone are left out."""
    reached = {each: max(0.0, math.floor(10 * (per_cent - _SLACK)) / 10) for each, per_cent in found.items()}
    return {
        each: floors[each] if each in floors and reached[each] < floors[each] + 1.0 else reached[each] for each in sorted(reached)
    }


def read() -> dict[str, float]:
    """The floors in force."""
    return {package: float(floor) for package, floor in tomllib.loads(FLOORS.read_text())["branches"].items()}


def _run(workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config, report = Path(folder) / "config", Path(folder) / "report.json"
        config.write_text(f"[run]\nbranch = true\nsource_pkgs = fairlead\ndata_file = {folder}/coverage\n")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not e2e and not slow", "-n", str(workers), "--sample", "1"]
        command += ["--cov", f"--cov-config={config}", f"--cov-report=json:{report}", "tests"]
        subprocess.run(command, env=os.environ | {"COVERAGE_FILE": f"{folder}/coverage"}, check=True)
        found: dict[str, Any] = json.loads(report.read_text())
    return found


def main() -> int:
    """Measure, and compare; 1 if something is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raise", dest="lift", action="store_true", help="raise the floors to what is reached")
    parser.add_argument("--workers", type=int, default=2, help="processes that test")
    parser.add_argument("--report", type=Path, help="a JSON report of coverage, instead of a run")
    options = parser.parse_args()
    found = measured(json.loads(options.report.read_text()) if options.report else _run(options.workers))
    floors = read()
    for package, per_cent in found.items():
        print(f"{package:16}{per_cent:7.1f} %   floor {floors.get(package, 0.0):5.1f} %")
    if options.lift:
        lines = [f'"{package}" = {floor}' for package, floor in lifted(found, floors).items()]
        head = FLOORS.read_text().partition("[branches]")[0]
        FLOORS.write_text("\n".join([f"{head}[branches]", *lines, ""]))
        return 0
    wrong = below(found, floors)
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
