"""Rasterisation and multicast: the seed's three orders, closed forms and brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import gpu_record
from lowgemm.model import (
    Machine,
    best_rasters,
    closed_form_tiles,
    cluster_reuse,
    multicast_share,
    raster_order,
    rasterise,
    shared_tile_requirement,
)

NAMES = (
    "row",
    "column",
    "grouped:2",
    "grouped:3",
    "blocks:2x2",
    "blocks:2x3",
    "diagonal",
    "morton",
)


@pytest.mark.parametrize(("raster", "factor"), [("row", 1.6), ("blocks:2x2", 2), ("diagonal", 1)])
def test_the_seeds_three_orders(raster: str, factor: float) -> None:
    """4 x 4 blocks on 4 SMs: 1.6 by rows, 2 by blocks, 1 by diagonals, in every wave."""
    report = rasterise(raster, 128, 128, 4096, 32, 32, blocks_per_wave=4)
    assert report.multicast_factor == pytest.approx(factor)
    assert [wave.multicast_factor for wave in report.waves] == [factor] * 4


def test_a_users_order_is_a_function() -> None:
    """A function from index and grid to tile is as good as a name."""
    by_name = rasterise("column", 96, 64, 8, 32, 16, blocks_per_wave=5)
    by_function = rasterise(lambda i, rows, _: (i % rows, i // rows), 96, 64, 8, 32, 16,
                            blocks_per_wave=5)  # fmt: skip
    assert by_name == by_function


@pytest.mark.parametrize(
    "raster",
    ["spiral", "grouped", "grouped:0", "blocks:2", "row:3", "grouped:-1", "", "blocks:2x2x2"],
)
def test_an_unknown_order_is_refused(raster: str) -> None:
    """A name that is none lists those that are."""
    with pytest.raises(ArgumentValueError):
        raster_order(raster, 4, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda i, r, c: (0, 0),
        lambda i, r, c: (i, i),
        lambda i, r, c: i,
        5,
        None,
        lambda i, r, c: (float("inf"), 0),
        lambda i, r, c: (i / c, i % c),
    ],
)
def test_a_function_that_is_no_order_is_refused(wrong: object) -> None:
    """Tiles twice, tiles outside and what is no tile are errors."""
    with pytest.raises(ArgumentValueError):
        raster_order(wrong, 2, 2)  # type: ignore[arg-type]


@given(st.sampled_from(NAMES), st.integers(1, 9), st.integers(1, 9))
def test_every_order_runs_every_tile_once(raster: str, rows: int, columns: int) -> None:
    """An order is a permutation of the grid."""
    order = raster_order(raster, rows, columns)
    assert sorted(order) == [(m, n) for m in range(rows) for n in range(columns)]


@given(
    st.sampled_from(NAMES),
    *[st.integers(1, 50)] * 2, st.integers(1, 4), *[st.integers(1, 9)] * 2, st.integers(1, 12),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_unique_bytes_equal_sets_of_elements(
    raster: str, m: int, n: int, k: int, bm: int, bn: int, per_wave: int
) -> None:
    """Wave by wave, requested and unique bytes equal lists and sets of single elements."""
    report = rasterise(raster, m, n, k, bm, bn, blocks_per_wave=per_wave)
    order = raster_order(raster, report.grid_rows, report.grid_columns)
    for index, wave in enumerate(report.waves):
        touched = []
        for row, column in order[index * per_wave : (index + 1) * per_wave]:
            rows = range(row * bm, min((row + 1) * bm, m))
            columns = range(column * bn, min((column + 1) * bn, n))
            touched += [("A", i, p) for i in rows for p in range(k)]
            touched += [("B", p, j) for j in columns for p in range(k)]
        assert (wave.requested_bytes, wave.unique_bytes) == (
            4 * len(touched),
            4 * len(set(touched)),
        )
    assert 1 <= report.multicast_factor <= report.largest_factor * (1 + 1e-12)
    assert report.dram_bytes == report.unique_bytes >= report.compulsory_bytes


@given(
    st.sampled_from(NAMES), st.integers(1, 12), st.integers(1, 12), st.data(),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_closed_forms_equal_counting(
    raster: str, rows: int, columns: int, data: st.DataObject
) -> None:
    """Where an order has a closed form, it gives the distinct rows and columns of a wave."""
    first = data.draw(st.integers(0, rows * columns - 1))
    size = data.draw(st.integers(1, rows * columns - first))
    closed = closed_form_tiles(raster, first, size, rows, columns)
    if closed is None:
        return
    wave = raster_order(raster, rows, columns)[first : first + size]
    assert closed == (len({m for m, _ in wave}), len({n for _, n in wave}))


def test_closed_forms_cover_the_seeds_example() -> None:
    """Rows, blocks and diagonals of the 4 x 4 grid have one; Morton has none."""
    assert closed_form_tiles("row", 0, 4, 4, 4) == (1, 4)
    assert closed_form_tiles("blocks:2x2", 0, 4, 4, 4) == (2, 2)
    assert closed_form_tiles("diagonal", 0, 4, 4, 4) == (4, 4)
    assert closed_form_tiles("grouped:2", 0, 4, 4, 4) == (2, 2)
    assert closed_form_tiles("morton", 0, 4, 4, 4) is None
    with pytest.raises(ArgumentValueError):
        closed_form_tiles("row", 14, 4, 4, 4)


@given(
    st.sampled_from(NAMES),
    *[st.integers(1, 60)] * 2, *[st.integers(1, 9)] * 2, st.integers(1, 12),
    st.integers(1, 5000), st.integers(1, 5000),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_larger_l2_never_costs_bytes(
    raster: str, m: int, n: int, bm: int, bn: int, per_wave: int, l2: int, more: int
) -> None:
    """DRAM delivers at least every matrix once, and less the more L2 there is."""
    small, large = (
        rasterise(raster, m, n, 3, bm, bn, blocks_per_wave=per_wave, l2_bytes=size)
        for size in (l2, l2 + more)
    )
    assert large.compulsory_bytes <= large.dram_bytes <= small.dram_bytes <= small.unique_bytes


@given(
    st.sampled_from(NAMES),
    *[st.integers(1, 24)] * 2, st.integers(1, 40), *[st.integers(1, 5)] * 2, st.integers(1, 9),
    st.integers(1, 20000),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_l2_keeps_what_was_touched_since_if_it_fits(
    raster: str, m: int, n: int, k: int, bm: int, bn: int, per_wave: int, l2: int
) -> None:
    """Bytes from DRAM equal the documented rule, panel by panel and wave by wave."""
    report = rasterise(raster, m, n, k, bm, bn, blocks_per_wave=per_wave, l2_bytes=l2)
    order = raster_order(raster, report.grid_rows, report.grid_columns)
    waves = [order[first : first + per_wave] for first in range(0, len(order), per_wave)]
    height = {row: min(bm, m - row * bm) for row, _ in order}
    width = {column: min(bn, n - column * bn) for _, column in order}
    size = {("A", row): 4 * k * h for row, h in height.items()}
    size |= {("B", column): 4 * k * w for column, w in width.items()}
    used = [{("A", row) for row, _ in wave} | {("B", c) for _, c in wave} for wave in waves]
    written = [sum(4 * height[row] * width[c] for row, c in wave) for wave in waves]
    dram = 0
    for now, panels in enumerate(used):
        for panel in panels:
            last = max((v for v in range(now) if panel in used[v]), default=None)
            since = set().union(*used[last:now]) if last is not None else set()
            touched = sum(size[p] for p in since) + sum(written[last:now])
            dram += size[panel] if last is None or touched > l2 else 0
    assert report.dram_bytes == dram


def test_what_fits_is_not_evicted_early() -> None:
    """Panels that are used again count once: 4 x 4 blocks leave DRAM with the compulsory bytes."""
    small = rasterise("row", 4, 4, 100, 1, 1, blocks_per_wave=1, l2_bytes=3000)
    assert small.dram_bytes == small.compulsory_bytes == 3200
    assert rasterise("row", 11, 27, 37, 5, 3, blocks_per_wave=1, l2_bytes=10000).dram_bytes == 5624


def test_a_grid_that_takes_minutes_is_refused() -> None:
    """What is accepted ends in seconds; the rest is an error that says what to take instead."""
    side = 2048 * 128
    with pytest.raises(ArgumentValueError, match="too long"):
        rasterise("row", side, side, 64, 128, 128, blocks_per_wave=1)
    with pytest.raises(ArgumentValueError, match="too long"):
        best_rasters(side, side, 64, 128, 128, blocks_per_wave=132)
    many = rasterise("row", 300, 300, 64, 1, 1, blocks_per_wave=1, l2_bytes=2**40)
    assert len(many.waves) == 90000
    assert many.dram_bytes == many.compulsory_bytes


def test_an_endless_l2_leaves_each_matrix_once() -> None:
    """When all fits, DRAM delivers the compulsory bytes."""
    report = rasterise("row", 512, 512, 64, 32, 32, blocks_per_wave=7, l2_bytes=2**40)
    assert report.dram_bytes == report.compulsory_bytes


def test_grouping_helps_beyond_l2_and_not_before() -> None:
    """At 4096 rows do as well as groups on an H200; at 16384 groups need far fewer bytes."""
    h200 = Machine.from_gpu(gpu_record("h200"))

    def of(size: int) -> dict[str, int]:
        choices = best_rasters(
            size, size, size, 128, 128, blocks_per_wave=2 * h200.sms, l2_bytes=h200.l2_bytes,
            candidates=("row", "grouped:8", "grouped:16", "diagonal"),
        )  # fmt: skip
        assert [c.dram_bytes for c in choices] == sorted(c.dram_bytes for c in choices)
        return {choice.raster: choice.dram_bytes for choice in choices}

    large = of(16384)
    assert large["grouped:16"] < large["row"] / 2
    assert large["diagonal"] > large["row"]


def test_a_cluster_is_a_larger_tile() -> None:
    """2 x 2 blocks of 32 reuse as one of 64: more than the 39 that an A100 needs."""
    assert cluster_reuse(32, 32, 2, 2) == 64
    with pytest.raises(ArgumentValueError, match="at most 16"):
        cluster_reuse(32, 32, 999, 999)
    needed = shared_tile_requirement(Machine.from_gpu(gpu_record("a100"))).amplification
    alone, shared = multicast_share(needed, 32, 32), multicast_share(needed, 32, 32, 2)
    assert (alone.enough, shared.enough) == (False, True)
    assert shared.tile_reuse * shared.multicast_given == 64


def test_multicast_lets_a_tile_of_128_feed_an_rtx_5080() -> None:
    """It would need 235 alone; one wave's common panels give the rest many times over."""
    rtx = Machine.from_gpu(gpu_record("5080"))
    needed = shared_tile_requirement(rtx).amplification
    wave = rasterise("row", 4096, 4096, 4096, 128, 128, blocks_per_wave=rtx.sms)
    share = multicast_share(needed, 128, 128, wave.multicast_factor)
    assert not multicast_share(needed, 128, 128).enough
    assert share.enough
    assert share.multicast_needed == pytest.approx(1.83, abs=0.01)
    assert share.multicast_given > 4


@pytest.mark.parametrize("wrong", [0, -4, True, 1.5])
def test_impossible_sizes_are_refused(wrong: int) -> None:
    """Grids, waves and tiles are whole and positive."""
    with pytest.raises(ArgumentValueError):
        rasterise("row", 64, 64, 8, 8, 8, blocks_per_wave=wrong)
    with pytest.raises(ArgumentValueError):
        raster_order("row", wrong, 4)
    with pytest.raises(ArgumentValueError):
        cluster_reuse(8, 8, wrong, 1)
    with pytest.raises(ArgumentValueError):
        best_rasters(64, 64, 8, 8, 8, blocks_per_wave=4, candidates=())
