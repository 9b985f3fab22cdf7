"""Issue slots, tile configurations, verdicts and the search, against H200 kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import gpu_record
from lowgemm.model import (
    ATTAINABLE_SHARE,
    LoopCounts,
    Machine,
    ThreadWork,
    TileConfig,
    conflict_cycles_per_ffma,
    counted_tflops,
    issue_report,
    judge_tile,
    load_wavefronts,
    search_tiles,
)

A100, V100, H200, RTX5080 = (
    Machine.from_gpu(gpu_record(name)) for name in ("a100", "v100", "h200", "5080")
)
BEST = "128x256x16/8x16@256,stages=2,copy=cp.async"

# Configuration, M, TFLOP/s measured on an H200 at M x 4096 x 4096, how far off the model may be.
MEASURED = (
    ("128x128x8/8x8@256,stages=2", 4096, 46.5, 0.04),
    (BEST, 4096, 49.5, 0.02),
    (f"{BEST},walk=ptxas-snake", 4096, 51.2, 0.02),
    (f"{BEST},walk=ptxas-snake,lanes=z", 4096, 51.8, 0.02),
    (f"{BEST},walk=placed,lanes=z", 4096, 54.4, 0.02),
    (f"{BEST},walk=placed,lanes=z", 4224, 55.4, 0.02),
    ("128x256x8/8x16@256,stages=2,copy=cp.async,walk=placed,lanes=z", 4224, 55.8, 0.02),
    ("16x16x16/1x1@256,vector=1", 4096, 8.1, 0.05),
    ("32x32x32/1x1@1024,vector=1", 4096, 8.2, 0.05),
    ("32x32x32/2x2@256,vector=1", 4096, 16.1, 0.05),
)
# Budgets that another hand made from the same machine's counters, for full waves.
BUDGETS = (
    ("128x256x8/8x16@256,stages=2,copy=cp.async,walk=placed,lanes=z", 55.4),
    ("128x256x8/8x16@256,stages=2,copy=tma,walk=placed,lanes=z", 56.7),
    ("256x192x8/16x12@256,stages=2,copy=tma,walk=placed,lanes=z", 58.0),
)


@pytest.mark.parametrize(("text", "m", "measured", "tolerance"), MEASURED)
def test_the_model_meets_measured_kernels(
    text: str, m: int, measured: float, tolerance: float
) -> None:
    """Kernels whose loads hide are predicted within a few per cent."""
    verdict = judge_tile(TileConfig.parse(text), H200, m, 4096, 4096)
    assert verdict.tflops == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize(("text", "tflops"), BUDGETS)
def test_the_model_meets_the_budgets(text: str, tflops: float) -> None:
    """Without the last wave's loss the slots give the budget within one per cent."""
    issue = issue_report(H200, TileConfig.parse(text).work())
    assert issue.share_of_peak * H200.peak_tflops == pytest.approx(tflops, rel=0.01)


def test_bank_conflicts_of_a_walk_follow_the_rule() -> None:
    """Measured FFMA loops: no reuse 33.2, rows 57.7, a snake 64.7 of 65.4 TFLOP/s."""
    for walk, tflops in (("no-reuse", 33.2), ("rows", 57.7), ("placed", 64.7)):
        rate = 65.4 / (1 + conflict_cycles_per_ffma(8, 8, walk))
        assert rate == pytest.approx(tflops, rel=0.02)
    with pytest.raises(ArgumentValueError, match="placed"):
        conflict_cycles_per_ffma(8, 8, "random")


def test_wavefronts_of_the_fastest_kernel() -> None:
    """Over 4096^3: 201 M wavefronts for its LDS, 17 M for conflicting STS, 17 M for the copies."""
    config = TileConfig.parse(f"{BEST},walk=placed,lanes=z,conflicts=2")
    steps = 32 * 16 * 4096  # blocks times steps along k
    report = issue_report(H200, config.work())
    assert report.load_wavefronts * steps == pytest.approx(201e6, rel=0.01)
    assert report.store_wavefronts * steps == pytest.approx(34e6, rel=0.02)
    assert report.lds_per_warp == 6
    assert report.loop_bytes == pytest.approx(35e3, rel=0.02)


