"""Wavefronts and sectors of many warps: the rules of one warp, vectorised."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowgemm.emulator.wavefronts import (
    PatternCache,
    atomic_wavefronts,
    copied_lanes,
    copy_sectors,
    copy_wavefronts,
    global_sectors,
    ideal_global_sectors,
    ideal_shared_wavefronts,
    shared_conflict_ways,
    shared_wavefronts,
)
from lowgemm.hardware.shared_memory import ideal_wavefronts, wavefronts

ROOT = Path(__file__).resolve().parents[1]
WAVEFRONTS = "memory_l1_wavefronts_shared"
MEASURED = ROOT / "sass_reports" / "timings" / "h200_access_patterns.json"

Warp = tuple[list[int], list[bool]]

lane_places = st.one_of(
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.builds(
        lambda step, by, base: [base + step * (lane // by) for lane in range(32)],
        st.sampled_from([0, 1, 2, 8, 33]),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(0, 40),
    ),
    st.builds(lambda base: [base + (lane & 5) for lane in range(32)], st.integers(0, 40)),
)
lane_flags = st.one_of(
    st.just([True] * 32),
    st.just([False] * 32),
    st.lists(st.booleans(), min_size=32, max_size=32),
)
warps = st.lists(st.tuples(lane_places, lane_flags), min_size=1, max_size=5)


def arrays(given_warps: list[Warp], width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Offsets and flags of warps that access the given elements."""
    places = np.array([places for places, _ in given_warps], np.int64) * width
    return places, np.array([flags for _, flags in given_warps])


@given(warps, st.sampled_from([4, 8, 16]), st.booleans())
def test_many_warps_cost_what_each_costs(given_warps: list[Warp], width: int, store: bool) -> None:
    """Each warp takes the wavefronts that the rule for one warp says, with a cache or without."""
    offsets, active = arrays(given_warps, width)
    expected = [
        wavefronts([int(o) if a else None for o, a in zip(*warp, strict=True)], width, store=store)
        for warp in zip(offsets, active, strict=True)
    ]
    cache = PatternCache()
    for kept in (None, cache, cache):
        got = shared_wavefronts(offsets, active, width, store=store, cache=kept)
        assert got.tolist() == expected
    moved = shared_wavefronts(offsets + 3 * width, active, width, store=store, cache=cache)
    assert moved.tolist() == expected


@given(st.lists(warps, min_size=1, max_size=8), st.sampled_from([4, 16]))
def test_a_cache_never_changes_an_answer(calls: list[list[Warp]], width: int) -> None:
    """Whatever an instruction accessed before, its next access costs the same."""
    cache = PatternCache()
    for call in calls + calls[:1]:
        offsets, active = arrays(call, width)
        addresses = offsets.astype(np.uint64)
        for question in (shared_wavefronts, shared_conflict_ways):
            kept = question(offsets, active, width, store=False, cache=cache)
            assert kept.tolist() == question(offsets, active, width, store=False).tolist()
        kept = global_sectors(addresses, active, width, cache=cache)
        assert kept.tolist() == global_sectors(addresses, active, width).tolist()


