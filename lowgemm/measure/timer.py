"""Time callables on a stream with events: interleaved, warmed up, until the noise settles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lowgemm.errors import MeasurementError
from lowgemm.measure.statistics import Timing, relative_uncertainty, summarise
from lowgemm.runtime import Event, Stream

__all__ = ["TimerSettings", "measure"]


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """How long and how finely to measure.

    Parameters
    ----------
    warm_up_s
        Each candidate runs untimed for at least this long.
    min_samples, max_samples
        Bounds on the samples per candidate.
    max_seconds
        Sampling stops after this long, settled or not.
    max_uncertainty
        Sampling stops once every candidate's relative uncertainty is below this.
    sample_us
        Short launches are repeated back to back until a sample takes about this long: an event's
        resolution is about half a microsecond. Cold samples always hold one launch.
    """

    warm_up_s: float = 0.025
    min_samples: int = 10
    max_samples: int = 200
    max_seconds: float = 5.0
    max_uncertainty: float = 0.002
    sample_us: float = 500.0

    def __post_init__(self) -> None:
        if self.min_samples < 4 or self.max_samples < self.min_samples:
            raise MeasurementError(
                f"{self.min_samples} to {self.max_samples} samples",
                "take at least 4, and no upper bound below the lower one",
            )
        for name in ("warm_up_s", "max_seconds", "max_uncertainty", "sample_us"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise MeasurementError(f"{name} = {value}", "give a finite number, zero or more")


@dataclass(slots=True)
class _Candidate:
    launch: Callable[[], object]
    repeats: int
    samples_us: list[float] = field(default_factory=list)
    clocks_mhz: list[int] = field(default_factory=list)


def measure(
    candidates: Mapping[str, Callable[[], object]],
    *,
    stream: Stream,
    new_event: Callable[[], Event],
    flush: Callable[[], object] | None = None,
    read_clock_mhz: Callable[[], int | None] | None = None,
    settings: TimerSettings | None = None,
) -> dict[str, Timing]:
    """Time candidates against each other.

    Parameters
    ----------
    candidates
        Name to a callable that enqueues one launch on ``stream`` and returns at once.
    stream
        The stream on which the launches go.
    new_event
        Makes an event with timing.
    flush
        Enqueues the overwriting of the L2 cache on ``stream``. Given, every sample is cold; else
        each sample is taken hot, behind an untimed launch of the same candidate.
    read_clock_mhz
        Reads the SM clock; called while a sample runs, and kept for that sample's candidate.

    Returns
    -------
    dict
        A :class:`Timing` per candidate.

    Raises
    ------
    MeasurementError
        There is nothing to measure, or the events give no time.

    Notes
    -----
    The candidates take turns, one sample each a round, so that a drift of clock or temperature
    meets all of them alike. (Running all of one, then all of another has shown differences of 16 %
    that were not there.)
    """
    if not candidates:
        raise MeasurementError("nothing to measure", "hand in at least one candidate")
    limits = settings or TimerSettings()
    start, stop = new_event(), new_event()
    prepared = {
        name: _Candidate(launch, _warm_up(launch, stream, start, stop, limits, flush is None))
        for name, launch in candidates.items()
    }
    deadline = time.perf_counter() + limits.max_seconds
    settled = False
    for done in range(1, limits.max_samples + 1):
        for candidate in prepared.values():
            _sample(candidate, stream, start, stop, flush, read_clock_mhz)
        if done < limits.min_samples:
            continue
        settled = all(
            relative_uncertainty(c.samples_us) <= limits.max_uncertainty for c in prepared.values()
        )
        if settled or time.perf_counter() > deadline:
            break
    return {
        name: summarise(
            c.samples_us,
            launches_per_sample=c.repeats,
            cache="hot" if flush is None else "cold",
            settled=settled,
            clocks_mhz=c.clocks_mhz,
        )
        for name, c in prepared.items()
    }


def _warm_up(
    launch: Callable[[], object],
    stream: Stream,
    start: Event,
    stop: Event,
    limits: TimerSettings,
    hot: bool,
) -> int:
    """Run a candidate for the warm-up time; return how many launches make a sample."""
    begin = time.perf_counter()
    fastest_us = math.inf
    while True:
        stream.record(start)
        launch()
        stream.record(stop)
        stop.synchronize()
        fastest_us = min(fastest_us, stop.elapsed_us(start))
        if time.perf_counter() - begin >= limits.warm_up_s:
            break
    _check_time(fastest_us)
    return max(1, min(1000, math.ceil(limits.sample_us / fastest_us))) if hot else 1


def _sample(
    candidate: _Candidate,
    stream: Stream,
    start: Event,
    stop: Event,
    flush: Callable[[], object] | None,
    read_clock_mhz: Callable[[], int | None] | None,
) -> None:
    if flush is None:
        candidate.launch()
    else:
        flush()
    stream.record(start)
    for _ in range(candidate.repeats):
        candidate.launch()
    stream.record(stop)
    if read_clock_mhz is not None and (clock := read_clock_mhz()) is not None:
        candidate.clocks_mhz.append(clock)
    stop.synchronize()
    candidate.samples_us.append(_check_time(stop.elapsed_us(start)) / candidate.repeats)


def _check_time(time_us: float) -> float:
    if not 0 < time_us < math.inf:
        raise MeasurementError(
            f"a launch took {time_us} us by the events", "time on a device whose events do"
        )
    return time_us
