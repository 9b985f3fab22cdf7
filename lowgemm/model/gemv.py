"""GEMV: a kernel that memory binds, estimated without and with the L2's multicast.

Second seed, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.model.levels import FLOAT_BYTES, OPERANDS_PER_FMA, Machine, ridge_fma_per_byte
from lowgemm.model.tiling import reuse
from lowgemm.model.values import count

__all__ = ["GemvEstimate", "gemv"]


@dataclass(frozen=True, slots=True)
class GemvEstimate:
    """Both of the seed's estimates, and the time that the bytes alone take.

    ``fma_per_cycle_per_sm`` is without multicast: every SM fetches the vector for itself
    (section 7.1). ``fma_per_cycle_per_sm_multicast`` has each element leave DRAM once, the roofline
    (sections 7.2 and 7.3). ``fma_per_cycle_per_sm_tall`` is the latter's limit for many rows, a
    quarter of the bytes per cycle at one vector. ``time_us`` belongs to the multicast estimate, the
    result's own bytes included.
    """

    m: int
    n: int
    batch: int
    reuse: float
    reuse_multicast: float
    fma_per_byte: float
    ridge_fma_per_byte: float
    fma_per_cycle_per_sm: float
    fma_per_cycle_per_sm_multicast: float
    fma_per_cycle_per_sm_tall: float
    gflops: float
    gflops_multicast: float
    time_us: float


def gemv(machine: Machine, m: int, n: int, batch: int = 1) -> GemvEstimate:
    """Estimate Y = A X for A of m x n and ``batch`` vectors as the columns of X.

    One SM makes one row of Y (a tile of 1 x batch), straight from DRAM to registers.

    Parameters
    ----------
    machine
        The GPU.
    m, n
        Rows and columns of the matrix.
    batch
        Vectors that are multiplied with it at once.

    Raises
    ------
    ArgumentValueError
        A size below 1.
    """
    m, n, batch = count("m", m), count("n", n), count("batch", batch)
    supply, lanes = machine.dram_bytes_per_cycle_per_sm, float(machine.ffma_lanes_per_sm)
    operand_bytes = OPERANDS_PER_FMA * FLOAT_BYTES
    alone, together = reuse(1, batch), reuse(m, batch)
    rates = [min(lanes, factor * supply / operand_bytes) for factor in (alone, together)]
    moved = FLOAT_BYTES * (m * n + n * batch + m * batch)
    per_second = machine.sms * machine.clock_ghz  # in 10^9
    memory_us = moved / (supply * per_second * 1e3)
    compute_us = m * n * batch / (lanes * per_second * 1e3)
    return GemvEstimate(
        m=m,
        n=n,
        batch=batch,
        reuse=alone,
        reuse_multicast=together,
        fma_per_byte=together / operand_bytes,
        ridge_fma_per_byte=ridge_fma_per_byte(machine),
        fma_per_cycle_per_sm=rates[0],
        fma_per_cycle_per_sm_multicast=rates[1],
        fma_per_cycle_per_sm_tall=min(lanes, 2 * batch * supply / operand_bytes),
        gflops=2 * rates[0] * per_second,
        gflops_multicast=2 * rates[1] * per_second,
        time_us=max(memory_us, compute_us),
    )
