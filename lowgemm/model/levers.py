"""The seed's other levers on bandwidth, as terms of the model.

Second seed, sections 1.2 (dataflow) and 5.3 (the others).
"""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.model.levels import FLOAT_BYTES, Machine
from lowgemm.model.tiling import TileRequirement, reuse, tile_requirement
from lowgemm.model.values import ceil_div, count, positive, positive_or_zero, share

__all__ = [
    "DATAFLOWS",
    "Dataflow",
    "Lever",
    "compression",
    "dataflow",
    "fusion",
    "more_bandwidth",
    "sparsity",
]


@dataclass(frozen=True, slots=True)
class Lever:
    """A factor on the bandwidth of DRAM, and the shared tile that is then large enough."""

    name: str
    factor: float
    bytes_per_cycle_per_sm: float
    requirement: TileRequirement


def _lever(machine: Machine, name: str, factor: float) -> Lever:
    supply = factor * machine.dram_bytes_per_cycle_per_sm
    need = machine.need_bytes_per_cycle_per_sm
    return Lever(name, factor, supply, tile_requirement(need, supply))


def more_bandwidth(machine: Machine, factor: float) -> Lever:
    """Another memory of ``factor`` times the bandwidth.

    Raises
    ------
    ArgumentValueError
        The factor is not positive.
    """
    return _lever(machine, "more bandwidth", positive("factor", factor))


def compression(machine: Machine, ratio: float) -> Lever:
    """Data that travels in 1/``ratio`` of its bytes and is expanded where it is used.

    Raises
    ------
    ArgumentValueError
        The ratio is not positive.
    """
    return _lever(machine, "compression", positive("ratio", ratio))


def sparsity(machine: Machine, density: float, metadata_bits: float = 0.0) -> Lever:
    """Only non-zeros travel, each with ``metadata_bits`` that say where it belongs.

    A dense element of 32 bits becomes density (32 + metadata_bits) bits: 2 of 4 with 2 bits each
    give 1.88 instead of 2, and a bit mask costs 1 / density bits per non-zero.

    Raises
    ------
    ArgumentValueError
        A density that is no share, or negative metadata.
    """
    kept = share("density", density)
    bits = positive_or_zero("metadata_bits", metadata_bits)
    value_bits = 8 * FLOAT_BYTES
    return _lever(machine, "sparsity", value_bits / (kept * (value_bits + bits)))


def fusion(machine: Machine, bm: int, bn: int, batch: int) -> Lever:
    """``batch`` GEMMs that share A in one kernel: a tile of A is read once for all of them.

    Separate kernels read batch (bm + bn) elements a step along k, the fused one bm + batch bn: the
    reuse of a tile of bm x (batch bn), so it is a larger tile in disguise.

    Raises
    ------
    ArgumentValueError
        A size below 1.
    """
    batch = count("batch", batch)
    return _lever(machine, "fusion", reuse(bm, batch * count("bn", bn)) / reuse(bm, bn))


# ---- another dataflow

DATAFLOWS = ("output", "a", "b")


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Bytes between an SM's level and the next when one operand stays and the others stream.

    ``output_read_bytes`` are partial sums that come back to be added to.
    """

    stationary: str
    a_bytes: int
    b_bytes: int
    output_read_bytes: int
    output_write_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.a_bytes + self.b_bytes + self.output_read_bytes + self.output_write_bytes


def dataflow(m: int, n: int, k: int, bm: int, bn: int, bk: int, stationary: str) -> Dataflow:
    """Traffic of a GEMM whose tiles of one operand stay in place until they are used up.

    ``"output"``: a bm x bn tile of C stays; A passes once for every column of tiles, B once for
    every row of tiles, C is written once. ``"a"``: a bm x bk tile of A stays and is read once; a
    bk x n panel of B passes for each, and C's rows are written once for each tile along k and read
    back for all but the first. ``"b"`` is the mirror image with bk x bn tiles of B. Sections 1.2
    and 3: the output-stationary flow is the one without partial sums outside the SM.

    Raises
    ------
    ArgumentValueError
        A size below 1, or an unknown operand.
    """
    m, n, k = count("m", m), count("n", n), count("k", k)
    bm, bn, bk = count("bm", bm), count("bn", bn), count("bk", bk)
    if stationary not in DATAFLOWS:
        raise ArgumentValueError(
            f"{stationary!r} is no operand that can stay", f"use one of {', '.join(DATAFLOWS)}"
        )
    a, b, c = (FLOAT_BYTES * size for size in (m * k, k * n, m * n))
    rows, columns, steps = ceil_div(m, bm), ceil_div(n, bn), ceil_div(k, bk)
    if stationary == "output":
        return Dataflow("output", a * columns, b * rows, 0, c)
    back, out = c * (steps - 1), c * steps
    if stationary == "a":
        return Dataflow("a", a, b * rows, back, out)
    return Dataflow("b", a * columns, b, back, out)
