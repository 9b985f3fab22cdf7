"""What a bench says of the clock, on timings that the test makes up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import lowgemm.studies.lab.bench as bench_module
from lowgemm.hardware import gpu_record
from lowgemm.measure import Timing
from lowgemm.studies.lab.bench import Bench

TIMING = Timing(10.0, 9.0, 11.0, 10, 1, "hot", True, 1980)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench on a GPU that can only tell its highest clock."""
    monkeypatch.setattr(bench_module, "SmClock", lambda gpu: SimpleNamespace(read_mhz=lambda: None))
    gpu: Any = SimpleNamespace(
        stream=lambda: None, event=None, attributes=SimpleNamespace(sm_clock_khz=1_980_000)
    )
    return Bench(gpu, gpu_record("h200"), {})


def test_the_clock_is_the_median_of_what_was_timed_last(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first launch's nor the slowest's; where none was read it stays as it was."""
    clocks = {"a": 1980, "b": 1500, "c": 1700, "d": None}
    timings = {name: replace(TIMING, clock_mhz=clock) for name, clock in clocks.items()}
    monkeypatch.setattr(bench_module, "measure", lambda *_, **__: timings)
    assert bench.clock_mhz == 1980
    bench.time({})
    assert bench.clock_mhz == 1700
    timings = {"d": timings["d"]}
    bench.time({})
    assert bench.clock_mhz == 1700


def test_cycles_are_by_the_clock_of_the_launch(bench: Bench) -> None:
    """The bench's clock stands in only where a launch has none."""
    assert bench.cycles(replace(TIMING, clock_mhz=1500)) == 10 * 1500
    assert bench.cycles(replace(TIMING, clock_mhz=None)) == 10 * 1980
