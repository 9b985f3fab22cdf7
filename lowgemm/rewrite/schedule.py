"""Where the other instructions stand among the FFMAs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lowgemm.isa import Access, Pipe, Space
from lowgemm.rewrite.body import Body, Item
from lowgemm.rewrite.tile import Tile, Visit
from lowgemm.rewrite.walk import Walk

__all__ = ["Schedule", "first_uses", "load_groups", "memory_effect", "plan_schedule"]

#: FFMAs from the issue of a load from shared memory to its first use: its latency is about 30
#: cycles, and a second warp of the scheduler takes every other.
_LOAD_LEAD = 32
#: Those before the branch back in which nothing else is put: its predicate must be there.
_END = 16


@dataclass(frozen=True, slots=True)
class Schedule:
    """A loop body in its new order: visits to FFMAs, and other instructions between them."""

    order: tuple[Visit | Item, ...]
    position: dict[int, int]


def plan_schedule(body: Body, tile: Tile, walk: Walk, lead: int = _LOAD_LEAD) -> Schedule:
    """Place loads from shared memory evenly and as late as their use allows, the rest between them.

    Parameters
    ----------
    body, tile, walk
        The loop, its outer products and the order of the FFMAs.
    lead
        FFMAs between a load from shared memory and its first use.

    Raises
    ------
    RewriteError
        An instruction that is no FFMA of the tile uses what the tile's FFMAs make.
    """
    others = _others(body, walk)
    before = _constraints(others, frozenset(each.load.place for each in tile.fragments))
    deadline = _deadlines(body, tile, walk, others, before, lead)
    position = _positions(others, before, deadline, len(walk.visits))
    order = _merged(walk, others, position, body)
    return Schedule(tuple(order), position)


def _others(body: Body, walk: Walk) -> list[Item]:
    tiled = {visit.item.place for visit in walk.visits}
    items = [i for i in body.items if i.place not in tiled and not i.instruction.is_filler]
    return items[:-1]  # the branch back stays the last


# ---- what must stay in its order


def _constraints(others: list[Item], renamed: frozenset[int]) -> dict[int, set[int]]:
    """By place: the places that must come before it."""
    before: dict[int, set[int]] = {item.place: set() for item in others}
    for number, item in enumerate(others):
        for earlier in others[:number]:
            if _depends(earlier, item, renamed) or _keeps_order(earlier, item):
                before[item.place].add(earlier.place)
    return before


def _depends(first: Item, second: Item, renamed: frozenset[int]) -> bool:
    """Whether registers bind the two; renamed results have registers of their own."""
    made = {value for values in first.writes.values() for value in values}
    if any(value in made for values in second.reads.values() for value in values):
        return True
    if second.place in renamed:
        return False
    written = {key for key, _ in second.rule.results}
    taken = {value.key for values in first.reads.values() for value in values}
    if first.place not in renamed:
        taken |= {key for key, _ in first.rule.results}
    return bool(written & taken)


def _keeps_order(first: Item, second: Item) -> bool:
    """Whether memory or a barrier binds the two."""
    kinds = {memory_effect(first), memory_effect(second)}
    if None in kinds or kinds <= {"shared read", "global read"}:
        return False
    return kinds != {"shared write", "global read"}


def memory_effect(item: Item) -> str | None:
    """What an instruction does to memory, as far as its order matters."""
    opcode = item.instruction.opcode
    if opcode is None:
        return "fence"
    if opcode.space is Space.SHARED and opcode.access in (Access.LOAD, Access.STORE):
        return "shared read" if opcode.access is Access.LOAD else "shared write"
    if opcode.space is Space.GLOBAL and opcode.access is Access.LOAD:
        return "global read"
    if opcode.space is Space.CONSTANT:
        return None
    return None if opcode.space is None and opcode.pipe is not Pipe.CONTROL else "fence"


# ---- where


def _deadlines(
    body: Body,
    tile: Tile,
    walk: Walk,
    others: list[Item],
    before: dict[int, set[int]],
    lead: int,
) -> dict[int, float]:
    """The last position of each in front of which it may stand: a number of FFMAs."""
    count = len(walk.visits)
    needed = first_uses(tile, walk)
    first_use = {
        place: min(needed[each] for each in group)
        for group in load_groups(tile, walk)
        for place in group
    }
    deadline = {
        item.place: first_use[item.place] - lead
        if item.place in first_use
        else _preferred(body, item, count)
        for item in others
    }
    for item in reversed(others):
        for earlier in before[item.place]:
            deadline[earlier] = min(deadline[earlier], deadline[item.place] - 0.5)
    return deadline


def first_uses(tile: Tile, walk: Walk) -> dict[int, int]:
    """By a fragment's load: the first FFMA that needs it, counted on into the next round."""
    count = len(walk.visits)
    found: dict[int, int] = {}
    for number, visit in enumerate(walk.visits):
        for value in (visit.kept, visit.varied):
            if value in tile.owner:
                load = tile.owner[value][0].load.place
                use = number + (count if value.maker is None else 0)
                found[load] = min(use, found.get(load, use))
    return found


def load_groups(tile: Tile, walk: Walk) -> list[list[int]]:
    """The loads of fragments that are waited for together.

    The first row of a step needs all operands that vary, but one that is kept only when its row
    begins: that one is waited for alone.
    """
    per_step = len(walk.visits) // len(tile.steps)
    kept = {visit.kept for visit in walk.visits}
    groups: dict[tuple[int, int], list[int]] = {}
    needed = first_uses(tile, walk)
    for fragment in tile.fragments:
        place = fragment.load.place
        if place in needed:
            alone = any(value in kept for value in (*fragment.values, *fragment.entered))
            groups.setdefault((needed[place] // per_step, place if alone else -1), []).append(place)
    return list(groups.values())


def _preferred(body: Body, item: Item, count: int) -> float:
    """Where it stood among the FFMAs; what asks global memory stands early."""
    ffmas = [each.name == "FFMA" for each in body.items]
    there = sum(ffmas[: item.place]) / max(1, sum(ffmas)) * count
    opcode = item.instruction.opcode
    asks = opcode is not None and opcode.space is Space.GLOBAL
    return min(there, count / 3) if asks else min(there, count - _END)


def _positions(
    others: list[Item], before: dict[int, set[int]], deadline: dict[int, float], count: int
) -> dict[int, int]:
    """Evenly spread positions, each not behind the deadline and in an allowed order.

    From the end backwards the instruction with the latest deadline takes the latest free place.
    """
    after: dict[int, set[int]] = {place: set() for place in before}
    for place, earlier in before.items():
        for each in earlier:
            after[each].add(place)
    spacing = max(1.0, (count - _END) / max(1, len(others)))
    position: dict[int, int] = {}
    latest = float(count - _END)
    open_ = {item.place for item in others}
    while open_:
        ready = [place for place in open_ if not after[place] & open_]
        place = max(ready, key=lambda each: (deadline[each], each))
        latest = min(latest, max(deadline[place], 0.0))
        position[place] = max(0, int(latest))
        latest = max(0.0, latest - spacing)
        open_.remove(place)
    return position


def _merged(
    walk: Walk, others: list[Item], position: dict[int, int], body: Body
) -> Iterator[Visit | Item]:
    by_position: dict[int, list[Item]] = {}
    for item in others:
        by_position.setdefault(position[item.place], []).append(item)
    for number, visit in enumerate(walk.visits):
        yield from by_position.pop(number, ())
        yield visit
    for rest in sorted(by_position):
        yield from by_position[rest]
    yield body.items[-1]
