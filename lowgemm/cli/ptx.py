"""`lowgemm ptx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Markdown,
    Options,
    app,
    compiler_arguments,
    default_archs,
    print_json,
    show_fitted,
)

if TYPE_CHECKING:
    from lowgemm.compiler import Build

__all__ = ["ptx"]

Targets = Annotated[list[str], typer.Argument(help="Rungs or .cu files.")]
Only = Annotated[str | None, typer.Option("--only", help="Only kernels with this in their name.")]
Listing = Annotated[bool, typer.Option("--text", help="The PTX itself.")]


@app.command()
def ptx(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    only: Only = None,
    listing: Listing = False,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """What the compiler's first half made of it: PTX instructions per loop."""
    from lowgemm.analysis.ptx import analyse_ptx_build
    from lowgemm.studies.targets import resolve_builds
    from lowgemm.view.ptx import ptx_data, ptx_markdown, ptx_view

    archs = arch or default_archs()
    builds = [
        build
        for target in targets
        for build in resolve_builds(
            target,
            archs,
            **compiler_arguments(define, include, option, kernel),
        )
    ]
    if listing:
        _print_listing(builds, only)
        return
    reports = [
        report
        for build in builds
        for report in analyse_ptx_build(build)
        if only is None or only in report.kernel or only in report.symbol
    ]
    if as_json:
        print_json(ptx_data(reports))
    elif markdown:
        print(ptx_markdown(reports), end="")
    else:
        show_fitted(lambda width: ptx_view(reports, width))


def _print_listing(builds: list[Build], only: str | None) -> None:
    from lowgemm.binary import function_name
    from lowgemm.binary.ptx_code import read_ptx
    from lowgemm.view.ptx import ptx_listing

    for build in builds:
        if only is None:
            print(build.ptx, end="")
            continue
        for function in read_ptx(build.ptx).functions:
            if only in function.name or only in function_name(function.name):
                print(ptx_listing(build.ptx, function), end="")
