"""The kernels of sgemm() as data: what each takes, how it is launched, what it should cost.

A :class:`Choice` is a kernel and the number of blocks that share a tile's sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lowgemm.errors import ArgumentValueError
from lowgemm.gemm.call import Kind, SgemmCall

__all__ = [
    "KERNELS",
    "Chip",
    "Choice",
    "LaunchPlan",
    "SgemmKernel",
    "choices",
    "kernel_named",
    "priced_choices",
]

#: Counters of zeros in the workspace; no launch has more tiles that blocks share, or flags.
FLAGS = 4096
#: Bytes of partial sums for each multiprocessor: two tiles of 256 x 128.
PARTIAL_BYTES_PER_MULTIPROCESSOR = 256 << 10
_MAX_BLOCKS = 2**31 - 1
#: The last tile may reach beyond an extent, and has to end within 31 bits.
_MAX_EXTENT = 2**31 - 256
_FAR = 2**31  # leading dimensions from here on are for the kernels that take any stride


@dataclass(frozen=True, slots=True)
class Chip:
    """What the choice of a kernel needs to know of a device.

    The defaults are an H200's: FFMAs a clock of a multiprocessor, bytes a second of DRAM as
    measured.
    """

    multiprocessors: int = 132
    ffma_lanes: int = 128
    clock_hz: float = 1.98e9
    dram_bytes_per_s: float = 4.0e12
    l2_bytes: int = 50 << 20


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a kernel is launched for a call: which instance of which file, and with what.

    ``pays_rewriting`` says that the hot loop is worth rewriting, ``needs_workspace`` that blocks
    leave sums for each other.
    """

    source: str
    expression: str
    blocks: int
    threads: int
    shared_bytes: int
    splits: int
    needs_workspace: bool = False
    pays_rewriting: bool = False


