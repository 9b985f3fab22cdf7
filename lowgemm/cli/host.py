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
    from lowgemm.studies.openblas import OpenBlasKernel

__all__ = ["host"]

_NUMPY = "numpy"


@app.command()
def host(
    library: Annotated[
        str, typer.Argument(help="An ELF library; 'numpy': the OpenBLAS that numpy uses.")
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
        print_json([_row(report, kernel) for report, kernel in reports])
        return
    most = None if all_loops else 8
    show_fitted(
        lambda width: Group(*(host_view(r, _about(kernel), most, width) for r, kernel in reports))
    )


def _reports(
    library: str, symbols: list[str] | tuple[()], cores: list[str] | tuple[()]
) -> Iterator[tuple[HostReport, OpenBlasKernel | None]]:
    from lowgemm.analysis.host import analyse_host
    from lowgemm.binary.host import read_library
    from lowgemm.studies.openblas import numpy_openblas, pick_kernel, selected_core

    path = numpy_openblas() if library == _NUMPY else Path(library)
    read = read_library(path)
    if symbols:
        for name in symbols:
            yield analyse_host(read.function(name)), None
        return
    for core in cores or (selected_core(path, read),):
        kernel = pick_kernel(read, core)
        yield analyse_host(read.function(kernel.symbol)), kernel


def _about(kernel: OpenBlasKernel | None) -> str:
    if kernel is None or kernel.panel_rows is None:
        return ""
    panels = f"panels of {kernel.panel_rows} rows of A and {kernel.panel_columns} columns of B"
    return f"OpenBLAS's SGEMM kernel for the core {kernel.core}; it packs {panels}"


def _row(report: HostReport, kernel: OpenBlasKernel | None) -> dict[str, Any]:
    row = asdict(report) | {"loops": [_loop(loop) for loop in report.loops]}
    return row | {"openblas": asdict(kernel) if kernel else None}


def _loop(loop: HostLoop) -> dict[str, Any]:
    shares = {"fma_share": loop.fma_share, "loads_per_fma": loop.loads_per_fma}
    return asdict(loop) | shares
