"""`lowgemm sass`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Options,
    app,
    compiler_arguments,
    console,
    default_archs,
    print_json,
    show,
)

if TYPE_CHECKING:
    from lowgemm.analysis import SassReport
    from lowgemm.binary.sass import SassKernel
    from lowgemm.compiler import Build

T = TypeVar("T")

__all__ = ["sass"]

Targets = Annotated[list[str], typer.Argument(help="Rungs, .cu files or .cubin files.")]
Only = Annotated[str | None, typer.Option("--only", help="Only kernels with this in their name.")]
Listing = Annotated[bool, typer.Option("--text", help="The instructions, with source lines.")]
Control = Annotated[bool, typer.Option("--control", help="The instructions with control words.")]
Source = Annotated[bool, typer.Option("--source", help="Source, PTX and SASS side by side.")]
Hot = Annotated[bool, typer.Option("--hot", help="With --source: only lines of the hot loop.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Markdown instead of a table.")]


@app.command()
def sass(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    only: Only = None,
    listing: Listing = False,
    control: Control = False,
    source: Source = False,
    hot: Hot = False,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """What the hardware executes: instructions per loop."""
    _refuse_combinations(
        targets, listing=listing or control, source=source, hot=hot, markdown=markdown, data=as_json
    )
    from lowgemm.studies.inspection import inspect_builds, inspect_cubin
    from lowgemm.studies.targets import is_cubin, load_cubin, resolve_builds
    from lowgemm.view.sass import sass_data, sass_markdown, sass_view

    builds: list[Build] = []
    cubins: list[bytes] = []
    for target in targets:
        if is_cubin(target):
            cubins.append(load_cubin(target))
            continue
        builds += resolve_builds(
            target,
            arch or default_archs(),
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
    reports = _chosen([(report.kernel, "", report) for report in reports], only)
    if as_json:
        print_json(sass_data(reports))
    elif markdown:
        print(sass_markdown(reports), end="")
    else:
        show(sass_view(reports))


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


def _chosen(found: list[tuple[str, str, T]], only: str | None) -> list[T]:
    """Of kernels by name and further name, those with the text in one of them."""
    from lowgemm.errors import KernelNotFoundError

    chosen = [item for name, other, item in found if only is None or only in name or only in other]
    if found and not chosen:
        available = tuple(dict.fromkeys(name for name, _, _ in found))
        raise KernelNotFoundError(
            f"no kernel has {only!r} in its name",
            f"there is {', '.join(available)}",
            available=available,
        )
    return chosen


def _kernels(builds: list[Build], cubins: list[bytes]) -> list[tuple[str, str, SassKernel]]:
    """Each kernel's machine code behind its name for people and that of the cubin."""
    from lowgemm.binary import display_names
    from lowgemm.binary.sass import disassemble

    given = [{k.name: k.display_name for k in build.kernels} for build in builds]
    sources = [*zip([build.cubin for build in builds], given, strict=True)]
    sources += [(cubin, {}) for cubin in cubins]
    return [
        (names[kernel.name], kernel.name, kernel)
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

    found = [
        (name, mangled, (build, kernel))
        for build in builds
        for name, mangled, kernel in _kernels([build], [])
    ]
    reports = [side_by_side(build, kernel) for build, kernel in _chosen(found, only)]
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
    kernels: list[tuple[str, str, SassKernel]], only: str | None, *, control: bool, as_json: bool
) -> None:
    from lowgemm.view.sass import sass_listing

    chosen = _chosen([(name, mangled, (name, k)) for name, mangled, k in kernels], only)
    if as_json:
        print_json([row for name, kernel in chosen for row in _listing_data(name, kernel)])
        return
    for _, kernel in chosen:
        show(sass_listing(kernel, control=control))


def _listing_data(name: str, kernel: SassKernel) -> list[dict[str, Any]]:
    """The instructions as plain data, an object an instruction."""
    return [
        {
            "kernel": name,
            "arch": str(kernel.arch),
            "address": instruction.address,
            "text": instruction.text or instruction.mnemonic,
            "control": str(instruction.control),
            "line": None if instruction.line is None else str(instruction.line),
        }
        for instruction in kernel.instructions
    ]
