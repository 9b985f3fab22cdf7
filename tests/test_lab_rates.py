"""Rates in an SM's terms."""

from __future__ import annotations

import pytest

from lowgemm.hardware import gpu_record
from lowgemm.studies.lab import MachineCode
from lowgemm.studies.lab.rates import (
    dram_bytes_per_cycle,
    issue_cycles_per_ffma,
    l2_bytes_per_cycle,
    latency_cycles,
)


def test_bytes_a_cycle_are_an_sms_share() -> None:
    """The A100's 13.4 of DRAM, the H200's 18.4 and 39.0 of L2."""
    assert dram_bytes_per_cycle(gpu_record("a100")) == pytest.approx(2039 / 108 / 1.41)
    assert dram_bytes_per_cycle(gpu_record("h200")) == pytest.approx(18.4, abs=0.05)
    assert l2_bytes_per_cycle(gpu_record("h200")).value == pytest.approx(39.0, abs=0.05)


def test_a_borrowed_figure_names_its_owner() -> None:
    """And a GPU's own has no note."""
    assert latency_cycles(gpu_record("h200"), "dram").note == ""
    borrowed = latency_cycles(gpu_record("3090"), "dram")
    assert (borrowed.value, borrowed.note) == (556, " (that of the A40)")
    # In its own cycles and SMs, so that another number of SMs does not matter.
    assert l2_bytes_per_cycle(gpu_record("h100")).value == pytest.approx(39.0, abs=0.05)


def test_an_ffma_takes_its_share_of_the_loop() -> None:
    """Where it takes a slot a cycle; on 64 lanes its pipe is slower than the rest."""
    code = MachineCode("sm_90", 127, 0, 0, 1140, {"FFMA": 1024}, 251)
    assert issue_cycles_per_ffma(gpu_record("h200"), code) == (1140 + 251) / 1024
    assert issue_cycles_per_ffma(gpu_record("a100"), code) == 2
    assert issue_cycles_per_ffma(gpu_record("h200"), None) == 1
