"""Rates and latencies of a GPU in an SM's terms: what several experiments predict from."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.hardware import GpuRecord, nearest_with
from lowgemm.studies.lab.bounds import lost_cycles
from lowgemm.studies.lab.experiment import MachineCode

__all__ = [
    "Figure",
    "dram_bytes_per_cycle",
    "issue_cycles_per_ffma",
    "l2_bytes_per_cycle",
    "latency_cycles",
]

_WARP_LANES = 32


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a GPU; ``note`` says whose it is where it is another's, and is empty else."""

    value: float
    note: str = ""


def dram_bytes_per_cycle(gpu: GpuRecord) -> float:
    """An SM's share of the memory's peak."""
    return gpu.dram_gb_per_s / (gpu.sms * gpu.clock_ghz)


def l2_bytes_per_cycle(gpu: GpuRecord) -> Figure:
    """What an SM reads from L2 a cycle while all read."""
    known = nearest_with(gpu, "l2_gb_per_s")
    return Figure((known.l2_gb_per_s or 0) / (known.sms * known.clock_ghz), _note(gpu, known))


def latency_cycles(gpu: GpuRecord, level: str) -> Figure:
    """The latency of ``"l1"``, ``"l2"`` or ``"dram"`` without load."""
    field = f"{level}_latency_cycles"
    known = nearest_with(gpu, field)
    return Figure(getattr(known, field), _note(gpu, known))


def issue_cycles_per_ffma(gpu: GpuRecord, code: MachineCode | None) -> float:
    """Cycles of a sub-partition that an FFMA of the hot loop takes, with its share of the rest.

    A sub-partition issues one instruction a cycle, less what :func:`lost_cycles` says. On chips
    with 64 FFMA lanes per SM an FFMA occupies its pipe for two cycles, and the rest goes in
    between. Without machine code only the pipe counts.
    """
    cc = gpu.capability
    pipe = _WARP_LANES * cc.partitions_per_sm / cc.ffma_lanes_per_sm
    ffmas = code.mix.get("FFMA", 0) if code else 0
    if code is None or not ffmas:
        return pipe
    return max(pipe, (code.instructions + lost_cycles(gpu, code)) / ffmas)


def _note(gpu: GpuRecord, known: GpuRecord) -> str:
    return "" if known is gpu or known.name == gpu.name else f" (that of the {known.name})"
