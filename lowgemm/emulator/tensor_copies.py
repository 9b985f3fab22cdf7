"""Tensor copies: boxes between global and shared memory, described by tensor maps (TMA)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.access import Site, rank_and_offset
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.operation import Run, maker
from lowgemm.emulator.tensor_maps import Box, decode_tensor_map
from lowgemm.emulator.word import Word
from lowgemm.errors import EmulationError
from lowgemm.runtime.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES

__all__: list[str] = []

U64 = np.uint64
_WIDE = 16
#: Where a box lies in shared memory: PTX ISA, "cp.async.bulk.tensor".
_SHARED_ALIGNMENT = 128
_OFFSET_MASK = 0xFFFFFF


def _tensor_operands(w: Word, *, first: int) -> tuple[int, Any, int]:
    """The rank, how to read the map's address, and the first of ``first`` + rank registers.

    Bits 79-81 hold the rank less one. The address stands in a pair at 24; at 32 begin registers
    side by side: the address in shared memory, of a load that of the mbarrier, the coordinates.
    """
    rank = w.take(79, 3) + 1
    w.ignore(16, 8)
    w.ignore(87, 4)
    if w.flag(76):  # a hint of how long L2 is to keep it
        w.register(40, uniform=True, count=2)
    address = w.reader64(24, uniform=True)
    return rank, address, w.register(32, uniform=True, count=first + rank)


@maker("UTMALDG")
def _tensor_load(w: Word) -> Run:
    """cp.async.bulk.tensor from global memory to the shared memory of one block or of several."""
    rank, address, number = _tensor_operands(w, first=2)
    multicast = w.flag(75)
    if w.flag(82):
        raise w.unknown("a copy by im2col")
    blocks = w.reader(64, uniform=True) if multicast else None

    def run(f: Front, m: Mask) -> None:
        rows, maps, words = _issued(f, m, address, number, 2 + rank)
        named = None if blocks is None else np.broadcast_to(blocks(f), (f.count, 1)).reshape(-1)
        for row in rows:
            to, barrier, *coordinates = (int(each[row]) for each in words)
            load = _Copy(f, int(row), int(maps[row]), rank, coordinates)
            mask = None if named is None else int(named[row]) >> 16 & 0xFFFF
            load.to_shared(to, barrier, mask)

    return run


@maker("UTMASTG")
def _tensor_store(w: Word) -> Run:
    """cp.async.bulk.tensor from the shared memory of a block to global memory."""
    rank, address, number = _tensor_operands(w, first=1)
    if w.flag(82):
        raise w.unknown("a copy by im2col")

    def run(f: Front, m: Mask) -> None:
        rows, maps, words = _issued(f, m, address, number, 1 + rank)
        for row in rows:
            source, *coordinates = (int(each[row]) for each in words)
            _Copy(f, int(row), int(maps[row]), rank, coordinates).to_global(source)

    return run


@maker("UTMACMDFLUSH")
def _commit(w: Word) -> Run:
    """cp.async.bulk.commit_group."""
    w.ignore(16, 89)
    return lambda f, m: f.batch.bulk_groups.commit(f, m)


def _issued(
    f: Front, m: Mask, address: Any, number: int, count: int
) -> tuple[NDArray[np.intp], NDArray[np.uint64], list[NDArray[np.uint32]]]:
    """The warps that issue a copy, the address of each one's map, and their registers."""
    rows = np.arange(f.count) if m is None else np.flatnonzero(f.full(m).any(axis=1))
    maps = np.broadcast_to(address(f), (f.count, 1)).reshape(-1)
    words = [
        np.broadcast_to(f.uniform_register(number + i), (f.count, 1)).reshape(-1)
        for i in range(count)
    ]
    return rows, maps, words


