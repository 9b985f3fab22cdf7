"""Machine code made better: checked without a run, taken apart, and written anew."""

from __future__ import annotations

from lowgemm.rewrite.hazards import Hazard, HazardKind, find_hazards

__all__ = ["Hazard", "HazardKind", "find_hazards"]
