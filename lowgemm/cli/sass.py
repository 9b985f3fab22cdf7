"""`lowgemm sass`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Options,
    app,
    console,
    default_archs,
    parse_define,
    print_json,
    show,
)

if TYPE_CHECKING:
    from lowgemm.analysis import SassReport
    from lowgemm.compiler import Build

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
    from lowgemm.studies.inspection import inspect_builds, inspect_cubin
    from lowgemm.studies.targets import resolve_builds
    from lowgemm.view.sass import sass_data, sass_markdown, sass_view

    builds: list[Build] = []
    cubins: list[bytes] = []
    for target in targets:
        if target.endswith(".cubin"):
            cubins.append(_read(Path(target)))
            continue
        builds += resolve_builds(
            target,
            arch or default_archs(),
            defines=dict(parse_define(text) for text in define or ()),
            include_dirs=[str(path) for path in include or ()],
            options=option or (),
            name_expressions=kernel or (),
        )
    if listing or control:
        _show_listing([*(build.cubin for build in builds), *cubins], only, control)
        return
    if source:
        _show_source(builds, only, hot)
        return
    reports: list[SassReport] = [r for found in inspect_builds(builds) for r in found]
    reports += [report for cubin in cubins for report in inspect_cubin(cubin)]
    reports = [report for report in reports if only is None or only in report.kernel]
    if as_json:
        print_json(sass_data(reports))
    elif markdown:
        print(sass_markdown(reports), end="")
    else:
        show(sass_view(reports))


def _read(path: Path) -> bytes:
    from lowgemm.errors import SourceNotFoundError

    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceNotFoundError(
            f"{path} cannot be read: {error.strerror}", "name a .cubin file"
        ) from error


def _show_source(builds: list[Build], only: str | None, hot: bool) -> None:
    from lowgemm.analysis.lines import side_by_side
    from lowgemm.binary.sass import disassemble
    from lowgemm.view.lines import render_lines

    out = console()
    for build in builds:
        for kernel in disassemble(build.cubin, live_registers=False):
            report = side_by_side(build, kernel)
            if only is None or only in report.kernel:
                out.print(render_lines(report, out.width, hot_only=hot))


def _show_listing(cubins: list[bytes], only: str | None, control: bool) -> None:
    from lowgemm.binary import function_name
    from lowgemm.binary.sass import disassemble
    from lowgemm.view.sass import sass_listing

    for cubin in cubins:
        for kernel in disassemble(cubin, live_registers=False):
            if only is None or only in kernel.name or only in function_name(kernel.name):
                show(sass_listing(kernel, control=control))
