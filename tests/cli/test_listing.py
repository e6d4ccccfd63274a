"""Lists on terminals of any width: what rich's own table shows, and lines that fit."""

import io
import random

import pytest
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from fairlead.cli.listing import Column, Listing

WORDS = [
    "",
    "a",
    "node-000001",
    "vision/train-bert-large",
    "16",
    "(Resources) 0/4 nodes",
    "[b]not markup[/b]",
    "größe",
    "模型訓練",
]


def shown(drawing, width=10_000, *, terminal=False):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, color_system="standard" if terminal else None).print(drawing)
    return out.getvalue()


def random_rows(rnd, columns):
    def cell():
        word = rnd.choice(WORDS)
        return word if rnd.random() < 0.6 else Text(word, rnd.choice(["", "red", "bold"]))

    return [[cell() for _ in columns] for _ in range(rnd.randint(0, 12))]


def random_columns(rnd):
    return [
        Column(f"C{number}", right=rnd.random() < 0.4, flexible=rnd.random() < 0.6, least=rnd.choice([3, 10]))
        for number in range(rnd.randint(1, 6))
    ]


def by_rich(columns, rows):
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(each if isinstance(each, Text) else Text(each) for each in row))
    return table


@pytest.mark.parametrize("seed", range(40))
def test_where_nothing_is_cut_it_is_as_rich_draws_it(seed):
    rnd = random.Random(seed)
    columns = random_columns(rnd)
    rows = random_rows(rnd, columns)
    expected = [line.rstrip() for line in shown(by_rich(columns, rows)).splitlines()]
    assert shown(Listing(columns, rows)).splitlines() == expected
    in_colours = Text.from_ansi(shown(Listing(columns, rows), terminal=True)).plain
    assert [line.rstrip() for line in in_colours.splitlines()] == expected


@pytest.mark.parametrize("seed", range(40))
def test_on_a_narrow_terminal_only_flexible_columns_are_cut(seed):
    rnd = random.Random(seed)
    columns, width = random_columns(rnd), rnd.randint(20, 90)
    rows = random_rows(rnd, columns)
    lines = shown(Listing(columns, rows), width, terminal=False).splitlines()
    assert len(lines) == len(rows) + 1
    natural = [max([len(column.name), *(cell_len(str(row[at])) for row in rows)]) for at, column in enumerate(columns)]
    least = [min(wide, column.least) if column.flexible else wide for wide, column in zip(natural, columns, strict=True)]
    if sum(least) + 2 * (len(columns) - 1) <= width:
        assert all(cell_len(line) <= width for line in lines)
        for row, line in zip(rows, lines[1:], strict=True):
            for cell, column in zip(row, columns, strict=True):
                assert column.flexible or str(cell) in line
    if sum(natural) + 2 * (len(columns) - 1) <= width:
        assert not any("…" in line for line in lines)


def test_styles_are_shown_and_parts_of_a_cell_keep_their_own():
    drawn = Text("used").append(" free", "green")
    found = shown(Listing([Column("A"), Column("B")], [[Text("run", "red"), drawn]]), terminal=True)
    assert "\x1b[31mrun\x1b[0m" in found
    assert "used\x1b[32m free\x1b[0m" in found


def test_what_a_terminal_would_act_on_is_not_printed():
    found = shown(Listing([Column("A"), Column("B")], [["a\x1b[2Jb\nc", Text("d\re")]]))
    assert found.splitlines()[1:] == ["a [2Jb c  de"]


def test_it_is_part_of_other_drawings():
    found = shown(Group(Text("above"), Listing([Column("A")], [["b"]])))
    assert found.splitlines() == ["above", "A", "b"]
