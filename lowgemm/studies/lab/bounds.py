"""What an SM's pipes need for the instructions of its warps, and which of them need the most."""

from __future__ import annotations

from collections.abc import Mapping

from lowgemm.hardware import GpuRecord
from lowgemm.hardware.shared_memory import LOAD_EXTRA_CYCLES_PER_ROW
from lowgemm.studies.lab.experiment import MachineCode, Prediction

__all__ = ["ffma_cycles", "issue_cycles", "issue_cycles_per_ffma", "lost_cycles", "slowest"]

#: Registers that a load from shared memory writes.
_ROWS = {"LDS.32": 1, "LDS.64": 2, "LDS.128": 4}


def ffma_cycles(gpu: GpuRecord, ffma: float, warps: int) -> float:
    """Cycles in which the FP32 lanes of an SM do so many FFMAs of so many warps."""
    capability = gpu.capability
    return ffma * warps * capability.threads_per_warp / capability.ffma_lanes_per_sm


def issue_cycles(
    gpu: GpuRecord, instructions: float, warps: int, code: MachineCode | None = None
) -> float:
    """Cycles in which an SM's schedulers, an instruction each a cycle, issue a loop's instructions.

    Parameters
    ----------
    gpu
        The GPU.
    instructions
        What one iteration has for certain; for where the machine code is not known.
    warps
        Warps that do it.
    code
        The loop: its instructions, and where an FFMA leaves no cycle between two issues, what
        :func:`lost_cycles` adds.
    """
    capability = gpu.capability
    slots = code.instructions + lost_cycles(gpu, code) if code else instructions
    return slots * warps / capability.partitions_per_sm


def issue_cycles_per_ffma(gpu: GpuRecord, code: MachineCode | None) -> float:
    """Cycles of a sub-partition that an FFMA of the hot loop takes, with its share of the rest.

    A sub-partition issues one instruction a cycle, less what :func:`lost_cycles` says. On chips
    with 64 FFMA lanes per SM an FFMA occupies its pipe for two cycles, and the rest goes in
    between. Without machine code only the pipe counts.
    """
    cc = gpu.capability
    pipe = cc.threads_per_warp * cc.partitions_per_sm / cc.ffma_lanes_per_sm
    ffmas = code.mix.get("FFMA", 0) if code else 0
    if code is None or not ffmas:
        return pipe
    return max(pipe, (code.instructions + lost_cycles(gpu, code)) / ffmas)


def lost_cycles(gpu: GpuRecord, code: MachineCode) -> float:
    """Cycles of a sub-partition that an iteration loses beside its issue slots.

    They are those of register-bank conflicts and those in which loads from shared memory write
    their registers. Where an FFMA takes two cycles of its pipe there are none: the rest goes in
    between.
    """
    capability = gpu.capability
    partition_lanes = capability.ffma_lanes_per_sm // capability.partitions_per_sm
    if partition_lanes < capability.threads_per_warp:
        return 0.0
    rows = sum(n * _ROWS.get(name, 0) for name, n in code.mix.items())
    return (code.conflict_cycles or 0) + rows * LOAD_EXTRA_CYCLES_PER_ROW


def slowest(cycles: Mapping[str, float]) -> Prediction:
    """The pipes work side by side: the time is that of the one that needs the most."""
    need = ", ".join(f"{name} {value:.4g}" for name, value in cycles.items())
    binding = max(cycles, key=lambda name: cycles[name])
    return Prediction(float(cycles[binding]), f"{need}; bound by {binding}")
