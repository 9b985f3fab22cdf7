"""Tiles: how often they use what they load, and how large they must be.

Second seed, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real

from lowgemm.errors import ArgumentValueError
from lowgemm.model.levels import FLOAT_BYTES, Machine
from lowgemm.model.values import LARGEST_RATE, ceil_div, count, next_power_of_two, positive

__all__ = [
    "LoopNestCounts",
    "ReuseFactors",
    "TileRequirement",
    "TileTraffic",
    "largest_accumulator_tile",
    "register_tile_requirement",
    "reuse",
    "reuse_factors",
    "shared_tile_requirement",
    "tile_flop_per_byte",
    "tile_requirement",
    "tile_traffic",
    "walk_loop_nest",
]


def reuse(bm: int, bn: int) -> float:
    """How often a tile uses each input element on average: 2 bm bn / (bm + bn) (section 5.1.1).

    Each element of A serves bn outputs and each of B bm; the average weighs both by their number.

    Raises
    ------
    ArgumentValueError
        A side below 1.

    Examples
    --------
    >>> reuse(64, 64), reuse(1, 1)
    (64.0, 1.0)
    """
    bm, bn = count("bm", bm), count("bn", bn)
    return 2 * bm * bn / (bm + bn)


def tile_flop_per_byte(bm: int, bn: int) -> float:
    """FLOPs per byte that a tile loads: bm bn / (2 (bm + bn)), a quarter of its reuse.

    The first seed's first question: 0.25 without a tile, 32 at 128 x 128.

    Raises
    ------
    ArgumentValueError
        A side below 1.
    """
    return 2 * reuse(bm, bn) / (2 * FLOAT_BYTES)


@dataclass(frozen=True, slots=True)
class TileRequirement:
    """The smallest square tile that lets a level keep up.

    ``amplification`` is the exact ratio of need to supply, ``min_tile`` its ceiling, which is the
    side of the square tile of that reuse, and ``next_power_of_two`` the side to take in practice.
    """

    supply_bytes_per_cycle_per_sm: float
    need_bytes_per_cycle_per_sm: float
    amplification: float
    min_tile: int
    next_power_of_two: int


def tile_requirement(need: float, supply: float) -> TileRequirement:
    """How large a square tile must be so that ``supply`` looks like ``need`` (section 5.1.1).

    Parameters
    ----------
    need, supply
        Bytes per cycle and SM.

    Raises
    ------
    ArgumentValueError
        A rate that is not positive.
    """
    amplification = positive("need", need) / positive("supply", supply)
    side = max(1, math.ceil(amplification))
    return TileRequirement(supply, need, amplification, side, next_power_of_two(side))


def shared_tile_requirement(machine: Machine) -> TileRequirement:
    """The tile in shared memory that hides DRAM: 39, so 64, on an A100 (section 5.1.1)."""
    need = machine.need_bytes_per_cycle_per_sm
    return tile_requirement(need, machine.dram_bytes_per_cycle_per_sm)


def largest_accumulator_tile(machine: Machine) -> int:
    """Side of the largest square tile, a power of two, whose sums an SM's registers can hold.

    Half of the registers are left for everything else: 128 with the 64 Ki registers of every chip.
    A block tile beyond it cannot be output-stationary (section 3), whatever DRAM would like.
    """
    side = math.isqrt(machine.capability.registers_per_sm // 2)
    return 1 << side.bit_length() - 1


def register_tile_requirement(machine: Machine) -> TileRequirement:
    """The tile in registers that hides shared memory: 4 on an A100 (section 5.1.2)."""
    need = machine.need_bytes_per_cycle_per_sm
    return tile_requirement(need, machine.shared_bytes_per_cycle_per_sm)


@dataclass(frozen=True, slots=True)
class ReuseFactors:
    """Local factors of the seed's loop nest, and the global one (section 5.1.4).

    ``l1`` is how often the register level reads an element from the tile in shared memory, ``l2``
    how often the lanes read it from registers; an element that DRAM delivers once is used
    ``l1 * l2`` times in all. ``l1_exact`` and ``l2_exact`` are the ratios of the levels' rates.
    """

    l1_exact: float
    l2_exact: float
    l1: int
    l2: int
    shared_tile: int
    register_tile: int


def reuse_factors(machine: Machine) -> ReuseFactors:
    """Split the amplification between shared memory and registers, in powers of two.

    Section 5.1.4: locally, shared memory needs a factor of 128 / 13.3 = 9.6, hence 16, although
    its tile is 16 x 4 = 64.
    """
    l1_exact = machine.shared_bytes_per_cycle_per_sm / machine.dram_bytes_per_cycle_per_sm
    l2_exact = machine.need_bytes_per_cycle_per_sm / machine.shared_bytes_per_cycle_per_sm
    l1, l2 = next_power_of_two(max(1.0, l1_exact)), next_power_of_two(max(1.0, l2_exact))
    return ReuseFactors(l1_exact, l2_exact, l1, l2, shared_tile=l1 * l2, register_tile=l2)


# ---- the loop nest, walked


@dataclass(frozen=True, slots=True)
class LoopNestCounts:
    """What walking the loop nest read and wrote, in elements, and the reuse that follows.

    ``*_reads`` are the input elements that left a level: DRAM to the shared tile, the shared tile
    to the register tile, registers to the lanes. The reuse factors are ratios of these counts.
    """

    fma: int
    dram_reads: int
    shared_reads: int
    register_reads: int
    output_writes: int

    @property
    def local_l1(self) -> float:
        """Reads from the shared tile per element that DRAM delivered."""
        return self.shared_reads / self.dram_reads

    @property
    def local_l2(self) -> float:
        """Reads from registers per element that the shared tile delivered."""
        return self.register_reads / self.shared_reads

    @property
    def global_reuse(self) -> float:
        """Uses in the lanes per element that DRAM delivered."""
        return self.register_reads / self.dram_reads


class _Level:
    """A matrix at one level of the hierarchy; it counts the elements that are read from it."""

    def __init__(self, values: list[list[float]]) -> None:
        self.values = values
        self.reads = 0

    def tile(self, rows: range, columns: range) -> _Level:
        """Copy a tile to the next level."""
        self.reads += len(rows) * len(columns)
        return _Level([[self.values[row][column] for column in columns] for row in rows])

    def element(self, row: int, column: int) -> float:
        self.reads += 1
        return self.values[row][column]


#: A walk of more multiply-adds than this takes too long in Python.
_LONGEST_WALK = 2**21

_Matrix = list[list[float]]


def walk_loop_nest(
    a: _Matrix, b: _Matrix, *, l1: int, l2: int
) -> tuple[list[list[float]], LoopNestCounts]:
    """Run the seed's loop nest (section 5.1.4) and count every access.

    Parameters
    ----------
    a, b
        The operands, m x k and k x n, as lists of rows.
    l1, l2
        Local reuse factors: register tiles along a side of the shared tile, elements along a side
        of the register tile. l1 l2 must divide m and n.

    Returns
    -------
    tuple
        C = A B, and the counts.

    Raises
    ------
    ArgumentValueError
        Operands that do not fit together, factors that do not divide them, or a walk too long.
    """
    l1, l2 = count("l1", l1), count("l2", l2)
    m, n, k = _walkable(a, b, l1 * l2)
    ga, gb = _Level(_numbers("a", a)), _Level(_numbers("b", b))
    c = [[0.0] * n for _ in range(m)]
    shared, registers, fma = [], [], 0
    side = l1 * l2
    for m0 in range(0, m, side):
        for n0 in range(0, n, side):
            # DRAM to shared memory: once for the whole tile.
            sa = ga.tile(range(m0, m0 + side), range(k))
            sb = gb.tile(range(k), range(n0, n0 + side))
            for m1 in range(0, side, l2):
                for n1 in range(0, side, l2):
                    # Shared memory to registers: once for each register tile.
                    ra = sa.tile(range(m1, m1 + l2), range(k))
                    rb = sb.tile(range(k), range(n1, n1 + l2))
                    fma += _register_tile(c, ra, rb, m0 + m1, n0 + n1)
                    registers += [ra, rb]
            shared += [sa, sb]
    counts = LoopNestCounts(
        fma=fma,
        dram_reads=_reads((ga, gb)),
        shared_reads=_reads(shared),
        register_reads=_reads(registers),
        output_writes=m * n,
    )
    return c, counts


def _register_tile(c: _Matrix, ra: _Level, rb: _Level, row: int, column: int) -> int:
    side, depth = len(ra.values), len(rb.values)
    for m2 in range(side):
        for n2 in range(side):
            for k in range(depth):
                c[row + m2][column + n2] += ra.element(m2, k) * rb.element(k, n2)
    return side * side * depth


def _reads(levels: Iterable[_Level]) -> int:
    return sum(level.reads for level in levels)


def _walkable(a: _Matrix, b: _Matrix, side: int) -> tuple[int, int, int]:
    for name, matrix in (("a", a), ("b", b)):
        rows = matrix if isinstance(matrix, list | tuple) else [None]
        if not all(isinstance(row, list | tuple) for row in rows):
            raise ArgumentValueError(
                f"{name} is no list of rows", "give a list of lists of numbers"
            )
    m, k = len(a), len(b)
    n = len(b[0]) if b else 0
    if not m * n * k or any(len(row) != k for row in a) or any(len(row) != n for row in b):
        raise ArgumentValueError(
            f"operands of {m} and {k} rows that do not fit together",
            "give A as m rows of k numbers and B as k rows of n numbers, none of them empty",
        )
    if m % side or n % side:
        raise ArgumentValueError(
            f"tiles of {side} do not divide an output of {m} x {n}", "choose l1 l2 to divide both"
        )
    if m * n * k > _LONGEST_WALK:
        raise ArgumentValueError(
            f"walking {m} x {n} x {k} multiply-adds in Python takes too long",
            f"stay below {_LONGEST_WALK} multiply-adds",
        )
    return m, n, k


def _numbers(name: str, matrix: _Matrix) -> _Matrix:
    for row in matrix:
        for value in row:
            if (
                not isinstance(value, Real)
                or isinstance(value, bool)
                or not abs(value) <= LARGEST_RATE
            ):
                raise ArgumentValueError(
                    f"{name} has an element that is no number to multiply",
                    f"give numbers of a size up to {LARGEST_RATE:g}",
                )
    return matrix


# ---- traffic of a whole problem


@dataclass(frozen=True, slots=True)
class TileTraffic:
    """Bytes that the blocks of a GEMM ask for, and how much of their work is real.

    ``reuse`` is the uses of an input element per request. ``full_tile_share`` is the share of the
    multiply-adds that is not on padding, when every block computes a whole tile.
    """

    blocks_m: int
    blocks_n: int
    a_bytes: int
    b_bytes: int
    c_bytes: int
    reuse: float
    flop_per_byte: float
    full_tile_share: float

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.blocks_m * self.blocks_n

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B that all blocks request."""
        return self.a_bytes + self.b_bytes


