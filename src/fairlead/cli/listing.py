"""A borderless table for any number of rows: what `queue`, `nodes`, `history` and others print.

rich's own table measures and pads every cell as a renderable of its own: 50,000 rows take half a minute. Here a cell is text
with at most a style, a line is put together once, and what is not shown in colours is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.segment import Segment
    from rich.text import Text

_GAP = "  "
_HEADER = "bold"


class Column(msgspec.Struct, frozen=True):
    """A column of a list. flexible: may be cut to fit the terminal, never below `least` characters."""

    name: str
    right: bool = False
    flexible: bool = False
    least: int = 10


class Listing:
    """A table whose numbers stay whole: only flexible columns give way to a narrow terminal, the widest first.

    Cells are strings, as they are, or rich's Text. Where stdout is no terminal nothing is cut.
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each at most as wide as the console."""
        from rich.segment import Segment
        from rich.text import Text

        widths = self._fitted(options.max_width)
        header = [Text(column.name, _HEADER) for column in self._columns]
        plain = not console.is_terminal
        for row in (header, *self._rows):
            segments = list(self._line(row, widths, console))
            if plain:
                yield Segment("".join(each.text for each in segments).rstrip())
            else:
                yield from segments
            yield Segment.line()

    def _fitted(self, most: int) -> list[int]:
        """The width of each column in a line of at most so many characters."""
        columns = self._columns
        widths = [max(_width(column.name), *(_width(row[at]) for row in self._rows), 0) for at, column in enumerate(columns)]
        excess = sum(widths) + len(_GAP) * (len(columns) - 1) - most
        while excess > 0:
            cut = [at for at, column in enumerate(columns) if column.flexible and widths[at] > max(1, column.least)]
            if not cut:
                break
            widest = max(cut, key=lambda at: widths[at])
            second = max([widths[at] for at in cut if at != widest], default=0)
            less = min(excess, widths[widest] - max(second - 1, columns[widest].least, 1))
            widths[widest] -= less
            excess -= less
        return widths

    def _line(self, row: Sequence[str | Text], widths: list[int], console: Console) -> Iterator[Segment]:
        from rich.segment import Segment

        last = len(widths) - 1
        for at, (cell, width, column) in enumerate(zip(row, widths, self._columns, strict=True)):
            if not isinstance(cell, str) and cell.spans:
                shown = cell.copy()
                shown.truncate(width, overflow="ellipsis", pad=not column.right)
                pad = " " * (width - shown.cell_len)
                yield Segment(pad)
                yield from (each for each in shown.render(console) if each.text)
            else:
                text, style = (cell, None) if isinstance(cell, str) else (cell.plain, cell.style)
                text = _cut(_printable(text), width)
                pad = " " * (width - _width(text))
                text = pad + text if column.right else text + pad if at < last else text
                yield Segment(text, console.get_style(style) if style else None)
            if at < last:
                yield Segment(_GAP)


def _printable(text: str) -> str:
    """A text in one line, without what a terminal would act on."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def _width(cell: str | Text) -> int:
    """How many columns of a terminal a cell takes."""
    text = cell if isinstance(cell, str) else cell.plain
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    """A text in at most so many columns, with an ellipsis where it was longer."""
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"
