"""The order of the FFMAs: row by row, turning where the banks allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowgemm.rewrite.body import Value
from lowgemm.rewrite.tile import Step, Tile, Visit

__all__ = ["Walk", "plan_walks"]


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
    plans = {kept_rows: _banks(tile, kept_rows) for kept_rows in (True, False)}
    fewest = min(conflicts for conflicts, _ in plans.values())
    return tuple(
        Walk(tuple(v for step in tile.steps for v in _visits(tile, step, kept_rows)), banks)
        for kept_rows, (conflicts, banks) in plans.items()
        if conflicts == fewest
    )


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
    kept, varied = (step.rows, step.cols) if kept_rows else (step.cols, step.rows)
    visits = []
    start = varied[0]
    for number, here in enumerate(kept):
        following = kept[number + 1] if number + 1 < len(kept) else None
        path = _path(tile, varied, start, following)
        for value in path:
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
