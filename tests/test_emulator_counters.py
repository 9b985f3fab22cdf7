"""The emulator counts what Nsight Compute counted on an H200, instruction by instruction."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lowgemm.emulator import Counts, Emulator, EmulatorKernel
from lowgemm.gemm import RUNG_NAMES, GemmProblem, RungKernel, random_operands, rung
from lowgemm.studies.executed_counters import RungExecution, code_sha256, executed_counters
from lowgemm.studies.ladder import upload_operands

PROBLEM = GemmProblem(512, 512, 512)
#: Metrics of each instruction, and the emulator's counters of the same.
PER_INSTRUCTION = {
    "inst_executed": "warps",
    "thread_inst_executed_true": "threads",
    "memory_l1_wavefronts_shared": "shared_wavefronts",
    "memory_l1_wavefronts_shared_ideal": "ideal_shared_wavefronts",
    "memory_l2_theoretical_sectors_global": "global_sectors",
    "memory_l2_theoretical_sectors_global_ideal": "ideal_global_sectors",
}
#: Metrics of a launch, and the operation whose warps each counts.
PER_LAUNCH = {
    "smsp__sass_inst_executed_op_shared_ld.sum": "LDS",
    "smsp__sass_inst_executed_op_shared_st.sum": "STS",
    "smsp__sass_inst_executed_op_global_ld.sum": "LDG",
    "smsp__sass_inst_executed_op_global_st.sum": "STG",
    "smsp__sass_inst_executed_op_ldgsts.sum": "LDGSTS",
}


@cache
def _both(name: str) -> tuple[RungExecution, Counts]:
    """What was measured and what is emulated of a rung; the tests of one rung share it."""
    measured = executed_counters().rungs[name]
    with Emulator("sm_90") as device:
        kernel = RungKernel(device, rung(name, "sm_90"))
        if code_sha256(kernel.build.cubin, measured.kernel) != measured.code_sha256:
            pytest.skip("this NVRTC makes other machine code than the one that was measured")
        a, b, c = (device.empty(512 * 512) for _ in "abc")
        upload_operands(PROBLEM, random_operands(PROBLEM), a, b)
        kernel.prepare(PROBLEM, a, b, c).launch()
        counted = kernel.module.kernel(measured.kernel)
        assert isinstance(counted, EmulatorKernel)
        return measured, counted.counts


#: Rungs that came after the measurement.
LATER = ("ex11", "ex12", "ex12_rewritten", "ex13", "ex13_rewritten")
MEASURED = tuple(name for name in RUNG_NAMES if name not in LATER)
#: The first rungs execute ten times as much as the others.
LONG = ("ex3", "ex4_16", "ex4_32")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in MEASURED],
)
def test_counts_are_those_of_nsight_compute(name: str) -> None:
    """Warps, threads, wavefronts and sectors of every instruction equal the counters exactly."""
    measured, counts = _both(name)
    assert dict(measured.opcodes["sass__inst_executed_per_opcode"]) == counts.by_opcode()
    for metric, field in PER_INSTRUCTION.items():
        ours = getattr(counts, field)
        if metric not in measured.instructions:  # ncu has no column for what a kernel never does
            assert not ours.any()
            continue
        theirs = np.array([value or 0 for value in measured.instructions[metric]])
        different = np.flatnonzero(theirs != ours[: len(theirs)])
        assert not len(different), (
            f"{metric}: {[(hex(16 * i), theirs[i], ours[i]) for i in different[:5]]}"
        )
        assert not ours[len(theirs) :].any()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in MEASURED],
)
def test_sums_are_those_of_nsight_compute(name: str) -> None:
    """The launch's own totals are the sums of what the emulator counts."""
    measured, counts = _both(name)
    metrics = measured.metrics
    ffma = counts.of_opcode("FFMA", threads=True)
    assert metrics["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == ffma
    assert metrics["smsp__sass_inst_executed.sum"] == counts.warps.sum()
    for metric, opcode in PER_LAUNCH.items():
        # What a constant predicate turns off (@!PT LDS RZ) executes, and is no access.
        accesses = [
            int(warps)
            for each, warps in zip(counts.kernel.instructions, counts.warps, strict=True)
            if each.name == opcode and not each.is_filler
        ]
        assert metrics[metric] == sum(accesses), metric


def test_the_compared_metrics_were_all_measured() -> None:
    """No metric drops out of the comparison because the data lack it."""
    measured = executed_counters().rungs
    assert {*measured, *LATER} == set(RUNG_NAMES)
    for name in MEASURED:
        lacks = set(PER_INSTRUCTION) - set(measured[name].instructions)
        shared = {"memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"}
        assert lacks == (shared if name == "ex3" else set())
