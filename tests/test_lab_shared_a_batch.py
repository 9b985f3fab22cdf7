"""The experiment of a batch that shares A: its bytes, its layout, and its kernel's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from lowgemm.hardware import Architecture, gpu_record
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.lab import compile_variants, find_experiment
from lowgemm.studies.lab.shared_a_batch import _BM, _QUADS, _WAYS, _levels_us, _Way

EXPERIMENT = find_experiment("shared-a-batch")
SEPARATE, SAME_TILE, WIDE = _WAYS.values()
A_BYTES = 65536 * 2048 * 4


def test_the_bytes_are_those_of_the_claim() -> None:
    """A single product reads A from DRAM; the fused narrow tiles read it eight times from L2."""
    b_and_c = 4 * (2048 * 32 + 65536 * 32)
    assert SEPARATE.launches * SEPARATE.dram_bytes() == 8 * A_BYTES + b_and_c
    assert SAME_TILE.dram_bytes() == WIDE.dram_bytes() == A_BYTES + b_and_c
    b_reads = 4 * 2048 * 32 * 512
    assert SAME_TILE.l2_bytes() == 8 * A_BYTES + b_reads + 4 * 65536 * 32
    assert WIDE.l2_bytes() == A_BYTES + b_reads + 4 * 65536 * 32


def test_each_way_is_bound_by_another_level_on_an_h200() -> None:
    """DRAM where A is read eight times, L2 where the tile is narrow, then the multiply-adds."""
    h200 = gpu_record("h200")
    for way, level in ((SEPARATE, "DRAM"), (SAME_TILE, "L2")):
        levels = _levels_us(h200, way, None)
        assert max(levels, key=lambda name: levels[name]) == level
    assert _levels_us(h200, SEPARATE, None)["DRAM"] == pytest.approx(121.9, abs=1)
    # 512 blocks on 132 SMs: the fullest SM has 4, the average 3.88.
    assert _levels_us(h200, WIDE, None)["multiply-adds"] == pytest.approx(
        65536 * 32 * 2048 / (132 * 128 * 1.98e3) * 4 / (512 / 132)
    )
    found = EXPERIMENT.predict(h200, {})
    assert found["separate launches"].value > 2 * found["one launch, the same tile"].value


def test_l2_counts_on_every_gpu() -> None:
    """Where nobody has published its rate the nearest GPU's stands in, and is named."""
    found = EXPERIMENT.predict(gpu_record("h100"), {})["one launch, the same tile"]
    assert found.reason.startswith("1 x L2; ")
    assert "(that of the H200 SXM)" in found.reason


@pytest.mark.parametrize("way", [SEPARATE, WIDE])
def test_reading_the_tiles_has_no_conflict(way: _Way) -> None:
    """Rows permuted by xor: a lane's float4 of A and of B take as few wavefronts as can be."""
    for quad in range(_QUADS):
        for i in range(way.tm):
            addresses = [way.a_address(lane, i, quad) for lane in range(32)]
            # 32 rows are four wavefronts; four rows, each read by eight lanes, two groups of lanes.
            assert wavefronts(addresses, 16) == (4 if way.lanes_n == 1 else 2)
    assert wavefronts([way.b_address(lane, 0) for lane in range(32)], 16) in (2, 4)


def place(row: int, quad: int) -> int:
    """Where the copy puts a float4 of A, in floats."""
    return row * 32 + (quad ^ row % _QUADS) * 4


@pytest.mark.parametrize("way", [SEPARATE, WIDE])
def test_a_block_computes_its_tile(way: _Way) -> None:
    """The kernel's addresses, walked on the CPU for one tile along k, give A B."""
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (_BM, 32))
    b = rng.integers(-3, 4, (32, way.bn))
    tile = np.zeros(_BM * 32, int)
    for row in range(_BM):
        for quad in range(_QUADS):
            tile[place(row, quad) : place(row, quad) + 4] = a[row, 4 * quad : 4 * quad + 4]
    flat_b = b.ravel()
    c = np.full((_BM, way.bn), 99999)
    for thread in range(way.threads):
        lane, first_row = thread % 32, thread // 32 * way.lanes_m * way.tm
        for i in range(way.tm):
            for j in range(way.tn):
                total = 0
                for k in range(32):
                    of_a = first_row * 32 + way.a_address(lane, i, k // 4) // 4 + k % 4
                    of_b = way.b_address(lane, j, k) // 4 + j % 4
                    total += tile[of_a] * flat_b[of_b]
                row = first_row + lane // way.lanes_n + i * way.lanes_m
                column = lane % way.lanes_n * 4 + j // 4 * way.lanes_n * 4 + j % 4
                assert c[row, column] == 99999
                c[row, column] = total
    assert (c == a @ b).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_tiles_differ_as_the_source_says(arch: str) -> None:
    """Two groups of four k-steps an iteration: FFMA and LDS.128 of the thread tile, no more."""
    built = compile_variants(EXPERIMENT, Architecture.parse(arch))
    for name, way in _WAYS.items():
        variant, build = built[name]
        wanted = build.kernel(variant.kernel).display_name
        report = next(r for r in inspect_build(build) if r.kernel == wanted)
        assert report.hot is not None
        assert report.hot.mix["FFMA"] == 2 * 4 * way.tm * way.tn
        assert report.hot.mix["LDS.128"] == 2 * (way.tm + way.tn)
        assert report.mix["LDGSTS.128"] >= 2 * (_BM * 32 + 32 * way.bn) // 4 // way.threads
