"""The levels of the memory hierarchy, what each delivers, and what the FMA lanes eat.

Second seed, sections 2 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowgemm.hardware import ComputeCapability, GpuRecord
from lowgemm.model.values import count, positive

__all__ = [
    "FLOAT_BYTES",
    "OPERANDS_PER_FMA",
    "GemmIntensity",
    "Level",
    "LevelNeed",
    "Machine",
    "Roofline",
    "arithmetic_intensity",
    "level_needs",
    "ridge_fma_per_byte",
    "roofline",
]

FLOAT_BYTES = 4
#: Inputs that an FMA takes from memory. The third, the accumulator, stays in its register as long
#: as the dataflow is output-stationary at every level (section 3).
OPERANDS_PER_FMA = 2

#: One wavefront of 32 banks of 4 bytes a cycle, for loads, stores and L1 alike (CUDA C++
#: Programming Guide, "Shared Memory").
SHARED_BYTES_PER_CYCLE = 128.0
# Two banks in each sub-partition, a row of 32 lanes each a cycle (measured on an H200).
_REGISTER_BANKS = 2


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the hierarchy, as one SM sees it.

    ``capacity_bytes`` is the whole chip's for DRAM and L2 (None for DRAM, which holds everything)
    and one SM's for the others. ``bytes_per_cycle_per_sm`` is what it hands to the next level, and
    None where nobody has published it; so is ``latency_cycles``.
    """

    name: str
    capacity_bytes: int | None
    bytes_per_cycle_per_sm: float | None
    latency_cycles: float | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU as the model sees it: rates per cycle and SM.

    Any rate can be replaced (``dataclasses.replace``), for a what-if or to reason with rounded
    figures.

    Raises
    ------
    ArgumentValueError
        A rate or count that is not positive.
    """

    name: str
    capability: ComputeCapability
    sms: int
    clock_ghz: float
    dram_bytes_per_cycle_per_sm: float
    l2_bytes_per_cycle_per_sm: float | None
    shared_bytes_per_cycle_per_sm: float
    l2_bytes: int
    l1_latency_cycles: float | None = None
    shared_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    dram_latency_cycles: float | None = None

    def __post_init__(self) -> None:
        count("sms", self.sms)
        count("l2_bytes", self.l2_bytes)
        for name in (
            "clock_ghz",
            "dram_bytes_per_cycle_per_sm",
            "shared_bytes_per_cycle_per_sm",
        ):
            positive(name, getattr(self, name))
        for name in (
            "l2_bytes_per_cycle_per_sm",
            "l1_latency_cycles",
            "shared_latency_cycles",
            "l2_latency_cycles",
            "dram_latency_cycles",
        ):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    @classmethod
    def from_gpu(cls, gpu: GpuRecord) -> Machine:
        """Turn a GPU's figures into rates: GB/s over SMs and clock is bytes per cycle and SM.

        Section 2: 2039 GB/s over 108 SMs at 1.41 GHz are 13.4 bytes per cycle and SM on an A100.

        Raises
        ------
        UnknownArchitectureError
            lowgemm has no limits for its compute capability.
        """
        per_cycle = gpu.sms * gpu.clock_ghz
        return cls(
            name=gpu.name,
            capability=gpu.capability,
            sms=gpu.sms,
            clock_ghz=gpu.clock_ghz,
            dram_bytes_per_cycle_per_sm=gpu.dram_gb_per_s / per_cycle,
            l2_bytes_per_cycle_per_sm=gpu.l2_gb_per_s / per_cycle if gpu.l2_gb_per_s else None,
            shared_bytes_per_cycle_per_sm=SHARED_BYTES_PER_CYCLE,
            l2_bytes=round(gpu.l2_mib * 2**20),
            l1_latency_cycles=gpu.l1_latency_cycles,
            shared_latency_cycles=gpu.shared_latency_cycles,
            l2_latency_cycles=gpu.l2_latency_cycles,
            dram_latency_cycles=gpu.dram_latency_cycles,
        )

    @property
    def ffma_lanes_per_sm(self) -> int:
        """FMAs that an SM can do in a cycle."""
        return self.capability.ffma_lanes_per_sm

    @property
    def need_bytes_per_cycle_per_sm(self) -> int:
        """Input operands that the lanes eat at full rate (section 3): lanes x 2 x 4 bytes."""
        return self.ffma_lanes_per_sm * OPERANDS_PER_FMA * FLOAT_BYTES

    @property
    def register_bytes_per_cycle_per_sm(self) -> float:
        """What the register file's banks deliver, accumulators included."""
        cc = self.capability
        return float(cc.partitions_per_sm * _REGISTER_BANKS * cc.threads_per_warp * FLOAT_BYTES)

    @property
    def peak_tflops(self) -> float:
        """FP32 peak: two floating-point operations per lane and cycle."""
        return 2 * self.ffma_lanes_per_sm * self.sms * self.clock_ghz / 1000

    def levels(self) -> tuple[Level, ...]:
        """DRAM, L2, shared memory and registers, the farthest first."""
        cc = self.capability
        shared, registers = cc.shared_bytes_per_sm, cc.registers_per_sm * FLOAT_BYTES
        return (
            Level("DRAM", None, self.dram_bytes_per_cycle_per_sm, self.dram_latency_cycles),
            Level("L2", self.l2_bytes, self.l2_bytes_per_cycle_per_sm, self.l2_latency_cycles),
            Level(
                "shared memory",
                shared,
                self.shared_bytes_per_cycle_per_sm,
                self.shared_latency_cycles,
            ),
            Level("registers", registers, self.register_bytes_per_cycle_per_sm, None),
        )

    def with_dram_bytes_per_cycle(self, value: float) -> Machine:
        """The same machine with another DRAM rate, say the seed's rounded 13.3."""
        return replace(self, dram_bytes_per_cycle_per_sm=value)


