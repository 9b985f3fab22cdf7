"""Join what was compiled with what was measured into the ladder's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowgemm.analysis import SassReport
from lowgemm.device import Gpu
from lowgemm.gemm import RUNG_NAMES, GemmProblem
from lowgemm.measure import Timing
from lowgemm.report.provenance import run_facts
from lowgemm.report.records import LadderReport, LadderRow, Provenance
from lowgemm.studies.ladder import CompiledRung, EmulatedRung, LadderRun

__all__ = ["join_ladder", "provenance_of"]

_PICO = 1e-12
_MICRO = 1e-6
_RIGHT = "exact data without error, random data within the bound"


def tflops(problem: GemmProblem, time_us: float) -> float:
    """The rate of a GEMM in TFLOP/s."""
    return problem.flop / (time_us * _MICRO) * _PICO


def join_ladder(
    compiled: Sequence[CompiledRung],
    run: LadderRun | None = None,
    *,
    measured_arch: str | None = None,
    provenance: Provenance | None = None,
    unmeasured: str | None = None,
    machine_code: Mapping[tuple[str, str], SassReport] | None = None,
    emulated: Mapping[tuple[str, str], EmulatedRung] | None = None,
) -> LadderReport:
    """Make the ladder's report.

    Parameters
    ----------
    compiled
        The rungs, for any number of architectures.
    run
        What a GPU said of those compiled for ``measured_arch``; None where nothing ran.
    provenance
        Where the run's numbers come from.
    unmeasured
        Why nothing ran.
    machine_code
        Reports on the instances for aligned rows, by rung and architecture.
    emulated
        What the emulator said of them, by rung and architecture.
    """
    rows = []
    for item in compiled:
        static = _static_fields(item)
        if machine_code and (found := machine_code.get((item.rung.name, str(item.arch)))):
            static |= _loop_fields(found)
        if emulated and (ran := emulated.get((item.rung.name, str(item.arch)))):
            static |= _emulated_fields(ran)
        if run is not None and str(item.arch) == measured_arch:
            rows.append(LadderRow(**static, **_measured_fields(item, run)))  # type: ignore[arg-type]
        else:
            rows.append(LadderRow(**static))  # type: ignore[arg-type]
    return LadderReport(tuple(rows), provenance, unmeasured)


def _static_fields(item: CompiledRung) -> dict[str, object]:
    r = item.kernel.resources
    return {
        "rung": item.rung.name,
        "idea": item.rung.idea,
        "arch": str(item.arch),
        "kernel": item.kernel.display_name,
        "block_tile": (item.rung.bm, item.rung.bn, item.rung.bk),
        "thread_tile": (item.rung.tm, item.rung.tn),
        "threads": item.rung.threads,
        "registers": r.registers,
        "shared_bytes": item.shared_bytes,
        "stack_bytes": r.stack_bytes,
        "spill_store_bytes": r.spill_store_bytes,
        "spill_load_bytes": r.spill_load_bytes,
        "occupancy": item.occupancy.fraction,
        "blocks_per_sm": item.occupancy.blocks_per_sm,
        "occupancy_limiter": item.occupancy.limiter,
        "is_rewritten": item.is_rewritten,
    }


def _loop_fields(report: SassReport) -> dict[str, object]:
    if report.hot is None:
        return {}
    return {
        "hot_loop_instructions": report.hot.instructions,
        "hot_loop_ffma_share": report.hot.ffma_share,
        "hot_loop_lds_128": report.hot.mix.get("LDS.128", 0),
        "hot_loop_conflict_cycles": report.hot.conflict_cycles,
    }


def _emulated_fields(ran: EmulatedRung) -> dict[str, object]:
    check, executed = ran.check, ran.executed
    found = "; ".join(str(finding) for finding in ran.findings)
    right = check.passed and not ran.findings
    return {
        "problem": str(ran.problem),
        "correct": right,
        "check": _RIGHT if right else check.reason or found,
        "error_over_bound": check.error_over_bound if right else None,
        "executed_instructions": executed.instructions,
        "executed_ffma_share": executed.ffma_share,
        "executed_ffma_threads": executed.ffma_threads,
        "executed_shared_wavefronts": executed.shared_wavefronts,
        "executed_shared_wavefronts_ideal": executed.ideal_shared_wavefronts,
        "executed_global_sectors": executed.global_sectors,
        "executed_global_sectors_ideal": executed.ideal_global_sectors,
        "executed_conflict_ways": executed.worst_conflict_ways,
    }


def _measured_fields(item: CompiledRung, run: LadderRun) -> dict[str, object]:
    name = item.rung.name
    check, timing = run.checks[name], run.timings.get(name)
    fields: dict[str, object] = {
        "problem": str(run.problem),
        "correct": check.passed,
        "check": check.reason or _RIGHT,
        "error_over_bound": check.error_over_bound if check.passed else None,
    }
    if timing is None:
        return fields
    peer = run.peer.timing if run.peer else None
    fields |= {
        "time_us": timing.median_us,
        "time_q1_us": timing.q1_us,
        "time_q3_us": timing.q3_us,
        "samples": timing.samples,
        "settled": timing.settled,
        "tflops": tflops(run.problem, timing.median_us),
        "ratio_to_cublas": _speed_ratio(timing, peer),
        "ratio_to_ex3": _speed_ratio(timing, run.timings.get("ex3")),
        "ratio_to_previous": _speed_ratio(timing, _previous(name, run)),
    }
    return fields


def _previous(name: str, run: LadderRun) -> Timing | None:
    """The rung before this one in the ladder, if it ran.

    The two-ideas kernel is a ladder of its own and follows none.
    """
    index = RUNG_NAMES.index(name)
    return run.timings.get(RUNG_NAMES[index - 1]) if index and name != "two_ideas" else None


def _speed_ratio(timing: Timing, other: Timing | None) -> float | None:
    return other.median_us / timing.median_us if other is not None else None


def provenance_of(
    gpu: Gpu, run: LadderRun, compiled: Sequence[CompiledRung], *, command: str, cold: bool
) -> Provenance:
    """Say where a run's numbers come from."""
    peer = run.peer
    timing = peer.timing if peer else None
    return Provenance(
        **run_facts(gpu, command),
        nvrtc=", ".join(sorted({item.build.nvrtc_version for item in compiled})),
        clock_mhz=run.clock_mhz,
        cache="cold" if cold else "hot",
        cublas=peer.identity.version if peer else None,
        cublas_kernels=peer.identity.kernels if peer else (),
        cublas_time_us=timing.median_us if timing else None,
        cublas_tflops=tflops(run.problem, timing.median_us) if timing else None,
        cublas_correct=peer.check.passed if peer else None,
    )
