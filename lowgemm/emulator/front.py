"""The state of a batch of blocks, and the front of warps that executes one instruction.

Threads are lanes of arrays of shape (warps, 32); what a warp has once, its uniform registers, has
shape (warps, 1) and is broadcast. A front is a set of warps at one address, with the lanes of each
that take part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.word import PT, RZ, Bits32, Bits64, Predicates
from lowgemm.hardware.shared_memory import WARP_LANES

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch

__all__ = ["Front", "Mask"]

#: The lanes that an instruction executes for; None: all of the front's.
Mask = NDArray[np.bool_] | None
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_EVERY_LANE = np.ones(WARP_LANES, np.bool_)
_LANES = np.arange(WARP_LANES, dtype=np.uint32)
_BIT_OF_LANE = np.uint32(1) << _LANES


class Front:
    """Warps at one address.

    ``warps`` are their indices in the batch, None for all of it; ``active`` has shape (warps, 32),
    None where all lanes of all of them take part.
    """

    __slots__ = ("active", "batch", "count", "crowded", "limit", "pc", "started", "warps")

    def __init__(self, batch: Batch, pc: int, warps: NDArray[np.intp] | None, active: Mask) -> None:
        self.batch = batch
        self.pc = pc
        self.warps = warps
        self.active = active
        self.count = batch.warps if warps is None else len(warps)
        self.limit = 1 << 62
        self.started = batch.executed
        self.crowded = False

    # ---- reading

    def rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """The rows of the front's warps: a view where it is the whole batch."""
        return array if self.warps is None else array[self.warps]

    def register(self, number: int) -> Bits32:
        """A register of every lane, as (warps, 32)."""
        return self.rows(self.batch.registers[number])

    def register64(self, number: int) -> Bits64:
        """A pair of registers."""
        return _joined(self.register(number), self.register(number + 1))

    def uniform_register(self, number: int) -> Bits32:
        """A uniform register of every warp, as (warps, 1)."""
        return self.rows(self.batch.uniform_registers[number])

    def uniform_register64(self, number: int) -> Bits64:
        """A pair of uniform registers."""
        return _joined(self.uniform_register(number), self.uniform_register(number + 1))

    def predicate(self, number: int) -> Predicates:
        """A predicate of every lane."""
        return self.rows(self.batch.predicates[number])

    def uniform_predicate(self, number: int) -> Predicates:
        """A uniform predicate of every warp."""
        return self.rows(self.batch.uniform_predicates[number])

    def constant32(self, bank: int, offset: int) -> Bits32:
        """A word of a constant bank."""
        return self.batch.constants.word(bank, offset)

    def constant64(self, bank: int, offset: int) -> Bits64:
        """Two words of a constant bank."""
        return self.batch.constants.double_word(bank, offset)

    # ---- writing

    def put_rows(self, row: NDArray[Any], value: NDArray[Any], mask: Mask) -> None:
        """Write an array of the batch's warps in the lanes of a mask."""
        if self.warps is None:
            if mask is None:
                row[...] = value
            else:
                np.copyto(row, value, where=mask)
        elif mask is None:
            row[self.warps] = value
        else:
            kept = row[self.warps]
            np.copyto(kept, value, where=mask)
            row[self.warps] = kept

    def _put_pair(
        self, registers: Bits32, number: int, value: NDArray[np.uint64], mask: Mask
    ) -> None:
        self.put_rows(registers[number], (value & _LOW).astype(np.uint32), mask)
        self.put_rows(registers[number + 1], (value >> _HALF).astype(np.uint32), mask)

    def put(self, number: int, value: NDArray[np.uint32], mask: Mask) -> None:
        """Write a register in the lanes of a mask."""
        if number != RZ:
            self.put_rows(self.batch.registers[number], value, mask)

    def put64(self, number: int, value: NDArray[np.uint64], mask: Mask) -> None:
        """Write a pair of registers."""
        if number != RZ:
            self.put_rows(self.batch.registers[number], (value & _LOW).astype(np.uint32), mask)
            self.put_rows(
                self.batch.registers[number + 1], (value >> _HALF).astype(np.uint32), mask
            )

    def put_uniform(self, number: int, value: NDArray[np.uint32], mask: Mask) -> None:
        """Write a uniform register in the warps of a mask of shape (warps, 1)."""
        if number != RZ:
            self.put_rows(self.batch.uniform_registers[number], value, mask)

    def put_uniform64(self, number: int, value: NDArray[np.uint64], mask: Mask) -> None:
        """Write a pair of uniform registers."""
        if number != RZ:
            self._put_pair(self.batch.uniform_registers, number, value, mask)

    def put_predicate(self, number: int, value: Predicates, mask: Mask) -> None:
        """Write a predicate; PT takes nothing."""
        if number != PT:
            self.put_rows(self.batch.predicates[number], value, mask)

    def put_uniform_predicate(self, number: int, value: Predicates, mask: Mask) -> None:
        """Write a uniform predicate."""
        if number != PT:
            self.put_rows(self.batch.uniform_predicates[number], value, mask)

    # ---- lanes

    def guarded(self, predicate: Predicates) -> Predicates:
        """The lanes of the front in which a predicate holds."""
        return predicate if self.active is None else predicate & self.active

    def mask_bits(self, mask: Mask) -> Bits32:
        """The lanes of a mask as bits of a word, by warp: (warps, 1)."""
        if mask is None:
            return np.full((self.count, 1), 0xFFFFFFFF, np.uint32)
        return lane_bits(np.broadcast_to(mask, (self.count, WARP_LANES)))

    def full(self, value: NDArray[Any]) -> NDArray[Any]:
        """A value of shape (1 or warps, 1 or 32) as one of each lane."""
        return np.broadcast_to(value, (self.count, WARP_LANES))

    def members(self, mask: Mask) -> NDArray[np.bool_]:
        """A mask as an array: (warps, 32) bools."""
        return self.full(_EVERY_LANE if mask is None else mask)

    def first_lane(self, mask: Mask) -> NDArray[np.intp]:
        """The lowest lane of a mask, by warp."""
        if mask is None:
            return np.zeros(self.count, np.intp)
        lanes: NDArray[np.intp] = np.argmax(self.full(mask), axis=1)
        return lanes

    def warp_indices(self) -> NDArray[np.intp]:
        """The indices of the warps in the batch."""
        return self.batch.all_warps if self.warps is None else self.warps

    def lanes(self, mask: Mask) -> NDArray[np.intp] | None:
        """Where the lanes of a mask stand in a flattened (warps, 32) array; None for all."""
        if mask is None:
            return None
        chosen = np.flatnonzero(np.broadcast_to(mask, (self.count, WARP_LANES)))
        return None if len(chosen) == self.count * WARP_LANES else chosen

    def positions(self, lanes: NDArray[np.intp] | None) -> NDArray[np.intp] | None:
        """Where lanes of the front stand in the batch's arrays, flattened; None for all of it."""
        if self.warps is None:
            return lanes
        every = self.batch.lane_numbers[self.warps].reshape(-1)
        return every if lanes is None else every[lanes]

    def chosen(self, value: NDArray[Any], lanes: NDArray[np.intp] | None) -> NDArray[Any]:
        """The values of some lanes, flat."""
        flat = self.full(value).reshape(-1)
        return flat if lanes is None else flat[lanes]

    def put_words(
        self, number: int, words: NDArray[np.uint32], lanes: NDArray[np.intp] | None
    ) -> None:
        """Write registers from ``number`` on with the rows of a (words, lanes) array."""
        if number == RZ:
            return
        where = self.positions(lanes)
        for index, row in enumerate(words):
            flat = self.batch.registers[number + index].reshape(-1)
            if where is None:
                flat[...] = row
            else:
                flat[where] = row

    def words(self, number: int, count: int, lanes: NDArray[np.intp] | None) -> NDArray[np.uint32]:
        """Registers from ``number`` on as a (words, lanes) array."""
        where = self.positions(lanes)
        size = self.count * WARP_LANES if lanes is None else len(lanes)
        if number == RZ:
            return np.zeros((count, size), np.uint32)
        rows = self.batch.registers[number : number + count].reshape(count, -1)
        return rows if where is None else rows[:, where]


def _joined(low: Bits32, high: Bits32) -> Bits64:
    both: Bits64 = high.astype(np.uint64)
    both <<= _HALF
    both |= low
    return both


def lane_bits(mask: NDArray[np.bool_]) -> Bits32:
    """Lanes as bits: (warps, 32) bools to (warps, 1) words."""
    packed = np.packbits(mask, axis=1, bitorder="little")
    return packed.view("<u4").astype(np.uint32, copy=False).reshape(-1, 1)


def bits_to_lanes(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Bits of words to lanes: (warps, 1) words to (warps, 32) bools."""
    return np.asarray((words & _BIT_OF_LANE) != 0)
