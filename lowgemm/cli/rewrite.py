"""`lowgemm rewrite`."""

from __future__ import annotations

from pathlib import Path
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
    compiler_arguments,
    default_archs,
    print_json,
    show,
    write_bytes,
)

__all__ = ["rewrite"]

Targets = Annotated[list[str], typer.Argument(help="Rungs, .cu files or .cubin files.")]
Written = Annotated[
    Path | None,
    typer.Option("--output", help="Write the rewritten cubin here (one file, one architecture)."),
]


@app.command()
def rewrite(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    only: Only = None,
    output: Written = None,
    as_json: Json = False,
) -> None:
    """Give hot loops of FFMAs other registers and another order; exit status 1 if none can be.

    A loop is rewritten only if it computes the same, value by value, and its control words protect
    every register. What the model says of both is shown; no GPU is needed.
    """
    from lowgemm.studies.rewriting import rewrite_cubin
    from lowgemm.studies.targets import is_cubin, load_cubin, resolve_builds
    from lowgemm.view.rewriting import rewriting_data, rewriting_view

    arguments = compiler_arguments(define, include, option, kernel)
    cubins: list[tuple[bytes, dict[str, str]]] = []
    for target in targets:
        if is_cubin(target):
            cubins.append((load_cubin(target), {}))
            continue
        for build in resolve_builds(target, arch or default_archs(), **arguments):
            names = {each.name: each.display_name for each in build.kernels}
            cubins.append((build.cubin, names))
    if output and len(cubins) != 1:
        raise typer.BadParameter(
            "--output takes one file and one architecture: name it with --arch"
        )
    found = [rewrite_cubin(cubin, names=names, only=only) for cubin, names in cubins]
    if output:
        write_bytes(output, found[0].cubin)
    if as_json:
        print_json(rewriting_data(found))
    else:
        show(rewriting_view(found))
    if not any(each.any for each in found):
        raise typer.Exit(1)
