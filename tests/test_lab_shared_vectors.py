"""Vector loads from shared memory: wavefronts, machine code, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lab_bench import CLOCK_MHZ, TIME_US, all_wrong, measured

from lowgemm.hardware import gpu_record
from lowgemm.studies.lab import run_experiment
from lowgemm.studies.lab.shared_vectors import SharedVectors

WAVEFRONTS = {
    "LDS.32": 1,
    "LDS.32, one": 1,
    "LDS.64": 2,
    "LDS.64, n and n^1": 1,
    "LDS.64, n and n^2": 1,
    "LDS.64, n and n^4": 2,
    "LDS.64, mixed": 2,
    "LDS.64, one": 1,
    "LDS.128": 4,
    "LDS.128, n and n^1": 2,
    "LDS.128, n and n^2": 2,
    "LDS.128, n and n^4": 4,
    "LDS.128, mixed": 4,
    "LDS.128, one": 2,
}


def shared_kernel(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
    """lab_shared_vectors in numpy."""
    tile, place, out, rounds = arguments
    word = place[np.arange(blocks * threads) % 32]
    words = (tile[:, word + i].astype(np.uint64) for i in range(words_of(name)))
    total = sum(rounds * rows.sum(axis=0) for rows in words)
    out.reshape(-1)[:] = np.asarray(total).astype(np.uint32)


def words_of(kernel: str) -> int:
    """Words of the vector in a kernel's name."""
    return 4 if "uint4" in kernel else 2 if "uint2" in kernel else 1


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_a_wavefront_a_cycle(gpu: str) -> None:
    """With the machine code too the prediction is the wavefronts: issue is never the bound."""
    rows = run_experiment(SharedVectors(), gpu_record(gpu)).rows
    predicted = {row.variant: row.prediction.value for row in rows if row.prediction}
    assert predicted == WAVEFRONTS


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_the_loads_have_the_width_that_the_name_says(gpu: str) -> None:
    """Sixteen loads a loop, and half an addition a word."""
    for row in run_experiment(SharedVectors(), gpu_record(gpu)).rows:
        assert row.code is not None
        name = row.variant.partition(",")[0]
        loads = {width: row.code.mix[width] for width in ("LDS.32", "LDS.64", "LDS.128")}
        assert loads == {**dict.fromkeys(loads, 0), name: 16}
        additions = 16 * int(name.removeprefix("LDS.")) // 32 / 2
        assert row.code.instructions <= 16 + additions + 4


def test_right_sums_give_cycles_per_load() -> None:
    """The time in cycles over the rounds of sixteen loads of eight warps."""
    found = measured(SharedVectors(), shared_kernel)
    for name, wavefronts in WAVEFRONTS.items():
        rounds = 2_000_000 // (8 * 16 * wavefronts)
        assert found[name].value == pytest.approx(TIME_US * CLOCK_MHZ / (rounds * 16 * 8))


def test_a_wrong_lane_gives_no_figure() -> None:
    """One sum off in the last block."""
    assert all_wrong(SharedVectors(), shared_kernel)