def test_the_z_order_halves_the_wavefronts_of_b() -> None:
    """Merged loads take 1, 1 and 2 wavefronts, others 1, 2 and 4."""
    assert [load_wavefronts(v, merged=True) for v in (1, 2, 4)] == [1, 1, 2]
    assert [load_wavefronts(v, merged=False) for v in (1, 2, 4)] == [1, 2, 4]
    with pytest.raises(ArgumentValueError):
        load_wavefronts(3, merged=False)


def test_half_the_lanes_leave_room_for_other_instructions() -> None:
    """With 64 lanes the FFMA pipe binds an 8 x 8 tile, with 128 the issue slots do."""
    work = TileConfig.parse("128x128x8/8x8@256").work()
    assert issue_report(A100, work).binds == "FFMA pipe"
    assert issue_report(H200, work).binds == "issue slots"
    assert issue_report(A100, work).share_of_peak > issue_report(H200, work).share_of_peak
    tiny = TileConfig.parse("32x32x8/1x1@1024,vector=1").work()
    assert issue_report(H200, tiny).binds == "shared memory"


def test_a_configuration_survives_its_text() -> None:
    """What parse reads, str writes; defaults stay unsaid."""
    for text in (
        "128x128x8/8x8@256",
        "128x256x16/8x16@256,stages=3,vector=2,conflicts=2,lanes=z,walk=placed,copy=tma,"
        "raster=grouped:8,cluster=2x1",
    ):
        assert str(TileConfig.parse(text)) == text
    assert TileConfig.parse(" 128X128X8 / 8X8 ").threads == 256


@pytest.mark.parametrize(
    "text",
    [
        "", "128", "128x128/8x8", "128x128x8/8x8@128", "0x128x8/8x8", "128x128x8/0x8",
        "128x128x8/8x8@256,stages=0", "128x128x8/8x8@256,stages=-1", "128x128x8/8x8@256,colour=red",
        "128x128x8/8x8@256,vector=3", "128x128x8/8x8@256,copy=dma", "128x128x8/8x8@256,lanes=x",
        "128x128x8/8x8@256,raster=spiral", "128x128x8/8x8@256,cluster=2",
        "32x32x8/4x4,copy=tma,cluster=999x999", "32x32x8/4x4,copy=tma,cluster=17x1",
        "128x128x8/8x8@256,cluster=2x1", "128x128x8/8x8@256,copy=cp.async,cluster=2x1",
        "-1x128x8/8x8",
    ],
)  # fmt: skip
def test_an_impossible_configuration_is_refused(text: str) -> None:
    """What cannot be read or cannot be is an error with a remedy."""
    with pytest.raises(ArgumentValueError, match="remedy"):
        TileConfig.parse(text)


def test_estimates_meet_compilers() -> None:
    """The seed's estimate is 80 for 8 x 8; what a kernel with two prefetches takes is near 127."""
    verdict = judge_tile(TileConfig.parse("128x128x8/8x8@256,stages=2"), H200)
    assert verdict.hand_registers == 80
    assert 110 <= verdict.registers <= 128
    assert verdict.occupancy.blocks_per_sm == 2


def test_the_binding_level_comes_first() -> None:
    """Levels are in the order of the share that they allow, and none passes the ceiling."""
    verdict = judge_tile(TileConfig.parse("32x32x32/2x2@256,vector=1"), H200)
    shares = [level.share for level in verdict.levels]
    assert shares == sorted(shares)
    assert verdict.binding.level == "shared memory"
    assert max(shares) <= ATTAINABLE_SHARE
    assert {level.level for level in verdict.levels} >= {"DRAM", "L2", "latency", "shared memory"}


