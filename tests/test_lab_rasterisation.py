"""Rasterisation: the orders, what their waves share, and kernels that differ in nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lab_bench import TIME_US, by_name, measured, rows

from lowgemm.analysis import SassReport
from lowgemm.gemm import compile_rung, rung
from lowgemm.hardware import gpu_record
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.lab.rasterisation import ORDERS, Rasterisation, grouped, squares, unique_panels

LOADS = ", loads alone"


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("tiles", [16, 48])
def test_every_order_takes_every_tile_once(name: str, tiles: int) -> None:
    """No tile is left out or done twice, and none lies outside."""
    row, col = ORDERS[name](np.arange(tiles * tiles), tiles, tiles)
    assert set(zip(row.tolist(), col.tolist(), strict=True)) == {
        (i, j) for i in range(tiles) for j in range(tiles)
    }


def test_the_orders_share_what_the_textbook_example_says() -> None:
    """Of 4 x 4 tiles in waves of 4: 1.6 by rows, 2 in squares of 2, 1 along the diagonals."""
    requested = 2 * 16
    assert requested / unique_panels(ORDERS["rows"], 4, 4, 4) == 1.6
    assert requested / unique_panels(ORDERS["columns"], 4, 4, 4) == 1.6
    assert requested / unique_panels(squares(2), 4, 4, 4) == 2
    assert requested / unique_panels(ORDERS["no sharing"], 4, 4, 4) == 1


def test_unique_panels_are_those_of_sets() -> None:
    """On a grid that the waves do not divide, and with a last, partial wave."""
    row, col = grouped(4)(np.arange(8 * 12), 8, 12)
    panels = 0
    for first in range(0, 96, 20):
        panels += len(set(row[first : first + 20])) + len(set(col[first : first + 20]))
    assert unique_panels(grouped(4), 8, 12, 20) == panels


def test_the_prediction_for_an_h200() -> None:
    """FFMAs bind the product in every order; the loads alone differ by more than a factor of 2."""
    found = Rasterisation().predict(gpu_record("h200"), {})
    # 272 x 272 tiles, K 768, 281 waves of 264 blocks; 16 warps of 64 FFMAs a step on 4 partitions.
    ffma_us = 281 * 4 * 64 * 768 / 1.98e3
    for name in ORDERS:
        assert found[name].value == pytest.approx(ffma_us)
        assert "FFMA binds" in found[name].reason
    requested = 2 * 272**2 * 128 * 768 * 4
    assert found["grouped by 8" + LOADS].value == pytest.approx(requested / 10200e3)
    assert found["no sharing" + LOADS].value == pytest.approx(requested / 4800e3)
    assert found["rows" + LOADS].value == pytest.approx(requested / 1.985 / 4800e3, rel=0.01)


def test_a_gpu_with_little_bandwidth_is_bound_by_dram_without_sharing() -> None:
    """An RTX 5080's memory gives the FFMAs less than they need where no panel is shared."""
    found = rows(Rasterisation(), "5080")
    no_sharing, in_groups = found["no sharing"].prediction, found["grouped by 8"].prediction
    assert no_sharing is not None
    assert in_groups is not None
    assert no_sharing.reason.endswith("DRAM binds")
    assert in_groups.reason.endswith("FFMA binds")
    assert no_sharing.value > 1.1 * in_groups.value


@pytest.mark.parametrize("gpu", ["a100", "h200", "5080"])
def test_the_orders_have_one_main_loop(gpu: str) -> None:
    """That of ex9, instruction for instruction in number and register-bank conflicts."""
    found = rows(Rasterisation(), gpu)
    codes = [found[name].code for name in ORDERS]
    assert all(codes)
    ladder = _hot(f"sm_{gpu_record(gpu).capability_major}{gpu_record(gpu).capability_minor}")
    assert ladder.hot is not None
    for code in codes:
        assert code is not None
        assert (code.instructions, code.conflict_cycles) == (
            ladder.hot.instructions,
            ladder.hot.conflict_cycles,
        )
        assert code.mix == {"FFMA": 1024, "LDG.128": 4, "LDS.128": 64, "BAR": 2}
    for name in ORDERS:
        loads = found[name + LOADS].code
        assert loads is not None
        assert loads.mix == {"FFMA": 0, "LDG.128": 8, "LDS.128": 0, "BAR": 0}


def _hot(arch: str) -> SassReport:
    build = compile_rung(rung("ex9", arch), arch)
    return next(r for r in inspect_build(build) if r.kernel == "ex9_double_buffer<true>")


Floats = np.ndarray[Any, np.dtype[np.float32]]


def _product(m: int, n: int, k: int, a: Floats, *rest: Any, blocks: int) -> None:
    _, b, _, c, _ = rest
    assert blocks == (m // 128) * (n // 128)
    c[...] = a @ b


def _loads(m: int, n: int, k: int, a: Floats, *rest: Any, blocks: int) -> None:
    _, b, _, c, _ = rest
    sums = np.zeros((m // 128, n // 128, 8), np.float32)
    for i in range(m // 128):
        for j in range(n // 128):
            sums[i, j, 3] = a[128 * i : 128 * i + 128].sum() + b[:, 128 * j : 128 * j + 128].sum()
    c.reshape(-1)[: sums.size] = sums.reshape(-1)


def test_measuring_accepts_right_results_and_no_others() -> None:
    """Kernels that leave a tile out get no figure."""
    right = {"lab_rasterisation<": _product, "lab_rasterisation_loads<": _loads}
    found = measured(Rasterisation(), by_name(right), l2_bytes=1 << 18)
    assert all(each.correct and each.value == TIME_US for each in found.values())
    assert found["rows"].details["tflops"] == pytest.approx(2 * 2048**2 * 256 / TIME_US / 1e6)

    def without_a_tile(*args: Any, blocks: int) -> None:
        _product(*args, blocks=blocks)
        args[-2][128:256, 256:384] = np.nan

    def without_a_panel(*args: Any, blocks: int) -> None:
        _loads(*args, blocks=blocks)
        args[-2].reshape(-1)[8 * 5 + 3] = np.nan

    wrong = {"lab_rasterisation<": without_a_tile, "lab_rasterisation_loads<": without_a_panel}
    found = measured(Rasterisation(), by_name(wrong), l2_bytes=1 << 18)
    assert not any(each.correct or each.value for each in found.values())
