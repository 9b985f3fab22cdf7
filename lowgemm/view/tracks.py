"""Kernels and their loops through several builds: a table a loop, a build a column; plain data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.analysis.tracks import KernelTrack, LoopTrack, TrackRow
from lowgemm.view.columns import plain_table
from lowgemm.view.difference import figure_text

__all__ = ["kernel_track_data", "kernel_track_parts"]

_NONE = "–"
_GAP_CELLS = 3
T = TypeVar("T")


def kernel_track_parts(
    kernel: KernelTrack, corner: str, builds: Sequence[str], width: int, *, every: bool = False
) -> Iterator[RenderableType]:
    """A kernel's table and those of its loops, the hot one's first.

    Loops that changed alike are one table, loops of one length that some builds lack one line.

    Parameters
    ----------
    kernel
        The kernel.
    corner, builds
        The heading of the first column, and of each build's.
    width
        Characters a line; columns beyond it go into further tables.
    every
        Whether to show also what does not differ.
    """
    rows = [row for row in kernel.rows if row.changed or every]
    yield from _tables(rows, corner, builds, width)
    shown = [loop for loop in kernel.loops if loop.hot or (None not in loop.loops)]
    differing = [loop for loop in shown if loop.changed or every]
    for alike in _grouped(differing, _changes):
        yield Text(f"{_name(alike[0])}{_and_more(alike)}", style="bold")
        came_or_went = None in alike[0].loops
        rows = [row for row in alike[0].rows if row.changed or came_or_went or every]
        yield from _tables(rows, corner, builds, width)
    for lacking in _grouped([loop for loop in kernel.loops if loop not in shown], _presence):
        yield Text(_lacking_line(lacking, builds))
    same = [loop for loop in shown if loop not in differing]
    if same:
        yield Text(f"{_name(same[0])}{f' and {len(same) - 1} more' if same[1:] else ''}: the same")


def _grouped(items: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _changes(loop: LoopTrack) -> Hashable:
    return loop.hot, tuple(row for row in loop.rows if row.changed)


def _presence(loop: LoopTrack) -> Hashable:
    """Where it is, and how long there."""
    return tuple(None if there is None else there.instructions for there in loop.loops)


def _name(loop: LoopTrack) -> str:
    addresses = " | ".join(
        _NONE if there is None else f"{there.start:#06x}-{there.end:#06x}" for there in loop.loops
    )
    return f"{'hot loop' if loop.hot else 'loop'} {addresses}"


def _and_more(alike: Sequence[LoopTrack]) -> str:
    return f", and {len(alike) - 1} more that differ alike" if len(alike) > 1 else ""


def _lacking_line(loops: Sequence[LoopTrack], builds: Sequence[str]) -> str:
    first = loops[0]
    lengths = dict.fromkeys(str(there.instructions) for there in first.loops if there)
    where = [build for build, there in zip(builds, first.loops, strict=True) if there]
    many = f"{len(loops)} loops, the first {_name(first)}," if len(loops) > 1 else _name(first)
    return f"{many} of {' and '.join(lengths)} instructions: only in {', '.join(where)}"


def _tables(
    rows: Sequence[TrackRow], corner: str, builds: Sequence[str], width: int
) -> Iterator[Table]:
    """The rows; as many tables side by side below one another as the width asks for."""
    if not rows:
        return
    texts = [[_text(row, index) for index in range(len(builds))] for row in rows]
    first = max(cell_len(text) for text in (corner, *(row.name for row in rows)))
    cells = (cell_len(text) for line in (builds, *texts) for text in line)
    room = max(1, (width - first - _GAP_CELLS) // (max(cells) + _GAP_CELLS))
    for begin in range(0, len(builds), room):
        columns = range(begin, min(begin + room, len(builds)))
        table = plain_table()
        table.add_column(corner, no_wrap=True)
        for index in columns:
            table.add_column(builds[index], justify="right", no_wrap=True)
        for row, line in zip(rows, texts, strict=True):
            table.add_row(row.name, *(line[index] for index in columns))
        yield table


def _text(row: TrackRow, index: int) -> str:
    value = row.values[index]
    return _NONE if value is None else figure_text(row.name, value)


def kernel_track_data(kernel: KernelTrack) -> dict[str, Any]:
    """All figures as plain data, changed or not."""
    return {
        "kernel": kernel.kernel,
        "archs": list(kernel.archs),
        "changed": kernel.changed,
        "figures": _rows_data(kernel.rows),
        "loops": [
            {
                "hot": loop.hot,
                "places": [
                    None if there is None else {"start": there.start, "end": there.end}
                    for there in loop.loops
                ],
                "figures": _rows_data(loop.rows),
            }
            for loop in kernel.loops
        ],
    }


def _rows_data(rows: Sequence[TrackRow]) -> list[dict[str, Any]]:
    return [{**asdict(row), "changed": row.changed} for row in rows]
