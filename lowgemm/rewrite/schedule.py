"""Where the other instructions stand among the FFMAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from lowgemm.errors import RewriteError
from lowgemm.isa import Access, Pipe, Space
from lowgemm.rewrite.body import Body, Item, Value
from lowgemm.rewrite.temporaries import Temporary
from lowgemm.rewrite.tile import Tile, Visit
from lowgemm.rewrite.walk import Walk

__all__ = [
    "Order",
    "Schedule",
    "Spread",
    "find_order",
    "first_uses",
    "load_groups",
    "memory_effect",
    "plan_schedule",
]

#: Those before the branch back in which nothing else is put: its predicate must be there.
_END = 16


@dataclass(frozen=True, slots=True)
class Spread:
    """How loads from shared memory are spread among the FFMAs.

    ``lead`` is the FFMAs from a load to its first use: its latency is about 30 cycles, of which a
    second warp of the scheduler takes every other. ``evenness`` is 1 for loads as far apart as they
    can be over the loop; a smaller part of that needs fewer registers. ``asking`` is the part of
    the loop in which loads from global memory should be issued; with them go the stores before
    them, the barrier between, and all loads that come before these. Where sources are held
    ``briefly``, what loads and stores read gives its registers up as soon as it may, so that who
    writes over it may have to wait for them.
    """

    lead: int
    evenness: float
    asking: float = 1 / 3
    briefly: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A loop body in its new order: visits to FFMAs, and other instructions between them."""

    order: tuple[Visit | Item, ...]
    position: dict[int, int]

    def index(self) -> dict[int, int]:
        """By an instruction's old place: where in the order it stands."""
        return {
            each.item.place if isinstance(each, Visit) else each.place: number
            for number, each in enumerate(self.order)
        }


@dataclass(frozen=True, slots=True)
class Order:
    """What stands between the FFMAs, and by place the places that must come before it.

    ``renamed`` are the values that get registers of their own.
    """

    others: tuple[Item, ...]
    before: dict[int, set[int]]
    renamed: frozenset[Value]


def find_order(body: Body, tile: Tile, temporaries: Sequence[Temporary], walk: Walk) -> Order:
    """Find in which order the instructions between the FFMAs must stay, wherever they are put."""
    others = _others(body, tile, walk)
    renamed = {value for fragment in tile.fragments for value in fragment.values}
    renamed |= {value for each in temporaries for value in each.offsets}
    return Order(tuple(others), _constraints(others, renamed), frozenset(renamed))


def plan_schedule(body: Body, tile: Tile, walk: Walk, among: Order, spread: Spread) -> Schedule:
    """Place loads from shared memory evenly and as late as their use allows, the rest between them.

    Parameters
    ----------
    body, tile, walk, among
        The loop, its outer products, the order of the FFMAs, and what stands among them.
    spread
        How early and how far apart loads from shared memory stand.

    Raises
    ------
    RewriteError
        An instruction that is no FFMA of the tile has no place among them.
    """
    others, before = among.others, among.before
    position: dict[int, int] = {}
    begin = 0
    for leaving in body.exits:
        # Nothing may change sides of a branch that leaves the loop.
        inside = [i for i in others if begin <= i.place < leaving.place]
        span = _span(body, walk, begin, leaving.place)
        deadline = _deadlines(body, tile, walk, inside, before, spread, span)
        position |= _positions(inside, before, deadline, span, spread.evenness)
        position[leaving.place] = span[1]
        begin = leaving.place + 1
    _check_operands(body, tile, among.renamed, walk, position)
    order = _merged(walk, [*others, body.items[-1]], position)
    return Schedule(tuple(order), position)


def _others(body: Body, tile: Tile, walk: Walk) -> list[Item]:
    """What is neither an FFMA of the tile nor needless; the branch back stays the last."""
    tiled = {visit.item.place for visit in walk.visits}
    tiled |= {item.place for chain in tile.chains for item in chain.copies}
    items = [i for i in body.items if i.place not in tiled and not i.instruction.is_filler]
    return items[:-1]