def test_what_is_not_known_is_said() -> None:
    """Without published L2 bandwidth and latency a verdict names them instead of guessing."""
    assert judge_tile(TileConfig.parse("128x128x8/8x8"), RTX5080).unknown_levels == (
        "L2",
        "latency",
    )


def test_the_last_wave_costs() -> None:
    """512 blocks on 132 SMs keep 97 % of them busy, 528 all."""
    config = TileConfig.parse(BEST)
    assert judge_tile(config, H200).wave_share == pytest.approx(512 / 528)
    assert judge_tile(config, H200, 4224).wave_share == 1
    assert judge_tile(config, H200, 4225).wave_share < 0.9


def test_padding_and_idle_sms_cost_memory_nothing() -> None:
    """One row of C takes about as long as all padded multiply-adds; DRAM's share is its bytes'."""
    config = TileConfig.parse("128x128x8/8x8,stages=2")
    verdict = judge_tile(config, H200, 1, 16384, 16384)
    milliseconds = 2 * 16384**2 / verdict.tflops / 1e9
    padded = 2 * 128 * 16384**2 / (ATTAINABLE_SHARE * verdict.peak_tflops) / 1e9
    assert padded < milliseconds < 1.5 * padded
    shares = {level.level: level.share for level in verdict.levels}
    assert shares["DRAM"] == pytest.approx(
        H200.dram_bytes_per_cycle_per_sm * 128 / (verdict.dram_bytes / 16384**2) / 128**2
    )
    assert verdict.share_of_peak == verdict.binding.share == min(shares.values())
    counts = LoopCounts(64, 4, 16, 3, 8)
    assert 0.5 < counted_tflops(verdict, H200, counts) / verdict.tflops < 2


def test_a_memory_bound_rate_is_that_of_its_bytes() -> None:
    """Where DRAM binds, neither the last wave nor padding changes the rate."""
    slow = H200.with_dram_bytes_per_cycle(0.1)
    verdict = judge_tile(TileConfig.parse("64x64x8/4x4,stages=4"), slow, 100, 8200, 4096)
    assert verdict.binding.level == "DRAM"
    assert verdict.wave_share * verdict.full_tile_share < 0.8
    seconds = verdict.dram_bytes / (0.1 * slow.sms * slow.clock_ghz * 1e9)
    assert verdict.tflops == pytest.approx(2 * 100 * 8200 * 4096 / seconds / 1e12)


def test_a_cluster_reuses_what_there_is() -> None:
    """A 2 x 2 cluster halves what L2 is asked for; beyond the grid a larger one gains nothing."""

    def l2(cluster: str, m: int) -> float:
        text = f"128x128x8/8x8,stages=2,copy=tma,cluster={cluster}"
        verdict = judge_tile(TileConfig.parse(text), H200, m)
        output = 4 * m * 4096 / (m * 4096**2 / H200.ffma_lanes_per_sm)
        return next(level.need for level in verdict.levels if level.level == "L2") - output

    assert l2("2x2", 4096) == pytest.approx(l2("1x1", 4096) / 2)
    assert l2("2x1", 128) == l2("16x1", 128) == l2("1x1", 128)
    assert l2("16x1", 256) == l2("2x1", 256) < l2("1x1", 256)


def test_what_the_compiler_used_replaces_the_estimates() -> None:
    """Registers and shared memory given decide the occupancy."""
    config = TileConfig.parse("128x128x8/8x8@256,stages=2")
    given_ = judge_tile(config, H200, registers=128, shared_bytes=8192)
    assert (given_.registers, given_.shared_bytes, given_.occupancy.blocks_per_sm) == (128, 8192, 2)


