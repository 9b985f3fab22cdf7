"""The timer and its statistics, on a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fakes import TimedEvent, TimedStream

from lowgemm.errors import MeasurementError
from lowgemm.measure import (
    TimerSettings,
    Timing,
    differs,
    measure,
    median_clock_mhz,
    relative_uncertainty,
    summarise,
)


class Clock:
    """A device's time in microseconds, and what has happened."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.log: list[str] = []

    def work(self, name: str, time_us: Callable[[], float]) -> Callable[[], None]:
        """A launch that takes as long as ``time_us`` says."""

        def launch() -> None:
            self.log.append(name)
            self.now_us += time_us()

        return launch


QUICK = TimerSettings(warm_up_s=0.0, max_seconds=0.5)


def run(
    clock: Clock,
    candidates: dict[str, Callable[[], None]],
    *,
    flush: Callable[[], None] | None = None,
    settings: TimerSettings = QUICK,
    read_clock_mhz: Callable[[], int | None] | None = None,
) -> dict[str, Timing]:
    return measure(
        candidates,
        stream=TimedStream(),
        new_event=lambda: TimedEvent(clock),
        flush=flush,
        settings=settings,
        read_clock_mhz=read_clock_mhz,
    )


def test_the_median_is_the_time_of_one_launch() -> None:
    """Short launches are repeated within a sample; the result is per launch."""
    clock = Clock()
    timing = run(clock, {"k": clock.work("k", lambda: 7.0)})["k"]
    assert timing.median_us == pytest.approx(7.0)
    assert timing.launches_per_sample == 72  # the first whole number above 500 / 7
    assert timing.cache == "hot"
    assert timing.settled


def test_candidates_take_turns() -> None:
    """A drift of the clock meets all candidates alike: no candidate runs two samples in a row."""
    clock = Clock()
    slow = {name: clock.work(name, lambda: 1000.0) for name in "ab"}
    run(clock, slow)
    sampled = clock.log[2:]  # behind the warm-up
    assert sampled == ["a", "a", "b", "b"] * 10


def test_a_drift_of_the_clock_does_not_favour_the_first() -> None:
    """Two equal kernels on a GPU that slows down come out equal."""
    clock = Clock()

    def drifting() -> float:
        return 1000.0 * (1 + clock.now_us / 1e6)

    timings = run(clock, {name: clock.work(name, drifting) for name in "ab"})
    assert timings["a"].median_us == pytest.approx(timings["b"].median_us, rel=0.01)
    assert not differs(timings["a"], timings["b"])


def test_cold_samples_hold_one_launch_behind_a_flush() -> None:
    """The flush comes before each sample and its time is not counted."""
    clock = Clock()
    timing = run(
        clock,
        {"k": clock.work("k", lambda: 7.0)},
        flush=clock.work("flush", lambda: 90.0),
    )["k"]
    assert (timing.median_us, timing.launches_per_sample, timing.cache) == (7.0, 1, "cold")
    assert clock.log[1:] == ["flush", "k"] * 10


def test_noise_is_sampled_until_it_settles_or_time_is_up() -> None:
    """A noisy kernel gets more samples than a quiet one; what did not settle says so."""
    rng = random.Random(1)
    clock = Clock()
    noisy = run(clock, {"k": clock.work("k", lambda: rng.uniform(900, 1100))})["k"]
    assert noisy.samples > 10
    hopeless = run(
        clock,
        {"k": clock.work("k", lambda: rng.choice([500.0, 1500.0]))},
        settings=TimerSettings(warm_up_s=0.0, max_samples=20),
    )["k"]
    assert hopeless.samples == 20
    assert not hopeless.settled


def test_the_clock_is_read_while_samples_run() -> None:
    """The timing carries the median SM clock; where it cannot be read there is none."""
    clock = Clock()
    readings = iter([1980, 1980, 345] * 100)
    work = {"k": clock.work("k", lambda: 1000.0)}
    assert run(clock, work, read_clock_mhz=lambda: next(readings))["k"].clock_mhz == 1980
    assert run(clock, work, read_clock_mhz=lambda: None)["k"].clock_mhz is None


def test_each_timing_has_the_clock_of_its_own_samples() -> None:
    """A kernel that makes the GPU slow down does not lower the clock of the others."""
    clock = Clock()
    work = {name: clock.work(name, lambda: 1000.0) for name in ("light", "heavy")}
    clocks_mhz = {"light": 1980, "heavy": 1500}
    timings = run(clock, work, read_clock_mhz=lambda: clocks_mhz[clock.log[-1]])
    assert {name: timing.clock_mhz for name, timing in timings.items()} == clocks_mhz


def test_the_clock_of_several_is_their_median() -> None:
    """What cannot be read does not count, and nothing read is no clock."""
    assert median_clock_mhz([1500, None, 1980, 1900]) == 1900
    assert median_clock_mhz([None]) is None
    assert median_clock_mhz([]) is None


def test_nothing_is_measured_without_candidates_or_time() -> None:
    """No candidates, and events that give no time, are errors; never a rate of infinity."""
    clock = Clock()
    with pytest.raises(MeasurementError, match="nothing to measure"):
        run(clock, {})
    with pytest.raises(MeasurementError, match=r"took 0\.0 us"):
        run(clock, {"k": clock.work("k", lambda: 0.0)})


@pytest.mark.parametrize("time_us", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_no_sample(time_us: float) -> None:
    """An event that later gives no time ends the measurement instead of entering the median."""
    clock = Clock()
    good = iter([1000.0] * 6)
    with pytest.raises(MeasurementError, match="by the events"):
        run(clock, {"k": clock.work("k", lambda: next(good, time_us))})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_settings_are_finite(value: float) -> None:
    """A time limit that is no number is refused with its name."""
    with pytest.raises(MeasurementError, match="max_seconds"):
        TimerSettings(max_seconds=value)


def test_settings_that_cannot_settle_are_refused() -> None:
    """Fewer than four samples have no quartiles."""
    with pytest.raises(MeasurementError, match="3 to 200"):
        TimerSettings(min_samples=3)


def test_overlapping_quartiles_are_no_difference() -> None:
    """A winner is called only where the interquartile ranges lie apart."""
    one = summarise([10, 11, 12, 13], launches_per_sample=1, cache="hot", settled=True)
    near = summarise([11, 12, 13, 14], launches_per_sample=1, cache="hot", settled=True)
    far = summarise([20, 21, 22, 23], launches_per_sample=1, cache="hot", settled=True)
    assert not differs(one, near)
    assert differs(one, far)


def test_the_noise_estimate_matches_a_normal_distribution() -> None:
    """For normal samples the estimate is the median's true standard error."""
    rng = random.Random(2)
    samples = [rng.gauss(100, 5) for _ in range(20000)]
    true = 1.2533 * 5 / 100 / 20000**0.5
    assert relative_uncertainty(samples) == pytest.approx(true, rel=0.05)
    assert relative_uncertainty(samples[:3]) == float("inf")