@dataclass(frozen=True, slots=True)
class SgemmKernel(ABC):
    """One kernel with its tile."""

    name: str
    bm: int
    bn: int
    #: Steps along k that cannot be divided among blocks.
    bk: int

    #: Into how many parts a tile's sum is cut, to be tried where it helps.
    SPLITS: ClassVar[tuple[int, ...]] = (1,)

    def accepts(self, call: SgemmCall) -> bool:
        """Whether it computes such a call."""
        return max(call.m, call.n) <= _MAX_EXTENT and self.tiles(call) <= _MAX_BLOCKS

    def tiles(self, call: SgemmCall) -> int:
        """Tiles of all Cs."""
        return -(-call.m // self.bm) * -(-call.n // self.bn) * call.batches

    def splits(self, call: SgemmCall, chip: Chip) -> tuple[int, ...]:
        """The numbers of blocks a tile that make sense: up to a few blocks a multiprocessor."""
        tiles, depth = self.tiles(call), -(-call.k // self.bk)
        return tuple(
            splits
            for splits in self.SPLITS
            if splits == 1
            or (
                splits <= depth
                and tiles <= FLAGS
                and tiles * splits <= 8 * chip.multiprocessors
                and 4 * tiles * splits * self.bm * self.bn
                <= PARTIAL_BYTES_PER_MULTIPROCESSOR * chip.multiprocessors
            )
        )

    @abstractmethod
    def plan(self, call: SgemmCall, splits: int, chip: Chip) -> LaunchPlan:
        """How it is launched."""

    @abstractmethod
    def cost_us(self, call: SgemmCall, splits: int, chip: Chip) -> float:
        """About how long it takes, where nothing has been measured."""


@dataclass(frozen=True, slots=True)
class StreamKKernel(SgemmKernel):
    """``cu/sgemm_stream_k.cu``: a block a multiprocessor, equal shares of the whole sum."""

    _THREADS: ClassVar[int] = 256
    _SHARED_BYTES: ClassVar[int] = 64 << 10
    #: Of the FFMA pipe, where operands are copied by 16 bytes, and by 4.
    _EFFICIENCY: ClassVar[tuple[float, float]] = (0.84, 0.78)
    #: Clocks of storing a tile, of adding up one that is cut, and of each piece beyond.
    _STORE, _CUT, _PIECE = 8000, 18000, 2000

    def accepts(self, call: SgemmCall) -> bool:
        strides = (
            *((call.a.row, call.m), (call.a.column, call.k)),
            *((call.b.row, call.k), (call.b.column, call.n)),
        )
        far = any(abs(stride) >= _FAR for stride, extent in strides if extent > 1)
        return (
            SgemmKernel.accepts(self, call)
            and call.m >= self.bm
            and call.n >= self.bn
            and Kind.ANY not in (call.a_kind, call.b_kind)
            # Its counts of k-tiles have 32 bits.
            and -(-call.k // self.bk) * min(self.tiles(call), 2 * FLAGS) < 2**31
            and not far
        )

    def plan(self, call: SgemmCall, splits: int, chip: Chip) -> LaunchPlan:
        blocks = min(chip.multiprocessors, FLAGS)
        b = Kind.K4 if call.b_kind.along_k else call.b_kind
        return LaunchPlan(
            source="sgemm_stream_k.cu",
            expression=f"sgemm_stream_k<{call.a_kind.value}, {b.value}>",
            blocks=blocks,
            threads=self._THREADS,
            shared_bytes=self._SHARED_BYTES,
            splits=1,
            needs_workspace=True,
            pays_rewriting=True,
        )

    def cost_us(self, call: SgemmCall, splits: int, chip: Chip) -> float:
        tiles, blocks = self.tiles(call), chip.multiprocessors
        wide, narrow = self._EFFICIENCY
        by_four = Kind.K4 in (call.a_kind, call.b_kind) or Kind.X4 in (call.a_kind, call.b_kind)
        steps = tiles * -(-call.k // self.bk) * self.bk / blocks
        clocks = steps * self.bm * self.bn / chip.ffma_lanes / (narrow if by_four else wide)
        clocks += -(-tiles // blocks) * self._STORE
        if tiles % blocks:
            pieces = 1 + blocks / min(tiles, 2 * blocks)
            clocks += self._CUT + self._PIECE * pieces
        return _LAUNCH_US + max(clocks / chip.clock_hz * 1e6, _memory_us(call, chip))


@dataclass(frozen=True, slots=True)
class TileKernel(SgemmKernel):
    """``cu/sgemm_tile.cu``: a block a tile, or several; ``slices`` groups of its warps share it.

    For :meth:`cost_us`: ``efficiency`` is the part of the FFMA pipe that full multiprocessors use;
    ``step_clocks`` are those of a k-tile at the least, ``start_clocks`` those of a block beside its
    k-tiles, ``add_clocks`` those of adding up what blocks share. Fitted to the times of the suite's
    shapes on an H200, which they give within 6 to 16 % in the mean.
    """

    tm: int = 8
    tn: int = 8
    slices: int = 1
    stages: int = 4
    resident: int = 1
    efficiency: float = 0.7
    step_clocks: int = 500
    start_clocks: int = 2000
    add_clocks: int = 2000

    SPLITS: ClassVar[tuple[int, ...]] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 33, 48, 66, 132)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.bm * self.bn // self.tm // self.tn * self.slices

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory per block: the k-tiles on their way, then the slices' sums."""
        tiles = 4 * self.stages * self.bk * (self.bm + 4 + self.bn + 4)
        sums = 4 * self.slices * self.bm * (self.bn + 4) if self.slices > 1 else 0
        return max(tiles, sums)

    def plan(self, call: SgemmCall, splits: int, chip: Chip) -> LaunchPlan:
        a, b = (Kind.K4 if kind.along_k else kind for kind in (call.a_kind, call.b_kind))
        sizes = (
            *(self.bm, self.bn, self.bk, self.tm, self.tn),
            *(self.slices, self.stages, self.resident),
        )
        return LaunchPlan(
            source="sgemm_tile.cu",
            expression=f"sgemm_tile<{', '.join(map(str, sizes))}, {a.value}, {b.value}>",
            blocks=self.tiles(call) * splits,
            threads=self.threads,
            shared_bytes=self.shared_bytes,
            splits=splits,
            needs_workspace=splits > 1,
            pays_rewriting=self.tm * self.tn >= 64,
        )

    def cost_us(self, call: SgemmCall, splits: int, chip: Chip) -> float:
        blocks = self.tiles(call) * splits
        turns = -(-blocks // chip.multiprocessors)  # blocks of the busiest multiprocessor
        waves = -(-turns // self._fitting())
        k_tiles = -(-call.k // (self.bk * splits))
        step = self.bm * self.bn * self.bk / chip.ffma_lanes / self.efficiency
        store = 4 * self.bm * self.bn / _STORE_BYTES_PER_CLOCK
        busy = turns * (k_tiles * step + store)
        clocks = max(busy, waves * k_tiles * self.step_clocks) + waves * self.start_clocks
        if splits > 1:
            clocks += self.add_clocks + 4 * splits * self.bm * self.bn / _ADD_BYTES_PER_CLOCK
        return _LAUNCH_US + max(clocks / chip.clock_hz * 1e6, _memory_us(call, chip))

    def _fitting(self) -> int:
        """Blocks on a multiprocessor at once, about."""
        registers = 128 if self.tm * self.tn >= 64 else 96
        shared = _SHARED_BYTES // (self.shared_bytes + 1024)
        return max(1, min(32, _REGISTERS // (self.threads * registers), shared))


@dataclass(frozen=True, slots=True)
class GemvKernel(SgemmKernel):
    """``cu/sgemm_gemv.cu``: one column, A read once.

    ``along_k`` says which of its two kernels: for an A that is contiguous along k, or along m.
    """

    along_k: bool = True

    SPLITS: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64, 128)
    _THREADS: ClassVar[int] = 256

    def accepts(self, call: SgemmCall) -> bool:
        right = call.a_kind is not Kind.ANY and call.a_kind.along_k == self.along_k
        return SgemmKernel.accepts(self, call) and call.n == 1 and right

    def plan(self, call: SgemmCall, splits: int, chip: Chip) -> LaunchPlan:
        wide = call.a_kind in (Kind.K16, Kind.X16)
        if self.along_k:
            x = call.b_kind is Kind.K16 and wide
            width = 4 if wide else 1
            x_width = width if x or (not wide and call.b.row == 1) else 0
            expression = f"sgemm_gemv_k<{width}, {x_width}, {self.bm}>"
        else:
            expression = f"sgemm_gemv_m<{4 if wide else 1}>"
        return LaunchPlan(
            source="sgemm_gemv.cu",
            expression=expression,
            blocks=self.tiles(call) * splits,
            threads=self._THREADS,
            shared_bytes=0,
            splits=splits,
            needs_workspace=splits > 1,
        )

    def cost_us(self, call: SgemmCall, splits: int, chip: Chip) -> float:
        blocks = self.tiles(call) * splits
        # Too few blocks do not have enough bytes on their way; too many cost their starts.
        share = min(1.0, blocks / (3 * chip.multiprocessors))
        reduction = 1.0 + splits * 0.03 if splits > 1 else 0.0
        if self.along_k and self.bm > 1:
            reduction += 1.0  # a warp has more of a row to read than a block that shares it
        return _LAUNCH_US + reduction + _memory_us(call, chip) / share


#: A launch back to back with others.
_LAUNCH_US = 2.0
#: Of a multiprocessor: to a C that nobody waits for, and from partial sums one after the other.
_STORE_BYTES_PER_CLOCK, _ADD_BYTES_PER_CLOCK = 64, 32
_REGISTERS, _SHARED_BYTES = 65536, 227 << 10


def _memory_us(call: SgemmCall, chip: Chip) -> float:
    bandwidth = chip.dram_bytes_per_s * (1.5 if call.bytes_moved < chip.l2_bytes / 2 else 1.0)
    return call.bytes_moved / bandwidth * 1e6


def _tile(
    bm: int,
    bn: int,
    bk: int,
    tm: int,
    tn: int,
    *cost: float,
    slices: int = 1,
    stages: int,
    resident: int,
) -> TileKernel:
    efficiency, step, start, add = cost
    return TileKernel(
        f"tile{bm}x{bn}x{bk}", bm, bn, bk, tm, tn, slices, stages, resident, efficiency,
        int(step), int(start), int(add),
    )  # fmt: skip


#: All kernels, the ones for large problems first.
KERNELS: tuple[SgemmKernel, ...] = (
    StreamKKernel("stream_k", 256, 128, 8),
    _tile(128, 128, 8, 8, 8, 0.75, 1500, 4000, 2000, stages=4, resident=2),
    _tile(128, 64, 16, 8, 8, 0.65, 100, 4000, 1000, slices=2, stages=4, resident=2),
    _tile(64, 128, 16, 8, 8, 0.75, 100, 4000, 1000, slices=2, stages=4, resident=2),
    _tile(128, 64, 8, 8, 8, 0.65, 1000, 4000, 1000, stages=4, resident=4),
    _tile(64, 128, 8, 8, 8, 0.7, 1000, 4000, 1000, stages=4, resident=4),
    _tile(64, 64, 32, 8, 8, 0.65, 100, 4000, 1000, slices=4, stages=3, resident=2),
    _tile(64, 64, 8, 8, 4, 0.6, 500, 2500, 1000, stages=4, resident=5),
    _tile(128, 32, 32, 8, 8, 0.55, 100, 4000, 1000, slices=4, stages=3, resident=2),
    _tile(32, 128, 32, 4, 8, 0.6, 100, 3000, 1000, slices=2, stages=3, resident=2),
    _tile(32, 32, 32, 4, 4, 0.45, 600, 1500, 2000, slices=4, stages=4, resident=3),
    _tile(32, 32, 16, 4, 8, 0.45, 1000, 1500, 3000, stages=3, resident=16),
    _tile(128, 16, 32, 4, 4, 0.35, 1500, 3000, 2000, slices=2, stages=4, resident=3),
    _tile(32, 16, 64, 4, 4, 0.35, 800, 2000, 2000, slices=4, stages=3, resident=3),
    _tile(32, 16, 16, 4, 4, 0.35, 1200, 500, 2000, stages=2, resident=20),
    GemvKernel("gemv_k", 8, 1, 128, along_k=True),
    GemvKernel("gemv_row", 1, 1, 1024, along_k=True),
    GemvKernel("gemv_m", 128, 1, 8, along_k=False),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel, and how many blocks share the sum of a tile.

    Examples
    --------
    >>> Choice.parse("tile64x64x8/4")
    Choice(kernel='tile64x64x8', splits=4)
    """

    kernel: str
    splits: int = 1

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Read ``"tile64x64x8/4"``; without a number it is 1.

        Raises
        ------
        ArgumentValueError
            There is no such kernel, or the number is none.
        """
        name, _, splits = text.partition("/")
        kernel_named(name)
        if splits and not (splits.isdecimal() and int(splits) > 0):
            raise ArgumentValueError(f"{text!r} is no choice of a kernel", "write tile64x64x8/4")
        return cls(name, int(splits or 1))

    def __str__(self) -> str:
        return f"{self.kernel}/{self.splits}" if self.splits > 1 else self.kernel


def kernel_named(name: str) -> SgemmKernel:
    """A kernel by its name.

    Raises
    ------
    ArgumentValueError
        There is none of that name.
    """
    for kernel in KERNELS:
        if kernel.name == name:
            return kernel
    names = ", ".join(kernel.name for kernel in KERNELS)
    raise ArgumentValueError(f"no kernel of sgemm is called {name!r}", f"there are {names}")


def choices(call: SgemmCall, chip: Chip) -> tuple[Choice, ...]:
    """What can compute a call, the one that should be fastest first."""
    return tuple(choice for _, choice in priced_choices(call, chip))


def priced_choices(call: SgemmCall, chip: Chip) -> list[tuple[float, Choice]]:
    """What can compute a call, with the microseconds that the model gives it, in their order."""
    found = [
        (kernel.cost_us(call, splits, chip), Choice(kernel.name, splits))
        for kernel in KERNELS
        if kernel.accepts(call)
        for splits in kernel.splits(call, chip)
    ]
    return sorted(found, key=lambda each: each[0])