@pytest.mark.parametrize(
    ("text", "machine", "what"),
    [
        ("256x256x8/16x16@256", H200, "registers"),
        ("128x128x512/8x8@256", H200, "shared memory"),
        ("128x128x8/8x8@256,copy=cp.async", V100, "8.0"),
        ("128x128x8/8x8@256,copy=tma,cluster=2x1", A100, "9.0"),
        ("128x128x8/8x8@256,copy=tma,cluster=2x1", RTX5080, "no multicast"),
        ("64x64x8/1x1@4096", H200, "threads"),
    ],
)
def test_what_does_not_fit_is_an_error(text: str, machine: Machine, what: str) -> None:
    """A block that no SM can hold, or that needs another chip, is refused with the reason."""
    with pytest.raises(ArgumentValueError, match=what):
        judge_tile(TileConfig.parse(text), machine)


@given(st.floats(1.0, 50.0), st.sampled_from([A100, V100, H200, RTX5080]))
@settings(max_examples=30, deadline=None)
def test_more_bandwidth_never_lowers_a_verdict(factor: float, machine: Machine) -> None:
    """A faster DRAM leaves the prediction or raises it."""
    faster = machine.with_dram_bytes_per_cycle(factor * machine.dram_bytes_per_cycle_per_sm)
    for text in ("16x16x16/1x1@256,vector=1", "64x64x16/4x4@256", "128x128x8/8x8@256,stages=2"):
        config = TileConfig.parse(text)
        before = judge_tile(config, machine, 1024, 1024, 1024)
        after = judge_tile(config, faster, 1024, 1024, 1024)
        assert after.tflops >= before.tflops * (1 - 1e-12)


def test_the_search_finds_the_tile_of_the_fastest_kernels() -> None:
    """On an H200 at 4096^3 it is 128 x 256 with 8 x 16 in 256 threads, as in cuBLAS and here."""
    best = search_tiles(H200, top=8)
    tiles = {(v.config.bm, v.config.bn, v.config.threads) for v in best}
    assert (128, 256, 256) in tiles
    assert best[0].tflops == max(v.tflops for v in best) or best[0].tflops > 0.99 * best[1].tflops
    for verdict in best:
        assert verdict.occupancy.warps_per_sm >= 8
        assert verdict.config.expected_registers <= 255


def test_the_search_offers_only_what_the_chip_has() -> None:
    """A V100 has no cp.async, and a search that allows nothing says so."""
    assert all(v.config.copy == "ldg" for v in search_tiles(V100, top=50))
    with pytest.raises(ArgumentValueError, match="fits"):
        search_tiles(V100, copies=("tma",))
    with pytest.raises(ArgumentValueError):
        search_tiles(H200, copies=())


@pytest.mark.parametrize(
    "wrong", [{"raster": 5}, {"vector": True}, {"vector": 4.0}, {"stages": 2**41}, {"walk": [1]}]
)
def test_a_configuration_of_wrong_types_is_refused(wrong: dict[str, Any]) -> None:
    """Truth values, fractions and numbers for names are errors of lowgemm."""
    with pytest.raises(ArgumentValueError):
        TileConfig(128, 128, 8, 8, 8, 256, **wrong)


def test_a_thread_tile_beyond_all_registers_is_not_walked() -> None:
    """Conflicts of a million accumulators are an error at once."""
    with pytest.raises(ArgumentValueError, match="registers"):
        conflict_cycles_per_ffma(10**6, 10**6, "rows")


def test_threads_must_make_the_tile() -> None:
    """128 threads of 8 x 8 are no 128 x 128; the remedy has the number that is."""
    with pytest.raises(ArgumentValueError, match="256 threads"):
        ThreadWork(128, 128, 8, 8, 8, 128)


PAGE = Path(__file__).resolve().parents[1] / "sass_reports" / "model" / "h200.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the page is not beside the tests")
def test_the_page_says_what_the_model_predicts() -> None:
    """Each row's prediction and ratio are the library's."""
    rows = re.findall(
        r"^\| `(.+?)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 13
    for text, m, predicted, measured, ratio in rows:
        verdict = judge_tile(TileConfig.parse(text), H200, int(m), 4096, 4096)
        assert f"{verdict.tflops:.1f}" == predicted, text
        assert f"{verdict.tflops / float(measured):.2f}" == ratio, text
        assert str(verdict.config) == text
