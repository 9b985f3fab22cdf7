"""The machine model on what is there: the GPU at hand, and rungs beside what the compiler made."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.analysis import LoopReport, SassReport, count_in
from lowgemm.errors import (
    ArgumentValueError,
    DriverNotFoundError,
    NoGpuError,
    UnknownArchitectureError,
)
from lowgemm.gemm import RUNG_NAMES, GemmProblem, Rung, compile_rung, rung
from lowgemm.hardware import Architecture, GpuRecord, capability, gpu_record
from lowgemm.model import (
    LoopCounts,
    Machine,
    OccupancyReport,
    TileConfig,
    Verdict,
    counted_tflops,
    judge_tile,
    occupancy_report,
)
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.measured_gpu import measured_gpu_path, read_gpu_record

__all__ = [
    "DEFAULT_GPU",
    "ChosenGpu",
    "CompiledTile",
    "Explanation",
    "choose_gpu",
    "explain",
    "rung_config",
]

#: The GPU of the model where none is here: the one that the project's times are from.
DEFAULT_GPU = "h200"


@dataclass(frozen=True, slots=True)
class ChosenGpu:
    """A GPU for the model, and how it came to be the one."""

    record: GpuRecord
    chosen: str


def choose_gpu(name: str | None = None) -> ChosenGpu:
    """A GPU of the table by name; without a name the one here, else :data:`DEFAULT_GPU`.

    The one here comes with the rates and latencies that ``lowgemm lab memory-levels`` measured on
    it, where that was run.

    Raises
    ------
    UnknownGpuError
        The table has no GPU of that name.
    MeasurementError
        The file with the measured figures is damaged.
    """
    if name is not None:
        return ChosenGpu(gpu_record(name), "as asked for")
    from lowgemm.device import Gpu

    try:
        with Gpu() as gpu:
            own = gpu.attributes.as_record()
        kept = measured_gpu_path(own.name)
        if kept.is_file():
            return ChosenGpu(read_gpu_record(kept), "the GPU here, as measured")
        return ChosenGpu(own, "the GPU here")
    except (DriverNotFoundError, NoGpuError):
        return ChosenGpu(gpu_record(DEFAULT_GPU), "the default: there is no GPU here")


def rung_config(rung: Rung) -> TileConfig:
    """A rung's tile configuration, as far as its record says; the rest as its kernel is known.

    Rungs with float4 read four floats at once. ex8 and ex9 load the next k-tile while they compute;
    a rung with a macro STAGES copies that many with cp.async.
    """
    stages = rung.defines.get("STAGES")
    return TileConfig(
        rung.bm, rung.bn, rung.bk, rung.tm, rung.tn, rung.threads,
        stages=stages or (2 if rung.name in _PREFETCHING else 1),
        vector=4 if rung.has_float4 else 1,
        copy="cp.async" if stages else "ldg",
    )  # fmt: skip


_PREFETCHING = ("ex8", "ex9")


@dataclass(frozen=True, slots=True)
class CompiledTile:
    """What the compiler made of a rung: resources, and its hot loop per step along k and warp.

    The counts per step are None where the number of steps of an iteration is left to the compiler.
    ``conflict_cycles_per_step`` is modelled from the registers that the instructions name.
    """

    kernel: str
    arch: str
    nvrtc_version: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: OccupancyReport
    ffma_per_step: float | None
    lds_per_step: float | None
    other_per_step: float | None
    conflict_cycles_per_step: float | None
    lds_rows_per_step: float | None

    @property
    def counts(self) -> LoopCounts | None:
        """The counts for the model, where they are known."""
        found = (
            self.ffma_per_step,
            self.lds_per_step,
            self.lds_rows_per_step,
            self.other_per_step,
            self.conflict_cycles_per_step,
        )
        known = [value for value in found if value is not None]
        return LoopCounts(*known) if len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict on a configuration, and for a rung what the compiler made of it.

    ``counted_tflops`` is the rate with the compiler's instructions, loads and register-bank
    conflicts instead of the model's.
    """

    name: str
    gpu: GpuRecord
    verdict: Verdict
    compiled: CompiledTile | None
    counted_tflops: float | None
    notes: tuple[str, ...]


