"""The counters of the ladder that Nsight Compute gave on an H200, kept as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lowgemm.errors import SourceNotFoundError

__all__ = ["LadderCounters", "ladder_counters", "timings_directory"]

_FILE = "h200_counters_4096.json"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@dataclass(frozen=True, slots=True)
class LadderCounters:
    """Counters by rung and metric, one launch each at ``problem``, with where they come from."""

    gpu: str
    driver: str
    nvrtc: str
    date: str
    command: str
    rungs: Mapping[str, Mapping[str, float]]

    def stall(self, rung: str, reason: str) -> float | None:
        """Warps that wait for a reason, for each instruction issued; None where it was not read."""
        return self.rungs.get(rung, {}).get(_STALL.format(reason))

    @property
    def provenance(self) -> str:
        """GPU, driver, compiler, date and command in a sentence."""
        return (
            f"measured: {self.gpu}, driver {self.driver}, NVRTC {self.nvrtc}, {self.date}, "
            f"{self.command}"
        )


def timings_directory() -> Path:
    """The folder of measured data: in an installed wheel, or in a checkout.

    Raises
    ------
    SourceNotFoundError
        Neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "timings", package.parent / "sass_reports" / "timings"):
        if (candidate / _FILE).is_file():
            return candidate
    raise SourceNotFoundError(
        f"no measured data beside {package}", "reinstall lowgemm; its wheel carries them"
    )


@lru_cache(maxsize=1)
def ladder_counters() -> LadderCounters:
    """Read the committed counters.

    Raises
    ------
    SourceNotFoundError
        They are not there.
    """
    data = json.loads((timings_directory() / _FILE).read_text(encoding="utf-8"))
    origin = data["provenance"]
    return LadderCounters(
        gpu=origin["gpu"],
        driver=origin["driver"],
        nvrtc=origin["nvrtc"],
        date=origin["date"],
        command=origin["command"],
        rungs=data["rungs"],
    )
