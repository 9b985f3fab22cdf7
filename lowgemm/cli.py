"""The command line: one command per verb. It parses arguments, calls, and shows."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowgemm.errors import CompilationError, LowgemmError, OutputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lowgemm.compiler import Build
    from lowgemm.report import LadderReport
    from lowgemm.studies.ladder import Progress

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Compile, launch, check and time CUDA kernels: FP32 GEMM on CUDA cores.",
)

_PIPE_WIDTH = 200
_ARCHS_WITHOUT_GPU = ("sm_80", "sm_90", "sm_120")

Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Archs = Annotated[
    list[str] | None,
    typer.Option("--arch", "-a", help="An architecture (sm_90); may be given several times."),
]
RungNames = Annotated[
    list[str] | None, typer.Argument(help="Rungs, from ex3 to two_ideas. Default: all.")
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", "-s", help="The GEMM: 4096 or MxNxK. Repeatable.")
]
Cold = Annotated[bool, typer.Option("--cold", help="Overwrite the L2 before each sample.")]
Defines = Annotated[
    list[str] | None, typer.Option("--define", "-D", help="NAME or NAME=VALUE; may be repeated.")
]
Includes = Annotated[
    list[Path] | None,
    typer.Option(
        "--include", "-I", help="A folder of headers. Repeatable.", exists=True, file_okay=False
    ),
]
Instances = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", help="A template's instance: 'ex8<true>'.")
]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="A further option for NVRTC.")
]
CubinFile = Annotated[Path | None, typer.Option(help="Write the cubin here (one architecture).")]
PtxFile = Annotated[Path | None, typer.Option(help="Write the PTX here (one architecture).")]
Log = Annotated[bool, typer.Option("--log", help="Print the compiler's log as well.")]
Far = Annotated[bool, typer.Option("--far", help="Also element offsets beyond 2^31 (26 GB).")]
Seconds = Annotated[float, typer.Option(min=0.0, help="Longest timing of a size.")]
Run = Annotated[bool, typer.Option(help="Run on the GPU, if there is one.")]
OneSize = Annotated[str, typer.Option("--size", "-s", help="The GEMM: 4096 or MxNxK.")]
Saved = Annotated[
    Path | None, typer.Option("--from", help="Show this timings file instead of measuring.")
]
Output = Annotated[Path | None, typer.Option(help="Write the timings with provenance here.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of a table.")]


def main() -> None:
    """Run the command line; errors of lowgemm become a message and exit status 1."""
    try:
        app()
        sys.stdout.flush()
    except LowgemmError as error:
        _fail(error)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain again when it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(OutputError(f"the output cannot be written: {error.strerror}"))


def _fail(error: LowgemmError) -> None:
    lines = [f"lowgemm: {error}"]
    if isinstance(error, CompilationError) and error.log and error.log not in str(error):
        lines.insert(1, error.log.rstrip())
    print("\n".join(lines), file=sys.stderr)
    sys.exit(1)


# ---- output


def _console(*, stderr: bool = False) -> Console:
    """A console that neither colours nor wraps what goes into a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else _PIPE_WIDTH,
        highlight=False,
        markup=False,  # texts such as lowgemm[peers] are meant as they stand
        emoji=False,
    )


