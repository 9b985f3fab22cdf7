"""The page of the seeds' slips says what the library computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowgemm.hardware import capability, gpu_record, occupancy
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.model import (
    Machine,
    arithmetic_intensity,
    gemv,
    hand_occupancy,
    occupancy_report,
    rasterise,
    ridge_fma_per_byte,
    shared_tile_requirement,
)

PAGE = Path(__file__).resolve().parents[1] / "sass_reports" / "model" / "seed_slips.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the page is not beside the tests")

A100 = Machine.from_gpu(gpu_record("a100"))
ROUNDED = A100.with_dram_bytes_per_cycle(13.3)


def row(where: str, says: str) -> str:
    """The page's row on a place and what the seed says there."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith(f"| {where} |") and says in line]
    return found


def test_bandwidth_and_intensity() -> None:
    """Bytes per cycle, bytes of the matrices and FMA per byte."""
    rate = row("second, 2", "13.3 B/cycle")
    exact, rounded = shared_tile_requirement(A100), shared_tile_requirement(ROUNDED)
    assert f"| {A100.dram_bytes_per_cycle_per_sm:.2f} |" in rate
    assert f"{exact.amplification:.2f} instead of {rounded.amplification:.2f}" in rate
    assert f"the least tile {exact.min_tile} either way" in rate
    assert exact.min_tile == rounded.min_tile
    gemm = arithmetic_intensity(4096, 4096, 4096)
    size = row("second, 2", "48 MB |")
    assert f"| {gemm.bytes // 2**20} MiB |" in size
    assert f"{gemm.elements // 2**20} Mi elements" in size
    intensity = row("second, 2", "1365 FMA/B")
    assert f"| {gemm.fma_per_byte:.0f} FMA/B |" in intensity
    assert f"{gemm.fma_per_element:.0f} is per element" in intensity
    assert f"ridge of {ridge_fma_per_byte(ROUNDED):.1f} FMA/B" in intensity


def test_the_second_raster() -> None:
    """Four SMs request 256 K elements, of which 128 K are unique."""
    text = row("second, 5.2.3", "requested")
    wave = rasterise("blocks:2x2", 128, 128, 1, 32, 32, blocks_per_wave=4).waves[0]
    assert f"With {wave.blocks}: {wave.requested_bytes // 4} K" in text
    assert f"would be {wave.unique_bytes // 4} K" in text
    assert f"the factor of {wave.multicast_factor:.0f}" in text


def test_gemv() -> None:
    """13.3 / 8 and its exact value."""
    text = row("second, 7.1", "1.64")
    assert f"| {gemv(ROUNDED, 4096, 4096).fma_per_cycle_per_sm:.2f} |" in text
    assert f"{gemv(A100, 4096, 4096).fma_per_cycle_per_sm:.3f} from the exact rate" in text


def test_occupancy() -> None:
    """ex8 by its own formula and as compiled, and the platform's own threads."""
    hand = hand_occupancy(capability(8, 0), threads=256, registers=80)
    text = row("first, ex8", "full occupancy")
    assert f"| {hand.occupancy:.1%} |".replace("%", " %") in text
    assert f"leave {hand.blocks_per_sm} blocks" in text
    real = occupancy(capability(9, 0), threads=256, registers=127, shared_bytes=8192)
    assert f"{real.blocks_per_sm} blocks, {real.fraction:.1%}".replace("%", " %") in text
    there = capability(12, 0)
    platform = row("first, Q9", "2048 threads")
    assert f"| {there.threads_per_sm} |" in platform
    share = occupancy_report(there, threads=256, registers=80).occupancy
    assert f"{share:.1%}".replace("%", " %") in platform


def test_shared_memory_with_the_reserve() -> None:
    """32 KiB fit three times into 100 KiB by both formulas, 25 KiB three times and not four."""
    text = row("first, Q9", "shared per block")
    there = capability(12, 0)
    both = [
        (hand_occupancy(there, threads=64, registers=32, shared_bytes=size * 1024).by_shared,
         occupancy(there, threads=64, registers=32, shared_bytes=size * 1024).blocks_per_sm)
        for size in (32, 25)
    ]  # fmt: skip
    assert both == [(3, 3), (4, 3)]
    assert f"is {both[0][0]} blocks by either" in text
    assert f"it is {both[1][1]} instead of {both[1][0]}" in text


def test_warp_tiles() -> None:
    """32 neighbouring words lie in 32 banks; words of a step for both shapes."""
    text = row("first, Q8", "1 x 32")
    assert len({word % 32 for word in range(32)}) == 32
    words = [rows * 8 + columns * 8 for rows, columns in ((4, 8), (1, 32))]
    assert f"{words[0]} instead of {words[1]}" in text


def test_the_swizzle() -> None:
    """By three bits a column still conflicts four ways, by five it does not."""
    assert "8 banks, four lanes each" in row("first, Q7", "address >> 3")
    columns = [[row * 32 + k for row in range(32)] for k in range(32)]
    for shift, ways in ((3, 4), (5, 1)):
        for column in columns:
            assert wavefronts([4 * (place ^ place >> shift) for place in column]) == ways
    assert len({(place ^ place >> 3) % 32 for place in columns[0]}) == 8
