"""Tables in narrow terminals: what has no room is told below, and nothing is cut."""

from __future__ import annotations

import io

import pytest
from corpus import build
from rich.console import Console, RenderableType

from lowgemm.analysis.ptx import analyse_ptx_build
from lowgemm.analysis.tracks import track_architectures
from lowgemm.compiler import compile_source
from lowgemm.studies.inspection import inspect_build
from lowgemm.view import builds_table
from lowgemm.view.columns import Column, fitted_table, fitting
from lowgemm.view.ptx import ptx_view
from lowgemm.view.sass import compared_view, sass_view

TENSOR = """
#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, float* c, int n) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
    wmma::fill_fragment(z, 0.0f);
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        wmma::load_matrix_sync(x, a + 256 * i, 16);
        wmma::load_matrix_sync(y, a + 512 * i, 16);
        wmma::mma_sync(z, x, y, z);
    }
    wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
"""


def printed(view: RenderableType, width: int) -> str:
    """What a terminal of that width shows."""
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(view)
    return out.getvalue()


def test_columns_that_do_not_fit_are_told_below() -> None:
    """The least important columns go first, and each of their cells stands in its row's line."""
    columns: list[Column[str]] = [
        Column("name", lambda row: row),
        Column("length", lambda row: str(len(row)), rank=1),
        Column("upper", str.upper, rank=2),
        Column("silent", lambda row: "x", rank=3, told=False),
    ]
    kept, dropped = fitting(columns, ["abc"], 17)
    assert [column.header for column in kept] == ["name", "length"]
    assert [column.header for column in dropped] == ["upper", "silent"]
    text = printed(fitted_table(columns, ["abc"], 17, remark=lambda row: "!"), 40)
    assert "abc: upper ABC; !" in text
    assert "silent" not in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_loses_nothing_of_a_loop(width: int) -> None:
    """Range, length, mark, FFMAs stay columns; loads, bank cycles, live registers are there too."""
    (report, *_) = inspect_build(build("ex8", "sm_90"))
    hot = report.hot
    assert hot is not None
    text = printed(sass_view([report], width), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    row = next(line for line in text.splitlines() if f"{hot.start:#06x}-{hot.end:#06x} hot" in line)
    assert {str(hot.instructions), str(hot.mix["FFMA"])} <= set(row.split())
    told = " ".join(text.split())
    for said in ("32 x 128", str(hot.conflict_cycles), str(hot.registers_live), "BAR"):
        assert said in told


def test_what_has_no_column_is_named_for_each_loop() -> None:
    """A loop's other instructions stand below it, with the moves among them, in SASS and PTX."""
    made = compile_source(TENSOR, arch="sm_80")
    (report,) = inspect_build(made)
    text = printed(sass_view([report], 200), 200)
    assert "HMMA" in text
    assert "others: " in text
    assert "bank cycles" not in text  # nothing is modelled without FFMAs
    assert f"(of which moves {report.moves})" in text
    (ptx,) = analyse_ptx_build(made)
    text = printed(ptx_view([ptx], 200), 200)
    head = next(line for line in text.splitlines() if "loop (PTX lines)" in line)
    assert {"wmma.load", "wmma.mma"} <= set(head.split())
    assert "matrix: " in text


def test_the_table_of_builds_says_its_units() -> None:
    """Memory is in bytes, and the whole table fits into 80 columns."""
    made = build("ex8", "sm_90")
    text = printed(builds_table([(made, kernel) for kernel in made.kernels]), 80)
    assert "in bytes" in text
    assert "…" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_a_comparison_goes_into_further_tables(width: int) -> None:
    """Every architecture asked for has its column in a table of a kernel, however narrow."""
    text = "__global__ void k(float* o, int n) { for (int i = 0; i < n; ++i) o[0] += o[i]; }"
    archs = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"]
    made = [compile_source(text, arch=arch) for arch in archs]
    kernels = track_architectures([inspect_build(item)[0] for item in made])
    lines = printed(compared_view(kernels, width), width).splitlines()
    heads = [line.split() for line in lines if line.strip().startswith("sm_")]
    shown = [arch for head in heads for arch in head]
    assert shown[: len(archs)] == archs
    assert not any("…" in line or len(line) > width for line in lines)
