"""Wavefronts of shared-memory accesses: the documented and measured rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware.shared_memory import ideal_wavefronts, load_cycles, wavefronts

MEASURED = Path(__file__).parents[1] / "sass_reports" / "timings" / "h200_load_cycles.json"


def lanes(address: Callable[[int], int]) -> list[int | None]:
    """The addresses of 32 lanes."""
    return [address(lane) for lane in range(32)]


@pytest.mark.parametrize(
    ("address", "width", "store", "expected"),
    [
        (lambda n: 4 * n, 4, False, 1),
        (lambda n: 0, 4, False, 1),
        (lambda n: 8 * n, 4, False, 2),
        (lambda n: 128 * n, 4, False, 32),
        (lambda n: 132 * n, 4, False, 1),
        (lambda n: 8 * n, 8, False, 2),
        (lambda n: 16 * n, 16, False, 4),
        (lambda n: 16 * (n // 2), 16, False, 2),
        (lambda n: 16 * (n // 4 * 2 + n % 2), 16, False, 2),
        (lambda n: 16 * (n // 2), 16, True, 4),
        (lambda n: 8 * (n // 2), 8, False, 1),
        (lambda n: 16 * (n // 8), 16, False, 2),
    ],
)
def test_the_rules(address: Callable[[int], int], width: int, store: bool, expected: int) -> None:
    """Contiguous, broadcast, strided, padded and merging accesses take what the hardware takes."""
    assert wavefronts(lanes(address), width, store=store) == expected


def test_inactive_lanes_cost_nothing() -> None:
    """No active lane, no pass; one lane, one pass."""
    assert wavefronts([None] * 32) == 0
    assert wavefronts([None] * 31 + [4], 4) == 1
    assert wavefronts([None] * 31 + [16], 16) == 1


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([4, 8, 16]))
def test_a_load_never_takes_more_than_a_store(places: list[int], width: int) -> None:
    """Merging only helps, and no access takes fewer passes than its distinct words need."""
    addresses: list[int | None] = [width * place for place in places]
    load, store = (wavefronts(addresses, width, store=kind) for kind in (False, True))
    words = {(width * place + 4 * i) // 4 for place in places for i in range(width // 4)}
    assert -(-len(words) // 32) <= load <= store <= 32
    assert ideal_wavefronts(32, width) == width // 4


@pytest.mark.parametrize(
    ("addresses", "width"),
    [([0] * 31, 4), ([0] * 32, 3), ([2] * 32, 4), ([-4] * 32, 4), ([4] * 32, 16)],
)
def test_what_no_warp_can_do_is_refused(addresses: list[int | None], width: int) -> None:
    """Too few lanes, an odd width, a misaligned or negative address."""
    with pytest.raises(ArgumentValueError):
        wavefronts(addresses, width)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_loads_take_the_cycles_that_an_h200_takes(width: int) -> None:
    """Of each pattern measured, with inactive lanes or without, the cycles are the rule's."""
    data = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert len(data["patterns"]) == len(data["cycles"][str(width)]) > 900
    for pattern, measured in zip(data["patterns"], data["cycles"][str(width)], strict=True):
        addresses: list[int | None] = [None] * 32
        for lane in pattern["active"]:
            addresses[lane] = width * pattern["places"][lane]
        cycles = load_cycles(addresses, width)
        # A warp in 32 may begin before the clock is read; the barriers cost a little.
        assert abs(measured - cycles) < 0.05, pattern
