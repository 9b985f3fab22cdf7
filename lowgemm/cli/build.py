"""`lowgemm doctor` and `lowgemm compile`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowgemm.cli.common import (
    Archs,
    CubinFile,
    Defines,
    Includes,
    Instances,
    Json,
    Log,
    Nvrtc,
    Only,
    Options,
    PtxFile,
    app,
    chosen,
    compiler_arguments,
    default_archs,
    print_json,
    show,
    write_bytes,
)

if TYPE_CHECKING:
    from lowgemm.compiler import Build, CompiledKernel

__all__ = ["compile_", "doctor"]

Targets = Annotated[list[str], typer.Argument(help="Rungs or .cu files.")]


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is found where and how to get the rest."""
    from lowgemm.studies.doctor import examine
    from lowgemm.view import doctor_view

    findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        show(doctor_view(findings))
    if not all(finding.found for finding in findings if finding.required):
        raise typer.Exit(1)


@app.command("compile")
def compile_(
    targets: Targets,
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    nvrtc: Nvrtc = None,
    only: Only = None,
    cubin: CubinFile = None,
    ptx: PtxFile = None,
    log: Log = False,
    as_json: Json = False,
) -> None:
    """Compile rungs or .cu files; show registers, shared memory, spills."""
    from lowgemm.studies.targets import resolve_builds
    from lowgemm.view import builds_table

    archs = arch or default_archs()
    if (cubin or ptx) and (len(archs) != 1 or len(targets) != 1):
        raise typer.BadParameter(
            "--cubin and --ptx take one file and one architecture: name it with --arch"
        )
    arguments = compiler_arguments(define, include, option, kernel)
    builds = [
        build
        for target in targets
        for build in resolve_builds(target, archs, nvrtc=nvrtc, **arguments)
    ]
    if cubin:
        write_bytes(cubin, builds[0].cubin)
    if ptx:
        write_bytes(ptx, builds[0].ptx.encode())
    rows = [(build, found) for build in builds for found in build.kernels]
    rows = chosen(rows, only, lambda row: row[1].display_name, lambda row: row[1].name)
    if as_json:
        print_json([_row(*row) for row in rows])
        return
    show(builds_table(rows))
    if log:
        print("\n".join(build.log.rstrip() for build in builds))


def _row(build: Build, kernel: CompiledKernel) -> dict[str, Any]:
    return {
        "kernel": kernel.display_name,
        "symbol": kernel.name,
        "arch": str(build.arch),
        "nvrtc": build.nvrtc_version,
        "source": None if build.source is None else str(build.source),
        **asdict(kernel.resources),
        # The others are what ptxas says of the kernel alone.
        "registers_with_callees": kernel.signature.registers,
        "shared_bytes_with_callees": kernel.signature.shared_bytes,
        "stack_bytes_with_callees": kernel.signature.stack_bytes,
        "parameters": [asdict(parameter) for parameter in kernel.signature.parameters],
    }