def _span(body: Body, walk: Walk, begin: int, end: int) -> tuple[int, int]:
    """The visits whose FFMAs stand between two places of the body: a range of their numbers.

    Raises
    ------
    RewriteError
        An exit cuts a step in two.
    """
    inside = [n for n, visit in enumerate(walk.visits) if begin <= visit.item.place < end]
    if not inside:
        past = sum(visit.item.place < begin for visit in walk.visits)
        return past, past
    if inside != list(range(inside[0], inside[-1] + 1)):
        raise RewriteError(
            "the loop may be left between the FFMAs of one step", "leave it between two steps"
        )
    return inside[0], inside[-1] + 1


# ---- what must stay in its order


def _constraints(others: list[Item], renamed: set[Value]) -> dict[int, set[int]]:
    """By place: the places that must come before it."""
    before: dict[int, set[int]] = {item.place: set() for item in others}
    for number, item in enumerate(others):
        for earlier in others[:number]:
            if _depends(earlier, item, renamed) or _keeps_order(earlier, item):
                before[item.place].add(earlier.place)
    return before


def _depends(first: Item, second: Item, renamed: set[Value]) -> bool:
    """Whether registers bind the two; what is renamed has registers of its own."""
    made = {value for values in first.writes.values() for value in values}
    if any(value in made for values in second.reads.values() for value in values):
        return True
    written = {value.key for value in _values(second.writes) if value not in renamed}
    taken = {value.key for value in (*_values(first.reads), *made) if value not in renamed}
    return bool(written & taken)


def _values(operands: dict[str, tuple[Value, ...]]) -> Iterator[Value]:
    return (value for values in operands.values() for value in values)


def _keeps_order(first: Item, second: Item) -> bool:
    """Whether memory or a barrier binds the two."""
    kinds = {memory_effect(first), memory_effect(second)}
    if None in kinds or kinds <= {"shared read", "global read"}:
        return False
    if "strong read" in kinds:
        return not kinds & {"shared read", "shared write"}
    return kinds != {"shared write", "global read"}


def memory_effect(item: Item) -> str | None:
    """What an instruction does to memory, as far as its order matters.

    A strong load of global memory keeps its place among all such loads: what another thread writes
    meanwhile may decide.
    """
    opcode = item.instruction.opcode
    if opcode is None:
        return "fence"
    if opcode.space is Space.SHARED and opcode.access in (Access.LOAD, Access.STORE):
        return "shared read" if opcode.access is Access.LOAD else "shared write"
    if opcode.space is Space.GLOBAL and opcode.access is Access.LOAD:
        weak = item.name == "LDG" and not item.instruction.is_strong
        return "global read" if weak else "strong read"
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
    spread: Spread,
    span: tuple[int, int],
) -> dict[int, float]:
    """The last position of each in front of which it may stand: a number of FFMAs."""
    needed = first_uses(tile, walk)
    first_use = {
        place: min(needed[each] for each in group)
        for group in load_groups(tile, walk)
        for place in group
    }
    deadline = {
        item.place: first_use[item.place] - spread.lead
        if item.place in first_use
        else _preferred(item, span, spread.asking)
        for item in others
    }
    _need_pinned(tile, walk, others, deadline)
    for item in reversed(others):
        for earlier in before[item.place]:
            if earlier in deadline:
                distance = _distance(body.items[earlier], item, spread.lead)
                deadline[earlier] = min(deadline[earlier], deadline[item.place] - distance)
    return deadline


#: FFMAs between a load from global memory and the use of its value: as early as may be.
_GLOBAL_LEAD = 512


def _distance(first: Item, second: Item, lead: int) -> float:
    """FFMAs that should lie between two instructions of which one must come first."""
    made = set(_values(first.writes))
    if not any(value in made for value in _values(second.reads)):
        return 0.5
    opcode = first.instruction.opcode
    if opcode is not None and opcode.space is Space.GLOBAL:
        return _GLOBAL_LEAD
    late = any(producer is None for _, producer in first.rule.results)
    return lead if late else 0.5


