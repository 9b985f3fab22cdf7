"""Samples of a time to a result: median, quartiles, and whether it has settled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Timing", "differs", "median_clock_mhz", "relative_uncertainty", "summarise"]


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one launch.

    ``cache`` is ``"hot"`` (back-to-back launches) or ``"cold"`` (the L2 overwritten before each).
    ``settled`` tells whether the noise estimate fell below the limit before the time was up.
    ``clock_mhz`` is the median SM clock seen while these samples ran, None where it is not
    readable.
    """

    median_us: float
    q1_us: float
    q3_us: float
    samples: int
    launches_per_sample: int
    cache: str
    settled: bool
    clock_mhz: int | None = None

    @property
    def relative_uncertainty(self) -> float:
        """An estimate of the median's relative standard error."""
        return _uncertainty(self.q1_us, self.median_us, self.q3_us, self.samples)

    def per(self, parts: int) -> Timing:
        """The time of one of so many equal launches that were measured as one."""
        return replace(
            self,
            median_us=self.median_us / parts,
            q1_us=self.q1_us / parts,
            q3_us=self.q3_us / parts,
            launches_per_sample=self.launches_per_sample * parts,
        )


def relative_uncertainty(samples: Sequence[float]) -> float:
    """Estimate the relative standard error of the samples' median; infinite below 4 samples."""
    if len(samples) < 4:
        return float("inf")
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return _uncertainty(q1, median, q3, len(samples))


def _uncertainty(q1: float, median: float, q3: float, samples: int) -> float:
    """From the quartiles, which the few long samples that every GPU shows hardly move.

    A normal distribution's interquartile range is 1.349 deviations wide, and its median's standard
    error 1.253 times its mean's.
    """
    if not median:
        return float("inf")
    return (q3 - q1) / 1.349 * 1.253 / median / math.sqrt(samples)


def summarise(
    samples_us: Sequence[float],
    *,
    launches_per_sample: int,
    cache: str,
    settled: bool,
    clocks_mhz: Sequence[int] = (),
) -> Timing:
    """Turn the samples (microseconds per launch, at least two) into a :class:`Timing`."""
    q1, median, q3 = statistics.quantiles(samples_us, n=4, method="inclusive")
    clock = median_clock_mhz(clocks_mhz)
    return Timing(median, q1, q3, len(samples_us), launches_per_sample, cache, settled, clock)


def median_clock_mhz(clocks_mhz: Iterable[int | None]) -> int | None:
    """The median of the clocks that could be read; None where none could."""
    known = [clock for clock in clocks_mhz if clock is not None]
    return round(statistics.median(known)) if known else None


def differs(one: Timing, other: Timing) -> bool:
    """Whether two timings differ: their interquartile ranges do not overlap."""
    return one.q3_us < other.q1_us or other.q3_us < one.q1_us
