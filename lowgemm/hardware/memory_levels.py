"""What the levels of memory give an SM: bytes per cycle and cycles of latency.

The one place to ask for such a figure: a GPU's own comes first, and where its record has none that
of the nearest GPU stands in, with a note that says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware.dram import bytes_per_cycle_per_sm
from lowgemm.hardware.gpus import GpuRecord, figure

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
    """A figure, in cycles or bytes per cycle and SM.

    ``origin`` says in words where it comes from. ``note``, to stand behind the value, says whose it
    is where the GPU has none of its own, and is empty else.
    """

    value: float
    origin: str
    note: str = ""


def latency(gpu: GpuRecord, level: str) -> LevelFigure:
    """Cycles from a load to its value, on an idle GPU.

    Raises
    ------
    ArgumentValueError
        There is no such level; see :data:`LEVELS`.

    Examples
    --------
    >>> from lowgemm.hardware import gpu_record
    >>> latency(gpu_record("3090"), "dram").origin
    '556 cycles (that of the A40), public microbenchmark'
    """
    field = f"{_checked(level)}_latency_cycles"
    if level == "shared" and gpu.shared_latency_cycles is None:
        told = "as on A100 and H100"
        return LevelFigure(_SHARED_LATENCY, f"{_SHARED_LATENCY:.0f} cycles, {told}", f" ({told})")
    found = figure(gpu, field)
    source = found.owner.source(field)
    return LevelFigure(found.value, f"{found.value:.0f} cycles{found.note}, {source}", found.note)


def bandwidth(gpu: GpuRecord, level: str) -> LevelFigure:
    """Bytes per cycle that each SM gets while all of them read.

    Another GPU's figure is taken in its own cycles and SMs, so that their number does not matter.

    Raises
    ------
    ArgumentValueError
        There is no such level; see :data:`LEVELS`.

    Examples
    --------
    >>> from lowgemm.hardware import gpu_record
    >>> bandwidth(gpu_record("h100"), "l2").note
    ' (that of the H200 SXM)'
    """
    if _checked(level) in ("shared", "l1"):
        return LevelFigure(float(SM_BYTES_PER_CYCLE), "32 banks of 4 bytes")
    field = f"{level}_gb_per_s"
    found = figure(gpu, field)
    sms, clock_ghz = found.owner.sms, found.owner.clock_ghz
    share = bytes_per_cycle_per_sm(found.value, sms, clock_ghz)
    if level == "l2":
        share = min(L2_PORT_BYTES_PER_CYCLE, share)
    return LevelFigure(share, f"{found.value:,.0f} GB/s over {sms} SMs{found.note}", found.note)


def _checked(level: str) -> str:
    if level not in LEVELS:
        raise ArgumentValueError(
            f"{level!r} is no level of memory", f"the levels are {', '.join(LEVELS)}"
        )
    return level
