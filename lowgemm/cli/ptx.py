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
    Nvrtc,
    Only,
    Options,
    app,
    chosen,
    compiler_arguments,
    default_archs,
    print_json,
    show_fitted,
)

if TYPE_CHECKING:
    from lowgemm.compiler import Build

__all__ = ["ptx"]

Targets = Annotated[list[str], typer.Argument(help="Rungs or .cu files.")]
Listing = Annotated[bool, typer.Option("--text", help="The PTX itself.")]


@app.command()
def ptx(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    nvrtc: Nvrtc = None,
    only: Only = None,
    listing: Listing = False,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """What the compiler's first half made of it: PTX instructions per loop.

    A loop goes without the loops inside it. The hot one has the most multiply-adds (fma); where
    there are none it is the innermost, then the longest. Its lines are those of --text.
    """
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
            nvrtc=nvrtc,
            **compiler_arguments(define, include, option, kernel),
        )
    ]
    if listing:
        _print_listing(builds, only)
        return
    reports = [report for build in builds for report in analyse_ptx_build(build)]
    reports = chosen(reports, only, lambda report: report.kernel, lambda report: report.symbol)
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

    if only is None:
        print("".join(build.ptx for build in builds), end="")
        return
    found = [(b.ptx, function) for b in builds for function in read_ptx(b.ptx).functions]
    names = (lambda item: function_name(item[1].name), lambda item: item[1].name)
    for text, function in chosen(found, only, *names):
        print(ptx_listing(text, function), end="")
