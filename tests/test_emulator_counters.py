"""The emulator counts what Nsight Compute counted on an H200, instruction by instruction."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from lowgemm.binary.flow import sass_flow
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
        device.multiprocessors = executed_counters().multiprocessors  # stream-K's grid is of them
        kernel = RungKernel(device, rung(name, "sm_90"))
        if code_sha256(kernel.build.cubin, measured.kernel) != measured.code_sha256:
            pytest.skip("this NVRTC makes other machine code than the one that was measured")
        a, b, c = (device.empty(512 * 512) for _ in "abc")
        upload_operands(PROBLEM, random_operands(PROBLEM), a, b)
        kernel.prepare(PROBLEM, a, b, c).launch()
        counted = kernel.module.kernel(measured.kernel)
        assert isinstance(counted, EmulatorKernel)
        return measured, counted.counts


def _settled(counts: Counts) -> NDArray[np.bool_]:
    """The instructions whose counts do not depend on time, and that ncu does not count by mistake.

    A warp that waits for another block or for a bulk copy asks as often as it has to. The code that
    a rewriter put behind a kernel's last instruction comes after its fillers: ncu gives these the
    counts of the block in front, and its count of the whole launch in hardware does not.
    """
    kernel = counts.kernel
    settled = np.ones(len(kernel.instructions), np.bool_)
    flow = sass_flow(kernel)
    for block in flow.blocks:
        part = slice(block.first, block.last + 1)
        names = {each.name for each in kernel.instructions[part]}
        asks = block.index in block.successors and bool(names & {"LDG", "SYNCS"})
        if asks and "FFMA" not in names:
            settled[part] = False
        if not flow.reachable(block.index):
            assert not counts.warps[part].any()
            settled[part] = False
    return settled


def _waits(counts: Counts) -> bool:
    """Whether some warp waited in a loop, on the emulator or, as often as it liked, on the GPU."""
    return bool(counts.warps[~_settled(counts)].any())


#: The first rungs execute ten times as much as the others; the last does what ex13 does.
LONG = ("ex3", "ex4_16", "ex4_32", "ex13_rewritten")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in RUNG_NAMES],
)
def test_counts_are_those_of_nsight_compute(name: str) -> None:
    """Warps, threads, wavefronts and sectors of every instruction equal the counters exactly."""
    measured, counts = _both(name)
    settled = _settled(counts)
    if settled.all():
        assert dict(measured.opcodes["sass__inst_executed_per_opcode"]) == counts.by_opcode()
    for metric, field in PER_INSTRUCTION.items():
        ours = getattr(counts, field)
        if metric not in measured.instructions:  # ncu has no column for what a kernel never does
            assert not ours.any()
            continue
        theirs = np.array([value or 0 for value in measured.instructions[metric]])
        different = np.flatnonzero(settled & (theirs != ours))
        assert not len(different), (
            f"{metric}: {[(hex(16 * i), theirs[i], ours[i]) for i in different[:5]]}"
        )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in RUNG_NAMES],
)
def test_sums_are_those_of_nsight_compute(name: str) -> None:
    """The launch's own totals are the sums of what the emulator counts."""
    measured, counts = _both(name)
    metrics, requests = measured.metrics, counts.global_requests
    ffma = counts.of_opcode("FFMA", threads=True)
    assert metrics["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == ffma
    if not _waits(counts):
        assert metrics["smsp__inst_executed.sum"] == counts.warps.sum()
    for metric, opcode in PER_LAUNCH.items():
        if opcode == "LDG" and _waits(counts):
            continue
        # A warp without a thread that takes part makes no access; to shared memory there is none
        # such here but what a constant predicate turns off (@!PT LDS RZ).
        accesses = counts.warps if metric.rpartition("_op_")[2].startswith("shared") else requests
        chosen = [i.name == opcode and not i.is_filler for i in counts.kernel.instructions]
        assert metrics[metric] == accesses[chosen].sum(), metric


def test_the_compared_metrics_were_all_measured() -> None:
    """No metric drops out of the comparison because the data lack it."""
    measured = executed_counters().rungs
    assert set(measured) == set(RUNG_NAMES)
    for name in RUNG_NAMES:
        lacks = set(PER_INSTRUCTION) - set(measured[name].instructions)
        shared = {"memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"}
        assert lacks == (shared if name == "ex3" else set())