def tile_traffic(m: int, n: int, k: int, bm: int, bn: int) -> TileTraffic:
    """What the blocks of an output-stationary GEMM request from L2 and DRAM (section 5.1.1).

    Each of the ceil(n / bn) blocks of a row of tiles reads the same rows of A, each of the
    ceil(m / bm) of a column the same columns of B; tiles at the edges read only what is there. C is
    written once.

    Raises
    ------
    ArgumentValueError
        A size below 1.
    """
    m, n, k = count("m", m), count("n", n), count("k", k)
    bm, bn = count("bm", bm), count("bn", bn)
    blocks_m, blocks_n = ceil_div(m, bm), ceil_div(n, bn)
    a_elements, b_elements = m * k * blocks_n, k * n * blocks_m
    fma = m * n * k
    loaded = a_elements + b_elements
    return TileTraffic(
        blocks_m=blocks_m,
        blocks_n=blocks_n,
        a_bytes=FLOAT_BYTES * a_elements,
        b_bytes=FLOAT_BYTES * b_elements,
        c_bytes=FLOAT_BYTES * m * n,
        reuse=2 * fma / loaded,
        flop_per_byte=2 * fma / (FLOAT_BYTES * loaded),
        full_tile_share=m * n / (blocks_m * bm * blocks_n * bn),
    )
