"""The thread-tile experiment: what is compiled, what is rewritten, what is predicted."""

from __future__ import annotations

import pytest

from lowgemm import Emulator
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.lab import SmallSetup, run_experiment
from lowgemm.studies.lab.thread_tile import ThreadTile, Tiles


def test_a_wave_covers_the_multiprocessors() -> None:
    """Tiles are a whole number of waves, so that no multiprocessor is idle."""
    with Emulator("sm_90") as device:
        setup = SmallSetup(device, {}, scale=5)
        for tm, bm in ((8, 256), (12, 384)):
            tiles = Tiles.of(tm, setup)
            assert (tiles.rows, tiles.columns) == (2, 3)
            assert (tiles.m, tiles.n) == (2 * bm, 3 * 128)


def test_the_larger_tile_is_predicted_to_be_faster() -> None:
    """Fewer loads for an FFMA, and fewer bank conflicts once the loop is rewritten."""
    rows = {row.variant: row for row in run_experiment(ThreadTile(), gpu_record("h200")).rows}
    value = {name: row.prediction.value for name, row in rows.items() if row.prediction}
    assert value["12 x 16"] < value["8 x 16"]
    assert value["12 x 16, rewritten"] < value["12 x 16"]
    assert value["8 x 16, rewritten"] < value["8 x 16"]
    assert 1 < value["12 x 16, rewritten"] < value["8 x 16, rewritten"]
    for name, steps in (("8 x 16", (1024, 48, 3)), ("12 x 16", (1536, 56, 4))):
        for each in (name, f"{name}, rewritten"):
            code = rows[each].code
            assert code is not None
            assert tuple(code.mix.values()) == steps


@pytest.mark.parametrize("arch", [Architecture(8, 6), Architecture(12, 0)])
def test_the_rewriter_takes_the_smaller_tile_elsewhere(arch: Architecture) -> None:
    """Where 192 sums do not fit there are three variants."""
    names = [variant.name for variant in ThreadTile().variants(arch)]
    assert names == ["8 x 16", "8 x 16, rewritten", "12 x 16"]
