"""`lowgemm check`."""

from __future__ import annotations

from typing import Annotated

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Options,
    app,
    default_archs,
    parse_define,
    print_json,
)

__all__ = ["check"]

Targets = Annotated[list[str], typer.Argument(help="Rungs or .cu files with // expect: lines.")]
Expected = Annotated[
    list[str] | None,
    typer.Option("--expect", "-e", help="A further expectation: 'registers <= 128'. Repeatable."),
]


@app.command()
def check(
    targets: Targets,
    arch: Archs = None,
    expect: Expected = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Check the expectations that stand beside a kernel."""
    from lowgemm.studies.checking import check_file
    from lowgemm.view.check import check_data, check_text

    archs = arch or default_archs()
    reports = [
        check_file(
            target,
            archs,
            expectations=expect or (),
            defines=dict(parse_define(text) for text in define or ()),
            include_dirs=[str(path) for path in include or ()],
            options=option or (),
            name_expressions=kernel or (),
        )
        for target in targets
    ]
    if as_json:
        print_json(check_data(reports))
    else:
        print(check_text(reports))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
