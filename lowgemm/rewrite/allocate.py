"""New registers for accumulators and fragments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowgemm.binary.sass import SassKernel
from lowgemm.emulator.program import Program
from lowgemm.errors import RewriteError
from lowgemm.hardware import capability
from lowgemm.hardware.occupancy import occupancy
from lowgemm.isa import Space
from lowgemm.rewrite.body import Body, Value
from lowgemm.rewrite.schedule import Schedule
from lowgemm.rewrite.temporaries import Temporary
from lowgemm.rewrite.tile import Fragment, Tile, Visit
from lowgemm.rewrite.walk import Walk

__all__ = [
    "Allocation",
    "Moves",
    "RegisterError",
    "allocate",
    "needed_behind",
    "register_limit",
    "resident_warps",
]

#: Of the registers that a kernel asks for two are the hardware's: ptxas asks for two more than it
#: names on sm_80 to sm_120, and on an H200 R253 is an illegal instruction for a kernel with 255.
_RESERVED = 2
#: R1, which ptxas loads first of all and may never wait for.
_STACK_POINTER = 1
#: The most that an instruction may name.
_REGISTERS = 255 - _RESERVED


class RegisterError(RewriteError):
    """A loop needs more registers than a thread may have."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves that happen as if at once: by the register moved to, the one moved from.

    ``spare`` is a register that nobody needs there, None if there is none.
    """

    sources: dict[int, int]
    spare: int | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The register of each value of the tile.

    ``entry`` are the moves that a rewritten loop needs before it, ``exits`` those behind each of
    its exits. ``count`` is how many registers the kernel needs then.
    """

    registers: dict[Value, int]
    entry: Moves
    exits: tuple[Moves, ...]
    count: int


