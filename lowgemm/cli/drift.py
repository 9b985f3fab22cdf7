"""`lowgemm drift`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Only,
    Options,
    app,
    chosen,
    compiler_arguments,
    default_archs,
    print_json,
    show_fitted,
)

__all__ = ["drift"]

Target = Annotated[str, typer.Argument(help="A rung or a .cu file.")]
Releases = Annotated[
    str,
    typer.Option(
        "--nvrtc",
        help="Releases of NVRTC to compare, with commas: 12.9,13.0,13.5. Those that are not "
        "installed are fetched with pip (a wheel of about 100 MB each), once.",
    ),
]


@app.command()
def drift(
    target: Target,
    nvrtc: Releases,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    only: Only = None,
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
    kernels = chosen(result.kernels, only, lambda kernel: kernel.kernel)
    result = replace(result, kernels=tuple(kernels))
    if as_json:
        print_json(drift_data(result))
    else:
        show_fitted(lambda width: drift_view(result, width))
