"""Judge machine code without running it: instruction mix, loops, register banks."""

from lowgemm.analysis.banks import conflict_cycles
from lowgemm.analysis.sass import LoopReport, SassReport, analyse_build, analyse_kernel, count_in

__all__ = [
    "LoopReport",
    "SassReport",
    "analyse_build",
    "analyse_kernel",
    "conflict_cycles",
    "count_in",
]
