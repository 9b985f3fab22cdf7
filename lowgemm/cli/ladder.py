"""`lowgemm ladder`, `lowgemm bench` and `lowgemm verify`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lowgemm.cli.common import (
    ARCHS_WITHOUT_GPU,
    Archs,
    Cold,
    DeviceChoice,
    Emulated,
    Far,
    Json,
    LadderSize,
    Markdown,
    OnDevice,
    Output,
    Run,
    RungNames,
    Saved,
    Seconds,
    Sizes,
    app,
    choose_device,
    console,
    print_json,
    progress_bar,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lowgemm.analysis import SassReport
    from lowgemm.report import LadderReport
    from lowgemm.studies.ladder import CompiledRung, Progress

__all__ = ["bench", "ladder", "verify"]

GPU_SIZE = "4096"


@app.command()
def ladder(
    rungs: RungNames = None,
    arch: Archs = None,
    size: LadderSize = None,
    device: OnDevice = None,
    cold: Cold = False,
    seconds: Seconds = 5.0,
    run: Run = True,
    output: Output = None,
    saved: Saved = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """The whole table: compile, check and time every rung; without a GPU count what it executes."""
    from lowgemm.report import read_report, write_report
    from lowgemm.view import ladder_markdown

    if saved:
        report = read_report(saved)
    else:
        report = _ladder_report(arch, rungs, size, cold, seconds, run=run, device=device)
    if as_json:
        print_json(report.rows_as_json())
        if report.unmeasured:
            print(f"lowgemm: not measured: {report.unmeasured}", file=sys.stderr)
    elif markdown:
        print(ladder_markdown(report), end="")
    else:
        _show_ladder(report)
    if output:
        write_report(report, output)
    _exit_by_checks([report])


def _show_ladder(report: LadderReport) -> None:
    from lowgemm.view import ladder_view

    out = console()
    out.print(ladder_view(report, out.width))


@app.command()
def bench(
    rungs: RungNames = None,
    size: Sizes = None,
    cold: Cold = False,
    seconds: Seconds = 5.0,
    as_json: Json = False,
) -> None:
    """Time rungs on the GPU beside cuBLAS."""
    from lowgemm.device import Gpu
    from lowgemm.gemm import check_names

    check_names(rungs or ())
    Gpu().close()  # Without a GPU there is nothing to compile for.
    reports = [
        _ladder_report(None, rungs, text, cold, seconds, run=True, device=DeviceChoice.GPU)
        for text in size or [GPU_SIZE]
    ]
    if as_json:
        print_json([row for report in reports for row in report.rows_as_json()])
    else:
        for report in reports:
            _show_ladder(report)
    _exit_by_checks(reports)


@app.command()
def verify(
    rungs: RungNames = None,
    size: Sizes = None,
    device: OnDevice = None,
    arch: Emulated = "sm_90",
    far: Far = False,
    as_json: Json = False,
) -> None:
    """Check rungs on many shapes: on the GPU, or on the emulator with its eyes on memory."""
    from lowgemm.gemm import GemmProblem, check_names, rung
    from lowgemm.studies.devices import open_device
    from lowgemm.studies.verification import EMULATED_SHAPES, SHAPES, verify, verify_far_offsets
    from lowgemm.view import verdict_table

    names = check_names(rungs or ())
    kind = choose_device(device)
    if far and kind is DeviceChoice.EMULATOR:
        raise typer.BadParameter("--far takes 26 GB of a GPU's memory: leave it out")
    where = open_device(kind.value, arch)
    chosen = [rung(name, where.architecture) for name in names]
    usual = SHAPES if kind is DeviceChoice.GPU else EMULATED_SHAPES
    problems = [GemmProblem.parse(text) for text in size] if size else list(usual)
    total = 2 * len(problems) * len(chosen) + (len(chosen) if far else 0)
    verdicts = []
    with progress_bar() as tell:
        streams = [verify(where, chosen, problems)]
        streams += [verify_far_offsets(where, chosen)] if far else []
        for stream in streams:
            for verdict in stream:
                verdicts.append(verdict)
                tell(f"{verdict.rung} on {verdict.problem}", len(verdicts), total)
    if as_json:
        print_json([{**asdict(v), "problem": str(v.problem)} for v in verdicts])
    else:
        summary = []
        for item in chosen:
            mine = [v for v in verdicts if v.rung == item.name]
            failures = [
                f"{v.problem}, {v.data} data: {v.result.reason}"
                for v in mine
                if not v.result.passed
            ]
            summary.append((item.name, len(mine) - len(failures), len(mine), "".join(failures[:1])))
        show(verdict_table(summary))
    if not all(verdict.result.passed for verdict in verdicts):
        raise typer.Exit(1)


def _ladder_report(
    archs: list[str] | None,
    rungs: list[str] | None,
    size: str | None,
    cold: bool,
    seconds: float,
    *,
    run: bool,
    device: DeviceChoice | None,
) -> LadderReport:
    from lowgemm.device import Gpu
    from lowgemm.gemm import GemmProblem, check_names
    from lowgemm.measure import TimerSettings
    from lowgemm.report import join_ladder, provenance_of
    from lowgemm.studies.inspection import inspect_ladder
    from lowgemm.studies.ladder import compile_ladder, run_ladder

    problem = GemmProblem.parse(size or GPU_SIZE)
    device = choose_device(device)
    on_gpu = run and device is DeviceChoice.GPU
    gpu = Gpu() if on_gpu else None
    chosen = archs or ([str(gpu.architecture)] if gpu else list(ARCHS_WITHOUT_GPU))
    with progress_bar() as tell:
        compiled = compile_ladder(chosen, check_names(rungs or ()), progress=tell)
        tell("reading the machine code", 0, 1)
        code = inspect_ladder(compiled)
        if not run:
            return join_ladder(compiled, unmeasured="--no-run was given", machine_code=code)
        if gpu is None:
            return _emulated(compiled, size, code, tell)
        own = [item for item in compiled if item.arch == gpu.architecture]
        if not own:
            unmeasured = f"the GPU here is {gpu.architecture}, none of {chosen}"
            return join_ladder(compiled, unmeasured=unmeasured, machine_code=code)
        settings = TimerSettings(max_seconds=seconds)
        result = run_ladder(gpu, own, problem, cold=cold, settings=settings, progress=tell)
    provenance = provenance_of(
        gpu,
        result,
        own,
        command=_command(rungs, size or GPU_SIZE, cold, seconds),
        cold=cold,
    )
    return join_ladder(
        compiled,
        result,
        measured_arch=str(gpu.architecture),
        provenance=provenance,
        machine_code=code,
    )


def _emulated(
    compiled: Sequence[CompiledRung],
    size: str | None,
    code: Mapping[tuple[str, str], SassReport],
    tell: Progress,
) -> LadderReport:
    """The ladder on the emulator, where a problem of seconds is the default."""
    from lowgemm.gemm import GemmProblem
    from lowgemm.report import join_ladder
    from lowgemm.studies.devices import NO_CLOCK
    from lowgemm.studies.ladder import EMULATED_PROBLEM, emulate_ladder

    problem = GemmProblem.parse(size) if size else EMULATED_PROBLEM
    return join_ladder(
        compiled,
        unmeasured=NO_CLOCK,
        machine_code=code,
        emulated=emulate_ladder(compiled, problem, workers=2, progress=tell),
    )


def _command(rungs: list[str] | None, size: str, cold: bool, seconds: float) -> str:
    """The command that measures the same again; where the output goes does not matter."""
    words = ["lowgemm", "ladder", *(rungs or ()), "--size", size, "--seconds", f"{seconds:g}"]
    return shlex.join([*words, "--cold"] if cold else words)


def _exit_by_checks(reports: list[LadderReport]) -> None:
    wrong = any(row.correct is False for report in reports for row in report.rows)
    if wrong or any(r.provenance and r.provenance.cublas_correct is False for r in reports):
        raise typer.Exit(1)
