"""A borderless table for any number of rows: what `queue`, `nodes`, `history` and others print.

rich's own table measures and pads every cell as a renderable of its own: 50,000 rows take half a minute. Here a cell is text
with at most a style, a line is put together once, and what is not shown in colours is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.api import quantity

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.segment import Segment
    from rich.text import Text

_GAP = "  "
_HEADER = "bold"


def amount(resource: str, value: float | None) -> str:
    """An amount of a row, in base units, as users write it: CPUs, Gi of memory, devices; `-`: there is none."""
    if value is None:
        return "-"
    if resource in ("cpu", "memory") or resource.endswith("storage"):
        return quantity.show(resource, round(value))
    return f"{value:g}"


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

        header = [Text(column.name, _HEADER) for column in self._columns]
        rows = [header, *self._rows]
        columns = [_texts(cells) for cells in zip(*rows, strict=True)]
        widths = self._fitted(
            [max(map(len if "".join(texts).isascii() else _width, texts)) for texts in columns], options.max_width
        )
        last = len(widths) - 1
        padded = [
            _padded(texts, width, right=column.right, last=at == last)
            for at, (texts, width, column) in enumerate(zip(columns, widths, self._columns, strict=True))
        ]
        if not console.is_terminal:
            end = Segment.line()
            for parts in zip(*padded, strict=True):
                yield Segment(_GAP.join(parts).rstrip())
                yield end
            return
        for row, parts in zip(rows, zip(*padded, strict=True), strict=True):
            for at, (cell, text) in enumerate(zip(row, parts, strict=True)):
                yield from self._segments(cell, text, widths[at], console, right=self._columns[at].right)
                if at < last:
                    yield Segment(_GAP)
            yield Segment.line()

    def _fitted(self, widths: list[int], most: int) -> list[int]:
        """The width of each column in a line of at most so many characters. widths: of what is in them."""
        columns = self._columns
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

    @staticmethod
    def _segments(cell: str | Text, text: str, width: int, console: Console, *, right: bool) -> Iterator[Segment]:
        """One cell in colours. text: the same, padded."""
        from rich.segment import Segment

        if isinstance(cell, str) or not cell.spans:
            style = None if isinstance(cell, str) else cell.style
            yield Segment(text, console.get_style(style) if style else None)
            return
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis", pad=not right)
        yield Segment(" " * (width - shown.cell_len))
        yield from (each for each in shown.render(console) if each.text)


def _texts(cells: Sequence[str | Text]) -> list[str]:
    """What stands in a column, without colours."""
    texts = [cell if isinstance(cell, str) else cell.plain for cell in cells]
    return texts if "".join(texts).isprintable() else [_printable(text) for text in texts]


def _padded(texts: list[str], width: int, *, right: bool, last: bool) -> list[str]:
    """A column with cells of one width, cut where they are wider; the last of a line is not padded on its right."""
    if not "".join(texts).isascii() or max(map(len, texts)) > width:
        texts = [_cut(text, width) for text in texts]
        pads = [" " * (width - _width(text)) for text in texts]
        return [pad + text if right else text if last else text + pad for text, pad in zip(texts, pads, strict=True)]
    return [text.rjust(width) for text in texts] if right else texts if last else [text.ljust(width) for text in texts]


def _printable(text: str) -> str:
    """A text in one line, without what a terminal would act on."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
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