def explain(target: str, gpu: GpuRecord, problem: GemmProblem) -> Explanation:
    """Judge a rung, or a configuration written as text, on a GPU.

    A rung is compiled for the GPU's architecture; its registers and shared memory then stand in
    the verdict instead of the estimates. Where NVRTC knows the architecture no more (a V100's), the
    estimates stay, and a note says so.

    Raises
    ------
    ArgumentValueError
        The text is no configuration, or it does not fit on the GPU.
    CompilationError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    machine = Machine.from_gpu(gpu)
    sizes = (problem.m, problem.n, problem.k)
    if target.lower() not in RUNG_NAMES:
        config = _parsed(target)
        return Explanation(
            str(config), gpu, judge_tile(config, machine, *sizes), None, None, _notes(config)
        )
    arch = Architecture(gpu.capability_major, gpu.capability_minor)
    record = rung(target, arch)
    notes = _notes(rung_config(record))
    try:
        compiled = _compiled(record, arch)
    except UnknownArchitectureError as error:
        verdict = judge_tile(rung_config(record), machine, *sizes)
        return Explanation(record.name, gpu, verdict, None, None, (*notes, error.what))
    verdict = judge_tile(
        rung_config(record),
        machine,
        *sizes,
        registers=compiled.registers,
        shared_bytes=compiled.shared_bytes,
    )
    counts = compiled.counts
    rate = counted_tflops(verdict, machine, counts) if counts else None
    return Explanation(record.name, gpu, verdict, compiled, rate, notes)


def _parsed(text: str) -> TileConfig:
    try:
        return TileConfig.parse(text)
    except ArgumentValueError as error:
        rungs = f"or name a rung: {', '.join(RUNG_NAMES)}"
        raise ArgumentValueError(error.what, f"{error.remedy}; {rungs}") from None


def _notes(config: TileConfig) -> tuple[str, ...]:
    if config.bk == 1:
        return (
            "it has no tile in shared memory: every operand comes through L1, of which the model "
            "knows nothing, so the prediction means little",
        )
    if config.stages == 1:
        return (
            "it waits for each k-tile; how well the SM's other blocks fill that time depends on "
            "how they fall into step: kernels of this kind were measured up to 26 % below the "
            "prediction",
        )
    return ()


def _compiled(record: Rung, arch: Architecture) -> CompiledTile:
    build = compile_rung(record, arch)
    wanted = build.kernel(record.instance(aligned=True))
    used = wanted.resources
    shared_bytes = used.shared_bytes + record.shared_bytes
    report = next(r for r in inspect_build(build) if r.symbol == wanted.name)
    steps = _steps(report, record)
    loop = report.hot if steps is not None else None
    return CompiledTile(
        kernel=wanted.display_name,
        arch=str(arch),
        nvrtc_version=build.nvrtc_version,
        registers=used.registers,
        shared_bytes=shared_bytes,
        spill_bytes=used.spill_store_bytes + used.spill_load_bytes,
        occupancy=occupancy_report(
            capability(arch.major, arch.minor),
            threads=record.threads,
            registers=used.registers,
            shared_bytes=shared_bytes,
            barriers=used.barriers,
        ),
        ffma_per_step=_per_step(loop, steps, "FFMA"),
        lds_per_step=_per_step(loop, steps, "LDS"),
        other_per_step=_others(loop, steps),
        conflict_cycles_per_step=loop.conflict_cycles / steps if loop and steps else None,
        lds_rows_per_step=_lds_rows(loop) / steps if loop and steps else None,
    )


def _steps(report: SassReport, record: Rung) -> float | None:
    """Steps along k of an iteration of the hot loop: its FFMAs over those of a step."""
    if record.k_steps is None or report.hot is None:
        return None
    return count_in(report.hot.mix, "FFMA") / (record.tm * record.tn) or None


def _lds_rows(loop: LoopReport) -> int:
    """Registers that the loop's loads from shared memory write; a load says its width in bits."""
    rows = 0
    for mnemonic, n in loop.mix.items():
        name, *suffixes = mnemonic.split(".")
        if name == "LDS":
            bits = next((int(s) for s in suffixes if s in ("32", "64", "128")), 32)
            rows += n * bits // 32
    return rows


def _per_step(loop: LoopReport | None, steps: float | None, name: str) -> float | None:
    return count_in(loop.mix, name) / steps if loop and steps else None


def _others(loop: LoopReport | None, steps: float | None) -> float | None:
    if not loop or not steps:
        return None
    return (loop.instructions - count_in(loop.mix, "FFMA") - count_in(loop.mix, "LDS")) / steps