def needed_behind(body: Body, live: Sequence[frozenset[int]]) -> set[Value]:
    """The values that are used behind an exit of a loop, or when it begins again.

    ``live`` are the kernel's :func:`live_registers`.
    """
    needed = {value for key, value in body.left.items() if key in live[body.first]}
    for leaving in body.exits:
        behind = live[leaving.target // 16]
        needed |= {value for key, value in leaving.left.items() if key in behind}
    return needed


def register_limit(kernel: SassKernel) -> int:
    """Registers that a thread may have without fewer blocks on an SM than the kernel has now.

    Where the cubin does not tell the block's size, those that the kernel has.
    """
    own = kernel.signature.registers or 0
    threads = _threads(kernel)
    if threads is None:
        return own
    most = capability(kernel.arch.major, kernel.arch.minor).registers_per_thread
    fitting = _blocks(kernel, threads, own)
    return max(each for each in range(own, most + 1) if _blocks(kernel, threads, each) == fitting)


def resident_warps(kernel: SassKernel) -> int:
    """Warps that a scheduler of an SM holds, as far as registers and static shared memory say.

    Where the cubin does not tell the block's size, one.
    """
    threads = _threads(kernel)
    if threads is None:
        return 1
    cc = capability(kernel.arch.major, kernel.arch.minor)
    warps = -(-threads // cc.threads_per_warp)
    blocks = _blocks(kernel, threads, kernel.signature.registers or 0)
    return max(1, warps * blocks // cc.partitions_per_sm)


def _threads(kernel: SassKernel) -> int | None:
    block = kernel.signature.required_block
    return block[0] * block[1] * block[2] if block else kernel.signature.max_threads


def _blocks(kernel: SassKernel, threads: int, registers: int) -> int:
    cc = capability(kernel.arch.major, kernel.arch.minor)
    shared = kernel.signature.shared_bytes or 0
    return occupancy(cc, threads=threads, registers=registers, shared_bytes=shared).blocks_per_sm


def allocate(
    body: Body,
    tile: Tile,
    temporaries: Sequence[Temporary],
    walk: Walk,
    schedule: Schedule,
    *,
    live: Sequence[frozenset[int]],
    limit: int,
    briefly: bool = False,
) -> Allocation:
    """Give every accumulator one register, every fragment and temporary aligned ones.

    Parameters
    ----------
    body, tile, temporaries, walk, schedule
        The loop, what of it gets other registers, and its new order.
    live
        The kernel's :func:`live_registers`.
    limit
        How many registers a thread may have.
    briefly
        Whether what loads and stores read keeps its registers no longer than it must; see
        :class:`lowgemm.rewrite.schedule.Spread`.

    Raises
    ------
    RegisterError
        There are too few registers.
    """
    most = min(limit - _RESERVED, _REGISTERS)
    behind = [live[each.target // 16] for each in body.exits]
    pool = _pool(body, tile, temporaries, live[body.first].union(*behind), most)
    blocks = [
        *(_of_fragment(each) for each in tile.fragments),
        *(_Block(each.words, each.offsets) for each in temporaries),
    ]
    intervals = _intervals(blocks, body, schedule, behind, briefly)
    _check_enough(tile, intervals, len(schedule.order), len(pool))
    bases = _placed(intervals, len(schedule.order), pool)
    registers = {
        value: base + offset
        for block, base in bases.items()
        for value, offset in block.offsets.items()
    }
    pool -= {base + word for block, base in bases.items() for word in range(block.words)}
    _place_chains(tile, walk, pool, registers)
    top = live[body.first]
    entry = {
        register: value.key
        for value, register in registers.items()
        if value.maker is None and value.key in top
    }
    exits = []
    for each, needed in zip(body.exits, behind, strict=True):
        moves = {
            key: registers[value]
            for key, value in each.left.items()
            if value in registers and key in needed
        }
        exits.append(Moves(moves, _spare(moves, needed, most)))
    used = max((*registers.values(), *_named(body.program)), default=0) + 1 + _RESERVED
    return Allocation(
        registers, Moves(entry, _spare(entry, top.union(*behind), most)), tuple(exits), used
    )


def _spare(moves: dict[int, int], live: frozenset[int], most: int) -> int | None:
    busy = {*moves, *moves.values(), *live, _STACK_POINTER}
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


def _pool(
    body: Body,
    tile: Tile,
    temporaries: Sequence[Temporary],
    live: frozenset[int],
    most: int,
) -> set[int]:
    """Registers that hold nothing else in the loop and behind it."""
    renamed = set(tile.owner)
    for chain in tile.chains:
        renamed |= set(chain.values)
    for each in temporaries:
        renamed |= set(each.offsets)
    moved = {value.key for value in renamed if value.maker is None}
    for left in (body.left, *(each.left for each in body.exits)):
        moved |= {key for key, value in left.items() if value in renamed}
    pinned = {
        value.key
        for item in body.items
        for operands in (item.reads, item.writes)
        for values in operands.values()
        for value in values
        if value not in renamed
    }
    return set(range(most)) - pinned - (live - moved) - {_STACK_POINTER}


# ---- blocks of registers: fragments and temporaries


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Values that lie in ``words`` neighbouring registers, each at its offset."""

    words: int
    offsets: Mapping[Value, int]


def _of_fragment(fragment: Fragment) -> _Block:
    offsets = {
        value: word
        for values in (fragment.values, fragment.entered)
        for word, value in enumerate(values)
        if value is not None
    }
    return _Block(len(fragment.values), offsets)


def _intervals(
    blocks: Sequence[_Block],
    body: Body,
    schedule: Schedule,
    behind: list[frozenset[int]],
    briefly: bool,
) -> dict[_Block, tuple[int, int]]:
    """From the first write to the last use, which may lie in the next round or behind an exit."""
    length = len(schedule.order)
    of_value = {value: block for block in blocks for value in block.offsets}
    begin: dict[_Block, int] = {}
    end: dict[_Block, int] = {}
    waits = {} if briefly else _early_waits(body, schedule)
    shortest = _HELD_AT_LEAST if briefly else _HELD
    at_exit = {each.place: (each, live) for each, live in zip(body.exits, behind, strict=True)}

    def used(value: Value, number: int) -> None:
        block = of_value.get(value)
        if block is not None:
            late = length if value.maker is None else 0
            end[block] = max(end.get(block, 0), number + late)

    for number, each in enumerate(schedule.order):
        if isinstance(each, Visit):
            used(each.kept, number)
            used(each.varied, number)
            continue
        # Who writes over a source that is read late would have to wait for that.
        held = max(number + shortest, waits.get(each.place, 0)) if each.rule.sources else number
        for values in each.reads.values():
            for value in values:
                used(value, held)
        for values in each.writes.values():
            for value in values:
                block = of_value.get(value)
                if block is not None:
                    begin.setdefault(block, number)
        if each.place in at_exit:
            leaving, live = at_exit[each.place]
            for key, value in leaving.left.items():
                if key in live:
                    used(value, number)
    return {each: (begin[each], max(begin[each] + 1, end.get(each, 0))) for each in begin}


def _check_enough(
    tile: Tile, intervals: dict[_Block, tuple[int, int]], length: int, available: int
) -> None:
    """Refuse at once what no allocation fits.

    Raises
    ------
    RegisterError
        At some place of the round more registers hold something than there are.
    """
    held = [0] * length
    for block, (begin, end) in intervals.items():
        for number in range(begin, min(end, begin + length)):
            held[number % length] += block.words
    most = max(held)
    needed = len(tile.chains) + most
    if needed > available:
        raise RegisterError(
            f"{needed} registers are needed, {len(tile.chains)} for accumulators and {most} for "
            f"operands and temporaries, and {available} are free",
            "use a smaller tile, or allow more registers a thread",
        )


def _early_waits(body: Body, schedule: Schedule) -> dict[int, int]:
    """By load from global memory whose data is soon waited for: where in the order that is.

    Only the data's scoreboard tells that its address has been read. Who wrote over that before
    would wait for memory, and the loads behind it would not be on their way meanwhile.
    """
    index = schedule.index()
    readers = body.readers()
    found = {}
    for item in body.items:
        opcode = item.instruction.opcode
        if opcode is None or opcode.space is not Space.GLOBAL or item.place not in index:
            continue
        here = index[item.place]
        made = [value for values in item.writes.values() for value in values]
        users = [index.get(u.place, 0) for v in made for u, *_ in readers.get(v, ())]
        later = [at for at in users if here < at <= here + _SOON]
        if later:
            found[item.place] = min(later)
    return found


def _placed(
    intervals: dict[_Block, tuple[int, int]], length: int, pool: set[int]
) -> dict[_Block, int]:
    """The first register of each block: few registers in all.

    Cut open at one place, the round is a line, on which taking intervals by their begin is good;
    what lies across the cut is fixed before. Several cuts are tried. Wide blocks come first, and
    narrow ones into what these leave free for a while.

    Raises
    ------
    RegisterError
        There are too few registers.
    """
    begins = sorted({begin % length for begin, _ in intervals.values()})
    best: dict[_Block, int] | None = None
    fewest = len(pool) + 1
    for cut in begins[:: max(1, len(begins) // _CUTS)]:
        file = _File(pool, length)
        bases = {
            block: file.take(block, intervals[block]) for block in _order(intervals, cut, length)
        }
        if file.is_enough and file.used < fewest:
            best, fewest = bases, file.used
    if best is None and intervals:
        raise RegisterError(
            f"operands and temporaries do not fit into {len(pool)} registers side by side",
            "use a smaller tile, or allow more registers a thread",
        )
    return best or {}


#: Instructions for which the sources of loads and stores keep their registers, and for which they
#: do where they are held briefly.
_HELD, _HELD_AT_LEAST = 16, 2
#: Instructions after which data from global memory is waited for soon.
_SOON = 128
#: How many places of the round are tried as the one to cut it open.
_CUTS = 12


def _order(intervals: dict[_Block, tuple[int, int]], cut: int, length: int) -> list[_Block]:
    def key(block: _Block) -> tuple[int, bool, int]:
        begin, end = intervals[block]
        from_cut = (begin - cut) % length
        return -block.words, from_cut + end - begin <= length, from_cut

    return sorted(intervals, key=key)


class _File:
    """Registers, and when in the round each is taken: a mask of positions."""

    def __init__(self, pool: set[int], length: int) -> None:
        self._taken = dict.fromkeys(sorted(pool), 0)
        self._length = length
        self.is_enough = True

    @property
    def used(self) -> int:
        """Registers that hold something at some time."""
        return sum(mask != 0 for mask in self._taken.values())

    def take(self, block: _Block, interval: tuple[int, int]) -> int:
        """A base for a block: where its registers are used already, and taken the longest."""
        mask = self._mask(*interval)
        best, chosen = (-1, -1), -1
        for base in range(0, _REGISTERS, block.words):
            masks = [self._taken.get(base + word, -1) for word in range(block.words)]
            if any(each & mask for each in masks):
                continue
            rank = sum(each != 0 for each in masks), sum(each.bit_count() for each in masks)
            if rank > best:
                best, chosen = rank, base
        if chosen < 0:
            self.is_enough = False
            return 0
        for word in range(block.words):
            self._taken[chosen + word] |= mask
        return chosen

    def _mask(self, begin: int, end: int) -> int:
        ones = (1 << min(end - begin, self._length)) - 1 << begin % self._length
        return ones & (1 << self._length) - 1 | ones >> self._length


# ---- accumulators


def _place_chains(tile: Tile, walk: Walk, pool: set[int], registers: dict[Value, int]) -> None:
    room = len(pool)
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
            raise RegisterError(
                f"{len(tile.chains)} accumulators do not fit into the {room} registers that "
                "operands and temporaries leave",
                "use a smaller tile, or allow more registers a thread",
            )
        registers.update(dict.fromkeys(chain.values, number))