class _Copy:
    """One copy of a box, by a warp of a front."""

    def __init__(self, f: Front, row: int, map_at: int, rank: int, coordinates: list[int]) -> None:
        self.f, self.row, self.batch = f, row, f.batch
        warp = int(f.warp_indices()[row])
        self.domain = int(self.batch.lane_domain[warp, 0])
        self.issuer = int(self.batch.actor_of_warp[warp])
        self.site = Site(f.pc >> 4, _WIDE, store=False)
        self.coordinates = tuple(_signed(each) for each in coordinates)
        self.box = self._read_map(map_at, rank)
        self._check_coordinates()

    def tell(self, problems: list[Problem]) -> None:
        self.batch.tell_of_copy(self.f, self.row, self.site, problems)

    def _read_map(self, at: int, rank: int) -> Box:
        name = self.batch.launch.name
        where = np.array([at], U64)
        if at % TENSOR_MAP_ALIGNMENT:
            detail = f"a tensor map lies at a multiple of {TENSOR_MAP_ALIGNMENT} bytes"
            self.tell([Problem(FindingKind.MISALIGNED, np.zeros(1, np.intp), where, detail)])
        pieces = U64(at) + np.arange(0, TENSOR_MAP_BYTES, 8, dtype=U64)
        words, problems = self.batch.memory.load(pieces, 8)
        self.tell(problems)
        box = decode_tensor_map(np.ascontiguousarray(words.T).tobytes())
        if box is None:
            raise EmulationError(
                f"kernel {name} takes the bytes at {at:#x} for a tensor map, which they are not",
                "make it with device.tensor_map() of this emulator, and give the kernel its "
                "address: of a const __grid_constant__ parameter, or of a copy in global memory",
                kernel=name,
            )
        if box.rank != rank:
            raise EmulationError(
                f"kernel {name} copies a box of {rank} axes by a tensor map that has {box.rank}",
                "give as many coordinates as the map has axes",
                kernel=name,
            )
        return box

    def _check_coordinates(self) -> None:
        """On an H200 a box that begins between two chunks of a row is an illegal instruction."""
        begin = self.coordinates[0] * self.box.element_bytes
        if begin % _WIDE:
            detail = f"the innermost coordinate stands for {begin} bytes, no multiple of {_WIDE}"
            where = np.array([self.box.pointer + begin], np.int64).view(U64)
            self.tell([Problem(FindingKind.MISALIGNED, np.zeros(1, np.intp), where, detail)])

    def _check_store(self) -> None:
        """On an H200 a store that begins before the tensor is an illegal instruction."""
        if min(self.coordinates) < 0:
            detail = f"a box at {self.coordinates} is stored: it may reach over the end alone"
            where = np.array([self.box.pointer], U64)
            kind = FindingKind.GLOBAL_OUT_OF_BOUNDS
            self.tell([Problem(kind, np.zeros(1, np.intp), where, detail)])

    def to_shared(self, to: int, barrier: int, blocks: int | None) -> None:
        """Bring the box, and tell the mbarriers; with a mask, those of several blocks."""
        batch, box = self.batch, self.box
        rank, offset = self._place(to)
        data = self._from_global()
        swizzled = np.empty_like(data).reshape(-1, _WIDE)
        swizzled[box.swizzled(to & _OFFSET_MASK)] = data.reshape(-1, _WIDE)
        content = swizzled.reshape(-1)
        for problems in batch.deliver(
            self.domain, self.issuer, rank, offset, content, barrier, blocks
        ):
            self.tell(problems)

    def to_global(self, source: int) -> None:
        """Store the box; what lies outside of the tensor is not written."""
        batch, box = self.batch, self.box
        self._check_store()
        rank, offset = self._place(source)
        swizzled, tick, problems = batch.shared.load_bulk(
            self.domain, self.issuer, rank, offset, box.nbytes
        )
        self.tell(problems)
        batch.bulk_groups.add(int(self.f.warp_indices()[self.row]), tick)
        data = swizzled.reshape(-1, _WIDE)[box.swizzled(source & _OFFSET_MASK)]
        width, addresses, places = box.pieces(self.coordinates, whole_chunks=True)
        pieces = data.reshape(-1, width)[places // width]
        words = pieces.view(f"<u{min(width, 4)}").T.astype(np.uint32)
        self.tell(batch.memory.store(addresses, width, np.ascontiguousarray(words)))

    def _place(self, address: int) -> tuple[int, int]:
        """The block, and the byte in its shared memory; a box begins at a multiple of 128."""
        base = self.batch.launch.shared_base
        rank, offset = (int(x[0]) for x in rank_and_offset(np.array([address]), base))
        if address % _SHARED_ALIGNMENT:
            detail = f"a box lies at a multiple of {_SHARED_ALIGNMENT} bytes in shared memory"
            where = np.array([offset], np.int64).view(U64)
            self.tell([Problem(FindingKind.MISALIGNED, np.zeros(1, np.intp), where, detail)])
        return rank, offset

    def _from_global(self) -> NDArray[np.uint8]:
        """The box's bytes, zeros where it lies outside of the tensor."""
        width, addresses, places = self.box.pieces(self.coordinates)
        words, problems = self.batch.memory.load(addresses, width)
        self.tell(problems)
        data = np.zeros((self.box.nbytes // width, width), np.uint8)
        if width < 4:
            narrow = words[0].astype(f"<u{width}")
            data[places // width] = narrow.view(np.uint8).reshape(-1, width)
        else:
            data[places // width] = np.ascontiguousarray(words.T).view(np.uint8)
        return data.reshape(-1)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
