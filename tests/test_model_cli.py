"""`lowgemm model` as a user meets it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from lowgemm.cli import app
from lowgemm.device import gpu_available
from lowgemm.errors import ArgumentValueError, LowgemmError, UnknownGpuError
from lowgemm.hardware import GPUS

without_gpu = pytest.mark.skipif(gpu_available(), reason="there is a GPU here")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["model", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def data(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_tile_of_an_a100() -> None:
    """The exact ratio, its ceiling and the power of two under plain keys."""
    row = data("tile", "--gpu", "a100")
    assert row["amplification"] == pytest.approx(38.24, abs=0.005)
    assert (row["min_tile"], row["next_power_of_two"]) == (39, 64)
    assert (row["register_tile"], row["local_l1"], row["local_l2"]) == (4, 16, 4)
    rounded = data("tile", "--gpu", "A100", "--bytes-per-cycle", "13.3")
    assert rounded["amplification"] == pytest.approx(38.5, abs=0.05)
    given = data("tile", "--gpu", "5080", "--tile", "128")
    assert given["tile"]["multicast_needed"] == pytest.approx(1.83, abs=0.01)


def test_raster_of_four_by_four() -> None:
    """Rows 1.6, blocks 2, diagonals 1."""
    row = data("raster", "--grid", "4x4", "--sms", "4")
    assert row["multicast_factor"] == 1.6
    factors = {choice["raster"]: choice["multicast_factor"] for choice in row["orders"]}
    assert (factors["row"], factors["blocks:2x2"], factors["diagonal"]) == (1.6, 2, 1)
    blocks = data("raster", "--grid", "4x4", "--sms", "4", "--order", "blocks:2x2")
    assert blocks["multicast_factor"] == 2


def test_occupancy_of_the_seeds_example() -> None:
    """80 registers, 256 threads: 3 blocks, 37.5 %, beside the hand formula."""
    row = data("occupancy", "--registers", "80", "--threads", "256", "--arch", "sm_80")
    assert (row["blocks_per_sm"], row["occupancy"], row["limiter"]) == (3, 0.375, "registers")
    assert row["hand"]["blocks_per_sm"] == 3


def test_gemv_has_both_estimates() -> None:
    """Without and with multicast."""
    row = data("gemv", "--gpu", "a100")
    assert row["fma_per_cycle_per_sm"] == pytest.approx(1.674, abs=0.0005)
    assert row["fma_per_cycle_per_sm_multicast"] == pytest.approx(3.347, abs=0.0005)


@pytest.mark.parametrize("gpu", [record.name for record in GPUS])
def test_every_gpu_of_the_table_has_levels(gpu: str) -> None:
    """Text and JSON for each, with the source of every figure."""
    assert gpu in run("levels", "--gpu", gpu)
    row = data("levels", "--gpu", gpu)
    assert row["gpu"] == gpu
    assert row["sources"]["dram_gb_per_s"] == "data sheet"
    assert len(row["levels"]) == 4


@without_gpu
def test_without_a_gpu_the_default_is_named() -> None:
    """The output says that the model is of an H200 because there is no GPU."""
    assert "H200 SXM, the default: there is no GPU here" in run("levels")
    assert data("tile")["gpu_chosen"] == "the default: there is no GPU here"


def test_explain_shows_the_compiler_beside_the_estimate() -> None:
    """ex8 on an H200: registers and shared memory of the compiler, its loop, and what binds."""
    row = data("explain", "ex8", "--gpu", "h200")
    assert row["binding"] == "issue slots"
    assert row["compiled"]["arch"] == "sm_90"
    assert 100 < row["compiled"]["registers"] <= 128
    assert row["registers"] == row["compiled"]["registers"]
    assert (row["compiled"]["ffma_per_step"], row["compiled"]["lds_per_step"]) == (64, 4)
    assert row["counted_tflops"] == pytest.approx(49.3, rel=0.05)  # what an H200 measures
    text = run("explain", "ex8", "--gpu", "h200")
    assert "issue slots" in text and "from the machine code" in text


@pytest.mark.parametrize("rung", ["ex3", "ex4_16", "ex5", "ex7", "ex10", "two_ideas"])
def test_every_kind_of_rung_can_be_explained(rung: str) -> None:
    """Rungs without a tile, without prefetch and with cp.async have a verdict."""
    row = data("explain", rung, "--gpu", "h200")
    assert 0 < row["tflops"] < row["peak_tflops"]
    assert row["notes"] or rung == "ex10"


def test_explain_takes_a_configuration_and_an_old_gpu() -> None:
    """A tile string needs no compiler; where NVRTC knows a GPU no more a note says so."""
    row = data("explain", "128x128x8/8x8@256,stages=2", "--gpu", "h200", "--size", "1024")
    assert row["compiled"] is None
    assert row["m"] == 1024
    old = data("explain", "ex8", "--gpu", "v100")
    assert old["compiled"] is None
    assert any("sm_70" in note for note in old["notes"])
    assert "128x128x8/8x8@256" in run("explain", "128x128x8/8x8", "--gpu", "5080")


def test_search_lists_the_best() -> None:
    """As many as asked for, the best first."""
    rows = data("search", "--gpu", "h200", "--top", "3")["configurations"]
    assert len(rows) == 3
    assert rows[0]["config"].startswith("128x256x16/")
    assert "128x256" in run("search", "--gpu", "h200", "--top", "2", "--tma", "--walk", "placed")


def test_the_other_views_are_text() -> None:
    """Each command without --json prints a table that names its subject."""
    assert "amplification" in run("tile", "--gpu", "a100", "--tile", "64x32")
    assert "diagonal" in run("raster", "--grid", "8", "--sms", "4")
    assert "limited by registers" in run("occupancy", "-r", "80", "-t", "256", "-a", "80")
    assert "H200" in run("occupancy", "-r", "80", "-t", "256", "--gpu", "h200")
    assert "L2 multicasts it" in run("gemv", "--gpu", "a100")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["levels", "--gpu", "voodoo"], UnknownGpuError),
        (["explain", "ex99"], ArgumentValueError),
        (["raster", "--grid", "0x4"], ArgumentValueError),
        (["raster", "--grid", "4x4", "--order", "spiral"], ArgumentValueError),
        (["gemv", "--m", "0"], ArgumentValueError),
        (["gemv", "--m", "1" + 400 * "0"], ArgumentValueError),
        (["gemv", "--bytes-per-cycle", "1e-320"], ArgumentValueError),
        (["raster", "--grid", "2048x2048", "--sms", "1"], ArgumentValueError),
        (["tile", "--bytes-per-cycle", "0"], ArgumentValueError),
        (["tile", "--bytes-per-cycle", "1e-308"], ArgumentValueError),
        (["tile", "--bytes-per-cycle", "5e-324"], ArgumentValueError),
        (["occupancy", "-r", "300", "-t", "32", "-a", "80"], ArgumentValueError),
        (["search", "--top", "0", "--gpu", "h200"], ArgumentValueError),
    ],
)
def test_wrong_input_is_an_error_with_a_remedy(
    arguments: list[str], error: type[LowgemmError]
) -> None:
    """No traceback of something else, and a way out."""
    with pytest.raises(error) as caught:
        CliRunner().invoke(app, ["model", *arguments], catch_exceptions=False)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "arguments",
    [
        ["raster", "--grid", "fourxfour"],
        ["occupancy", "-r", "8", "-t", "32", "-a", "80", "-g", "a100"],
        ["explain"],
    ],
)
def test_wrong_usage_is_a_usage_error(arguments: list[str]) -> None:
    """What cannot be read is exit status 2."""
    assert CliRunner().invoke(app, ["model", *arguments]).exit_code == 2
