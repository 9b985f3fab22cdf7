"""Run experiments: compile, predict, and measure on a GPU or count on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType

from lowgemm.analysis import SassReport, count_in
from lowgemm.compiler import Build, compile_file
from lowgemm.device import Gpu
from lowgemm.emulator import ARCHITECTURES, Emulator, EmulatorKernel
from lowgemm.errors import EmulationError, UnmeasurableError
from lowgemm.gemm import kernel_directory
from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.measure import TimerSettings
from lowgemm.studies.devices import NO_CLOCK
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.experiment import (
    Emulation,
    Experiment,
    LabResult,
    LabRow,
    MachineCode,
    Measurement,
    Variant,
)
from lowgemm.studies.lab.setup import SmallSetup

__all__ = ["compile_variants", "emulate_experiment", "run_experiment"]

Progress = Callable[[str, int, int], None]
_BuildKey = tuple[str, tuple[tuple[str, str | int], ...], tuple[str, ...], str]


def _silent(what: str, done: int, total: int) -> None:
    pass


def run_experiment(
    experiment: Experiment,
    record: GpuRecord,
    gpu: Gpu | None = None,
    *,
    settings: TimerSettings | None = None,
    progress: Progress = _silent,
) -> LabResult:
    """Compile an experiment's kernels, predict, and measure on a GPU if there is one.

    Parameters
    ----------
    experiment
        One of :func:`lowgemm.studies.lab.experiments`.
    record
        The GPU that the predictions are for.
    gpu
        The GPU to measure on. Without one there are predictions and machine code.
    settings
        How long to measure.
    progress
        Told what is being done.

    Raises
    ------
    CompilationError, ToolNotFoundError, KernelFaultError, DriverError
        As the names say.
    """
    arch = gpu.architecture if gpu else _architecture(record)
    progress(f"compiling {experiment.name}", 0, 3)
    compiled = _Compiled.of(experiment, arch)
    measurements: Mapping[str, Measurement] = {}
    clock_mhz = None
    unmeasured = _why_not(experiment, arch)
    if gpu is None:
        unmeasured = unmeasured or "there is no GPU here: predictions and machine code only"
    elif unmeasured is None:
        progress(f"measuring {experiment.name}", 1, 3)
        bench = Bench(gpu, record, compiled.variants, settings)
        try:
            measurements = experiment.measure(bench)
        except UnmeasurableError as error:
            unmeasured = error.what
        clock_mhz = bench.clock_mhz
    progress(f"done with {experiment.name}", 3, 3)
    return compiled.result(
        record, measurements=measurements, unmeasured=unmeasured, clock_mhz=clock_mhz
    )


def emulate_experiment(
    experiment: Experiment,
    record: GpuRecord,
    *,
    scale: int = 1,
    progress: Progress = _silent,
) -> LabResult:
    """Compile an experiment's kernels, predict, and run each at a small size on the emulator.

    Parameters
    ----------
    experiment
        One of :func:`lowgemm.studies.lab.experiments`.
    record
        The GPU that the predictions are for; the emulator runs the code of its architecture, where
        it knows it.
    scale
        1 for the smallest sizes, 2 or more for larger ones.
    progress
        Told what is being done.

    Raises
    ------
    CompilationError, ToolNotFoundError
        As the names say.
    """
    arch = _architecture(record)
    progress(f"compiling {experiment.name}", 0, 3)
    compiled = _Compiled.of(experiment, arch)
    unmeasured = _why_not(experiment, arch)
    emulations: Mapping[str, Emulation] = {}
    if unmeasured is None and str(arch) not in ARCHITECTURES:
        unmeasured = f"the emulator does not run code of {arch}: predictions and machine code only"
    elif unmeasured is None:
        progress(f"emulating {experiment.name}", 1, 3)
        with Emulator(arch, findings="collect") as device:
            emulations = _emulate(experiment, device, SmallSetup(device, compiled.variants, scale))
        unmeasured = NO_CLOCK
    progress(f"done with {experiment.name}", 3, 3)
    return compiled.result(record, emulations=emulations, unmeasured=unmeasured)


def _emulate(experiment: Experiment, device: Emulator, setup: SmallSetup) -> dict[str, Emulation]:
    """Each variant's trial, counted."""
    trials = experiment.trials(setup)
    found = {}
    for variant in experiment.variants(device.architecture):
        trial, kernel = trials[variant.name], setup.kernel(variant.name)
        assert isinstance(kernel, EmulatorKernel)
        kernel.reset_counts()
        before = len(device.findings)
        try:
            correct = trial.is_right()
        except EmulationError as error:
            found[variant.name] = Emulation(False, None, stopped=error.what)
            continue
        findings = tuple(device.findings[before:])
        found[variant.name] = Emulation(correct, kernel.counts.totals(), findings)
    return found


