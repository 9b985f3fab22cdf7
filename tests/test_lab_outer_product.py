"""The outer-product experiment: loads per multiply-add, predictions, machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lab_bench import CLOCK_MHZ, TIME_US, all_wrong, measured

from lowgemm.hardware import gpu_record
from lowgemm.studies.lab import run_experiment
from lowgemm.studies.lab.outer_product import OuterProduct

#: Loads of a thread for one k-step of its 8 x 8 elements.
LOADS = {"inner": 128, "outer 2 x 2": 64, "outer 4 x 4": 32, "outer 8 x 8": 16}


def kernel(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
    """lab_outer_product in numpy: a thread's rows and columns lie 16 apart."""
    a, b, c, rounds = arguments
    apart = 16 * np.arange(8)
    for thread in range(threads):
        rows, cols = thread // 16 + apart, thread % 16 + apart
        c[:, rows[:, None], cols] = rounds * (a[:, rows].T @ b[:, cols])


def test_shared_memory_delivers_less_the_larger_the_square() -> None:
    """Eight warps, a wavefront a load, until issue (H200) or the 64 lanes (A100) decide."""
    h200, a100 = (OuterProduct().predict(gpu_record(name), {}) for name in ("h200", "a100"))
    assert {name: p.value for name, p in h200.items()} == {
        "inner": 1024,
        "outer 2 x 2": 512,
        "outer 4 x 4": 256,
        "outer 8 x 8": 8 * (64 + 16) / 4,
    }
    assert a100["outer 4 x 4"].value == a100["outer 8 x 8"].value == 8 * 64 / 2
    assert h200["inner"].reason.startswith("2 LDS an FFMA")
    assert h200["outer 8 x 8"].reason.startswith("0.25 LDS an FFMA")


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_the_loops_differ_in_their_loads_alone(gpu: str) -> None:
    """All FFMAs of eight k-steps, each operand loaded as often as the order says, nothing kept."""
    for row in run_experiment(OuterProduct(), gpu_record(gpu)).rows:
        assert row.code is not None
        loads = 8 * LOADS[row.variant]
        assert row.code.mix == {"FFMA": 512, "LDS.32": loads, "LDS.64": 0, "LDS.128": 0}
        assert row.code.instructions <= 512 + loads + 8


def test_a_right_product_gives_cycles_per_k_step() -> None:
    """The time in cycles over 400 rounds of eight k-steps."""
    found = measured(OuterProduct(), kernel)
    assert found.keys() == LOADS.keys()
    for measurement in found.values():
        assert measurement.value == TIME_US * CLOCK_MHZ / (400 * 8)


def test_each_variant_is_turned_into_cycles_by_its_own_clock() -> None:
    """A variant during which the GPU slowed down does not seem to take more cycles."""
    found = measured(OuterProduct(), kernel, clocks_mhz={"inner": CLOCK_MHZ // 2})
    whole = found["outer 8 x 8"].value
    assert whole == TIME_US * CLOCK_MHZ / (400 * 8)
    assert found["inner"].value == whole / 2


def test_a_wrong_element_gives_no_figure() -> None:
    """One element off in the last block."""
    assert all_wrong(OuterProduct(), kernel)
