"""`lowgemm drift`."""

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
    show,
)

__all__ = ["drift"]

Target = Annotated[str, typer.Argument(help="A rung or a .cu file.")]
Nvrtc = Annotated[
    str, typer.Option("--nvrtc", help="Releases of NVRTC to compare, with commas: 12.9,13.0,13.5.")
]


@app.command()
def drift(
    target: Target,
    nvrtc: Nvrtc,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """What each NVRTC release changed, per loop."""
    from lowgemm.studies.drift import drift as study
    from lowgemm.view.drift import drift_data, drift_view

    result = study(
        target,
        [name.strip() for name in nvrtc.split(",") if name.strip()],
        arch or default_archs(),
        **compiler_arguments(define, include, option, kernel),
    )
    if as_json:
        print_json(drift_data(result))
    else:
        show(drift_view(result))
