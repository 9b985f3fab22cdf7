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
    emulated_problem,
    print_json,
    progress_bar,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lowgemm.analysis import SassReport
    from lowgemm.emulator import Finding
    from lowgemm.gemm import GemmProblem
    from lowgemm.report import LadderReport
    from lowgemm.studies.ladder import CompiledRung, Progress
    from lowgemm.studies.verification import Verdict

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
    from lowgemm.device import Gpu
    from lowgemm.emulator import Emulator
    from lowgemm.gemm import GemmProblem, check_names, rung
    from lowgemm.studies.verification import EMULATED_SHAPES, SHAPES, verify, verify_far_offsets
    from lowgemm.view.columns import counted

    names = check_names(rungs or ())
    on_gpu = choose_device(device) is DeviceChoice.GPU
    if far and not on_gpu:
        raise typer.BadParameter("--far takes 26 GB of a GPU's memory: leave it out")
    where = Gpu() if on_gpu else Emulator(arch, findings="collect")
    chosen = [rung(name, where.architecture) for name in names]
    problems = list(SHAPES if on_gpu else EMULATED_SHAPES)
    if size:
        problems = [GemmProblem.parse(text) if on_gpu else emulated_problem(text) for text in size]
    total = 2 * len(problems) * len(chosen) + (len(chosen) if far else 0)
    verdicts = []
    with progress_bar() as tell:
        streams = [verify(where, chosen, problems)]
        streams += [verify_far_offsets(where, chosen)] if far else []
        for stream in streams:
            for verdict in stream:
                verdicts.append(verdict)
                tell(f"{verdict.rung} on {verdict.problem}", len(verdicts), total)
    findings = where.findings if isinstance(where, Emulator) else []
    if as_json:
        print_json([{**asdict(v), "problem": str(v.problem)} for v in verdicts])
        for finding in findings:
            print(finding, file=sys.stderr)
    else:
        what = f"{counted(len(problems), 'shape')} x 2 inputs on {where.name}"
        if far:
            what += ", offsets beyond 2^31"
        if not on_gpu:
            what += f", {counted(len(findings), 'finding')}"
        _show_verdicts(verdicts, findings, what)
    if findings or not all(verdict.result.passed for verdict in verdicts):
        raise typer.Exit(1)


def _show_verdicts(verdicts: Sequence[Verdict], findings: Sequence[Finding], what: str) -> None:
    from lowgemm.view import verdict_table

    summary = []
    for name in dict.fromkeys(verdict.rung for verdict in verdicts):
        mine = [v for v in verdicts if v.rung == name]
        failures = [
            f"{v.problem}, {v.data} data: {v.result.reason}" for v in mine if not v.result.passed
        ]
        summary.append((name, len(mine) - len(failures), len(mine), "".join(failures[:1])))
    show(verdict_table(summary))
    for line in (*map(str, findings), what):
        show(line)


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

    where = choose_device(device) if run else None
    emulate = where is DeviceChoice.EMULATOR
    problem = emulated_problem(size) if emulate else GemmProblem.parse(size or GPU_SIZE)
    gpu = Gpu() if where is DeviceChoice.GPU else None
    chosen = archs or ([str(gpu.architecture)] if gpu else list(ARCHS_WITHOUT_GPU))
    with progress_bar() as tell:
        compiled = compile_ladder(chosen, check_names(rungs or ()), progress=tell)
        tell("reading the machine code", 0, 1)
        code = inspect_ladder(compiled)
        if emulate:
            return _emulated(compiled, problem, code, tell)
        if gpu is None:
            return join_ladder(compiled, unmeasured="--no-run was given", machine_code=code)
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
    problem: GemmProblem,
    code: Mapping[tuple[str, str], SassReport],
    tell: Progress,
) -> LadderReport:
    from lowgemm.report import join_ladder
    from lowgemm.studies.devices import NO_CLOCK
    from lowgemm.studies.ladder import emulate_ladder

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
