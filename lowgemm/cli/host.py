"""`lowgemm host`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowgemm.cli.common import Json, app, print_json, show_fitted

if TYPE_CHECKING:
    from lowgemm.analysis.host import HostLoop, HostReport
    from lowgemm.binary.host import HostLibrary
    from lowgemm.studies.openblas import OpenBlasKernel

__all__ = ["host"]

_NUMPY = "numpy"


@app.command()
def host(
    library: Annotated[
        str, typer.Argument(help="An ELF library's path; 'numpy': the OpenBLAS that numpy uses.")
    ] = _NUMPY,
    symbol: Annotated[
        list[str] | None,
        typer.Argument(help="Functions. Default: OpenBLAS's SGEMM kernel for this CPU."),
    ] = None,
    core: Annotated[
        list[str] | None,
        typer.Option("--core", "-c", help="OpenBLAS's SGEMM kernel for this core. Repeatable."),
    ] = None,
    all_loops: Annotated[bool, typer.Option("--all", help="All loops, not the heaviest.")] = False,
    as_json: Json = False,
) -> None:
    """Loops, instruction mix and register tile of a CPU's GEMM, or of any function."""
    from rich.console import Group

    from lowgemm.view.host import host_view

    if symbol and core:
        raise typer.BadParameter("name functions or cores, not both")
    reports = list(_reports(library, symbol or (), core or ()))
    if as_json:
        print_json([_row(report, kernel) for report, kernel, _ in reports])
        return
    most = None if all_loops else 8
    show_fitted(lambda width: Group(*(host_view(r, about, most, width) for r, _, about in reports)))


def _reports(
    library: str, symbols: list[str] | tuple[()], cores: list[str] | tuple[()]
) -> Iterator[tuple[HostReport, OpenBlasKernel | None, str]]:
    """Each function's report, what OpenBLAS says of it, and what is to be said of it besides."""
    from lowgemm.analysis.host import analyse_host
    from lowgemm.binary.host import read_library
    from lowgemm.studies.openblas import numpy_openblas, pick_kernel, selected_core

    path = numpy_openblas() if library == _NUMPY else Path(library)
    read = read_library(path)
    if symbols:
        for name in symbols:
            report = analyse_host(read.function(name))
            yield report, None, _jumps(report, read)
        return
    for core in cores or (selected_core(path, read),):
        kernel = pick_kernel(read, core)
        yield analyse_host(read.function(kernel.symbol)), kernel, _about(kernel)


def _jumps(report: HostReport, library: HostLibrary) -> str:
    """A function without loops may only lead to those that do the work."""
    if report.loops or not report.jumps_out:
        return ""
    names = ", ".join(map(library.name_at, report.jumps_out[:3]))
    return f"it jumps on to {names}: the work may be done there"


def _about(kernel: OpenBlasKernel) -> str:
    if kernel.panel_rows is None:
        return ""
    panels = f"panels of {kernel.panel_rows} rows of A and {kernel.panel_columns} columns of B"
    return f"OpenBLAS's SGEMM kernel for the core {kernel.core}; it packs {panels}"


def _row(report: HostReport, kernel: OpenBlasKernel | None) -> dict[str, Any]:
    row = asdict(report) | {"loops": [_loop(loop) for loop in report.loops]}
    return row | {"openblas": asdict(kernel) if kernel else None}


def _loop(loop: HostLoop) -> dict[str, Any]:
    shares = {"fma_share": loop.fma_share, "loads_per_fma": loop.loads_per_fma}
    return asdict(loop) | shares
