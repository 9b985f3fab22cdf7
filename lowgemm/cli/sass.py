"""`lowgemm sass`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Nvrtc,
    Only,
    Options,
    app,
    chosen,
    compiler_arguments,
    console,
    cubin_of,
    default_archs,
    emulated_problem,
    print_json,
    show,
    show_fitted,
)

if TYPE_CHECKING:
    from lowgemm.analysis import SassReport
    from lowgemm.binary.sass import SassKernel
    from lowgemm.cli.common import CompilerArguments
    from lowgemm.compiler import Build
    from lowgemm.studies.execution import Execution

__all__ = ["sass"]

_LAUNCH = "grid=8 block=256 args=f32[2048],f32[2048]:zeros,2048"

Targets = Annotated[list[str], typer.Argument(help="Rungs, .cu files or .cubin files.")]
Listing = Annotated[bool, typer.Option("--text", help="The instructions, with source lines.")]
Control = Annotated[bool, typer.Option("--control", help="The instructions with control words.")]
Source = Annotated[bool, typer.Option("--source", help="Source, PTX and SASS side by side.")]
Hot = Annotated[bool, typer.Option("--hot", help="With --source: the hot loop's code alone.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="One table a loop, an architecture a column.")
]
Executed = Annotated[
    bool,
    typer.Option(
        "--executed",
        help="Run it on the emulator, as sm_90 unless --arch is given: what was executed, and how "
        "often.",
    ),
]
Launch = Annotated[
    str | None,
    typer.Option(
        "--launch",
        help="With --executed, for a .cu file: 'grid=8 block=256 args=f32[99],i32[9]:zeros,99', "
        "where needed with cluster=2 and shared_bytes=4096 (dynamic shared memory); an array is "
        "random without :zeros, :count or :empty.",
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", "-s", help="With --executed, for a rung: the GEMM.")
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Markdown instead of a table.")]


@app.command()
def sass(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    nvrtc: Nvrtc = None,
    only: Only = None,
    compare: Compare = False,
    listing: Listing = False,
    control: Control = False,
    source: Source = False,
    hot: Hot = False,
    executed: Executed = False,
    launch: Launch = None,
    size: Size = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """What the hardware executes: instructions per loop.

    A loop goes from its first address to the one before its second, without the loops inside it.
    The hot one has the most FFMAs; where there are none it is the innermost, then the longest.
    Counts leave out what does nothing: NOPs, and instructions that are never executed.
    """
    _refuse_combinations(
        targets, listing=listing or control, source=source, hot=hot, markdown=markdown, data=as_json
    )
    if compare and (len(targets) > 1 or listing or control or source or markdown):
        raise typer.BadParameter("--compare takes one target, and besides only --json")
    if executed:
        if listing or control or source or compare:
            raise typer.BadParameter("--executed has tables of its own: leave out other views")
        arguments = compiler_arguments(define, include, option, kernel)
        _show_executed(
            targets, arch, arguments, only, (launch, size), markdown=markdown, as_json=as_json
        )
        return
    if launch or size:
        raise typer.BadParameter("--launch and --size go with --executed")
    from lowgemm.studies.inspection import inspect_builds, inspect_cubin
    from lowgemm.studies.targets import is_cubin, resolve_builds
    from lowgemm.view.sass import sass_data, sass_markdown, sass_view

    builds: list[Build] = []
    cubins: list[bytes] = []
    for target in targets:
        if is_cubin(target):
            cubins.append(cubin_of(target, arch))
            continue
        builds += resolve_builds(
            target,
            arch or default_archs(),
            nvrtc=nvrtc,
            **compiler_arguments(define, include, option, kernel),
        )
    if listing or control:
        _show_listing(_kernels(builds, cubins), only, control=control, as_json=as_json)
        return
    if source:
        _show_source(builds, only, hot=hot, markdown=markdown, as_json=as_json)
        return
    reports: list[SassReport] = [r for found in inspect_builds(builds) for r in found]
    reports += [report for cubin in cubins for report in inspect_cubin(cubin)]
    reports = chosen(reports, only, lambda report: report.kernel, lambda report: report.symbol)
    if compare:
        _show_compared(reports, as_json=as_json)
    elif as_json:
        print_json(sass_data(reports))
    elif markdown:
        print(sass_markdown(reports), end="")
    else:
        show_fitted(lambda width: sass_view(reports, width))


def _show_executed(
    targets: list[str],
    archs: list[str] | None,
    arguments: CompilerArguments,
    only: str | None,
    how: tuple[str | None, str | None],
    *,
    markdown: bool,
    as_json: bool,
) -> None:
    from lowgemm.studies.devices import DEFAULT_EMULATED
    from lowgemm.view.executed import executed_data, executed_markdown, executed_view

    launch, size = how
    jobs = [
        job
        for target in targets
        for arch in archs or [DEFAULT_EMULATED]
        for job in _jobs(target, arch, arguments, launch, size)
    ]
    kept = chosen(jobs, only, lambda job: job.kernel, lambda job: job.symbol)
    executions = [_execute(job, kept) for job in kept]
    if as_json:
        print_json(executed_data(executions))
    elif markdown:
        print("\n".join(map(executed_markdown, executions)))
    else:
        show_fitted(lambda width: executed_view(executions, width))
    if any(execution.findings for execution in executions):
        raise typer.Exit(1)


class _Job(NamedTuple):
    """A kernel to be run on the emulator."""

    kernel: str
    symbol: str
    run: Callable[[], Execution]


def _jobs(
    target: str, arch: str, arguments: CompilerArguments, launch: str | None, size: str | None
) -> list[_Job]:
    from lowgemm.compiler.compile import read_source
    from lowgemm.gemm import rung
    from lowgemm.runtime.workload import Workload
    from lowgemm.studies.execution import execute_build, execute_rung
    from lowgemm.studies.targets import is_cubin, is_rung, resolve_builds

    if is_cubin(target):
        raise typer.BadParameter(f"{target}: --executed takes rungs and .cu files, no cubins")
    if is_rung(target):
        if launch:
            raise typer.BadParameter("a rung's launch follows from --size: leave out --launch")
        record, problem = rung(target, arch), emulated_problem(size)
        instance = record.instance(aligned=problem.allows_float4())
        return [_Job(instance, record.name, partial(execute_rung, record, arch, problem))]
    # What does not exist is told as elsewhere, before an option is missed for it.
    read_source(target)
    if not launch:
        raise typer.BadParameter(
            f"{target}: --executed needs a launch for a .cu file, such as --launch '{_LAUNCH}'"
        )
    if size:
        raise typer.BadParameter(f"{target}: --size is for rungs: say sizes in --launch")
    workload = Workload.parse(launch)
    (build,) = resolve_builds(target, [arch], **arguments)
    return [
        _Job(k.display_name, k.name, partial(execute_build, build, workload, k.name))
        for k in build.kernels
    ]


def _execute(job: _Job, jobs: Sequence[_Job]) -> Execution:
    """Run it; where its launch does not fit, tell how to leave it out."""
    from lowgemm.errors import (
        ArgumentCountError,
        ArgumentTypeError,
        ArgumentValueError,
        ArrayLayoutError,
        DtypeError,
    )

    misfits = (
        *(ArgumentCountError, ArgumentTypeError, ArgumentValueError),
        *(ArrayLayoutError, DtypeError),
    )
    kernels = dict.fromkeys(each.kernel for each in jobs)
    try:
        return job.run()
    except misfits as error:
        if len(kernels) == 1:
            raise
        remedy = f"{error.remedy}; --only chooses one of {', '.join(kernels)}"
        raise type(error)(error.what, remedy) from None


def _refuse_combinations(
    targets: list[str], *, listing: bool, source: bool, hot: bool, markdown: bool, data: bool
) -> None:
    from lowgemm.studies.targets import is_cubin

    if hot and not source:
        raise typer.BadParameter("--hot goes with --source")
    if source and listing:
        raise typer.BadParameter("--source shows the instructions: leave out --text and --control")
    if source and any(map(is_cubin, targets)):
        raise typer.BadParameter("--source needs the PTX: name a rung or a .cu file, no .cubin")
    if markdown and data:
        raise typer.BadParameter("--markdown or --json, not both")
    if markdown and listing:
        raise typer.BadParameter("a listing is text or --json: leave out --markdown")


def _show_compared(reports: list[SassReport], *, as_json: bool) -> None:
    from lowgemm.analysis.tracks import track_architectures
    from lowgemm.view.sass import compared_view
    from lowgemm.view.tracks import kernel_track_data

    kernels = track_architectures(reports)
    if as_json:
        print_json([kernel_track_data(kernel) for kernel in kernels])
    else:
        show_fitted(lambda width: compared_view(kernels, width))


def _kernels(builds: list[Build], cubins: list[bytes]) -> list[tuple[str, SassKernel]]:
    """Each kernel's machine code behind its name for people."""
    from lowgemm.binary import display_names
    from lowgemm.binary.sass import disassemble

    given = [{k.name: k.display_name for k in build.kernels} for build in builds]
    sources = [*zip([build.cubin for build in builds], given, strict=True)]
    sources += [(cubin, {}) for cubin in cubins]
    return [
        (names[kernel.name], kernel)
        for cubin, known in sources
        for kernels in (disassemble(cubin, live_registers=False),)
        for names in (display_names([kernel.name for kernel in kernels], known),)
        for kernel in kernels
    ]


