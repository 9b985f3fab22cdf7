"""Machine code made better: checked without a run, taken apart, and written anew."""

from __future__ import annotations

from lowgemm.rewrite.cost import LoopCost, loop_cost
from lowgemm.rewrite.equivalence import find_difference
from lowgemm.rewrite.hazards import Hazard, HazardKind, find_hazards
from lowgemm.rewrite.rewriter import RewrittenKernel, is_enabled, rewrite_kernel
from lowgemm.rewrite.verification import verify_on

__all__ = [
    "Hazard",
    "HazardKind",
    "LoopCost",
    "RewrittenKernel",
    "find_difference",
    "find_hazards",
    "is_enabled",
    "loop_cost",
    "rewrite_kernel",
    "verify_on",
]