def _need_pinned(tile: Tile, walk: Walk, others: list[Item], deadline: dict[int, float]) -> None:
    """What makes an operand that keeps its register must come before the FFMAs that use it."""
    made = {value: i.place for i in others for values in i.writes.values() for value in values}
    for number, visit in enumerate(walk.visits):
        for value in (visit.kept, visit.varied):
            if value not in tile.owner and value in made:
                deadline[made[value]] = min(deadline[made[value]], number)


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

    All that vary in a row are needed when it begins, but one that is kept only in its own row: that
    one is waited for alone.
    """
    count = len(walk.visits)
    rows = list(accumulate((a.kept is not b.kept for a, b in pairwise(walk.visits)), initial=0))
    kept = {visit.kept for visit in walk.visits}
    groups: dict[tuple[int, int, int], list[int]] = {}
    needed = first_uses(tile, walk)
    for fragment in tile.fragments:
        place = fragment.load.place
        if place in needed:
            alone = any(value in kept for value in (*fragment.values, *fragment.entered))
            later, number = divmod(needed[place], count)
            key = (later, rows[number], place if alone else -1)
            groups.setdefault(key, []).append(place)
    return list(groups.values())


def _preferred(item: Item, span: tuple[int, int], asking: float) -> float:
    """As late as may be, but for what asks global memory."""
    first, last = span
    opcode = item.instruction.opcode
    asks = opcode is not None and opcode.space is Space.GLOBAL and opcode.access is Access.LOAD
    return first + (last - first) * asking if asks else last - _END


def _positions(
    items: list[Item],
    before: dict[int, set[int]],
    deadline: dict[int, float],
    span: tuple[int, int],
    evenness: float,
) -> dict[int, int]:
    """Evenly spread positions, each not behind the deadline and in an allowed order.

    From the end backwards the instruction with the latest deadline takes the latest free place.
    """
    after: dict[int, set[int]] = {item.place: set() for item in items}
    for place in after:
        for each in before[place]:
            if each in after:
                after[each].add(place)
    first, last = span[0], max(span[0], span[1] - _END)
    spacing = max(1.0, evenness * (last - first) / max(1, len(items)))
    position: dict[int, int] = {}
    latest = float(last)
    open_ = set(after)
    while open_:
        ready = [place for place in open_ if not after[place] & open_]
        place = max(ready, key=lambda each: (deadline[each], each))
        latest = max(float(first), min(latest, deadline[place]))
        position[place] = int(latest)
        latest = max(float(first), latest - spacing)
        open_.remove(place)
    return position


def _check_operands(
    body: Body, tile: Tile, renamed: frozenset[Value], walk: Walk, position: dict[int, int]
) -> None:
    """Refuse an order in which an FFMA would find another value in a register that keeps its name.

    Raises
    ------
    RewriteError
        There is such an FFMA.
    """
    writers: dict[int, list[Item]] = {}
    for item in body.items:
        if item.place in position:
            for value in _values(item.writes):
                if value not in renamed:
                    writers.setdefault(value.key, []).append(item)
    for number, visit in enumerate(walk.visits):
        for value in (visit.kept, visit.varied):
            if value in renamed or value in tile.owner:
                continue
            done = [i.place for i in writers.get(value.key, ()) if position[i.place] <= number]
            last = max(done, key=lambda place: (position[place], place), default=None)
            if last != value.maker:
                raise RewriteError(
                    f"R{value.key}, an operand of FFMAs, is not loaded from shared memory in the "
                    "loop alone",
                    "the rewriter keeps its register, and found no place for what writes it",
                )


def _merged(walk: Walk, others: list[Item], position: dict[int, int]) -> Iterator[Visit | Item]:
    by_position: dict[int, list[Item]] = {}
    for item in others:
        by_position.setdefault(position[item.place], []).append(item)
    for number, visit in enumerate(walk.visits):
        yield from by_position.pop(number, ())
        yield visit
    for rest in sorted(by_position):
        yield from by_position[rest]