def _show_source(
    builds: list[Build], only: str | None, *, hot: bool, markdown: bool, as_json: bool
) -> None:
    from lowgemm.analysis.lines import side_by_side
    from lowgemm.view.lines import lines_data, lines_markdown, render_lines

    found = [(name, kernel, build) for build in builds for name, kernel in _kernels([build], [])]
    kept = chosen(found, only, lambda item: item[0], lambda item: item[1].name)
    reports = [side_by_side(build, kernel) for _, kernel, build in kept]
    if as_json:
        rows = [row for report in reports for row in lines_data(report)]
        print_json([row for row in rows if row["sass_in_hot_loop"] or not hot])
        return
    out = console()
    for report in reports:
        if markdown:
            print(lines_markdown(report, hot_only=hot, limit=None))
        else:
            out.print(render_lines(report, out.width, hot_only=hot))


def _show_listing(
    kernels: list[tuple[str, SassKernel]], only: str | None, *, control: bool, as_json: bool
) -> None:
    from lowgemm.analysis.listing import list_kernel
    from lowgemm.view.sass import listing_data, sass_listing

    kept = chosen(kernels, only, lambda item: item[0], lambda item: item[1].name)
    listings = [list_kernel(kernel, name) for name, kernel in kept]
    if as_json:
        print_json([row for listing in listings for row in listing_data(listing)])
        return
    for listing in listings:
        show(sass_listing(listing, control=control))
