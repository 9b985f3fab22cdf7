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
    compiler_arguments,
    default_archs,
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
            **compiler_arguments(define, include, option, kernel),
        )
        for target in targets
    ]
    if as_json:
        print_json(check_data(reports))
    else:
        print(check_text(reports))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