def _show(view: RenderableType) -> None:
    _console().print(view)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, default=str, allow_nan=False))


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}", "name a file that can be written"
        ) from error


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on stderr; in a pipe nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    quiet = not sys.stderr.isatty()
    with Progress(*columns, console=_console(stderr=True), transient=True, disable=quiet) as bars:
        task = bars.add_task("starting", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield tell


# ---- commands


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from lowgemm import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is found where and how to get the rest."""
    from lowgemm.studies.doctor import examine
    from lowgemm.view import doctor_view

    findings = examine()
    if as_json:
        _print_json([asdict(finding) for finding in findings])
    else:
        _show(doctor_view(findings))
    if not all(finding.found for finding in findings if finding.required):
        raise typer.Exit(1)


@app.command("compile")
def compile_(
    source: Annotated[Path, typer.Argument(help="A .cu file.")],
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    cubin: CubinFile = None,
    ptx: PtxFile = None,
    log: Log = False,
    as_json: Json = False,
) -> None:
    """Compile a .cu file; show registers, shared memory, spills."""
    from lowgemm.compiler import compile_many
    from lowgemm.view import builds_table

    archs = arch or _default_archs()
    if (cubin or ptx) and len(archs) != 1:
        raise typer.BadParameter("--cubin and --ptx take one architecture: name it with --arch")
    builds = compile_many(
        source,
        archs=archs,
        defines=dict(_define(text) for text in define or ()),
        include_dirs=include or (),
        options=option or (),
        name_expressions=kernel or (),
    )
    built = list(builds.values()) if isinstance(builds, dict) else list(builds)
    if cubin:
        _write(cubin, built[0].cubin)
    if ptx:
        _write(ptx, built[0].ptx.encode())
    if as_json:
        _print_json([row for build in built for row in _build_rows(build)])
        return
    _show(builds_table(built))
    if log:
        print("\n".join(build.log.rstrip() for build in built))


def _define(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _build_rows(build: Build) -> list[dict[str, Any]]:
    return [
        {
            "kernel": kernel.display_name,
            "symbol": kernel.name,
            "arch": str(build.arch),
            "nvrtc": build.nvrtc_version,
            **asdict(kernel.resources),
            "parameters": [asdict(parameter) for parameter in kernel.signature.parameters],
        }
        for kernel in build.kernels
    ]


@app.command()
def verify(
    rungs: RungNames = None,
    size: Sizes = None,
    far: Far = False,
    as_json: Json = False,
) -> None:
    """Check rungs on many shapes on the GPU."""
    from lowgemm.device import Gpu
    from lowgemm.gemm import GemmProblem, check_names, rung
    from lowgemm.studies.verification import SHAPES, verify, verify_far_offsets
    from lowgemm.view import verdict_table

    names = check_names(rungs or ())
    gpu = Gpu()
    chosen = [rung(name, gpu.architecture) for name in names]
    problems = [GemmProblem.parse(text) for text in size] if size else list(SHAPES)
    total = 2 * len(problems) * len(chosen) + (len(chosen) if far else 0)
    verdicts = []
    with _progress() as tell:
        streams = [verify(gpu, chosen, problems)]
        streams += [verify_far_offsets(gpu, chosen)] if far else []
        for stream in streams:
            for verdict in stream:
                verdicts.append(verdict)
                tell(f"{verdict.rung} on {verdict.problem}", len(verdicts), total)
    if as_json:
        _print_json([{**asdict(v), "problem": str(v.problem)} for v in verdicts])
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
        _show(verdict_table(summary))
    if not all(verdict.result.passed for verdict in verdicts):
        raise typer.Exit(1)


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
        _ladder_report(None, rungs, text, cold, seconds, run=True) for text in size or ["4096"]
    ]
    if as_json:
        _print_json([row for report in reports for row in report.rows_as_json()])
    else:
        for report in reports:
            _show_ladder(report)
    _exit_by_checks(reports)


@app.command()
def ladder(
    rungs: RungNames = None,
    arch: Archs = None,
    size: OneSize = "4096",
    cold: Cold = False,
    seconds: Seconds = 5.0,
    run: Run = True,
    output: Output = None,
    saved: Saved = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """The whole table: compile, check and time every rung."""
    from lowgemm.report import read_report, write_report
    from lowgemm.view import ladder_markdown

    if saved:
        report = read_report(saved)
    else:
        report = _ladder_report(arch, rungs, size, cold, seconds, run=run)
    if as_json:
        _print_json(report.rows_as_json())
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

    console = _console()
    console.print(ladder_view(report, console.width))


def _default_archs() -> list[str]:
    """The GPU's own architecture; without one, three that differ."""
    from lowgemm.device import Gpu, gpu_available

    if not gpu_available():
        return list(_ARCHS_WITHOUT_GPU)
    with Gpu() as gpu:
        return [str(gpu.architecture)]


def _ladder_report(
    archs: list[str] | None,
    rungs: list[str] | None,
    size: str,
    cold: bool,
    seconds: float,
    *,
    run: bool,
) -> LadderReport:
    from lowgemm.device import Gpu
    from lowgemm.errors import DriverNotFoundError, NoGpuError
    from lowgemm.gemm import GemmProblem, check_names
    from lowgemm.measure import TimerSettings
    from lowgemm.report import join_ladder, provenance_of
    from lowgemm.studies.ladder import compile_ladder, run_ladder

    problem = GemmProblem.parse(size)
    gpu, unmeasured = None, "--no-run was given"
    if run:
        try:
            gpu = Gpu()
        except (DriverNotFoundError, NoGpuError) as error:
            unmeasured = f"{error.what.partition(':')[0]}; {error.remedy}"
    chosen = archs or ([str(gpu.architecture)] if gpu else list(_ARCHS_WITHOUT_GPU))
    with _progress() as tell:
        compiled = compile_ladder(chosen, check_names(rungs or ()), progress=tell)
        if gpu is None:
            return join_ladder(compiled, unmeasured=unmeasured)
        own = [item for item in compiled if item.arch == gpu.architecture]
        if not own:
            return join_ladder(
                compiled, unmeasured=f"the GPU here is {gpu.architecture}, none of {chosen}"
            )
        settings = TimerSettings(max_seconds=seconds)
        result = run_ladder(gpu, own, problem, cold=cold, settings=settings, progress=tell)
    provenance = provenance_of(
        gpu, result, own, command=_command(rungs, size, cold, seconds), cold=cold
    )
    return join_ladder(compiled, result, measured_arch=str(gpu.architecture), provenance=provenance)


def _command(rungs: list[str] | None, size: str, cold: bool, seconds: float) -> str:
    """The command that measures the same again; where the output goes does not matter."""
    words = ["lowgemm", "ladder", *(rungs or ()), "--size", size, "--seconds", f"{seconds:g}"]
    return shlex.join([*words, "--cold"] if cold else words)


def _exit_by_checks(reports: list[LadderReport]) -> None:
    wrong = any(row.correct is False for report in reports for row in report.rows)
    if wrong or any(r.provenance and r.provenance.cublas_correct is False for r in reports):
        raise typer.Exit(1)
