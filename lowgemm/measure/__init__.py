"""Timing: it takes callables and knows no kernel."""

from lowgemm.measure.statistics import Timing, differs, relative_uncertainty, summarise
from lowgemm.measure.timer import TimerSettings, measure

__all__ = [
    "TimerSettings",
    "Timing",
    "differs",
    "measure",
    "relative_uncertainty",
    "summarise",
]
