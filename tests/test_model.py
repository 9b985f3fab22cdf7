"""The machine model: the seeds' own numbers, and properties that any such model must have."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import GPUS, capability, gpu_record
from lowgemm.model import (
    Machine,
    arithmetic_intensity,
    bytes_in_flight,
    compression,
    cooperation_cycles,
    dataflow,
    estimate_registers,
    fusion,
    gemv,
    hand_occupancy,
    in_flight,
    level_needs,
    load_latency_cycles,
    more_bandwidth,
    multicast_share,
    next_power_of_two,
    occupancy_report,
    pipeline,
    register_tile_requirement,
    reuse,
    reuse_factors,
    ridge_fma_per_byte,
    roofline,
    shared_tile_requirement,
    sparsity,
    tile_flop_per_byte,
    tile_requirement,
    tile_traffic,
    walk_loop_nest,
)

A100 = Machine.from_gpu(gpu_record("a100"))
ROUNDED = A100.with_dram_bytes_per_cycle(13.3)
V100, H200, RTX5080 = (Machine.from_gpu(gpu_record(name)) for name in ("v100", "h200", "5080"))

IMPOSSIBLE = [
    0, -1, float("nan"), float("inf"), True, "8", 5e-324, 1e-308, 1e-320, 1e308, 10**400,
    pytest.param(10**5000, id="5000 digits"),
]  # fmt: skip


# ---- the second seed's numbers


def test_the_seed_has_a_tile_of_64_from_its_rounded_rate() -> None:
    """13.3 bytes a cycle: amplification 38.5, tile 39, so 64."""
    needed = shared_tile_requirement(ROUNDED)
    assert needed.amplification == pytest.approx(38.5, abs=0.05)
    assert (needed.min_tile, needed.next_power_of_two) == (39, 64)
    assert needed.need_bytes_per_cycle_per_sm == 512


def test_the_exact_rate_gives_the_same_tile() -> None:
    """2039 GB/s over 108 SMs at 1.41 GHz: 13.39, 38.24, still 39 and 64."""
    needed = shared_tile_requirement(A100)
    assert A100.dram_bytes_per_cycle_per_sm == pytest.approx(13.39, abs=0.005)
    assert needed.amplification == pytest.approx(38.24, abs=0.005)
    assert (needed.min_tile, needed.next_power_of_two) == (39, 64)


def test_local_and_global_reuse() -> None:
    """Locally 128 / 13.3 = 9.6, hence 16; with 4 in registers 64 in all."""
    factors = reuse_factors(ROUNDED)
    assert factors.l1_exact == pytest.approx(9.6, abs=0.05)
    assert (factors.l1, factors.l2, factors.shared_tile) == (16, 4, 64)
    assert factors.register_tile == register_tile_requirement(ROUNDED).min_tile == 4


def test_ridge_and_roofline() -> None:
    """The A100's ridge is 4.8 FMA per byte; the seed's GEMM lies beyond it, a GEMV below."""
    assert ridge_fma_per_byte(ROUNDED) == pytest.approx(4.8, abs=0.05)
    gemm = arithmetic_intensity(4096, 4096, 4096)
    assert gemm.fma_per_element == pytest.approx(1365, abs=0.5)
    assert gemm.fma_per_byte == pytest.approx(341, abs=0.5)
    assert roofline(A100, gemm.fma_per_byte).bound == "compute"
    assert roofline(A100, gemm.fma_per_byte).tflops == A100.peak_tflops
    assert roofline(A100, 0.25).bound == "memory"


def test_the_cluster_of_four_blocks() -> None:
    """2 x 2 blocks of 32: 19.2 cycles a step apart, 9.6 together, 16 to compute."""
    cycles = cooperation_cycles(ROUNDED, 32, 32, 2, 2)
    assert cycles.requested_bytes_per_k == 1024
    assert cycles.separate_cycles_per_k == pytest.approx(19.2, abs=0.05)
    assert cycles.shared_cycles_per_k == pytest.approx(9.6, abs=0.05)
    assert cycles.compute_cycles_per_k == 16
    assert (cycles.separate_bound, cycles.shared_bound) == ("memory", "compute")


def test_gemv_without_and_with_multicast() -> None:
    """Rounded 1.66 and 3.33; exact 1.674 and 3.347."""
    rounded, exact = gemv(ROUNDED, 4096, 4096), gemv(A100, 4096, 4096)
    assert rounded.fma_per_cycle_per_sm == pytest.approx(1.66, abs=0.005)
    assert rounded.fma_per_cycle_per_sm_tall == pytest.approx(3.33, abs=0.006)
    assert exact.fma_per_cycle_per_sm == pytest.approx(1.674, abs=0.0005)
    assert exact.fma_per_cycle_per_sm_multicast == pytest.approx(3.347, abs=0.0005)


def test_gemv_of_many_vectors_becomes_compute_bound() -> None:
    """With enough vectors at once the lanes bind in both estimates."""
    many = gemv(A100, 4096, 4096, batch=4096)
    assert many.fma_per_cycle_per_sm_multicast == A100.ffma_lanes_per_sm
    assert many.time_us == pytest.approx(4096**3 / (64 * 108 * 1.41e3), rel=1e-6)


@pytest.mark.parametrize(
    ("machine", "need", "least", "power", "register_tile"),
    [(V100, 512, 70, 128, 4), (H200, 1024, 56, 64, 8), (RTX5080, 1024, 235, 256, 8)],
)
def test_other_chips_need_other_tiles(
    machine: Machine, need: int, least: int, power: int, register_tile: int
) -> None:
    """The same functions give 128 for a V100, 64 for an H200 and 256 for an RTX 5080."""
    shared = shared_tile_requirement(machine)
    assert shared.need_bytes_per_cycle_per_sm == need
    assert (shared.min_tile, shared.next_power_of_two) == (least, power)
    assert register_tile_requirement(machine).min_tile == register_tile


def test_levels_name_what_is_known() -> None:
    """Four levels, of which those without a published rate have no amplification."""
    assert [level.name for level in A100.levels()] == ["DRAM", "L2", "shared memory", "registers"]
    assert [need.level for need in level_needs(RTX5080)] == ["DRAM", "shared memory", "registers"]
    assert A100.peak_tflops == pytest.approx(19.49, abs=0.01)
    assert H200.peak_tflops == pytest.approx(66.9, abs=0.05)


# ---- the first seed's numbers


def test_intensity_of_a_tile() -> None:
    """0.25 FLOP per byte without a tile, 32 at 128 x 128."""
    assert tile_flop_per_byte(1, 1) == 0.25
    assert tile_flop_per_byte(128, 128) == 32
    assert tile_traffic(4096, 4096, 4096, 128, 128).flop_per_byte == 32


def test_registers_and_occupancy_of_the_ninth_question() -> None:
    """8 x 8 needs 80 registers by the formula; with 256 threads 3 blocks, 37.5 %."""
    assert estimate_registers(8, 8) == 80
    report = occupancy_report(capability(8, 0), threads=256, registers=80)
    assert (report.blocks_per_sm, report.occupancy, report.limiter) == (3, 0.375, "registers")
    hand = hand_occupancy(capability(8, 0), threads=256, registers=80)
    assert (hand.blocks_per_sm, hand.occupancy) == (3, 0.375)


def test_the_way_to_one_block_more() -> None:
    """At 80 registers and 256 threads nothing more is free but shared memory; 16 less give 4."""
    report = occupancy_report(capability(8, 0), threads=256, registers=80, shared_bytes=8192)
    steps = {step.resource: step for step in report.steps}
    assert steps["registers"].less_for_next == 16
    assert steps["registers"].free_more == 0
    assert steps["threads"].less_for_next == 64
    assert steps["shared_bytes"].less_for_next is None
    assert steps["shared_bytes"].free_more > 0


@given(
    st.sampled_from([(7, 0), (8, 0), (8, 6), (9, 0), (12, 0)]),
    st.integers(1, 32).map(lambda warps: 32 * warps),
    st.integers(16, 255),
    st.integers(0, 48).map(lambda kib: 1024 * kib),
)
@settings(max_examples=60, deadline=None)
def test_steps_are_steps(cc: tuple[int, int], threads: int, registers: int, shared: int) -> None:
    """What is free changes nothing and one more does; what gives a block does, and less not."""
    limits = capability(*cc)
    kernel = {"threads": threads, "registers": registers, "shared_bytes": shared}
    report = occupancy_report(limits, **kernel)

    def blocks(resource: str, value: int) -> int:
        return occupancy_report(limits, **{**kernel, resource: value}).blocks_per_sm

    units = {"threads": 32, "registers": 1, "shared_bytes": limits.shared_bytes_granularity}
    for step in report.steps:
        most = step.used + step.free_more
        assert blocks(step.resource, most) == report.blocks_per_sm
        if step.less_for_next is not None:
            least = step.used - step.less_for_next
            assert blocks(step.resource, least) > report.blocks_per_sm
            assert blocks(step.resource, least + units[step.resource]) <= report.blocks_per_sm


# ---- the loop nest


@pytest.mark.parametrize(("l1", "l2", "m", "n", "k"), [(4, 2, 16, 24, 5), (2, 4, 16, 8, 7)])
def test_the_loop_nest_is_walked_and_right(l1: int, l2: int, m: int, n: int, k: int) -> None:
    """Walking the seed's loops gives C, and counts that are the reuse factors."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (m, k)).astype(float), rng.integers(-3, 4, (k, n)).astype(float)
    c, counts = walk_loop_nest(a.tolist(), b.tolist(), l1=l1, l2=l2)
    assert np.array_equal(np.array(c), a @ b)
    assert (counts.local_l1, counts.local_l2, counts.global_reuse) == (l1, l2, l1 * l2)
    assert counts.fma == m * n * k
    assert counts.register_reads == 2 * counts.fma
    assert 4 * counts.dram_reads == tile_traffic(m, n, k, l1 * l2, l1 * l2).input_bytes


