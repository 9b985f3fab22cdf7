"""What an SM's pipes need for the instructions of its warps, and which of them need the most."""

from __future__ import annotations

from collections.abc import Mapping

from lowgemm.hardware import GpuRecord
from lowgemm.studies.lab.experiment import MachineCode, Prediction

__all__ = ["ffma_cycles", "issue_cycles", "slowest"]


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
        The loop: its instructions, and where an FFMA leaves no cycle between two issues, its
        register-bank conflicts, each of which keeps a scheduler from one issue.
    """
    capability = gpu.capability
    slots = float(code.instructions if code else instructions)
    partition_lanes = capability.ffma_lanes_per_sm // capability.partitions_per_sm
    if code and partition_lanes == capability.threads_per_warp:
        slots += code.conflict_cycles or 0
    return slots * warps / capability.partitions_per_sm


def slowest(cycles: Mapping[str, float]) -> Prediction:
    """The pipes work side by side: the time is that of the one that needs the most."""
    need = ", ".join(f"{name} {value:.4g}" for name, value in cycles.items())
    binding = max(cycles, key=lambda name: cycles[name])
    return Prediction(float(cycles[binding]), f"{need}; bound by {binding}")
