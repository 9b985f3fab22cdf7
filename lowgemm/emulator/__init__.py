"""Run the machine code of a cubin on the CPU: results to the last bit, counts, and what goes wrong.

:class:`Emulator` is a device as :class:`lowgemm.device.Gpu` is, behind the same interface.
"""

from __future__ import annotations

from lowgemm.emulator.counts import Counts, ExecutedTotals
from lowgemm.emulator.device import ARCHITECTURES, Emulator, EmulatorKernel, EmulatorModule
from lowgemm.emulator.findings import Finding, FindingKind
from lowgemm.emulator.worst import WorstAccess

__all__ = [
    "ARCHITECTURES",
    "Counts",
    "Emulator",
    "EmulatorKernel",
    "EmulatorModule",
    "ExecutedTotals",
    "Finding",
    "FindingKind",
    "WorstAccess",
]