def test_a_walk_that_cannot_be_is_refused() -> None:
    """Ragged tiles, operands that do not fit and walks that take hours are errors."""
    square = [[1.0] * 8] * 8
    with pytest.raises(ArgumentValueError, match="do not divide"):
        walk_loop_nest(square, square, l1=3, l2=1)
    with pytest.raises(ArgumentValueError, match="do not fit"):
        walk_loop_nest(square, [[1.0] * 8] * 7, l1=1, l2=1)
    with pytest.raises(ArgumentValueError, match="too long"):
        walk_loop_nest([[1.0] * 256] * 256, [[1.0] * 256] * 256, l1=1, l2=1)


# ---- traffic, by brute force

_sizes = st.integers(1, 40)
_tiles = st.integers(1, 17)


@given(_sizes, _sizes, st.integers(1, 5), _tiles, _tiles)
@settings(max_examples=200, deadline=None)
def test_traffic_equals_the_bytes_that_blocks_touch(
    m: int, n: int, k: int, bm: int, bn: int
) -> None:
    """The closed form equals sets of elements, block by block, edges included."""
    traffic = tile_traffic(m, n, k, bm, bn)
    a = b = 0
    for m0 in range(0, m, bm):
        for n0 in range(0, n, bn):
            a += len({(i, p) for i in range(m0, min(m0 + bm, m)) for p in range(k)})
            b += len({(p, j) for j in range(n0, min(n0 + bn, n)) for p in range(k)})
    assert (traffic.a_bytes, traffic.b_bytes, traffic.c_bytes) == (4 * a, 4 * b, 4 * m * n)
    assert 0 < traffic.full_tile_share <= 1


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3), st.integers(1, 64)
)
def test_a_larger_tile_never_needs_more_traffic(i: int, j: int, p: int, q: int, k: int) -> None:
    """Where tiles divide the problem, doubling a side never adds bytes."""
    m, n = i * 16, j * 16
    small = tile_traffic(m, n, k, 1 << p, 1 << q).input_bytes
    assert tile_traffic(m, n, k, 2 << p, 1 << q).input_bytes <= small
    assert tile_traffic(m, n, k, 1 << p, 2 << q).input_bytes <= small


