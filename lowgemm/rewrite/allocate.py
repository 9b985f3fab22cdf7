"""New registers for accumulators and fragments."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.binary.flow import sass_flow
from lowgemm.emulator.program import Program
from lowgemm.emulator.rules import UNIFORM, Rule, Rules
from lowgemm.errors import RewriteError
from lowgemm.rewrite.body import Body, Item, Value
from lowgemm.rewrite.schedule import Schedule
from lowgemm.rewrite.tile import Fragment, Tile
from lowgemm.rewrite.walk import Walk

__all__ = ["Allocation", "allocate", "live_registers"]

#: Of the registers that a kernel asks for two are the hardware's: ptxas asks for two more than it
#: names on sm_80 to sm_120, and on an H200 R253 is an illegal instruction for a kernel with 255.
_RESERVED = 2
#: The most that an instruction may name.
_REGISTERS = 255 - _RESERVED


@dataclass(frozen=True, slots=True)
class Allocation:
    """The register of each value of the tile.

    ``entry`` and ``exit`` are the moves that a rewritten loop needs before and behind it, by the
    register moved to. ``spare`` holds a register for each that nobody needs there. ``count`` is how
    many registers the kernel needs then.
    """

    registers: dict[Value, int]
    entry: dict[int, int]
    exit: dict[int, int]
    spare: tuple[int | None, int | None]
    count: int


#: Registers whose values are used later: each with the guard of those uses, None for any.
_Live = frozenset[tuple[int, tuple[int, bool] | None]]


def live_registers(program: Program) -> list[frozenset[int]]:
    """By instruction: the general registers whose values are used at or after it.

    A guarded write ends the life of a value that is used under the same guard alone.
    """
    rules = Rules(program).rules
    flow = sass_flow(program.kernel)
    entering: dict[int, _Live] = {block.index: frozenset() for block in flow.blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            live: _Live = frozenset().union(*(entering[each] for each in block.successors))
            for index in range(block.last, block.first - 1, -1):
                live = _before(rules[index], live)
            if live != entering[block.index]:
                entering[block.index] = live
                changed = True
    found: list[frozenset[int]] = [frozenset()] * len(rules)
    for block in flow.blocks:
        live = frozenset().union(*(entering[each] for each in block.successors))
        for index in range(block.last, block.first - 1, -1):
            live = _before(rules[index], live)
            found[index] = frozenset(key for key, _ in live)
    return found


def _before(rule: Rule, live: _Live) -> _Live:
    if rule.never:
        return live
    guard = None if rule.guard is None else (rule.guard.key, rule.negated)
    written = {key for key, _ in rule.results}
    # Where a predicate changes, what was guarded by it may be used in any case.
    live = frozenset(
        (key, None if each is not None and each[0] in written else each) for key, each in live
    )
    live = frozenset(
        (key, each) for key, each in live if key not in written or guard not in (None, each)
    )
    return live | {(use.key, guard) for use in rule.reads if use.key < UNIFORM}


def allocate(
    body: Body, tile: Tile, walk: Walk, schedule: Schedule, most: int = _REGISTERS
) -> Allocation:
    """Give every accumulator one register, and every fragment aligned ones.

    Parameters
    ----------
    body, tile, walk, schedule
        The loop and its new order.
    most
        How many registers a thread may have.

    Raises
    ------
    RewriteError
        There are too few registers.
    """
    live = live_registers(body.program)
    after = live[body.last + 1] if body.last + 1 < len(live) else frozenset()
    pool = _pool(body, tile, live[body.first] | after, most)
    intervals = _intervals(tile, schedule)
    groups = _coloured(intervals, len(schedule.order))
    registers: dict[Value, int] = {}
    for members in groups:
        words = max(len(fragment.values) for fragment in members)
        base = _take_aligned(pool, words)
        for fragment in members:
            for values in (fragment.values, fragment.entered):
                for word, value in enumerate(values):
                    if value is not None:
                        registers[value] = base + word
    _place_chains(tile, walk, pool, registers)
    entry = {
        register: value.key
        for value, register in registers.items()
        if value.maker is None and value.key in live[body.first]
    }
    exits = {
        key: registers[value]
        for key, value in body.left.items()
        if value in registers and key in after
    }
    spare = (_spare(entry, live[body.first], most), _spare(exits, after, most))
    used = max((*registers.values(), *_named(body.program)), default=0) + 1 + _RESERVED
    return Allocation(registers, entry, exits, spare, used)


def _spare(moves: dict[int, int], live: frozenset[int], most: int) -> int | None:
    busy = {*moves, *moves.values(), *live}
    return next((number for number in range(most) if number not in busy), None)


def _named(program: Program) -> set[int]:
    """General registers that the kernel names."""
    return {
        first + word
        for operation in program.operations
        for first, count, uniform in (*operation.reads, *operation.writes)
        for word in range(count)
        if not uniform
    }


def _pool(body: Body, tile: Tile, live: frozenset[int], most: int) -> set[int]:
    """Registers that hold nothing else in the loop and behind it."""
    renamed = set(tile.owner)
    for chain in tile.chains:
        renamed |= {chain.entered} | {item.writes["d"][0] for item in chain.ffmas}
    moved = {value.key for value in renamed if value.maker is None}
    moved |= {key for key, value in body.left.items() if value in renamed}
    pinned = {
        value.key
        for item in body.items
        for operands in (item.reads, item.writes)
        for values in operands.values()
        for value in values
        if value not in renamed
    }
    return set(range(most)) - pinned - (live - moved)


# ---- fragments


def _intervals(tile: Tile, schedule: Schedule) -> dict[Fragment, tuple[int, int]]:
    """From the load to the last use, which may lie in the next round."""
    length = len(schedule.order)
    begin: dict[Fragment, int] = {}
    end: dict[Fragment, int] = {}
    by_place = {fragment.load.place: fragment for fragment in tile.fragments}
    for number, each in enumerate(schedule.order):
        if isinstance(each, Item):
            if each.place in by_place:
                begin[by_place[each.place]] = number
            continue
        for value in (each.kept, each.varied):
            if value in tile.owner:
                fragment = tile.owner[value][0]
                late = length if value.maker is None else 0
                end[fragment] = max(end.get(fragment, 0), number + late)
    return {each: (begin[each], max(begin[each] + 1, end.get(each, 0))) for each in begin}


def _coloured(intervals: dict[Fragment, tuple[int, int]], length: int) -> list[list[Fragment]]:
    """Sets of fragments that are never there at one time: few of them.

    Cut open at one place, the round is a line, on which taking intervals by their begin is best;
    what lies across the cut is fixed before. Every begin is tried as the cut.
    """
    cuts = sorted({begin % length for begin, _ in intervals.values()})
    return min((_coloured_from(cut, intervals, length) for cut in cuts), key=len, default=[])


def _coloured_from(
    cut: int, intervals: dict[Fragment, tuple[int, int]], length: int
) -> list[list[Fragment]]:
    def meet(one: Fragment, other: Fragment) -> bool:
        (begin, end), (first, last) = intervals[one], intervals[other]
        return any(begin < last + shift and first + shift < end for shift in (-length, 0, length))

    groups: list[list[Fragment]] = []

    def ends(group: list[Fragment]) -> int:
        return max((intervals[each][1] - cut) % length for each in group)

    def order(each: Fragment) -> tuple[bool, int]:
        begin, end = intervals[each]
        from_cut = (begin - cut) % length
        return from_cut + end - begin <= length, from_cut

    for fragment in sorted(intervals, key=order):
        fitting = [
            group
            for group in groups
            if len(group[0].values) == len(fragment.values)
            and not any(meet(fragment, each) for each in group)
        ]
        if fitting:
            max(fitting, key=ends).append(fragment)
        else:
            groups.append([fragment])
    return groups


def _take_aligned(pool: set[int], words: int) -> int:
    for base in range(0, _REGISTERS - words + 1, words):
        wanted = set(range(base, base + words))
        if wanted <= pool:
            pool -= wanted
            return base
    raise RewriteError(
        f"no {words} neighbouring registers are left for a fragment",
        "use fewer registers around it",
    )


# ---- accumulators


def _place_chains(tile: Tile, walk: Walk, pool: set[int], registers: dict[Value, int]) -> None:
    free: tuple[list[int], list[int]] = ([], [])
    for number in sorted(pool, reverse=True):
        free[number % 2].append(number)
    for chain, bank in zip(tile.chains, walk.banks, strict=True):
        # Its own register if that is in the right bank: then nothing moves.
        own = chain.entered.key
        if own in free[bank]:
            free[bank].remove(own)
            number = own
        elif free[bank] or free[1 - bank]:
            number = (free[bank] or free[1 - bank]).pop()
        else:
            raise RewriteError(
                f"{len(tile.chains)} accumulators do not fit beside the fragments",
                "use a smaller tile",
            )
        pool.discard(number)
        registers[chain.entered] = number
        for item in chain.ffmas:
            registers[item.writes["d"][0]] = number
