"""The order of the FFMAs: row by row, or in quarters, turning where the banks allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowgemm.rewrite.body import Value
from lowgemm.rewrite.tile import Step, Tile, Visit

__all__ = ["Walk", "plan_quarter_walks", "plan_walks"]


@dataclass(frozen=True, slots=True)
class Walk:
    """The FFMAs in their order, and the bank in which each accumulator should lie.

    ``banks`` are by the tile's chains.
    """

    visits: tuple[Visit, ...]
    banks: tuple[int, ...]


def plan_walks(tile: Tile) -> tuple[Walk, ...]:
    """Choose the operands that stay, the accumulators' banks, and the order.

    The accumulator must lie in the other bank than the operand that varies. Over the steps that
    operand changes; the side is kept whose other side changes its bank least. Where both do as
    well there are two walks: they need different numbers of registers.
    """
    return tuple(
        Walk(tuple(v for step in tile.steps for v in _visits(tile, step, kept_rows)), banks)
        for kept_rows, banks in _sides(tile)
    )


def plan_quarter_walks(tile: Tile) -> tuple[Walk, ...]:
    """Walks that need fewer registers: half of the rows with half of the columns at a time.

    A half of the operands that vary is used for the last time long before a step ends. The next
    step begins with that half, whose registers its loads can have meanwhile. There is no such walk
    where one load brings all of these operands.
    """
    walks = []
    for kept_rows, banks in _sides(tile):
        steps = [_quarters(tile, step, kept_rows) for step in tile.steps]
        if all(steps):
            walks.append(Walk(tuple(visit for visits in steps for visit in visits), banks))
    return tuple(walks)


def _sides(tile: Tile) -> list[tuple[bool, tuple[int, ...]]]:
    """Whether rows are kept, and the accumulators' banks, for what leaves fewest conflicts."""
    plans = {kept_rows: _banks(tile, kept_rows) for kept_rows in (True, False)}
    fewest = min(conflicts for conflicts, _ in plans.values())
    return [(rows, banks) for rows, (conflicts, banks) in plans.items() if conflicts == fewest]


def _banks(tile: Tile, kept_rows: bool) -> tuple[int, tuple[int, ...]]:
    """Conflicts that are left, and the chains' banks, if rows (or columns) are kept."""
    place_of = {
        item.place: number for number, chain in enumerate(tile.chains) for item in chain.ffmas
    }
    votes = [[0, 0] for _ in tile.chains]
    for step in tile.steps:
        for (row, col), item in step.pairs.items():
            votes[place_of[item.place]][tile.bank(col if kept_rows else row)] += 1
    conflicts = sum(min(vote) for vote in votes)
    return conflicts, tuple(0 if odd > even else 1 for even, odd in votes)


def _visits(tile: Tile, step: Step, kept_rows: bool) -> list[Visit]:
    kept, varied = _kept_and_varied(step, kept_rows)
    return _rows(tile, step, kept_rows, kept, varied, None)


def _kept_and_varied(step: Step, kept_rows: bool) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    return (step.rows, step.cols) if kept_rows else (step.cols, step.rows)


def _quarters(tile: Tile, step: Step, kept_rows: bool) -> list[Visit]:
    """A step in quarters, each of which has its rows or its operands in common with the next."""
    kept, varied = _kept_and_varied(step, kept_rows)
    halves = _halves(tile, varied)
    if not halves or len(kept) < 2:
        return []
    first, second = kept[: len(kept) // 2], kept[len(kept) // 2 :]
    visits: list[Visit] = []
    for rows, half, following in (
        (first, halves[0], None),
        (first[::-1], halves[1], second[0]),
        (second, halves[1], None),
        (second[::-1], halves[0], None),
    ):
        visits += _rows(tile, step, kept_rows, rows, half, following, visits)
    return visits


def _halves(tile: Tile, varied: Sequence[Value]) -> tuple[list[Value], list[Value]] | None:
    """Operands by the loads that bring them, in two parts; None where there is one load or less."""
    by_load: dict[int, list[Value]] = {}
    for value in varied:
        if value not in tile.owner:
            return None
        by_load.setdefault(tile.owner[value][0].load.place, []).append(value)
    groups = list(by_load.values())
    if len(groups) < 2:
        return None
    middle = len(groups) // 2
    first, second = groups[:middle], groups[middle:]
    return [v for group in first for v in group], [v for group in second for v in group]


def _rows(
    tile: Tile,
    step: Step,
    kept_rows: bool,
    rows: Sequence[Value],
    varied: Sequence[Value],
    behind: Value | None,
    before: Sequence[Visit] = (),
) -> list[Visit]:
    """Rows of FFMAs, each of which begins with the operand with which the one before ended.

    ``behind`` is the operand that is kept in the row which follows these, with the same ones that
    vary; ``before`` are the visits before them.
    """
    visits: list[Visit] = []
    start = before[-1].varied if before and before[-1].varied in varied else varied[0]
    for here, following in zip(rows, (*rows[1:], behind), strict=True):
        for value in (path := _path(tile, varied, start, following)):
            pair = (here, value) if kept_rows else (value, here)
            visits.append(Visit(step.pairs[pair], here, value))
        start = path[-1]
    return visits


def _path(
    tile: Tile, varied: Sequence[Value], start: Value, following: Value | None
) -> list[Value]:
    """All operands from the start on; the last is in the bank of the row's that follows.

    That one is read fresh beside the accumulator, which lies in the other bank than the last.
    """
    at = varied.index(start)
    path = [*varied[at:], *varied[:at]]
    if following is None or len(path) < 2:
        return path
    for candidate in reversed(path[1:]):
        if tile.bank(candidate) == tile.bank(following):
            path.remove(candidate)
            path.append(candidate)
            break
    return path
