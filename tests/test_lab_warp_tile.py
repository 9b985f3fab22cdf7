"""The warp-tile experiment: places, wavefronts, predictions, machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lab_bench import CLOCK_MHZ, TIME_US, all_wrong, measured

from lowgemm.hardware import gpu_record
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.studies.lab import run_experiment
from lowgemm.studies.lab.warp_tile import ARRANGEMENTS, WarpTile

#: LDS wavefronts of a warp for one k-step, by hand: two or one loads of A, then two of B.
BY_HAND = {
    "8x8, 1 x 32": 2 * 2 + 2 * 4,
    "8x8, 2 x 16": 2 * 2 + 2 * 4,
    "8x8, 4 x 8": 2 * 2 + 2 * 4,
    "8x8, 8 x 4": 2 * 2 + 2 * 4,
    "8x8, 4 x 8 z": 2 * 2 + 2 * 2,
    "8x8, 1 x 32 side by side": 2 * 2 + 2 * 8,
    "8x8, 4 x 8 side by side": 2 * 2 + 2 * 8,
    "8x8, 4 x 8 z side by side": 2 * 2 + 2 * 2,
    "2x8, 1 x 32": 1 + 2 * 4,
    "2x8, 2 x 16": 1 + 2 * 4,
    "2x8, 4 x 8": 1 + 2 * 4,
    "2x8, 8 x 4": 1 + 2 * 4,
    "2x8, 4 x 8 z": 1 + 2 * 2,
    "2x8, 1 x 32 side by side": 1 + 2 * 8,
    "2x8, 4 x 8 side by side": 1 + 2 * 8,
    "2x8, 4 x 8 z side by side": 1 + 2 * 2,
}


def kernel(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
    """lab_warp_tile in numpy: a thread's elements from its place, as the kernel indexes them."""
    a, b, place, c, rounds = arguments
    tm, wide = a.shape[1] // 16, min(a.shape[1] // 16, 4)
    i, j = np.arange(tm), np.arange(8)
    rows = place[:, i // wide] + i % wide
    cols = place[:, 2 + j // 4] + j % 4
    for block in range(blocks):
        tile = rounds * np.einsum("kti,ktj->tij", a[:, rows], b[:, cols])
        c[block][rows[:, :, None], cols[:, None, :]] = tile


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_wavefronts_are_those_counted_by_hand(gpu: str) -> None:
    """Each prediction names 16 warps' wavefronts and is never below them."""
    found = WarpTile().predict(gpu_record(gpu), {})
    assert found.keys() == BY_HAND.keys()
    for name, of_a_warp in BY_HAND.items():
        assert f"wavefronts {16 * of_a_warp}," in found[name].reason
        assert found[name].value >= 16 * of_a_warp


def test_what_decides() -> None:
    """On 128 lanes 2 x 8 is bound by shared memory, 8 x 8 by issue; on 64 lanes 8 x 8 by FFMA."""
    h200, a100 = (WarpTile().predict(gpu_record(name), {}) for name in ("h200", "a100"))
    assert h200["2x8, 4 x 8"].value == 144
    assert h200["2x8, 4 x 8 side by side"].value == 272
    assert h200["2x8, 4 x 8 z"].value == 80
    assert h200["8x8, 4 x 8"].value == h200["8x8, 4 x 8 z"].value == 16 * (64 + 4) / 4
    assert a100["8x8, 4 x 8 side by side"].value == 512
    assert a100["2x8, 4 x 8 z"].value == 128


def test_the_z_order_is_the_one_of_the_prototype() -> None:
    """For A lanes n and n^1, for B lanes n and n^2 read the same; each lane has its own place."""
    places = ARRANGEMENTS["8x8, 4 x 8 z"].places()[:32]
    lanes = np.arange(32)
    assert (places[lanes, 0] == places[lanes ^ 1, 0]).all()
    assert (places[lanes, 2] == places[lanes ^ 2, 2]).all()
    assert len({tuple(place) for place in places.tolist()}) == 32
    assert wavefronts([4 * int(row) for row in places[:, 0]], 16) == 2


def test_every_arrangement_covers_the_tile_once() -> None:
    """The kernel's mirror gives the right product for each, so each element is some thread's."""
    found = measured(WarpTile(), kernel)
    assert found.keys() == BY_HAND.keys()
    assert all(m.correct for m in found.values())
    assert found["8x8, 4 x 8"].value == TIME_US * CLOCK_MHZ / (600 * 8)
    assert found["2x8, 4 x 8"].value == TIME_US * CLOCK_MHZ / (1000 * 8)


def test_a_wrong_element_gives_no_figure() -> None:
    """One element off in the last block."""
    assert all_wrong(WarpTile(), kernel)


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_the_arrangements_share_their_machine_code(gpu: str) -> None:
    """Of one thread tile all have the same loop, with vector loads and nothing else."""
    rows = run_experiment(WarpTile(), gpu_record(gpu)).rows
    for tile, ffma, lds64, lds128 in (("8x8", 512, 0, 32), ("2x8", 128, 8, 16)):
        codes = [row.code for row in rows if row.variant.startswith(tile)]
        assert len(codes) == 8
        assert all(code == codes[0] for code in codes)
        assert codes[0] is not None
        assert codes[0].mix == {"FFMA": ffma, "LDS.64": lds64, "LDS.128": lds128}
        assert codes[0].instructions <= ffma + lds64 + lds128 + 8
