"""Vector loads from global memory: bytes under way, machine code, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lab_bench import TIME_US, all_wrong, measured

from lowgemm.hardware import gpu_record
from lowgemm.hardware.memory_levels import latency
from lowgemm.studies.lab import global_vectors, run_experiment
from lowgemm.studies.lab.global_vectors import GlobalVectors


def words_of(kernel: str) -> int:
    """Words of the vector in a kernel's name."""
    return 4 if "uint4" in kernel else 2 if "uint2" in kernel else 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that numpy reads quickly; the pattern's end is not the stream's."""
    monkeypatch.setattr(global_vectors, "_GIB", 3 * 2**20)
    monkeypatch.setattr(global_vectors, "_PATTERN_WORDS", 10_007)


def global_kernel(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
    """lab_global_vectors in numpy, step by step as the kernel walks."""
    buffer, out, vectors, steps = arguments
    width, flight = words_of(name), int(name.rstrip(">")[-1])
    rows = buffer[: vectors * width].reshape(vectors, width)
    thread = np.arange(blocks * threads)
    at, total = thread, np.zeros(thread.size, np.uint64)
    for _ in range(steps):
        for i in range(flight):
            total += rows[at + i * thread.size].sum(axis=1, dtype=np.uint64)
        at = at + flight * thread.size
        at = np.where(at >= vectors, thread, at)
    out[:] = total.astype(np.uint32)


def test_bandwidth_is_bytes_under_way_over_latency_up_to_the_peak() -> None:
    """H200, by hand: 8 warps and 2048 threads, 688 cycles to DRAM, 243 to L2."""
    found = GlobalVectors().predict(gpu_record("h200"), {})
    cycles = 132 * 1.98
    assert found["LDG.32, DRAM, 8 warps"].value == pytest.approx(256 * 4 / 688 * cycles)
    assert found["LDG.64, DRAM, 8 warps"].value == pytest.approx(256 * 8 / 688 * cycles)
    four = found["4 LDG.32, DRAM, 8 warps"].value
    assert found["LDG.128, DRAM, 8 warps"].value == four == pytest.approx(1556.0, abs=0.2)
    assert found["LDG.32, DRAM"].value == pytest.approx(2048 * 4 / 688 * cycles)
    widest = found["4 LDG.128, DRAM, 8 warps"].value
    assert found["LDG.128, DRAM"].value == widest == pytest.approx(4800)
    assert found["LDG.32, L2"].value == pytest.approx(2048 * 4 / 243 * cycles)
    assert found["LDG.128, L2"].value == pytest.approx(10200)


@pytest.mark.parametrize("name", ["rtx 5080", "rtx 3090"])
def test_a_gpu_whose_latency_nobody_measured_gets_that_of_the_nearest(name: str) -> None:
    """So few warps with narrow loads are predicted to be slow there as well."""
    gpu = gpu_record(name)
    found = GlobalVectors().predict(gpu, {})
    wait = latency(gpu, "dram").value
    narrow, wide = found["LDG.32, DRAM, 8 warps"], found["4 LDG.128, DRAM, 8 warps"]
    assert narrow.value == pytest.approx(256 * 4 / wait * gpu.sms * gpu.clock_ghz)
    assert wide.value == pytest.approx(gpu.dram_gb_per_s)
    assert narrow.value < wide.value / 2
    assert latency(gpu, "dram").note in narrow.reason


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_a_loop_has_the_loads_that_the_name_says(gpu: str) -> None:
    """One or four loads of the width, and no unrolling beyond."""
    for row in run_experiment(GlobalVectors(), gpu_record(gpu)).rows:
        assert row.code is not None
        load = row.variant.partition(",")[0]
        count, width = (4, load[2:]) if load.startswith("4 ") else (1, load)
        assert row.code.mix == {**dict.fromkeys(("LDG.32", "LDG.64", "LDG.128"), 0), width: count}
        assert row.code.registers <= 32


@pytest.mark.usefixtures("small")
def test_streams_are_read_once_in_whole_rounds() -> None:
    """The mirror never leaves the buffer, and the sums are right for every stream."""
    found = measured(GlobalVectors(), global_kernel)
    assert all(m.correct for m in found.values())
    assert found["LDG.32, DRAM"].value == pytest.approx(4 * 2**20 / TIME_US / 1e3)


@pytest.mark.usefixtures("small")
def test_a_wrong_sum_gives_no_figure() -> None:
    """One word off."""
    assert all_wrong(GlobalVectors(), global_kernel)
