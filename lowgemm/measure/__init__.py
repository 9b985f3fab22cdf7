"""Timing and power: it takes callables and knows no kernel."""

from lowgemm.measure.power import PowerMeter, PowerRun, measure_power, power_of
from lowgemm.measure.statistics import (
    Timing,
    differs,
    median_clock_mhz,
    relative_uncertainty,
    summarise,
)
from lowgemm.measure.timer import TimerSettings, measure

__all__ = [
    "PowerMeter",
    "PowerRun",
    "TimerSettings",
    "Timing",
    "differs",
    "measure",
    "measure_power",
    "median_clock_mhz",
    "power_of",
    "relative_uncertainty",
    "summarise",
]