@given(st.sampled_from(GPUS), st.floats(1.0, 100.0))
def test_more_bandwidth_never_lowers_a_bound(gpu: object, factor: float) -> None:
    """Neither roofline nor GEMV falls, and no tile grows, when DRAM gets faster."""
    slow = Machine.from_gpu(gpu)  # type: ignore[arg-type]
    fast = slow.with_dram_bytes_per_cycle(factor * slow.dram_bytes_per_cycle_per_sm)
    for intensity in (0.25, 1.0, 10.0):
        assert roofline(fast, intensity).tflops >= roofline(slow, intensity).tflops
    assert shared_tile_requirement(fast).min_tile <= shared_tile_requirement(slow).min_tile
    before, after = gemv(slow, 512, 512), gemv(fast, 512, 512)
    assert after.fma_per_cycle_per_sm >= before.fma_per_cycle_per_sm
    assert after.time_us <= before.time_us


# ---- latency


def test_latency_is_static_latency_and_transfer() -> None:
    """An A100's 64 x 64 x 8 tile: 552 cycles, and 4096 bytes at 13.3 a cycle."""
    assert load_latency_cycles(552, 4096, 13.3) == pytest.approx(860, abs=0.5)
    assert bytes_in_flight(552, 13.3) == pytest.approx(7342, abs=1)
    dram = in_flight(A100)[0]
    assert dram.bytes_per_sm == pytest.approx(dram.latency_cycles * dram.bytes_per_cycle_per_sm)


