"""Rasterisation: in which order the blocks of a grid run.

Second seed, section 5.2.3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from lowgemm.errors import ArgumentValueError
from lowgemm.model.values import count

__all__ = [
    "RASTER_NAMES",
    "Block",
    "Raster",
    "closed_form_tiles",
    "parse_raster",
    "raster_order",
]

#: A tile of C: its row and its column in the grid.
Block = tuple[int, int]
#: From a block's index and the grid's rows and columns to its tile.
Raster = Callable[[int, int, int], Block]

_LARGEST_GRID = 2**22


def _row(rows: int, columns: int) -> Iterator[Block]:
    return ((m, n) for m in range(rows) for n in range(columns))


def _column(rows: int, columns: int) -> Iterator[Block]:
    return ((m, n) for n in range(columns) for m in range(rows))


def _grouped(rows: int, columns: int, group: int) -> Iterator[Block]:
    """Triton's order: ``group`` rows of tiles together, column by column within them."""
    for first in range(0, rows, group):
        height = min(group, rows - first)
        for n in range(columns):
            for m in range(height):
                yield first + m, n


def _blocks(rows: int, columns: int, height: int, width: int) -> Iterator[Block]:
    """Rectangles of tiles one after the other, row by row inside and out."""
    for m0 in range(0, rows, height):
        for n0 in range(0, columns, width):
            for m in range(m0, min(m0 + height, rows)):
                for n in range(n0, min(n0 + width, columns)):
                    yield m, n


def _diagonal(rows: int, columns: int) -> Iterator[Block]:
    """Down the diagonals: neighbours in time share neither rows nor columns (the bad example)."""
    if rows <= columns:
        yield from ((m, (m + offset) % columns) for offset in range(columns) for m in range(rows))
    else:
        yield from (((n + offset) % rows, n) for offset in range(rows) for n in range(columns))


def _morton(rows: int, columns: int) -> Iterator[Block]:
    """The Z curve of the enclosing square of a power of two, without what lies outside."""
    side = 1 << (max(rows, columns) - 1).bit_length()

    def quadrant(m: int, n: int, side: int) -> Iterator[Block]:
        if m >= rows or n >= columns:
            return
        if side == 1:
            yield m, n
            return
        half = side // 2
        for dm, dn in ((0, 0), (0, half), (half, 0), (half, half)):
            yield from quadrant(m + dm, n + dn, half)

    return quadrant(0, 0, side)


#: The spellings of the orders that come with the model.
RASTER_NAMES = ("row", "column", "grouped:G", "blocks:HxW", "diagonal", "morton")
_PLAIN = {"row": _row, "column": _column, "diagonal": _diagonal, "morton": _morton}


def parse_raster(text: str) -> tuple[str, tuple[int, ...]]:
    """Read the name of an order: its kind and its numbers.

    Raises
    ------
    ArgumentValueError
        It is none of :data:`RASTER_NAMES`.

    Examples
    --------
    >>> parse_raster("blocks:2x2")
    ('blocks', (2, 2))
    """
    if not isinstance(text, str):
        raise ArgumentValueError(
            f"{text!r} is no rasterisation", f"use one of {', '.join(RASTER_NAMES)}"
        )
    kind, _, rest = text.strip().lower().partition(":")
    numbers = rest.split("x") if rest else []
    wanted = {"grouped": 1, "blocks": 2}.get(kind, 0)
    known = kind in _PLAIN or wanted
    if not known or len(numbers) != wanted or not all(i.isdecimal() for i in numbers):
        raise ArgumentValueError(
            f"{text!r} is no rasterisation", f"use one of {', '.join(RASTER_NAMES)}"
        )
    return kind, tuple(count(f"a number of {text!r}", int(i[:10])) for i in numbers)


