"""`lowgemm doctor` and `lowgemm compile`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
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
    Options,
    PtxFile,
    app,
    compiler_arguments,
    default_archs,
    print_json,
    show,
    write_bytes,
)

if TYPE_CHECKING:
    from lowgemm.compiler import Build

__all__ = ["compile_", "doctor"]


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
    source: Annotated[Path, typer.Argument(help="A .cu file.")],
    arch: Archs = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    cubin: CubinFile = None,
    ptx: PtxFile = None,
    log: Log = False,
    as_json: Json = False,
) -> None:
    """Compile a .cu file; show registers, shared memory, spills."""
    from lowgemm.compiler import compile_many
    from lowgemm.view import builds_table

    archs = arch or default_archs()
    if (cubin or ptx) and len(archs) != 1:
        raise typer.BadParameter("--cubin and --ptx take one architecture: name it with --arch")
    builds = compile_many(
        source,
        archs=archs,
        **compiler_arguments(define, include, option, kernel),
    )
    built = list(builds.values())
    if cubin:
        write_bytes(cubin, built[0].cubin)
    if ptx:
        write_bytes(ptx, built[0].ptx.encode())
    if as_json:
        print_json([row for build in built for row in _build_rows(build)])
        return
    show(builds_table(built))
    if log:
        print("\n".join(build.log.rstrip() for build in built))


def _build_rows(build: Build) -> list[dict[str, Any]]:
    return [
        {
            "kernel": kernel.display_name,
            "symbol": kernel.name,
            "arch": str(build.arch),
            "nvrtc": build.nvrtc_version,
            **asdict(kernel.resources),
            # The others are what ptxas says of the kernel alone.
            "registers_with_callees": kernel.signature.registers,
            "shared_bytes_with_callees": kernel.signature.shared_bytes,
            "stack_bytes_with_callees": kernel.signature.stack_bytes,
            "parameters": [asdict(parameter) for parameter in kernel.signature.parameters],
        }
        for kernel in build.kernels
    ]
