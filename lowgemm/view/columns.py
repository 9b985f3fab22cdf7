"""Tables that keep to a width: columns that do not fit are told below, so that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = [
    "WHOLE",
    "Column",
    "columns_table",
    "counted",
    "fitted_table",
    "fitting",
    "markdown_table",
    "plain_table",
]

Row = TypeVar("Row")

#: The width of what goes into no terminal.
WHOLE = 200
_GAP_CELLS = 3  # a padding cell on either side and the divider


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column; where there is little room those with the highest ``rank`` go first, 0 never.

    ``told`` says whether it is then told below the table.
    """

    header: str
    cell: Callable[[Row], str | Text]
    rank: int = 0
    justify: Literal["left", "center", "right"] = "right"
    style: str = ""
    told: bool = True


def fitting(
    columns: Sequence[Column[Row]], rows: Sequence[Row], width: int
) -> tuple[list[Column[Row]], list[Column[Row]]]:
    """The columns that ``width`` has room for, and those that it has not."""

    def size(column: Column[Row]) -> int:
        cells = (cell_len(str(column.cell(row))) for row in rows)
        return max(cell_len(column.header), *cells) + _GAP_CELLS

    kept = list(columns)
    while sum(map(size, kept)) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept, [column for column in columns if column not in kept]


def plain_table(title: str = "") -> Table:
    """A table in the style of all of them, without columns."""
    return Table(
        title=title or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
    )


def columns_table(
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    style: Callable[[Row], str] = lambda row: "",
) -> Table:
    """A table of these columns, a line a row in the style that ``style`` gives it."""
    table = plain_table()
    for column in columns:
        table.add_column(column.header, justify=column.justify, style=column.style, no_wrap=True)
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns), style=style(row))
    return table


def fitted_table(
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    width: int,
    *,
    style: Callable[[Row], str] = lambda row: "",
    remark: Callable[[Row], str] = lambda row: "",
    empty: str = "",
) -> RenderableType:
    """A table of at most ``width`` characters, and a line a row of what it has no room for.

    Parameters
    ----------
    columns
        The first one names a row and has the rank 0.
    rows
        The rows.
    width
        Characters a line.
    style
        A row's style.
    remark
        What is to be said of a row besides, at the end of its line.
    empty
        A cell that says nothing, and is left out of the lines.
    """
    kept, dropped = fitting(columns, rows, width)
    table = columns_table(kept, rows, style)
    lines = list(_lines(columns[0], dropped, rows, remark, empty))
    return Group(table, Text("\n".join(lines))) if lines else table


def _lines(
    name: Column[Row],
    dropped: Sequence[Column[Row]],
    rows: Sequence[Row],
    remark: Callable[[Row], str],
    empty: str,
) -> Iterator[str]:
    for row in rows:
        cells = ((column.header, str(column.cell(row))) for column in dropped if column.told)
        told = "; ".join(f"{header} {cell}" for header, cell in cells if cell != empty)
        if line := "; ".join(filter(None, [told, remark(row)])):
            yield f" {str(name.cell(row)).strip()}: {line}"


def markdown_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[str]:
    """The lines of the same table as Markdown."""
    return [
        f"| {' | '.join(column.header for column in columns)} |",
        "|---" + "|--:" * (len(columns) - 1) + "|",
        *(f"| {' | '.join(str(column.cell(row)) for column in columns)} |" for row in rows),
    ]


def counted(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(0, "finding"), counted(1, "branch", "branches"), counted(2048, "warp")
    ('no finding', '1 branch', '2,048 warps')
    """
    if count == 0:
        return f"no {noun}"
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