# ---- the simple model: roofline


@dataclass(frozen=True, slots=True)
class GemmIntensity:
    """How much a GEMM computes for what it must move if every matrix moves once."""

    fma: int
    elements: int
    bytes: int
    fma_per_byte: float
    fma_per_element: float
    flop_per_byte: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the simple model allows: ``bound`` is ``"memory"`` or ``"compute"``."""

    fma_per_byte: float
    ridge_fma_per_byte: float
    fma_per_cycle_per_sm: float
    tflops: float
    bound: str


def arithmetic_intensity(m: int, n: int, k: int) -> GemmIntensity:
    """Work per compulsory traffic: A and B read once, C written once (section 2).

    Raises
    ------
    ArgumentValueError
        A size below 1.
    """
    m, n, k = count("m", m), count("n", n), count("k", k)
    fma, elements = m * n * k, m * k + k * n + m * n
    return GemmIntensity(
        fma=fma,
        elements=elements,
        bytes=FLOAT_BYTES * elements,
        fma_per_byte=fma / (FLOAT_BYTES * elements),
        fma_per_element=fma / elements,
        flop_per_byte=2 * fma / (FLOAT_BYTES * elements),
    )


def ridge_fma_per_byte(machine: Machine) -> float:
    """Intensity from which on DRAM no longer binds (section 2): lanes over bytes per cycle."""
    return machine.ffma_lanes_per_sm / machine.dram_bytes_per_cycle_per_sm


def roofline(machine: Machine, fma_per_byte: float) -> Roofline:
    """The simple model's rate: the lesser of the lanes and intensity times DRAM bandwidth.

    Raises
    ------
    ArgumentValueError
        The intensity is not positive.
    """
    intensity = positive("fma_per_byte", fma_per_byte)
    from_memory = intensity * machine.dram_bytes_per_cycle_per_sm
    rate = min(from_memory, float(machine.ffma_lanes_per_sm))
    return Roofline(
        fma_per_byte=intensity,
        ridge_fma_per_byte=ridge_fma_per_byte(machine),
        fma_per_cycle_per_sm=rate,
        tflops=2 * rate * machine.sms * machine.clock_ghz / 1000,
        bound="memory" if from_memory < machine.ffma_lanes_per_sm else "compute",
    )


# ---- the realistic model: every level must look as if it delivered what the lanes eat


@dataclass(frozen=True, slots=True)
class LevelNeed:
    """What a level delivers, what the lanes eat, and how often each byte must be used."""

    level: str
    supply_bytes_per_cycle_per_sm: float
    need_bytes_per_cycle_per_sm: float
    amplification: float


def level_needs(machine: Machine) -> tuple[LevelNeed, ...]:
    """The bandwidth amplification that each level needs (section 4), the farthest level first.

    A level whose rate is not known is left out.
    """
    need = float(machine.need_bytes_per_cycle_per_sm)
    return tuple(
        LevelNeed(level.name, supply, need, need / supply)
        for level in machine.levels()
        if (supply := level.bytes_per_cycle_per_sm) is not None
    )