def test_stages_cover_the_load() -> None:
    """One stage more than the k-tiles that are computed while one loads; more blocks help."""
    alone = pipeline(A100, 64, 64, 8)
    assert alone.compute_cycles == 64 * 64 * 8 / 64
    assert alone.stages == 1 + math.ceil(alone.load_cycles / alone.compute_cycles) == 3
    assert pipeline(A100, 64, 64, 8, blocks_per_sm=4).stages <= alone.stages
    assert pipeline(A100, 16, 16, 8).bandwidth_bound
    with pytest.raises(ArgumentValueError, match="not known"):
        pipeline(RTX5080, 64, 64, 8)
    with pytest.raises(ArgumentValueError, match="the levels are"):
        pipeline(A100, 64, 64, 8, level="L3")


# ---- levers


def test_levers_are_factors_on_bandwidth() -> None:
    """Half the bytes or twice the rate halve the tile; 2 of 4 with 2 bits gives 1.88."""
    assert more_bandwidth(ROUNDED, 2).requirement.min_tile == 20
    assert compression(ROUNDED, 2).factor == 2
    assert sparsity(ROUNDED, 0.5, 2).factor == pytest.approx(1.882, abs=0.001)
    assert sparsity(ROUNDED, 1.0).factor == 1
    assert fusion(ROUNDED, 64, 64, 1).factor == 1
    assert fusion(ROUNDED, 64, 64, 3).factor == 1.5


@given(*[st.integers(1, 12)] * 3, *[st.integers(1, 5)] * 3)
@settings(max_examples=100, deadline=None)
def test_dataflows_equal_walking_them(m: int, n: int, k: int, bm: int, bn: int, bk: int) -> None:
    """Traffic of each dataflow equals the walk over its tiles with the operand that stays held."""
    orders = {"output": "mnk", "a": "mkn", "b": "knm"}
    for stationary, order in orders.items():
        walked = _walk_dataflow((m, n, k), (bm, bn, bk), order)
        flow = dataflow(m, n, k, bm, bn, bk, stationary)
        assert walked == (
            flow.a_bytes, flow.b_bytes, flow.output_read_bytes, flow.output_write_bytes,
        )  # fmt: skip


