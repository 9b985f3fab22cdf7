"""Global memory with eyes: allocations, their bounds, and which bytes were ever written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.arithmetic.formats import BFLOAT16
from lowgemm.emulator.arithmetic.half import round_nearest, widen
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.errors import ArgumentValueError, EmulationError

__all__ = ["ATOMIC_TYPES", "GlobalMemory", "atomic_width", "read_modify_write"]

#: Where the first allocation lies: far from every small number that is no pointer.
_FIRST_ADDRESS = 0x1000_0000_0000
#: Where the windows of shared and local memory begin.
_END_ADDRESS = 0x7A00_0000_0000
#: cudaMalloc aligns to at least 256 bytes (CUDA C++ Programming Guide); the driver to 512.
_ALIGNMENT = 512
#: Between two allocations lies nothing: this at least, and so many times the larger of the two, so
#: that an index several times too large hits neither.
_GUARD = 512
_GUARD_SIZES = 8
#: Addresses below are taken for offsets from a null pointer.
_NULL_PAGES = 1 << 20
_WIDEST = 32

#: The element type of each kind of atomic. F32 keeps subnormals, as shared memory does; F32.FTZ
#: flushes them to zero, as ``atom.global.add.f32`` does (PTX ISA, "atom").
ATOMIC_TYPES: dict[str, type[np.generic]] = {
    "U32": np.uint32,
    "S32": np.int32,
    "U64": np.uint64,
    "S64": np.int64,
    "F32": np.float32,
    "F32.FTZ": np.float32,
    "F16x2": np.uint32,
    "BF16x2": np.uint32,
    "F64": np.float64,
    "B32": np.uint32,
    "B64": np.uint64,
}
_OPERATIONS = frozenset({"ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS"})
#: Associative, so that a scan gives what one lane after another would.
_SCANNED = frozenset({"ADD", "MIN", "MAX", "AND", "OR", "XOR"})
_INTEGERS = frozenset({"U32", "S32", "U64", "S64", "B32", "B64"})

_Words = NDArray[np.uint32]


def atomic_width(kind: str) -> int:
    """Bytes that an atomic of this kind changes.

    Raises
    ------
    ArgumentValueError
        There is no such kind.
    """
    if kind not in ATOMIC_TYPES:
        raise ArgumentValueError(f"an atomic on {kind}", f"one of {', '.join(ATOMIC_TYPES)}")
    return np.dtype(ATOMIC_TYPES[kind]).itemsize


# ---- read, modify, write


def read_modify_write(
    memory: NDArray[np.uint8],
    positions: NDArray[np.int64],
    values: _Words,
    operation: str,
    *,
    kind: str,
    compare: _Words | None = None,
) -> _Words:
    """Do an atomic operation of each lane on a byte array, in the order of the lanes.

    Parameters
    ----------
    memory
        The bytes; their number is a multiple of the width.
    positions
        The byte at which each lane's element starts, a multiple of the width.
    values
        uint32[words, n]: the operand of each lane.
    operation
        ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH or CAS.
    kind
        A key of `ATOMIC_TYPES`.
    compare
        For CAS: uint32[words, n], what the element must be to be replaced.

    Returns
    -------
    NDArray[np.uint32]
        [words, n]: what each lane found.

    Raises
    ------
    ArgumentValueError
        There is no such operation or kind, or CAS was given nothing to compare with.
    """
    width = atomic_width(kind)
    if operation not in _OPERATIONS:
        raise ArgumentValueError(
            f"an atomic operation {operation}", f"one of {', '.join(sorted(_OPERATIONS))}"
        )
    if operation == "CAS" and compare is None:
        raise ArgumentValueError("CAS without a value to compare with", "give compare")
    # CAS and EXCH move bits: a NaN equals itself there.
    bits = operation in {"CAS", "EXCH"}
    dtype = np.dtype(f"u{width}") if bits else np.dtype(ATOMIC_TYPES[kind])
    cells = memory.view(dtype)
    operands = _typed(values, dtype)
    wanted = operands if compare is None else _typed(compare, dtype)
    step = _Step(operation, kind)
    index = positions // width
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if index.size else order
    if starts.size == index.size:
        old = cells[index]
        cells[index] = step(old, operands, wanted)
        return _words(old)
    run = _Runs(cells, ordered, starts, operands[order], wanted[order])
    old = np.empty_like(operands)
    old[order] = run.serialise(step)
    return _words(old)


def _typed(words: _Words, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.itemsize == 4:
        return np.ascontiguousarray(words[0]).view(dtype)
    return np.ascontiguousarray(words[:2].T).view(dtype)[:, 0]


def _words(values: NDArray[Any]) -> _Words:
    words = np.ascontiguousarray(values).view(np.uint32)
    return np.ascontiguousarray(words.reshape(len(values), -1).T)


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation, on many elements at once."""

    operation: str
    kind: str

    @property
    def is_scanned(self) -> bool:
        return self.operation in _SCANNED and self.kind in _INTEGERS

    def __call__(
        self, old: NDArray[Any], value: NDArray[Any], wanted: NDArray[Any]
    ) -> NDArray[Any]:
        match self.operation:
            case "EXCH":
                return value
            case "CAS":
                return np.where(old == wanted, value, old)
            case "INC":
                return np.where(old >= value, 0, old + 1).astype(old.dtype)
            case "DEC":
                return np.where((old == 0) | (old > value), value, old - 1).astype(old.dtype)
        return self.combine(old, value)

    def combine(self, old: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        """ADD, MIN, MAX, AND, OR or XOR of two arrays."""
        with np.errstate(all="ignore"):
            match self.kind:
                case "F16x2":
                    return self._halves(old, value)
                case "BF16x2":
                    return self._brain_halves(old, value)
                case "F32.FTZ":
                    return _flushed(self._plain(_flushed(old), _flushed(value)))
            return self._plain(old, value)

    def _plain(self, old: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        is_float = old.dtype.kind == "f"
        ufunc: dict[str, Any] = {
            "ADD": np.add,
            "MIN": np.fmin if is_float else np.minimum,
            "MAX": np.fmax if is_float else np.maximum,
            "AND": np.bitwise_and,
            "OR": np.bitwise_or,
            "XOR": np.bitwise_xor,
        }
        result: NDArray[Any] = ufunc[self.operation](old, value)
        return result

    def _halves(self, old: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        halves = (np.ascontiguousarray(pair).view(np.float16) for pair in (old, value))
        result: NDArray[Any] = np.ascontiguousarray(self._plain(*halves)).view(np.uint32)
        return result

    def _brain_halves(self, old: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        # The sum of two in float64 is exact or far from a tie of bfloat16.
        wide = [
            widen(np.ascontiguousarray(pair).view(np.uint16), bf16=True).astype(np.float64)
            for pair in (old, value)
        ]
        result: NDArray[Any] = round_nearest(self._plain(*wide), BFLOAT16).view(np.uint32)
        return result


def _flushed(values: NDArray[Any]) -> NDArray[Any]:
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), values), values)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Lanes sorted by element, so that those on one element follow each other in lane order."""

    cells: NDArray[Any]
    index: NDArray[np.int64]
    starts: NDArray[np.intp]
    values: NDArray[Any]
    wanted: NDArray[Any]

    def serialise(self, step: _Step) -> NDArray[Any]:
        """Do the lanes one after another; returns what each found."""
        if step.operation == "EXCH":
            return self._exchange()
        if step.is_scanned:
            return self._scan(step)
        if step.operation == "ADD" and step.kind in {"F32", "F64"}:
            crowded = int((self._lengths() > 1).sum())
            if crowded < self._lengths().max():
                return self._accumulate()
        return self._rounds(step)

    def _lengths(self) -> NDArray[np.intp]:
        lengths: NDArray[np.intp] = np.diff(np.r_[self.starts, self.index.size])
        return lengths

    def _ranks(self) -> NDArray[np.intp]:
        return np.arange(self.index.size) - np.repeat(self.starts, self._lengths())

    def _ends(self) -> NDArray[np.intp]:
        ends: NDArray[np.intp] = np.r_[self.starts[1:], self.index.size] - 1
        return ends

    def _exchange(self) -> NDArray[Any]:
        old = np.empty_like(self.values)
        old[1:] = self.values[:-1]
        old[self.starts] = self.cells[self.index[self.starts]]
        self.cells[self.index[self.starts]] = self.values[self._ends()]
        return old

    def _scan(self, step: _Step) -> NDArray[Any]:
        rank = self._ranks()
        total = self.values.copy()
        distance = 1
        while distance <= int(rank.max()):
            inside = rank[distance:] >= distance
            joined = step.combine(total[:-distance], total[distance:])
            total[distance:] = np.where(inside, joined, total[distance:])
            distance *= 2
        first = self.cells[self.index]
        after = step.combine(first, total)
        old = np.empty_like(after)
        old[1:] = after[:-1]
        old[self.starts] = first[self.starts]
        self.cells[self.index[self.starts]] = after[self._ends()]
        return old

    def _accumulate(self) -> NDArray[Any]:
        """Sum the few crowded elements each in one pass, rounding at every step."""
        old = self.cells[self.index]
        lengths = self._lengths()
        with np.errstate(all="ignore"):
            single = self.starts[lengths == 1]
            self.cells[self.index[single]] = old[single] + self.values[single]
            for start, length in zip(
                self.starts[lengths > 1].tolist(), lengths[lengths > 1].tolist(), strict=True
            ):
                lanes = slice(start, start + length)
                steps = np.add.accumulate(np.r_[old[start : start + 1], self.values[lanes]])
                old[lanes] = steps[:-1]
                self.cells[self.index[start]] = steps[-1]
        return old

    def _rounds(self, step: _Step) -> NDArray[Any]:
        """Do the first lane of each element together, then the second, and so on."""
        rank = self._ranks()
        by_rank = np.argsort(rank, kind="stable")
        bounds = np.flatnonzero(np.diff(rank[by_rank])) + 1
        old = np.empty_like(self.values)
        for lanes in np.split(by_rank, bounds):
            where = self.index[lanes]
            old[lanes] = self.cells[where]
            self.cells[where] = step(old[lanes], self.values[lanes], self.wanted[lanes])
        return old


# ---- allocations


@dataclass(slots=True)
class _Allocation:
    """One allocation. ``mask`` is None as soon as every byte was written."""

    base: int
    nbytes: int
    name: str
    data: NDArray[np.uint8]
    mask: NDArray[np.bool_] | None
    readonly: bool = False
    freed: bool = False
    missing: int = 0
    marked: int = 0
    views: dict[int, NDArray[Any]] = field(default_factory=dict)

    def rows(self, width: int) -> NDArray[Any]:
        """The bytes as elements of the width; from 8 bytes on, as rows of words."""
        if width not in self.views:
            words = self.data.view(f"u{min(width, 4)}")
            self.views[width] = words.reshape(-1, width // 4) if width > 4 else words
        return self.views[width]

    def take(self, row: NDArray[np.int64], width: int) -> _Words:
        values: NDArray[Any] = self.rows(width).take(row, axis=0)
        if width > 4:
            transposed: _Words = values.T
            return transposed
        return values.astype(np.uint32, copy=False)[None]

    def put(self, row: NDArray[np.int64], width: int, values: _Words) -> None:
        rows = self.rows(width)
        if width <= 4:
            rows[row] = values[0].astype(rows.dtype, copy=False)
            return
        # Items of the full width: numpy scatters them ten times as fast as rows.
        item = np.dtype(f"V{width}")
        contiguous = np.ascontiguousarray(values[: width // 4].T)
        self.data.view(item)[row] = contiguous.view(item)[:, 0]

    def uninitialised(self, row: NDArray[np.int64], width: int) -> NDArray[np.intp]:
        """Which accesses touch a byte that nobody wrote."""
        if self.mask is None:
            return np.empty(0, np.intp)
        flags = self.mask.view(f"u{min(width, 8)}").reshape(-1, max(1, width // 8))
        every = flags.dtype.type(int.from_bytes(b"\1" * min(width, 8), "little"))
        return np.flatnonzero((flags.take(row, axis=0) != every).any(axis=1))

    def mark(self, row: NDArray[np.int64], width: int) -> None:
        """Note that these were written."""
        if self.mask is None:
            return
        item = np.dtype(f"V{width}")
        self.mask.view(item)[row] = np.ones(width, np.bool_).view(item)[0]
        self._count(row.size * width)

    def mark_bytes(self, first: int, nbytes: int) -> None:
        """Note that a range was written."""
        if nbytes == self.nbytes:
            self.mask = None
        elif self.mask is not None:
            self.mask[first : first + nbytes] = True
            self._count(nbytes)

    def _count(self, written: int) -> None:
        # Counting costs a pass over the mask: once per eighth of the allocation at most.
        self.marked += written
        if self.mask is not None and self.marked >= max(self.missing, self.nbytes // 8):
            self.missing = self.nbytes - int(np.count_nonzero(self.mask[: self.nbytes]))
            self.marked = 0
            if not self.missing:
                self.mask = None

    def refuses(self, *, store: bool) -> FindingKind | None:
        """Why no lane may do that here, if none may."""
        if self.freed:
            return FindingKind.USE_AFTER_FREE
        return FindingKind.READ_ONLY if store and self.readonly else None

    def describe(self) -> str:
        """Size and name, for a finding."""
        return f"an allocation of {self.nbytes} bytes" + (f" ({self.name})" if self.name else "")


class GlobalMemory:
    """All global memory of one emulated GPU.

    Notes
    -----
    Addresses are never given out twice, so that an access after ``free`` is always seen. Lane-side
    accesses take ``addresses`` as uint64[n] and give what they found wrong; they report nothing.
    """

    def __init__(self) -> None:
        self._allocations: list[_Allocation] = []
        self._bases = np.empty(0, np.uint64)
        self._sizes = np.empty(0, np.uint64)
        self._last: _Allocation | None = None

    # ---- host side

    def allocate(self, nbytes: int, *, initialised: bool = False, name: str = "") -> int:
        """Allocate bytes, all zero; returns the address of the first.

        Parameters
        ----------
        nbytes
            How many.
        initialised
            Whether they count as written, so that reading them is no finding.
        name
            What a finding calls the allocation.

        Raises
        ------
        ArgumentValueError
            ``nbytes`` is not positive.
        EmulationError
            This machine has not that much memory, or no addresses are left.
        """
        if nbytes <= 0:
            raise ArgumentValueError(f"an allocation of {nbytes} bytes", "allocate 1 or more")
        base = self._unused(nbytes)
        padded = -(-nbytes // _WIDEST) * _WIDEST
        try:
            mask = None if initialised else np.zeros(padded, np.bool_)
            data = np.zeros(padded, np.uint8)
        except (MemoryError, ValueError) as error:  # numpy says ValueError from 2^63 bytes on
            raise EmulationError(
                f"{nbytes} bytes of the emulator's memory: this machine has not that much",
                "choose smaller sizes",
            ) from error
        self._allocations.append(_Allocation(base, nbytes, name, data, mask, missing=nbytes))
        self._bases = np.append(self._bases, np.uint64(base))
        self._sizes = np.append(self._sizes, np.uint64(nbytes))
        return base

    def _unused(self, nbytes: int) -> int:
        """The address of the next allocation, far enough behind the last."""
        if not self._allocations:
            return _FIRST_ADDRESS
        last = self._allocations[-1]
        guard = max(_GUARD, _GUARD_SIZES * max(nbytes, last.nbytes))
        base = -(-(last.base + last.nbytes + guard) // _ALIGNMENT) * _ALIGNMENT
        if base + nbytes > _END_ADDRESS:
            raise EmulationError(
                f"no addresses are left for {nbytes} bytes: none is given out twice",
                "choose smaller sizes, or make another Emulator",
            )
        return base

    def free(self, base: int) -> None:
        """Give an allocation back; its address stays unused.

        Raises
        ------
        ArgumentValueError
            No live allocation starts there.
        """
        allocation = self._at_base(base)
        allocation.freed = True
        allocation.data = np.empty(0, np.uint8)
        allocation.mask = None
        allocation.views.clear()
        if self._last is allocation:
            self._last = None

    def set_readonly(self, base: int, readonly: bool) -> None:
        """Make lanes' stores into an allocation a fault, or allow them again.

        Raises
        ------
        ArgumentValueError
            No live allocation starts there.
        """
        self._at_base(base).readonly = readonly

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Copy bytes from the host; they count as initialised.

        Raises
        ------
        ArgumentValueError
            They do not lie in one live allocation.
        """
        flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        allocation, first = self._range(address, flat.size)
        allocation.data[first : first + flat.size] = flat
        allocation.mark_bytes(first, flat.size)

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Copy bytes to the host, whether initialised or not.

        Raises
        ------
        ArgumentValueError
            They do not lie in one live allocation.
        """
        allocation, first = self._range(address, nbytes)
        return allocation.data[first : first + nbytes].copy()

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set bytes to one value; they count as initialised.

        Raises
        ------
        ArgumentValueError
            They do not lie in one live allocation.
        """
        allocation, first = self._range(address, nbytes)
        allocation.data[first : first + nbytes] = byte
        allocation.mark_bytes(first, nbytes)

    def _at_base(self, base: int) -> _Allocation:
        for allocation in self._allocations:
            if allocation.base == base and not allocation.freed:
                return allocation
        raise ArgumentValueError(
            f"no live allocation starts at {base:#x}", "pass what allocate gave"
        )

    def _range(self, address: int, nbytes: int) -> tuple[_Allocation, int]:
        for allocation in self._allocations:
            first = address - allocation.base
            if not allocation.freed and first >= 0 and first + nbytes <= allocation.nbytes:
                return allocation, first
        raise ArgumentValueError(
            f"{nbytes} bytes at {address:#x} do not lie in one live allocation",
            "stay inside what allocate gave",
        )

    # ---- lane side

    def load(
        self, addresses: NDArray[np.uint64], width: int
    ) -> tuple[NDArray[np.uint32], list[Problem]]:
        """Read one element per lane.

        Parameters
        ----------
        addresses
            uint64[n].
        width
            Bytes per lane: 1, 2, 4, 8, 16 or 32.

        Returns
        -------
        tuple
            uint32[max(1, width / 4), n], perhaps a transposed view: narrow elements are extended
            with zeros, a faulty lane reads 0; and what is wrong.
        """
        allocation = self._hit(addresses, width)
        if allocation is not None:
            row = self._rows(addresses, allocation, width)
            values = allocation.take(row, width)
            return values, _uninitialised(allocation, row, width, None, addresses)
        parts, problems = self._sort_out(addresses, width, store=False)
        values = np.zeros((max(1, width // 4), addresses.size), np.uint32)
        for allocation, lanes in parts:
            row = self._rows(addresses[lanes], allocation, width)
            values[:, lanes] = allocation.take(row, width)
            problems += _uninitialised(allocation, row, width, lanes, addresses)
        return values, problems

    def store(
        self, addresses: NDArray[np.uint64], width: int, values: NDArray[np.uint32]
    ) -> list[Problem]:
        """Write one element per lane; of lanes at one address the last wins.

        Parameters
        ----------
        addresses
            uint64[n].
        width
            Bytes per lane: 1, 2, 4, 8, 16 or 32.
        values
            uint32[max(1, width / 4), n]; of a narrow element the lower bits.

        Returns
        -------
        list of Problem
            What is wrong; a faulty lane stores nothing.
        """
        allocation = self._hit(addresses, width)
        if allocation is not None and not allocation.readonly:
            row = self._rows(addresses, allocation, width)
            allocation.put(row, width, values)
            allocation.mark(row, width)
            return []
        parts, problems = self._sort_out(addresses, width, store=True)
        for allocation, lanes in parts:
            row = self._rows(addresses[lanes], allocation, width)
            allocation.put(row, width, values[:, lanes])
            allocation.mark(row, width)
        return problems

    def atomic(
        self,
        addresses: NDArray[np.uint64],
        values: NDArray[np.uint32],
        operation: str,
        *,
        kind: str,
        compare: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.uint32], list[Problem]]:
        """Do an atomic operation of each lane, in the order of the lanes.

        The parameters are those of `read_modify_write`.

        Returns
        -------
        tuple
            uint32[words, n], what each lane found (a faulty lane 0); and what is wrong.
        """
        width = atomic_width(kind)
        parts, problems = self._sort_out(addresses, width, store=True)
        old = np.zeros((width // 4, addresses.size), np.uint32)
        for allocation, lanes in parts:
            row = self._rows(addresses[lanes], allocation, width)
            if operation != "EXCH":
                problems += _uninitialised(allocation, row, width, lanes, addresses)
            old[:, lanes] = read_modify_write(
                allocation.data,
                row * width,
                values[:, lanes],
                operation,
                kind=kind,
                compare=None if compare is None else compare[:, lanes],
            )
            allocation.mark(row, width)
        return old, problems

    @staticmethod
    def _rows(
        addresses: NDArray[np.uint64], allocation: _Allocation, width: int
    ) -> NDArray[np.int64]:
        # Signed, because numpy gathers through nothing else without a copy.
        signed: NDArray[np.int64] = addresses.view(np.int64)
        return (signed - allocation.base) >> (width.bit_length() - 1)

    def _hit(self, addresses: NDArray[np.uint64], width: int) -> _Allocation | None:
        """The one allocation that all lanes access, aligned and inside it, if it is one."""
        if not addresses.size or int(np.bitwise_or.reduce(addresses)) & (width - 1):
            return None
        low, high = int(addresses.min()), int(addresses.max()) + width
        last = self._last
        if last is not None and last.base <= low and high <= last.base + last.nbytes:
            return last
        slot = int(np.searchsorted(self._bases, np.uint64(low), "right")) - 1
        if slot < 0:
            return None
        found = self._allocations[slot]
        if found.freed or high > found.base + found.nbytes:
            return None
        self._last = found
        return found

    def _sort_out(
        self, addresses: NDArray[np.uint64], width: int, *, store: bool
    ) -> tuple[list[tuple[_Allocation, NDArray[np.intp]]], list[Problem]]:
        """The sound lanes by allocation, and what is wrong with the others."""
        problems: list[Problem] = []
        if not addresses.size:
            return [], problems
        hit = self._hit(addresses, width)
        if hit is not None and not (store and hit.readonly):
            return [(hit, np.arange(addresses.size))], problems
        slot = np.searchsorted(self._bases, addresses, "right").astype(np.intp) - 1
        inside = self._inside(addresses, slot, width)
        lanes = np.flatnonzero(~inside)
        if lanes.size:
            detail = self._neighbour(int(addresses[lanes[0]]), int(slot[lanes[0]]), width)
            kind = FindingKind.GLOBAL_OUT_OF_BOUNDS
            problems.append(Problem(kind, lanes, addresses[lanes], detail))
        askew = inside & ((addresses & np.uint64(width - 1)) != 0)
        lanes = np.flatnonzero(askew)
        if lanes.size:
            detail = f"no multiple of the access's {width} bytes"
            problems.append(Problem(FindingKind.MISALIGNED, lanes, addresses[lanes], detail))
        parts = []
        sound = inside & ~askew
        for number in np.unique(slot[sound]).tolist():
            allocation = self._allocations[number]
            lanes = np.flatnonzero(sound & (slot == number))
            refused = allocation.refuses(store=store)
            if refused is None:
                parts.append((allocation, lanes))
            else:
                problems.append(
                    Problem(refused, lanes, addresses[lanes], f"in {allocation.describe()}")
                )
        return parts, problems

    def _inside(
        self, addresses: NDArray[np.uint64], slot: NDArray[np.intp], width: int
    ) -> NDArray[np.bool_]:
        if not self._allocations:
            return np.zeros(addresses.size, np.bool_)
        offset = addresses - self._bases[slot]
        room = self._sizes[slot]
        inside: NDArray[np.bool_] = (slot >= 0) & (offset < room)
        return inside & (room - offset >= np.uint64(width))

    def _neighbour(self, address: int, slot: int, width: int) -> str:
        """Where the nearest allocation is, in words."""
        if address < _NULL_PAGES:
            return "a null pointer, or an offset from one"
        nearest: list[tuple[int, str]] = []
        if slot >= 0:
            before = self._allocations[slot]
            over = address + width - (before.base + before.nbytes)
            behind = address - (before.base + before.nbytes)
            if behind < 0:
                how = f"{over} of {width} bytes reach over"
            else:
                how = f"{behind} bytes behind" if behind else "right behind"
            freed = ", already freed" if before.freed else ""
            nearest.append((over, f"{how} the end of {before.describe()}{freed}"))
        if slot + 1 < len(self._allocations):
            after = self._allocations[slot + 1]
            gap = after.base - address
            nearest.append((gap, f"{gap} bytes before {after.describe()}"))
        return min(nearest)[1] if nearest else "nothing is allocated"


def _uninitialised(
    allocation: _Allocation,
    row: NDArray[np.int64],
    width: int,
    lanes: NDArray[np.intp] | None,
    addresses: NDArray[np.uint64],
) -> list[Problem]:
    bare = allocation.uninitialised(row, width)
    if not bare.size:
        return []
    where = bare if lanes is None else lanes[bare]
    detail = f"byte {int(row[bare[0]]) * width} of {allocation.describe()}"
    return [Problem(FindingKind.UNINITIALISED_GLOBAL, where, addresses[where], detail)]