@dataclass(frozen=True, slots=True)
class _Compiled:
    """An experiment's variants, compiled for an architecture and read."""

    experiment: Experiment
    arch: Architecture
    variants: Mapping[str, tuple[Variant, Build]]
    codes: Mapping[str, MachineCode]

    @classmethod
    def of(cls, experiment: Experiment, arch: Architecture) -> _Compiled:
        """Empty where the architecture is below what the experiment needs."""
        can_run = (arch.major, arch.minor) >= experiment.needs
        variants = compile_variants(experiment, arch) if can_run else {}
        return cls(experiment, arch, variants, _machine_codes(experiment, variants))

    def result(
        self,
        record: GpuRecord,
        *,
        measurements: Mapping[str, Measurement] = MappingProxyType({}),
        emulations: Mapping[str, Emulation] = MappingProxyType({}),
        unmeasured: str | None,
        clock_mhz: int | None = None,
    ) -> LabResult:
        """What was seen of each variant beside its prediction for a GPU."""
        experiment = self.experiment
        predictions = experiment.predict(record, self.codes)
        rows = tuple(
            LabRow(
                variant=variant.name,
                what=variant.what,
                prediction=predictions.get(variant.name),
                code=self.codes.get(variant.name),
                measurement=measurements.get(variant.name),
                emulation=emulations.get(variant.name),
            )
            for variant in experiment.variants(self.arch)
        )
        return LabResult(
            experiment=experiment.name,
            title=experiment.title,
            claim=experiment.claim,
            quantity=experiment.quantity,
            unit=experiment.unit,
            gpu=record.name,
            rows=rows,
            unmeasured=unmeasured,
            clock_mhz=clock_mhz,
        )


def _architecture(record: GpuRecord) -> Architecture:
    return Architecture(record.capability_major, record.capability_minor)


def _why_not(experiment: Experiment, arch: Architecture) -> str | None:
    """Why the architecture cannot run it."""
    if (arch.major, arch.minor) >= experiment.needs:
        return None
    needs = "{}.{}".format(*experiment.needs)
    return f"it needs compute capability {needs} or later; {arch} is below"


def compile_variants(
    experiment: Experiment, arch: Architecture
) -> dict[str, tuple[Variant, Build]]:
    """Compile an experiment's kernels, those of one file and the same options together; patch them.

    Raises
    ------
    CompilationError, CubinError, ToolNotFoundError
        As the names say.
    """
    groups: dict[_BuildKey, list[Variant]] = {}
    for variant in experiment.variants(arch):
        key = (variant.source, tuple(variant.defines.items()), variant.options, variant.target)
        groups.setdefault(key, []).append(variant)
    with ThreadPoolExecutor(max_workers=2) as pool:
        builds = list(pool.map(lambda group: _compile(group, arch), groups.values()))
    built = {
        variant.name: (variant, build)
        for group, build in zip(groups.values(), builds, strict=True)
        for variant in group
    }
    return {
        variant.name: (variant, _patched(experiment, variant, built[variant.name][1]))
        for variant in experiment.variants(arch)
    }


def _patched(experiment: Experiment, variant: Variant, build: Build) -> Build:
    cubin = experiment.patch(variant, build)
    return build if cubin is None else replace(build, cubin=cubin)


def _compile(group: Sequence[Variant], arch: Architecture) -> Build:
    first = group[0]
    names = dict.fromkeys(variant.kernel for variant in group if "<" in variant.kernel)
    return compile_file(
        kernel_directory() / first.source,
        arch=f"{arch}{first.target}",
        defines=first.defines,
        options=first.options,
        name_expressions=tuple(names),
    )


def _machine_codes(
    experiment: Experiment, variants: Mapping[str, tuple[Variant, Build]]
) -> dict[str, MachineCode]:
    """What the compiler made of each variant; a build that holds several is read once."""
    builds = {id(build): build for _, build in variants.values()}
    reports = {
        (key, report.symbol): report
        for key, build in builds.items()
        for report in inspect_build(build)
    }
    return {
        name: _machine_code(experiment, reports[id(build), build.kernel(variant.kernel).name])
        for name, (variant, build) in variants.items()
    }


def _machine_code(experiment: Experiment, report: SassReport) -> MachineCode:
    place = report.hot or report
    return MachineCode(
        arch=report.arch,
        registers=report.registers,
        shared_bytes=report.shared_bytes,
        spill_bytes=_spills(report),
        instructions=place.instructions,
        mix={name: count_in(place.mix, name) for name in experiment.counted},
        conflict_cycles=report.hot.conflict_cycles if report.hot else None,
    )


def _spills(report: SassReport) -> int:
    return (report.spill_store_bytes or 0) + (report.spill_load_bytes or 0)
