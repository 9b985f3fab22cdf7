"""What the levels of memory give an SM: bytes per cycle and cycles of latency.

A GPU's own figures come first; what its record does not tell is the middle of the table's.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware.gpus import GPUS, GpuRecord

__all__ = [
    "L2_PORT_BYTES_PER_CYCLE",
    "LEVELS",
    "SM_BYTES_PER_CYCLE",
    "LevelFigure",
    "bandwidth",
    "latency",
]

#: The levels, nearest first.
LEVELS = ("shared", "l1", "l2", "dram")
#: Shared memory and L1 are one array of 32 banks of 4 bytes (CUDA C++ Programming Guide).
SM_BYTES_PER_CYCLE = 128
#: What an SM takes from L2 at most: two sectors of 32 bytes a cycle (the peak of Nsight Compute's
#: ``l1tex__m_xbar2l1tex_read_bytes`` on 8.0 and 9.0).
L2_PORT_BYTES_PER_CYCLE = 64
# Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (2024): 29.0 on A100
# and H100, 30.1 on an RTX 4090.
_SHARED_LATENCY = 29.0


@dataclass(frozen=True, slots=True)
class LevelFigure:
    """A figure, in cycles or bytes per cycle and SM, and in words where it comes from."""

    value: float
    origin: str


def latency(gpu: GpuRecord, level: str) -> LevelFigure:
    """Cycles from a load to its value, on an idle GPU.

    Raises
    ------
    ArgumentValueError
        There is no such level; see :data:`LEVELS`.
    """
    field = f"{_checked(level)}_latency_cycles"
    own = getattr(gpu, field)
    if own is not None:
        return LevelFigure(own, f"{own:.0f} cycles, {gpu.source(field)}")
    known = [value for value in (getattr(other, field) for other in GPUS) if value is not None]
    if not known:
        return LevelFigure(_SHARED_LATENCY, f"{_SHARED_LATENCY:.0f} cycles, as on A100 and H100")
    middle = float(median(known))
    return LevelFigure(middle, f"{middle:.0f} cycles, the middle of the GPUs that are known")


def bandwidth(gpu: GpuRecord, level: str) -> LevelFigure:
    """Bytes per cycle that each SM gets while all of them read.

    Raises
    ------
    ArgumentValueError
        There is no such level; see :data:`LEVELS`.
    """
    if _checked(level) in ("shared", "l1"):
        return LevelFigure(float(SM_BYTES_PER_CYCLE), "32 banks of 4 bytes")
    if level == "dram":
        share = _share(gpu, gpu.dram_gb_per_s)
        return LevelFigure(share, f"{gpu.dram_gb_per_s:,.0f} GB/s over {gpu.sms} SMs")
    if gpu.l2_gb_per_s is not None:
        share = min(L2_PORT_BYTES_PER_CYCLE, _share(gpu, gpu.l2_gb_per_s))
        return LevelFigure(share, f"{gpu.l2_gb_per_s:,.0f} GB/s over {gpu.sms} SMs")
    shares = [_share(other, other.l2_gb_per_s) for other in GPUS if other.l2_gb_per_s is not None]
    return LevelFigure(float(median(shares)), "the middle of the GPUs that are known")


def _checked(level: str) -> str:
    if level not in LEVELS:
        raise ArgumentValueError(
            f"{level!r} is no level of memory", f"the levels are {', '.join(LEVELS)}"
        )
    return level


def _share(gpu: GpuRecord, gb_per_s: float) -> float:
    """Bytes per cycle and SM."""
    return gb_per_s / (gpu.sms * gpu.clock_ghz)