def _walk_dataflow(
    sizes: tuple[int, int, int], tiles: tuple[int, int, int], order: str
) -> tuple[int, int, int, int]:
    """Walk tiles in a loop order and fetch what changed: A by (m, k), B by (k, n), C by (m, n).

    An operand that does not stay is fetched at every step, as in the closed forms.
    """
    size, tile = dict(zip("mnk", sizes, strict=True)), dict(zip("mnk", tiles, strict=True))
    ranges = {axis: range(0, size[axis], tile[axis]) for axis in "mnk"}
    length = {axis: lambda at, axis=axis: min(tile[axis], size[axis] - at) for axis in "mnk"}
    held: dict[str, object] = {"mk": None, "kn": None, "mn": None}
    stays = "".join(sorted(order[:2], key="mkn".index)) if order != "mnk" else "mn"
    reads = {"mk": 0, "kn": 0, "mn": 0}
    writes, seen = 0, set()
    for x in ranges[order[0]]:
        for y in ranges[order[1]]:
            for z in ranges[order[2]]:
                at = dict(zip(order, (x, y, z), strict=True))
                for operand in reads:
                    where = tuple(at[axis] for axis in operand)
                    if operand == stays and held[operand] == where:
                        continue
                    area = math.prod(length[axis](at[axis]) for axis in operand)
                    if operand == "mn":
                        reads["mn"] += area if where in seen else 0
                        seen.add(where)
                        writes += area
                    else:
                        reads[operand] += area
                    held[operand] = where
    return 4 * reads["mk"], 4 * reads["kn"], 4 * reads["mn"], 4 * writes


# ---- impossible input


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_impossible_numbers_are_refused(wrong: float) -> None:
    """Zero, negative, NaN, infinite, true and text are errors of lowgemm everywhere."""
    for call in (
        lambda: reuse(wrong, 8),  # type: ignore[arg-type]
        lambda: arithmetic_intensity(8, wrong, 8),  # type: ignore[arg-type]
        lambda: tile_traffic(8, 8, 8, 8, wrong),  # type: ignore[arg-type]
        lambda: tile_requirement(wrong, 1.0),
        lambda: gemv(A100, wrong, 8),  # type: ignore[arg-type]
        lambda: roofline(A100, wrong),
        lambda: A100.with_dram_bytes_per_cycle(wrong),
        lambda: replace(A100, sms=wrong),  # type: ignore[arg-type]
        lambda: bytes_in_flight(wrong, 1.0),
        lambda: compression(A100, wrong),
        lambda: more_bandwidth(A100, wrong),
        lambda: bytes_in_flight(1.0, wrong),
        lambda: multicast_share(wrong, 8, 8),
        lambda: gemv(A100, 8, 8, wrong),  # type: ignore[arg-type]
        lambda: sparsity(A100, wrong),
        lambda: next_power_of_two(wrong),
        lambda: estimate_registers(wrong, 8),  # type: ignore[arg-type]
        lambda: occupancy_report(capability(8, 0), threads=32, registers=wrong),  # type: ignore[arg-type]
        lambda: dataflow(8, 8, 8, 8, 8, wrong, "a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentValueError):
            call()


def test_the_extremes_that_are_accepted_have_answers() -> None:
    """The largest size and the slowest memory give finite numbers."""
    slow = A100.with_dram_bytes_per_cycle(1e-9)
    assert math.isfinite(shared_tile_requirement(slow).amplification)
    assert math.isfinite(gemv(slow, 2**40, 2**40, 2**40).time_us)
    assert reuse_factors(slow).l1 > 0


@pytest.mark.parametrize("wrong", ["x", float("nan"), -1, True])
def test_barriers_are_counted(wrong: int) -> None:
    """Named barriers are a whole number."""
    with pytest.raises(ArgumentValueError, match="barriers"):
        occupancy_report(capability(9, 0), threads=32, registers=32, barriers=wrong)


@pytest.mark.parametrize("wrong", [[1], 1, [["1"]], [[float("nan")]], [[10**400]], [[True]], []])
def test_the_loop_nest_takes_rows_of_numbers(wrong: Any) -> None:
    """What is no matrix of finite numbers is an error, as A and as B."""
    for a, b in ((wrong, [[1.0]]), ([[1.0]], wrong)):
        with pytest.raises(ArgumentValueError):
            walk_loop_nest(a, b, l1=1, l2=1)


def test_an_unknown_dataflow_or_share_is_refused() -> None:
    """Only three operands can stay, and a density is at most 1."""
    with pytest.raises(ArgumentValueError, match="output, a, b"):
        dataflow(8, 8, 8, 8, 8, 8, "c")
    with pytest.raises(ArgumentValueError, match="at most 1"):
        sparsity(A100, 1.5)
