"""`lowgemm suite` and `lowgemm tune`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowgemm.cli.common import (
    DeviceChoice,
    Json,
    Markdown,
    OnDevice,
    Output,
    Saved,
    app,
    choose_device,
    console,
    print_json,
    progress_bar,
    show,
)

if TYPE_CHECKING:
    from lowgemm.report.suite import SuiteReport
    from lowgemm.studies.suite import SuiteCase

__all__ = ["suite", "tune"]

Part = Annotated[
    str | None,
    typer.Option("--only", help="Shapes with this in their group or name."),
]
Reduced = Annotated[
    bool, typer.Option("--reduced", help="Check small versions of the shapes, without timing.")
]
Check = Annotated[bool, typer.Option(help="Judge the results as well.")]
Sized = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", help="MxNxK, or 1024 for a cube. Repeatable. Default: the suite."),
]
TransposeA = Annotated[bool, typer.Option("--transpose-a", help="A is stored as k x m.")]
TransposeB = Annotated[bool, typer.Option("--transpose-b", help="B is stored as n x k.")]
Batches = Annotated[int, typer.Option(min=1, help="How many matrices.")]
Table = Annotated[
    Path | None, typer.Option(help="The table's file. Default: this GPU's in the cache directory.")
]
Again = Annotated[bool, typer.Option("--again", help="Measure as well what the table has already.")]


@app.command()
def suite(
    only: Part = None,
    check: Check = True,
    reduced: Reduced = False,
    device: OnDevice = None,
    output: Output = None,
    saved: Saved = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Check sgemm() on many shapes and time it beside cuBLAS; exit status 1 if one is wrong.

    Times need a GPU; with --reduced the emulator checks as well.
    """
    if reduced:
        if output or saved or markdown:
            raise typer.BadParameter("--reduced has no times for --output, --from or --markdown")
        _check_reduced(only, device, as_json=as_json)
        return
    if device is DeviceChoice.EMULATOR:
        raise typer.BadParameter("the emulator has no clock: add --reduced, which checks alone")
    from lowgemm.report.suite import read_suite, write_suite
    from lowgemm.view.suite import suite_markdown, suite_view

    report = read_suite(saved) if saved else _measured(only, check=check)
    if output:
        write_suite(report, output)
    if as_json:
        print_json(report)
    elif markdown:
        print(suite_markdown(report), end="")
    else:
        show(suite_view(report))
    if not all(row.passed for row in report.rows):
        raise typer.Exit(1)


def _check_gpu(remedy: str) -> None:
    from lowgemm.device import gpu_available
    from lowgemm.errors import NoGpuError

    if not gpu_available():
        raise NoGpuError("there is no GPU, and only a GPU has times", remedy)


def _check_reduced(only: str | None, device: DeviceChoice | None, *, as_json: bool) -> None:
    from lowgemm.studies.devices import open_device
    from lowgemm.studies.suite import check_suite
    from lowgemm.view.suite import checked_view

    checked = []
    with open_device(choose_device(device).value) as opened, progress_bar() as progress:
        checked = list(check_suite(opened, _cases(only), progress=progress))
    if as_json:
        print_json(checked)
    else:
        show(checked_view(checked))
    if not all(each.check.passed for each in checked):
        raise typer.Exit(1)


def _cases(only: str | None) -> tuple[SuiteCase, ...]:
    from lowgemm.studies.suite import suite

    cases = suite(only)
    if not cases:
        raise typer.BadParameter(f"no shape has {only!r} in its group or name")
    return cases


def _measured(only: str | None, *, check: bool) -> SuiteReport:
    from lowgemm.device import Gpu
    from lowgemm.report.provenance import run_facts
    from lowgemm.report.suite import SuiteReport, suite_row
    from lowgemm.studies.peers import cublas_version
    from lowgemm.studies.suite import run_suite

    cases = _cases(only)
    _check_gpu("lowgemm suite --reduced checks on the emulator")
    with Gpu() as gpu, progress_bar() as progress:
        results = run_suite(gpu, cases, check=check, progress=progress)
        rows = tuple(suite_row(result) for result in results)
        command = "lowgemm suite" + (f" --only {only}" if only else "")
        facts = {**run_facts(gpu, command), "cublas": cublas_version(gpu)}
    return SuiteReport(facts, rows)


@app.command()
def tune(
    size: Sized = None,
    transpose_a: TransposeA = False,
    transpose_b: TransposeB = False,
    batches: Batches = 1,
    table: Table = None,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Measure on a GPU which kernel of sgemm() is the fastest, and keep it; ^C and go on later."""
    from lowgemm.device import Gpu
    from lowgemm.gemm import GemmProblem, SgemmCall
    from lowgemm.gemm.choice import user_table
    from lowgemm.studies.suite import SUITE
    from lowgemm.studies.tuning import tune

    _check_gpu("run it where the kernels are to run; without a table a model chooses")
    calls = [case.call for case in SUITE]
    if not size and (transpose_a or transpose_b or batches > 1):
        raise typer.BadParameter("name the sizes: --size 1024 --transpose-b")
    if size:
        calls = [
            SgemmCall.of(
                GemmProblem.parse(text),
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                batches=batches,
            )
            for text in size
        ]
    with Gpu() as gpu, progress_bar() as progress:
        path = table or user_table(gpu.name)
        out = console(stderr=as_json)
        found = []
        for tuned in tune(
            gpu, calls, path, again=again, workers=os.cpu_count() or 1, progress=progress
        ):
            found.append(tuned)
            best = tuned.measured[0]
            ties = ", ".join(str(each) for each in tuned.best[1:])
            also = f"  as fast: {ties}" if ties else ""
            out.print(f"{tuned.key:32} {best.choice!s:18} {best.median_us:10.2f} us{also}")
        out.print(f"kept in {path}")
    if as_json:
        print_json(found)