def raster_order(raster: str | Raster, rows: int, columns: int) -> tuple[Block, ...]:
    """The tiles of a grid in the order in which a rasterisation runs them.

    Parameters
    ----------
    raster
        A name (:data:`RASTER_NAMES`) or a function from a block's index, the grid's rows and its
        columns to the tile's row and column.
    rows, columns
        The grid.

    Raises
    ------
    ArgumentValueError
        An unknown name, a grid without blocks or with too many, or a function that does not give
        every tile exactly once.
    """
    rows, columns = count("rows", rows), count("columns", columns)
    if rows * columns > _LARGEST_GRID:
        raise ArgumentValueError(
            f"a grid of {rows} x {columns} blocks", f"walk at most {_LARGEST_GRID} blocks"
        )
    if isinstance(raster, str):
        return _named(*parse_raster(raster), rows, columns)
    if not callable(raster):
        raise ArgumentValueError(
            f"{raster!r} is no rasterisation",
            f"use one of {', '.join(RASTER_NAMES)}, or a function (index, rows, columns) -> tile",
        )
    order = tuple(_as_block(raster(i, rows, columns)) for i in range(rows * columns))
    inside = all(0 <= m < rows and 0 <= n < columns for m, n in order)
    if not inside or len(set(order)) != len(order):
        raise ArgumentValueError(
            f"the function does not give each tile of a grid of {rows} x {columns} exactly once",
            "map the indices 0 to rows * columns - 1 one to one onto the tiles",
        )
    return order


@lru_cache(maxsize=2)
def _named(kind: str, numbers: tuple[int, ...], rows: int, columns: int) -> tuple[Block, ...]:
    if kind == "grouped":
        return tuple(_grouped(rows, columns, *numbers))
    if kind == "blocks":
        return tuple(_blocks(rows, columns, *numbers))
    return tuple(_PLAIN[kind](rows, columns))


def _as_block(value: Any) -> Block:
    try:
        m, n = value
        return operator.index(m), operator.index(n)
    except (TypeError, ValueError):
        raise ArgumentValueError(
            f"the function gave {value!r} for a tile",
            "return the tile's row and column, two whole numbers",
        ) from None


def closed_form_tiles(
    raster: str, first: int, size: int, rows: int, columns: int
) -> tuple[int, int] | None:
    """Distinct rows and columns of tiles in blocks ``first`` to ``first + size - 1`` of an order.

    None where the order has no closed form for such a wave: Morton, and waves of the others that
    are no whole number of their rectangles, groups or diagonals.

    Raises
    ------
    ArgumentValueError
        An unknown order, or blocks that the grid has not.
    """
    kind, numbers = parse_raster(raster)
    rows, columns = count("rows", rows), count("columns", columns)
    first, size = count("first", first, least=0), count("size", size)
    if first + size > rows * columns:
        raise ArgumentValueError(
            f"blocks {first} to {first + size - 1} of a grid of {rows} x {columns}",
            "name blocks of the grid",
        )
    if kind == "row":
        return _spanned(first, size, columns)
    if kind == "column":
        return _spanned(first, size, rows)[::-1]
    if kind == "grouped":
        return _group_wave(first, size, rows, columns, *numbers)
    if kind == "blocks":
        return _rectangle_wave(first, size, rows, columns, *numbers)
    if kind == "diagonal":
        short = min(rows, columns)
        return (size, size) if first % short + size <= short else None
    return None


def _spanned(first: int, size: int, line: int) -> tuple[int, int]:
    """Lines that a run touches, and places within a line: a run over a line's end wraps round."""
    return (first + size - 1) // line - first // line + 1, min(size, line)


def _group_wave(
    first: int, size: int, rows: int, columns: int, group: int
) -> tuple[int, int] | None:
    start = first // (group * columns) * group
    height = min(group, rows - start)
    offset = first - start * columns
    if offset + size > height * columns:
        return None  # on into the next group
    return _spanned(offset, size, height)[::-1]


def _rectangle_wave(
    first: int, size: int, rows: int, columns: int, height: int, width: int
) -> tuple[int, int] | None:
    if rows % height or columns % width or first % (height * width) or size % (height * width):
        return None
    across = columns // width
    down, beside = _spanned(first // (height * width), size // (height * width), across)
    return down * height, beside * width