@given(warps, st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(0, 64))
def test_sectors_are_distinct_pieces_of_32_bytes(
    given_warps: list[Warp], width: int, shift: int
) -> None:
    """A warp touches the sectors in which its active lanes' bytes lie, wherever it starts."""
    places, active = arrays(given_warps, width)
    addresses = (places + shift * width).astype(np.uint64) + np.uint64(0x7F0000000000)
    expected = [
        len({int(a) // 32 for a, flag in zip(*warp, strict=True) if flag})
        for warp in zip(addresses, active, strict=True)
    ]
    cache = PatternCache()
    for kept in (None, cache, cache):
        assert global_sectors(addresses, active, width, cache=kept).tolist() == expected


@pytest.mark.parametrize(
    ("step", "width", "ways"), [(4, 4, 1), (0, 4, 1), (8, 4, 2), (128, 4, 32), (16, 16, 1)]
)
def test_ways_are_the_words_that_one_bank_serves(step: int, width: int, ways: int) -> None:
    """A stride of two words is a two-way conflict, of a whole row one of 32 ways."""
    offsets = np.arange(32)[None] * step
    active = np.ones((1, 32), np.bool_)
    assert shared_conflict_ways(offsets, active, width, store=True).tolist() == [ways]


def test_a_load_that_may_not_merge_takes_as_long_as_a_store() -> None:
    """Lanes that read the same in pairs halve the passes only where merging is allowed."""
    offsets = np.arange(32)[None] // 2 * 16
    active = np.ones((1, 32), np.bool_)
    assert shared_wavefronts(offsets, active, 16, store=False).tolist() == [2]
    assert shared_wavefronts(offsets, active, 16, store=False, merge=False).tolist() == [4]
    assert shared_wavefronts(offsets, active, 16, store=True).tolist() == [4]


def test_narrow_accesses_count_as_words() -> None:
    """Four neighbouring bytes are one word of one bank."""
    offsets = np.arange(32)[None]
    active = np.ones((1, 32), np.bool_)
    assert shared_wavefronts(offsets, active, 1, store=False).tolist() == [1]
    assert shared_wavefronts(offsets * 256, active, 2, store=False).tolist() == [32]


def test_the_ideal_is_what_the_bytes_need() -> None:
    """Wavefronts of 128 bytes, sectors of 32 bytes, rounded up."""
    lanes = np.array([0, 1, 7, 32])
    for width in (4, 8, 16):
        expected = [ideal_wavefronts(int(count), width) for count in lanes]
        assert ideal_shared_wavefronts(lanes, width).tolist() == expected
    assert ideal_global_sectors(lanes, 4).tolist() == [0, 1, 1, 4]
    assert ideal_global_sectors(lanes, 16).tolist() == [0, 1, 4, 16]


# ---- copies and atomics


def test_lanes_of_an_atomic_never_share_a_pass() -> None:
    """A broadcast takes a pass for each lane, and a compare-and-swap twice that."""
    offsets, active = np.zeros((1, 32), np.int64), np.ones((1, 32), np.bool_)
    assert atomic_wavefronts(offsets, active, 4).tolist() == [32]
    assert atomic_wavefronts(offsets, active, 8, compare=True).tolist() == [64]
    assert atomic_wavefronts(np.arange(32)[None] * 8, active, 8).tolist() == [2]
    assert atomic_wavefronts(offsets, ~active, 4).tolist() == [0]


@pytest.mark.parametrize(
    ("source", "place", "sectors", "passes"),
    [
        (np.arange(32) * 16, np.arange(32) * 16, 16, 4),
        (np.arange(32) % 2 * 16 + np.arange(32) // 2 * 2048,
         np.arange(32) % 2 * 16 + np.arange(32) // 2 * 48, 24, 24),
        (np.arange(32) // 2 * 2048, np.arange(32) * 16, 32, 32),
        (np.arange(32) * 16, np.arange(32) * 16 + 16, 32, 12),
        (np.arange(32) * 16, np.arange(32) * 0, 1, 1),
    ],
)  # fmt: skip
def test_a_copy_around_l1_pays_for_where_its_sectors_go(
    source: NDArray[np.int64], place: NDArray[np.int64], sectors: int, passes: int
) -> None:
    """A sector that is parted among places in shared memory is moved for each of them."""
    addresses, offsets = (source[None] + 0x7F0000000000).astype(np.uint64), place[None]
    active = np.ones((1, 32), np.bool_)
    assert copy_sectors(addresses, offsets, active, 16, bypass=True).tolist() == [sectors]
    assert copy_wavefronts(addresses, offsets, active, 16, bypass=True).tolist() == [passes]
    moved = copied_lanes(offsets, active, bypass=True)
    assert moved.tolist() == [len(np.unique(place))]


@pytest.mark.parametrize(("width", "passes"), [(4, 1), (8, 2), (16, 4)])
def test_a_copy_through_l1_reads_and_writes_banks(width: int, passes: int) -> None:
    """A shifted copy is free of conflicts; a strided one has those of what it reads or writes."""
    lanes, active = np.arange(32)[None] * width, np.ones((1, 32), np.bool_)
    for source, place, expected in (
        (lanes, lanes + width, passes),
        (lanes * 2, lanes, 2 * passes),
        (lanes, lanes * 2, 2 * passes),
    ):
        addresses = source.astype(np.uint64)
        got = copy_wavefronts(addresses, place, active, width, bypass=False)
        assert got.tolist() == [expected]


@given(warps, warps, st.sampled_from([4, 8, 16]), st.booleans())
def test_copies_cost_the_same_with_a_cache(
    sources: list[Warp], places: list[Warp], width: int, bypass: bool
) -> None:
    """What an instruction copied before changes nothing, nor do the other warps of the call."""
    count = min(len(sources), len(places))
    offsets, active = arrays(places[:count], width)
    addresses = arrays(sources[:count], width)[0].astype(np.uint64)
    cache = PatternCache()
    for question in (copy_sectors, copy_wavefronts):
        alone = [
            int(question(addresses[i : i + 1], offsets[i : i + 1], active[i : i + 1], width,
                         bypass=bypass)[0])
            for i in range(count)
        ]  # fmt: skip
        for kept in (None, cache, cache):
            got = question(addresses, offsets, active, width, bypass=bypass, cache=kept)
            assert got.tolist() == alone


# ---- what an H200 counted


@lru_cache(maxsize=1)
def measured() -> dict[str, Any]:
    """The patterns and their counters."""
    data: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return data


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that measures, which asks the rules as well."""
    path = ROOT / "scripts" / "access_patterns.py"
    spec = importlib.util.spec_from_file_location("access_patterns", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", list(measured()["accesses"]))
def test_the_rules_give_what_an_h200_counted(name: str, script: ModuleType) -> None:
    """Every counter of every pattern is exact but those that the file marks as unexplained."""
    access = measured()["accesses"][name]
    patterns = [script.from_data(item) for item in measured()["patterns"][access["patterns"]]]
    masked = script.by_the_rules(access, patterns)
    whole = script.by_the_rules(access, patterns, every_lane_counts=True)
    every_lane = np.isin(np.arange(len(patterns)), access["all_lanes"])
    assert masked
    for metric, rule in masked.items():
        got = np.where(every_lane, whole[metric], rule)
        differs = np.flatnonzero(got != np.array(access["counters"][metric]))
        assert differs.tolist() == access["unexplained"][metric], metric


def test_little_is_unexplained() -> None:
    """Left over are the wavefronts of copies, and of loads that nearly merge.

    Of those the profiler's count is an estimate; how long they take is in test_shared_memory.py.
    """
    loads = {f"load_{space}_{width}" for space in ("shared", "generic") for width in (8, 16)}
    for name, access in measured()["accesses"].items():
        left = {metric for metric, patterns in access["unexplained"].items() if patterns}
        assert not left or name.startswith("copy") or name in loads, name
        assert left <= {WAVEFRONTS, f"{WAVEFRONTS}_ideal"}
        assert not access["all_lanes"] or name == "copy_cg_16"
