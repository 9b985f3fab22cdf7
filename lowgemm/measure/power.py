"""The power while launches run back to back, from a counter that moves in steps."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lowgemm.errors import UnmeasurableError
from lowgemm.measure.statistics import median_clock_mhz
from lowgemm.runtime import Event, Stream

__all__ = ["PowerMeter", "PowerRun", "measure_power", "power_of"]


@dataclass(frozen=True, slots=True)
class PowerMeter:
    """Where readings come from: the energy so far, the power now, the SM clock; None if unknown."""

    read_joules: Callable[[], float | None]
    read_watts: Callable[[], float | None]
    read_clock_mhz: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True)
class PowerRun:
    """Launches back to back: how many, the time of each, the power meanwhile."""

    launches: int
    time_us: float
    power_w: float
    clock_mhz: int | None

    @property
    def joules(self) -> float:
        """The energy of one launch."""
        return self.power_w * self.time_us / 1e6


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    joules: float | None
    watts: float | None


def measure_power(
    launch: Callable[[], object],
    *,
    stream: Stream,
    new_event: Callable[[], Event],
    meter: PowerMeter,
    seconds: float = 1.5,
    warm_up_s: float = 0.4,
    chunk_us: float = 10_000.0,
    now_s: Callable[[], float] = time.perf_counter,
) -> PowerRun:
    """Run a launch back to back and measure what the GPU takes.

    Parameters
    ----------
    launch
        Enqueues one launch on ``stream`` and returns at once.
    stream, new_event
        As for :func:`lowgemm.measure.measure`.
    meter
        The readings.
    seconds, warm_up_s
        How long to measure, and to run before that.
    chunk_us
        Readings are taken about that far apart, while the next chunk of launches runs.

    Raises
    ------
    UnmeasurableError
        There are no readings.
    """
    events = [new_event() for _ in range(3)]
    chunk = _launches_per_chunk(launch, stream, events[0], events[1], chunk_us)
    first, *ends = events
    begin = now_s()
    _enqueue(launch, chunk, stream, ends[0])
    readings: list[_Reading] = []
    clocks: list[int] = []
    done, counting = 0, False
    for index in itertools.count(1):
        # The next chunk is in the stream before this one's end is waited for: no gap.
        if not counting and now_s() - begin >= warm_up_s:
            stream.record(first)
            counting, begin = True, now_s()
        _enqueue(launch, chunk, stream, ends[index % 2])
        done += chunk if counting else 0
        ends[(index - 1) % 2].synchronize()
        if not counting:
            continue
        readings.append(_Reading(now_s(), meter.read_joules(), meter.read_watts()))
        if (clock := meter.read_clock_mhz()) is not None:
            clocks.append(clock)
        if now_s() - begin >= seconds:
            break
    last = ends[index % 2]
    last.synchronize()
    power_w = _power(readings)
    return PowerRun(done, last.elapsed_us(first) / done, power_w, median_clock_mhz(clocks))


def power_of(
    meter: PowerMeter,
    seconds: float = 0.6,
    *,
    now_s: Callable[[], float] = time.perf_counter,
    sleep_s: Callable[[float], None] = time.sleep,
) -> float:
    """The power while nothing is launched.

    Raises
    ------
    UnmeasurableError
        There are no readings.
    """
    begin = now_s()
    readings = []
    while now_s() - begin < seconds:
        readings.append(_Reading(now_s(), meter.read_joules(), meter.read_watts()))
        sleep_s(0.01)
    return _power(readings)


def _launches_per_chunk(
    launch: Callable[[], object], stream: Stream, start: Event, stop: Event, chunk_us: float
) -> int:
    launch()
    stream.record(start)
    launch()
    stream.record(stop)
    stop.synchronize()
    return max(1, min(10_000, math.ceil(chunk_us / max(stop.elapsed_us(start), 1.0))))


def _enqueue(launch: Callable[[], object], chunk: int, stream: Stream, end: Event) -> None:
    for _ in range(chunk):
        launch()
    stream.record(end)


def _power(readings: Sequence[_Reading]) -> float:
    """From the counter's first step to its last; without a counter the last reading of power.

    Between its steps the counter stands still, so only the moments of the steps say anything.
    """
    steps = [
        (reading.at_s, reading.joules)
        for earlier, reading in itertools.pairwise(readings)
        if reading.joules is not None and reading.joules != earlier.joules
    ]
    if len(steps) >= 2:
        (begin_s, begin_j), (end_s, end_j) = steps[0], steps[-1]
        return (end_j - begin_j) / (end_s - begin_s)
    watts = [reading.watts for reading in readings if reading.watts is not None]
    if not watts:
        raise UnmeasurableError(
            "NVML tells neither energy nor power of this GPU",
            "run where libnvidia-ml is there and the GPU is no virtual one",
        )
    return watts[-1]
