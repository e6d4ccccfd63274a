"""`fairlead simulate starts`: how well the starts that several replays foretold were foretold, all together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table

if TYPE_CHECKING:
    from fairlead.simulation.foretold import ExpectedStarts


class StartsResult(msgspec.Struct):
    """files: how many replays are judged together."""

    files: int
    expected_starts: list[ExpectedStarts]


def starts(
    files: Annotated[list[Path], typer.Argument(help="Files that `simulate jobs --starts` wrote.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Expected starts of several replays, judged together by size of job."""
    from fairlead.simulation import foretold

    given = [path.resolve() for path in files]
    if len(set(given)) < len(given):
        twice = next(path for path, full in zip(files, given, strict=True) if given.count(full) > 1)
        fail(f"{twice}: named twice: its starts would count twice", Exit.USAGE)
    try:
        found = foretold.judge(start for path in files for start in foretold.read(path))
    except foretold.ForetoldError as error:
        fail(str(error))
    if not any(each.jobs for each in found):
        fail(f"{', '.join(map(str, files))}: no start was foretold there")
    result = StartsResult(len(files), found)
    emit(result, output, lambda: _show(result))


def _show(result: StartsResult) -> None:
    rows: list[dict[str, object]] = [
        {
            "size": each.service_class,
            "jobs": each.jobs,
            "blank": each.blank,
            "inside": f"{each.coverage:.1%}",
            "before": f"{each.early:.1%}",
            "after": f"{each.late:.1%}",
            "error": f"{each.median_error:.1%}",
            "width": f"{each.median_width:,.0f} s",
            "wait": f"{each.median_wait:,.0f} s",
        }
        for each in result.expected_starts
    ]
    print_table(f"expected starts of {result.files} replays; error, width and wait: medians", list(rows))
