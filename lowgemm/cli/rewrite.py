"""`lowgemm rewrite`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    cubin_of,
    default_archs,
    print_json,
    show,
    write_bytes,
)

if TYPE_CHECKING:
    from lowgemm.runtime import Device

__all__ = ["rewrite"]

Targets = Annotated[list[str], typer.Argument(help="Rungs, .cu files or .cubin files.")]
Written = Annotated[
    Path | None,
    typer.Option(
        "--output",
        help="Write the cubin here if one was rewritten (one architecture).",
    ),
]


Launch = Annotated[
    str | None,
    typer.Option(
        "--launch",
        help="Run both kernels, in the emulator's strict mode and on the GPU if it fits, and "
        "compare their bits: 'grid=4 block=256 args=f32[4096],f32[4096]:zeros,64'.",
    ),
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
    launch: Launch = None,
    output: Written = None,
    as_json: Json = False,
) -> None:
    """Give hot loops of FFMAs other registers and another order; exit status 1 if none can be.

    A loop is rewritten only if it computes the same, value by value, and its control words protect
    every register. What the model says of both is shown; no GPU is needed.
    """
    from lowgemm.runtime.workload import Workload
    from lowgemm.studies.rewriting import rewrite_cubin
    from lowgemm.studies.targets import is_cubin, resolve_builds
    from lowgemm.view.rewriting import rewriting_data, rewriting_view

    arguments = compiler_arguments(define, include, option, kernel)
    cubins: list[tuple[bytes, dict[str, str]]] = []
    for target in targets:
        if is_cubin(target):
            cubins.append((cubin_of(target, arch), {}))
            continue
        for build in resolve_builds(target, arch or default_archs(), **arguments):
            names = {each.name: each.display_name for each in build.kernels}
            cubins.append((build.cubin, names))
    if output and len(cubins) != 1:
        raise typer.BadParameter(
            "--output takes one file and one architecture: name it with --arch"
        )
    workload = Workload.parse(launch) if launch else None
    found = []
    for cubin, names in cubins:
        with ExitStack() as stack:
            devices = [stack.enter_context(each) for each in _devices(cubin)] if workload else []
            found.append(
                rewrite_cubin(cubin, names=names, only=only, workload=workload, devices=devices)
            )
    if output and found[0].any:
        write_bytes(output, found[0].cubin)
    if as_json:
        print_json(rewriting_data(found))
    else:
        show(rewriting_view(found))
    if not any(each.any for each in found):
        raise typer.Exit(1)


def _devices(cubin: bytes) -> list[Device]:
    """The emulator in strict mode, and the GPU if there is one of that architecture."""
    from lowgemm.binary import read_cubin
    from lowgemm.device import Gpu
    from lowgemm.emulator import Emulator
    from lowgemm.errors import LowgemmError

    arch = read_cubin(cubin).arch
    found: list[Device] = [Emulator(arch, strict=True)]
    try:
        gpu = Gpu()
    except LowgemmError:
        return found
    return [*found, gpu] if gpu.architecture == arch else found
